//! What is measured, and how one round of each goes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::link::{End, INTERFACE, SERVER_ADDRESS};
use crate::process::{Finished, Host, Running};
use crate::sample::Sample;
use crate::servers::{AOE_DISK, ISCSI_URL, SERVER_NAME, VOLUME_BYTES};

const MIB: f64 = 1_048_576.0;
/// HyperSCSI's part of the packets of a 4 KiB read is about this long; the ping's answer is as long as them.
const READ_ANSWER_BYTES: u32 = 4096 + 48;

/// The order and the size of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) block_bytes: u32,
    pub(crate) depth: u16,
    pub(crate) is_random: bool,
    pub(crate) is_write: bool,
}

impl Load {
    const fn random_read(block_bytes: u32, depth: u16) -> Self {
        Load { block_bytes, depth, is_random: true, is_write: false }
    }

    const fn sequential(block_bytes: u32, depth: u16, is_write: bool) -> Self {
        Load { block_bytes, depth, is_random: false, is_write }
    }

    pub(crate) fn name(&self) -> String {
        let size = match self.block_bytes {
            whole if whole.is_multiple_of(1024) => format!("{}K", whole / 1024),
            odd => format!("{odd}B"),
        };
        let order = if self.is_random { "random" } else { "sequential" };
        let direction = if self.is_write { "write" } else { "read" };
        format!("{size} {order} {direction} qd{}", self.depth)
    }
}

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

/// A wire of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Ethernet,
    Ip,
}

impl Wire {
    fn url(self, volume: &str) -> String {
        match self {
            Wire::Ethernet => format!("hs+eth://{INTERFACE}/{SERVER_NAME}/{volume}"),
            Wire::Ip => format!("hs+ip://{SERVER_ADDRESS}/{volume}"),
        }
    }
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
    pub(crate) server_mac: String,
    pub(crate) client_key: String,
    pub(crate) mtu_bytes: u32,
    pub(crate) seconds: f64,
}

impl Job {
    /// Who, on what store.
    pub(crate) fn contender(&self) -> String {
        match self {
            Job::RawStream | Job::RawPing { .. } => "raw link".into(),
            Job::Sanwire { wire: Wire::Ethernet, volume, .. } => format!("HS/eth {volume}"),
            Job::Sanwire { wire: Wire::Ip, volume, .. } => format!("HS/IP {volume}"),
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
        let (program, arguments) = self.client(bed);
        format!("{program} {}", arguments.join(" "))
    }

    /// Measures once. Nothing when the contender is not there.
    ///
    /// # Errors
    /// When a program fails.
    pub(crate) fn measure(&self, bed: &Bed) -> Result<Option<Sample>> {
        match self {
            Job::RawStream => raw_stream(bed, &self.client(bed)).map(Some),
            Job::RawPing { spin_us } => raw_ping(bed, *spin_us, &self.client(bed)).map(Some),
            Job::Sanwire { .. } => loaded(bed, Some(&bed.sanwire), &self.client(bed), read_sanwire),
            Job::Vblade { .. } => loaded(bed, bed.vblade.as_ref(), &self.client(bed), read_aoe),
            Job::Tgt { load } => loaded(bed, bed.tgt.as_ref(), &self.client(bed), |text| read_iscsi_perf(text, load)),
        }
    }

    fn client(&self, bed: &Bed) -> (String, Vec<String>) {
        let [sanwire, rawlink, this] = &bed.programs;
        let seconds = bed.seconds;
        let words = |line: String| line.split(' ').map(Into::into).collect();
        match self {
            Job::RawStream => {
                let line = format!("send {INTERFACE} {} {} {}", bed.server_mac, bed.mtu_bytes, seconds + 0.4);
                (rawlink.clone(), words(line))
            }
            Job::RawPing { spin_us } => {
                let line = format!(
                    "ping {INTERFACE} {} --answer-bytes {READ_ANSWER_BYTES} --spin-us {spin_us} --seconds {seconds}",
                    bed.server_mac
                );
                (this.clone(), words(line))
            }
            Job::Sanwire { wire, volume, load } => {
                let (url, key) = (wire.url(volume), &bed.client_key);
                let pattern = if load.is_random { "random" } else { "sequential" };
                let mut line = format!(
                    "bench {url} --json --block {} --depth {} --pattern {pattern} --time {seconds} --key-file {key}",
                    load.block_bytes, load.depth
                );
                if load.is_write {
                    line += " --reads 0 --overwrite";
                }
                (sanwire.clone(), words(line))
            }
            Job::Vblade { load } => {
                let [shelf, slot] = AOE_DISK;
                let pattern = if load.is_random { "random" } else { "sequential" };
                let mut line = format!(
                    "aoe {INTERFACE} {shelf} {slot} --sectors {} --depth {} --pattern {pattern} \
                     --size-bytes {VOLUME_BYTES} --seconds {seconds}",
                    load.block_bytes / 512,
                    load.depth
                );
                if load.is_write {
                    line += " --write";
                }
                (this.clone(), words(line))
            }
            Job::Tgt { load } => {
                let whole_seconds = seconds.ceil();
                let random = if load.is_random { "-r " } else { "" };
                let blocks = load.block_bytes / 512;
                let line = format!("-m {} -b {blocks} -t {whole_seconds} {random}{ISCSI_URL}", load.depth);
                ("iscsi-perf".into(), words(line))
            }
        }
    }
}

/// Writes the RAM volume once, so that what is read later are its own pages.
///
/// # Errors
/// When the server does not take it.
pub(crate) fn fill(bed: &Bed) -> Result<()> {
    let load = Load::sequential(512 << 10, 8, true);
    let job = Job::Sanwire { wire: Wire::Ethernet, volume: "ram", load };
    run_client(bed, &job.client(bed)).map(drop)
}

type ClientCommand = (String, Vec<String>);

fn run_client(bed: &Bed, (program, arguments): &ClientCommand) -> Result<Finished> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    bed.host.run(End::Client, program, &arguments)
}

/// The receiver counts; the sender starts a little later and ends a little later.
fn raw_stream(bed: &Bed, command: &ClientCommand) -> Result<Sample> {
    let [_, rawlink, _] = &bed.programs;
    let seconds = bed.seconds.to_string();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| bed.host.run(End::Server, rawlink, &["receive", INTERFACE, &seconds]));
        std::thread::sleep(Duration::from_millis(150));
        let sent = run_client(bed, command);
        let Ok(received) = receiver.join() else { bail!("the receiver's thread panicked") };
        let (sent, received) = (sent?, received?);
        let json: Value = serde_json::from_str(&received.output)?;
        let packets_per_s = number(&json, "packets_per_s")?;
        let count = number(&json, "packets")?.max(1.0);
        Ok(Sample {
            iops: Some(packets_per_s),
            mib_per_s: Some(packets_per_s * f64::from(bed.mtu_bytes) / MIB),
            server_cpu_us: Some(received.cpu.as_secs_f64() * 1e6 / count),
            client_cpu_us: Some(sent.cpu.as_secs_f64() * 1e6 / count),
            ..Sample::default()
        })
    })
}

fn raw_ping(bed: &Bed, spin_us: u64, command: &ClientCommand) -> Result<Sample> {
    let [_, _, this] = &bed.programs;
    let _pong = bed.host.start(End::Server, this, &["pong", INTERFACE, "--spin-us", &spin_us.to_string()])?;
    std::thread::sleep(Duration::from_millis(100));
    let json: Value = serde_json::from_str(&run_client(bed, command)?.output)?;
    let number = |name| number(&json, name);
    Ok(Sample { iops: Some(number("iops")?), latency_p50_us: Some(number("latency_p50_us")?), ..Sample::default() })
}

/// What a client says: operations done, and the sample without processor times.
type Read = Result<(f64, Sample)>;

fn loaded(
    bed: &Bed,
    server: Option<&Running>,
    command: &ClientCommand,
    read: impl FnOnce(&str) -> Read,
) -> Result<Option<Sample>> {
    let Some(server) = server else { return Ok(None) };
    let (before, start) = (server.cpu()?, Instant::now());
    let client = run_client(bed, command)?;
    let (cpu, elapsed) = (server.cpu()?.saturating_sub(before), start.elapsed());
    let (operations, mut sample) =
        read(&client.output).with_context(|| format!("after {elapsed:?}: {}", client.output))?;
    sample.server_cpu_us = Some(cpu.as_secs_f64() * 1e6 / operations.max(1.0));
    sample.client_cpu_us = Some(client.cpu.as_secs_f64() * 1e6 / operations.max(1.0));
    Ok(Some(sample))
}

fn read_sanwire(text: &str) -> Read {
    let json: Value = serde_json::from_str(text)?;
    let operations = number(&json, "reads")? + number(&json, "writes")?;
    let sample = Sample {
        iops: Some(number(&json, "iops")?),
        mib_per_s: Some(number(&json, "bytes_per_second")? / MIB),
        latency_p50_us: Some(number(&json["latency_us"], "p50")?),
        ..Sample::default()
    };
    Ok((operations, sample))
}

fn read_aoe(text: &str) -> Read {
    let json: Value = serde_json::from_str(text)?;
    let sample = Sample {
        iops: Some(number(&json, "iops")?),
        mib_per_s: Some(number(&json, "mib_per_s")?),
        latency_p50_us: Some(number(&json, "latency_p50_us")?),
        ..Sample::default()
    };
    Ok((number(&json, "frames")?, sample))
}

/// `iscsi-perf` writes over its own line and tells whole seconds: the last average counts.
fn read_iscsi_perf(text: &str, load: &Load) -> Read {
    let average = text.rsplit_once("iops average ").context("no average")?.1;
    let iops: f64 = average.split_whitespace().next().context("no number")?.parse()?;
    let seconds = text.split_once("will run for ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    let mib_per_s = iops * f64::from(load.block_bytes) / MIB;
    let sample = Sample { iops: Some(iops), mib_per_s: Some(mib_per_s), ..Sample::default() };
    Ok((iops * seconds.context("no duration")?, sample))
}

fn number(json: &Value, name: &str) -> Result<f64> {
    json[name].as_f64().with_context(|| format!("no number {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iscsi_perf_prints_is_read() {
        let text = "will run for 2 seconds.\n\n\r00:00:01 - lba 1, iops current 7 (9 MB/s), iops average 23358 (91 MB/s), \
                    in_flight 32, busy 0        \riops average 25308 (98 MB/s)     \n\nfinished.\n";
        let load = Load::random_read(4096, 32);
        let (operations, sample) = read_iscsi_perf(text, &load).unwrap();
        assert_eq!((operations, sample.iops), (50616.0, Some(25308.0)));
        assert!(read_iscsi_perf("finished", &load).is_err());
    }

    #[test]
    fn names_say_what_is_done() {
        assert_eq!(Load::random_read(4096, 32).name(), "4K random read qd32");
        assert_eq!(Load::sequential(8704, 8, true).name(), "8704B sequential write qd8");
    }
}
