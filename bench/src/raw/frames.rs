//! HyperSCSI beside the bare link, with and without encryption, and single frames beside vblade, by HyperSCSI and by ATA over
//! Ethernet. vblade has a link of its own: two servers of one protocol on one interface would each get the other's frames.

use anyhow::Result;

use super::carried::counting;
use crate::bed::Bed;
use crate::link::{INTERFACE, Link, SECOND_INTERFACE};
use crate::load::{ClientCommand, Load, aoe_client, line, loaded, read_aoe, read_sanwire};
use crate::process::Running;
use crate::rawlink::RawLink;
use crate::report::{Column, Section, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample, median};
use crate::servers::{AOE_DISK, Files, VOLUME_BYTES, Wire, fill_volume, start_vblade};

/// A volume of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Volume {
    name: &'static str,
    /// In tmpfs, or else in the server's own memory.
    is_file: bool,
    security: &'static str,
    /// Its shelf and slot.
    aoe: [&'static str; 2],
}

const RAM: Volume = Volume { name: "ram", is_file: false, security: "none", aoe: ["7", "2"] };
const TMPFS: Volume = Volume { name: "tmpfs", is_file: true, security: "none", aoe: ["7", "3"] };
/// AoE does not serve it, for it guards nothing.
const SEALED: Volume = Volume { name: "aes-128-gcm", is_file: false, security: "aes-128-gcm", aoe: ["7", "4"] };
const VOLUMES: [Volume; 3] = [RAM, TMPFS, SEALED];

/// The targets: parts of the bare link, and of what is not encrypted; times vblade.
const JUMBO_PART_HOT: f64 = 0.75;
const JUMBO_PART_COLD: f64 = 0.85;
const SMALL_PART_HOT: f64 = 0.85;
const SEALED_PART: f64 = 0.80;
const HYPERSCSI_IOPS: f64 = 1.3;
const HYPERSCSI_IOPS_TMPFS: f64 = 1.1;
const HYPERSCSI_CPU: f64 = 0.8;
const AOE_IOPS: f64 = 1.5;
const AOE_CPU: f64 = 1.0;

/// 4 KiB need jumbo frames.
const JUMBO_BYTES: u32 = 9000;
const VBLADE: &str = "vblade tmpfs";
const ONE_WAY: &str = "one way, full frames";

const COLUMNS: [Column; 7] = [
    Column::IOPS,
    Column::MIB_PER_S_RANGED,
    Column::LATENCY_P50_US,
    Column::SERVER_US_RANGED,
    Column::CLIENT_US,
    Column::plain("server s/GiB", Measure::ServerCpuSecondsPerGib, 3),
    Column::plain("in place", Measure::InPlace, 2),
];

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Job {
    RawLink { is_cold: bool },
    HyperScsi(Volume, Load),
    Aoe(Volume, Load),
    Vblade(Load),
}

/// The servers of a link.
struct Servers<'a> {
    bed: Bed<'a>,
    vblade: Option<Running>,
    raw_link: RawLink,
    /// This program.
    this: &'a str,
    seconds: f64,
}

/// All rounds on every link.
///
/// # Errors
/// When a server does not come up.
pub(super) fn measure(settings: &Settings, files: &Files) -> Result<Section> {
    let mut rows = vec![];
    for &mtu_bytes in &settings.args.mtu {
        rows.extend(measure_link(settings, files, mtu_bytes)?);
    }
    let tables = vec![("HyperSCSI, AoE, vblade and the bare link", table(&rows, &COLUMNS))];
    Ok(Section { verdicts: judge(&rows, settings.args.sequential_depth), tables, rows })
}

fn measure_link(settings: &Settings, files: &Files, mtu_bytes: u32) -> Result<Vec<Row>> {
    let link = Link::new(mtu_bytes)?;
    link.add_second(mtu_bytes)?;
    let volumes: Vec<String> = VOLUMES.iter().map(|volume| option(*volume, files)).collect::<Result<_>>()?;
    let aoe = format!("aoe:{INTERFACE}");
    let bed = Bed::with(settings, &link, files, &[Wire::Ethernet], &volumes, &["--wire", &aoe])?;
    let [sanwire, _, this] = &settings.programs;
    for Volume { name, .. } in [RAM, SEALED] {
        fill_volume(&bed.host, sanwire, files, &Wire::Ethernet.url(name))?;
    }
    let servers = Servers {
        vblade: start_vblade(&bed.host, files, SECOND_INTERFACE)?,
        raw_link: RawLink::new(settings, &link, mtu_bytes)?,
        bed,
        this,
        seconds: settings.seconds,
    };
    let jobs = jobs(mtu_bytes, settings.args.sequential_depth);
    let turns = jobs.into_iter().map(|job| (servers.row(mtu_bytes, job), job)).collect();
    take_single_turns(settings, &format!("MTU {mtu_bytes}"), turns, |job| servers.measure(*job))
}

/// The value of `--volume`.
fn option(volume: Volume, files: &Files) -> Result<String> {
    let Volume { name, security, aoe: [shelf, slot], .. } = volume;
    let store =
        if volume.is_file { format!("file:{}", files.image("sanwire.img")?) } else { format!("ram:{VOLUME_BYTES}") };
    Ok(format!("{name}={store},security={security},shelf={shelf},slot={slot}"))
}

/// Everything of one MTU, in the order of a round.
fn jobs(mtu_bytes: u32, sequential_depth: u16) -> Vec<Job> {
    let mut jobs = vec![Job::RawLink { is_cold: false }, Job::RawLink { is_cold: true }];
    for is_write in [false, true] {
        let load = Load::sequential(512 << 10, sequential_depth, is_write);
        jobs.extend([RAM, SEALED].map(|volume| Job::HyperScsi(volume, load)));
    }
    for is_write in [false, true] {
        let load = single(mtu_bytes, is_write);
        jobs.push(Job::Vblade(load));
        if mtu_bytes >= JUMBO_BYTES && !is_write {
            jobs.extend([RAM, TMPFS].map(|volume| Job::HyperScsi(volume, load)));
        }
        jobs.extend([RAM, TMPFS].map(|volume| Job::Aoe(volume, load)));
    }
    jobs
}

/// Blocks of which each is one frame, 32 at once.
fn single(mtu_bytes: u32, is_write: bool) -> Load {
    let block_bytes = if mtu_bytes >= JUMBO_BYTES { 4096 } else { 1024 };
    Load { is_write, ..Load::random_read(block_bytes, 32) }
}

impl Servers<'_> {
    fn client(&self, job: Job) -> ClientCommand {
        match job {
            Job::RawLink { is_cold } => self.raw_link.sender(is_cold),
            Job::HyperScsi(volume, load) => self.bed.client(&load, volume.name, ""),
            Job::Aoe(volume, load) => aoe_client(self.this, &load, self.seconds, INTERFACE, volume.aoe),
            Job::Vblade(load) => aoe_client(self.this, &load, self.seconds, SECOND_INTERFACE, AOE_DISK),
        }
    }

    fn row(&self, mtu_bytes: u32, job: Job) -> Row {
        let (contender, load) = match job {
            Job::RawLink { is_cold } => (raw_name(is_cold).to_owned(), ONE_WAY.to_owned()),
            Job::HyperScsi(volume, load) => (format!("HS/eth {}", volume.name), load.name()),
            Job::Aoe(volume, load) => (format!("AoE {}", volume.name), load.name()),
            Job::Vblade(load) => (VBLADE.to_owned(), load.name()),
        };
        Row { mtu_bytes, contender, load, command: line(&self.client(job)), samples: vec![] }
    }

    /// Measures once. Nothing when the contender is not there.
    fn measure(&self, job: Job) -> Result<Option<Sample>> {
        let (host, client) = (&self.bed.host, &self.client(job));
        match job {
            Job::RawLink { .. } => self.raw_link.measure(host, client).map(Some),
            Job::HyperScsi(_, load) => {
                let of = ("hyperscsi", load.is_write);
                counting(&self.bed, of, || self.bed.measure(client, read_sanwire)).map(Some)
            }
            Job::Aoe(_, load) => {
                counting(&self.bed, ("aoe", load.is_write), || self.bed.measure(client, read_aoe)).map(Some)
            }
            Job::Vblade(_) => self.vblade.as_ref().map(|server| loaded(host, server, client, read_aoe)).transpose(),
        }
    }
}

fn raw_name(is_cold: bool) -> &'static str {
    if is_cold { "raw link, cold" } else { "raw link, hot" }
}

/// Every target that the rows can judge.
fn judge(rows: &[Row], sequential_depth: u16) -> Vec<Verdict> {
    let mut mtus: Vec<u32> = rows.iter().map(|row| row.mtu_bytes).collect();
    mtus.dedup();
    let mut verdicts = vec![];
    for mtu in mtus {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.mtu_bytes == mtu).collect();
        for is_write in [false, true] {
            let load = Load::sequential(512 << 10, sequential_depth, is_write).name();
            verdicts.extend(judge_large(&rows, mtu, &load));
        }
        for is_write in [false, true] {
            verdicts.extend(judge_single(&rows, mtu, &single(mtu, is_write).name()));
        }
    }
    verdicts
}

/// The median of a row, when there is something.
fn positive(rows: &[&Row], contender: &str, load: &str, measure: Measure) -> Option<f64> {
    median(rows.iter().copied(), contender, load, measure).filter(|value| *value > 0.0)
}

/// HyperSCSI, by what the bare link carries and by what encryption leaves.
fn judge_large(rows: &[&Row], mtu: u32, load: &str) -> Vec<Verdict> {
    let speed = |contender: &str, load: &str| positive(rows, contender, load, Measure::MibPerS);
    let part = |ours: &str, (whole, whole_load): (&str, &str), name: &str, bound| {
        let part = speed(ours, load)? / speed(whole, whole_load)?;
        Some(Verdict::at_least(format!("MTU {mtu}: {ours}, {load}, part of {name}"), part, bound))
    };
    let of_link = |is_cold| {
        let name = raw_name(is_cold);
        let bound = match (mtu == JUMBO_BYTES, is_cold) {
            (true, false) => JUMBO_PART_HOT,
            (true, true) => JUMBO_PART_COLD,
            (false, false) => SMALL_PART_HOT,
            // Small frames of a link that is cold have no target.
            (false, true) => return None,
        };
        part("HS/eth ram", (name, ONE_WAY), &format!("the {name}"), bound)
    };
    let sealed = part("HS/eth aes-128-gcm", ("HS/eth ram", load), "the unprotected", SEALED_PART);
    [of_link(false), of_link(true), sealed].into_iter().flatten().collect()
}

/// Single frames, by what vblade does.
fn judge_single(rows: &[&Row], mtu: u32, load: &str) -> Vec<Verdict> {
    let mut verdicts = vec![];
    for (wire, volume, iops, cpu) in [
        ("HS/eth", RAM, HYPERSCSI_IOPS, Some(HYPERSCSI_CPU)),
        ("HS/eth", TMPFS, HYPERSCSI_IOPS_TMPFS, None),
        ("AoE", RAM, AOE_IOPS, Some(AOE_CPU)),
        ("AoE", TMPFS, AOE_IOPS, Some(AOE_CPU)),
    ] {
        let contender = format!("{wire} {}", volume.name);
        let ratio = |measure| Some(positive(rows, &contender, load, measure)? / positive(rows, VBLADE, load, measure)?);
        let target = |what| format!("MTU {mtu}: {contender}, {load}, {what}, times vblade's");
        verdicts.extend(ratio(Measure::Iops).map(|found| Verdict::at_least(target("IOPS"), found, iops)));
        let of_cpu = ratio(Measure::ServerCpuUs).zip(cpu);
        verdicts.extend(of_cpu.map(|(found, most)| Verdict::at_most(target("server CPU per I/O"), found, most)));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged_by_ratios() {
        let row = |contender: &str, load: &str, mib_per_s, iops, server_cpu_us| {
            let sample = Sample {
                mib_per_s: Some(mib_per_s),
                iops: Some(iops),
                server_cpu_us: Some(server_cpu_us),
                ..Sample::default()
            };
            Row { samples: vec![sample], mtu_bytes: JUMBO_BYTES, ..Row::of_iops(contender, load, &[]) }
        };
        let (large, small) = ("512K sequential read qd8", "4K random read qd32");
        let rows = [
            row("raw link, hot", ONE_WAY, 4000.0, 1.0, 1.0),
            row("raw link, cold", ONE_WAY, 2500.0, 1.0, 1.0),
            row("HS/eth ram", large, 2000.0, 1.0, 1.0),
            row("HS/eth aes-128-gcm", large, 1600.0, 1.0, 1.0),
            row(VBLADE, small, 1.0, 100.0, 4.0),
            row("HS/eth tmpfs", small, 1.0, 120.0, 3.0),
            row("AoE ram", small, 1.0, 200.0, 5.0),
            Row { mtu_bytes: 1500, ..row(VBLADE, "1K random write qd32", 1.0, 100.0, 4.0) },
            Row { mtu_bytes: 1500, ..row("AoE tmpfs", "1K random write qd32", 1.0, 160.0, 2.0) },
        ];
        let met: Vec<(f64, bool)> =
            judge(&rows, 8).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(
            met,
            [
                (0.5, false),
                (0.8, false),
                (0.8, true),
                (1.2, true),
                (2.0, true),
                (1.25, false),
                (1.6, true),
                (0.5, true)
            ]
        );
    }
}
