//! What is measured, and how one round of each goes.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::link::{End, INTERFACE, SERVER_ADDRESS};
use crate::load::{
    ClientCommand, Load, aoe_client, iscsi_perf, line, loaded, number, read_aoe, read_iscsi_perf, read_sanwire,
    run_client, sanwire_bench, words,
};
use crate::process::{Host, Running};
use crate::rawlink::RawLink;
use crate::sample::Sample;
use crate::servers::{AOE_DISK, TGT_TARGET, Wire};

/// HyperSCSI's part of the packets of a 4 KiB read is about this long; the ping's answer is as long as them.
const READ_ANSWER_BYTES: u32 = 4096 + 48;

/// One thing to measure at one MTU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// Full frames one way.
    RawStream,
    /// One question, the frames of a 4 KiB answer; sleeping at once, or watching the ring first.
    RawPing {
        spin_us: u64,
    },
    Sanwire {
        wire: Wire,
        volume: &'static str,
        load: Load,
    },
    Vblade {
        load: Load,
    },
    Tgt {
        load: Load,
    },
}

/// Everything of one MTU, in the order of a round. `is_quick` leaves out what no target speaks of.
pub(crate) fn jobs(mtu_bytes: u32, is_quick: bool, sequential_depth: u16) -> Vec<Job> {
    let small = |depth| Load::random_read(4096, depth);
    let large = |is_write| Load::sequential(512 << 10, sequential_depth, is_write);
    let mut jobs = vec![Job::RawStream];
    for load in [large(false), large(true), small(1), small(32)] {
        jobs.push(Job::Sanwire { wire: Wire::Ethernet, volume: "ram", load });
    }
    jobs.push(Job::RawPing { spin_us: 0 });
    jobs.push(Job::RawPing { spin_us: 20 });
    for load in [large(false), large(true), small(1), small(32)] {
        if !is_quick || load == small(32) {
            jobs.push(Job::Sanwire { wire: Wire::Ethernet, volume: "tmpfs", load });
        }
    }
    // As many sectors as a frame takes, up to the 4 KiB of the others.
    let frame_bytes = (mtu_bytes - 36) / 512 * 512;
    for depth in [1, 32] {
        jobs.push(Job::Vblade { load: Load::random_read(frame_bytes.min(4096), depth) });
    }
    for is_write in [false, true] {
        if !is_quick {
            jobs.push(Job::Vblade { load: Load::sequential(frame_bytes, 32, is_write) });
        }
    }
    for load in [large(false), large(true), small(1), small(32)] {
        jobs.push(Job::Sanwire { wire: Wire::Ip, volume: "ram", load });
    }
    for load in [small(1), small(32), large(false)] {
        if !is_quick || load == small(32) {
            jobs.push(Job::Tgt { load });
        }
    }
    jobs
}

/// The servers of a link, and what is needed to put load on them.
#[derive(Debug)]
pub(crate) struct Bed<'a> {
    pub(crate) host: Host<'a>,
    pub(crate) sanwire: Running,
    pub(crate) vblade: Option<Running>,
    pub(crate) tgt: Option<Running>,
    /// The path of `sanwire`, of `rawlink` and of this program.
    pub(crate) programs: [String; 3],
    pub(crate) raw_link: RawLink,
    pub(crate) client_key: String,
    pub(crate) mtu_bytes: u32,
    pub(crate) seconds: f64,
}

impl Job {
    /// Who, on what store.
    pub(crate) fn contender(&self) -> String {
        match self {
            Job::RawStream | Job::RawPing { .. } => "raw link".into(),
            Job::Sanwire { wire, volume, .. } => format!("{} {volume}", wire.name()),
            Job::Vblade { .. } => "vblade tmpfs".into(),
            Job::Tgt { .. } => "tgt tmpfs".into(),
        }
    }

    /// What.
    pub(crate) fn load(&self) -> String {
        match self {
            Job::RawStream => "one way, full frames".into(),
            Job::RawPing { spin_us: 0 } => "round trip, 4K answer, blocking".into(),
            Job::RawPing { spin_us } => format!("round trip, 4K answer, {spin_us} us spin"),
            Job::Sanwire { load, .. } | Job::Vblade { load } | Job::Tgt { load } => load.name(),
        }
    }

    /// The client's command, as a shell would take it.
    pub(crate) fn command(&self, bed: &Bed) -> String {
        line(&self.client(bed))
    }

    /// Measures once. Nothing when the contender is not there.
    ///
    /// # Errors
    /// When a program fails.
    pub(crate) fn measure(&self, bed: &Bed) -> Result<Option<Sample>> {
        let (host, client) = (&bed.host, &self.client(bed));
        match self {
            Job::RawStream => bed.raw_link.measure(host, client).map(Some),
            Job::RawPing { spin_us } => raw_ping(bed, *spin_us, client).map(Some),
            Job::Sanwire { .. } => loaded(host, &bed.sanwire, client, read_sanwire).map(Some),
            Job::Vblade { .. } => bed.vblade.as_ref().map(|server| loaded(host, server, client, read_aoe)).transpose(),
            Job::Tgt { load } => {
                let read = |text: &str| read_iscsi_perf(text, load);
                bed.tgt.as_ref().map(|server| loaded(host, server, client, read)).transpose()
            }
        }
    }

    fn client(&self, bed: &Bed) -> (String, Vec<String>) {
        let [sanwire, _, this] = &bed.programs;
        let seconds = bed.seconds;
        match self {
            Job::RawStream => bed.raw_link.sender(false),
            Job::RawPing { spin_us } => {
                let line = format!(
                    "ping {INTERFACE} {} --answer-bytes {READ_ANSWER_BYTES} --spin-us {spin_us} --seconds {seconds}",
                    bed.raw_link.server_mac
                );
                (this.clone(), words(&line))
            }
            Job::Sanwire { wire, volume, load } => {
                sanwire_bench(sanwire, load, seconds, &wire.url(volume), &bed.client_key, "")
            }
            Job::Vblade { load } => aoe_client(this, load, seconds, INTERFACE, AOE_DISK),
            Job::Tgt { load } => iscsi_perf(load, seconds, &format!("iscsi://{SERVER_ADDRESS}/{TGT_TARGET}/1")),
        }
    }
}

fn raw_ping(bed: &Bed, spin_us: u64, command: &ClientCommand) -> Result<Sample> {
    let [_, _, this] = &bed.programs;
    let _pong = bed.host.start(End::Server, this, &["pong", INTERFACE, "--spin-us", &spin_us.to_string()])?;
    std::thread::sleep(Duration::from_millis(100));
    let json: Value = serde_json::from_str(&run_client(&bed.host, command)?.output)?;
    let number = |name| number(&json, name);
    Ok(Sample { iops: Some(number("iops")?), latency_p50_us: Some(number("latency_p50_us")?), ..Sample::default() })
}
