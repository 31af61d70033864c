//! HDSP beside our iSCSI and a plain TCP stream, by the size of blocks: throughput, and the server's processor time for a GiB.
//!
//! HDSP by AF_PACKET shares a link with iSCSI and TCP; that by AF_XDP has one of its own, because its program at the interface
//! would get the packets of both.

use anyhow::Result;

use super::carried::counting;
use crate::bed::Bed;
use crate::curves::{Curve, Panel};
use crate::link::{End, INTERFACE, Link, SECOND_INTERFACE};
use crate::load::{ClientCommand, Load, line, loaded, read_sanwire, read_stream, words};
use crate::process::Running;
use crate::report::{Section, Verdict, align};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample, median};
use crate::servers::{Files, VOLUME_BYTES, Wire, fill_volume, wait_for};

const VOLUME: &str = "ram";
const WIRES: [Wire; 3] =
    [Wire::Hdsp(INTERFACE, "packet"), Wire::Hdsp(SECOND_INTERFACE, "xdp"), Wire::Iscsi("10.99.0.2:3260")];
const STREAM: &str = "10.99.0.2:5001";

pub(super) const BLOCKS_KIB: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// The targets speak of larger blocks than this: throughput, and time for a byte, in terms of iSCSI.
const SMALL_KIB: u32 = 32;
const THROUGHPUT: f64 = 1.5;
const CPU: f64 = 0.5;

/// Who carries the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contender {
    Wire(&'static str, Wire),
    Stream,
}

const PACKET: Contender = Contender::Wire("HDSP packet", WIRES[0]);
const XDP: Contender = Contender::Wire("HDSP xdp", WIRES[1]);
const ISCSI: Contender = Contender::Wire("iSCSI", WIRES[2]);
const ALL: [Contender; 4] = [PACKET, XDP, ISCSI, Contender::Stream];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Wire(name, _) => name,
            Contender::Stream => "TCP stream",
        }
    }
}

/// The servers of a link.
struct Servers<'a> {
    bed: Bed<'a>,
    stream: Running,
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
    let depth = settings.args.sequential_depth;
    let tables = vec![
        ("MiB/s", table(&rows, depth, Measure::MibPerS, 0)),
        ("the server's processor time, in seconds for a GiB", table(&rows, depth, Measure::ServerCpuSecondsPerGib, 3)),
        ("the client's processor time, in seconds for a GiB", table(&rows, depth, Measure::ClientCpuSecondsPerGib, 3)),
        ("of the bytes of writes and of answers, what the server has not copied, and has", copies(&rows, depth)),
    ];
    Ok(Section { verdicts: judge(&rows, depth), tables, rows })
}

fn measure_link(settings: &Settings, files: &Files, mtu_bytes: u32) -> Result<Vec<Row>> {
    let link = Link::new(mtu_bytes)?;
    link.add_second(mtu_bytes)?;
    let bed = Bed::new(settings, &link, files, &WIRES, &[format!("{VOLUME}=ram:{VOLUME_BYTES},security=none")])?;
    let [sanwire, _, this] = &settings.programs;
    fill_volume(&bed.host, sanwire, files, &WIRES[2].url(VOLUME))?;
    let stream = bed.host.start(End::Server, this, &["stream-server", STREAM])?;
    let nothing = ["stream", STREAM, "--block", "1024", "--seconds", "0"];
    wait_for(this, || bed.host.run(End::Client, this, &nothing).map(drop))?;
    let servers = Servers { bed, stream, this, seconds: settings.seconds };
    let jobs = loads(settings.args.sequential_depth)
        .flat_map(|load| ALL.map(|contender| (servers.row(mtu_bytes, contender, &load), (contender, load))));
    take_single_turns(settings, &format!("MTU {mtu_bytes}"), jobs.collect(), |(contender, load)| {
        servers.measure(*contender, load).map(Some)
    })
}

fn loads(depth: u16) -> impl Iterator<Item = Load> {
    [false, true]
        .into_iter()
        .flat_map(move |is_write| BLOCKS_KIB.map(|kib| Load::sequential(kib << 10, depth, is_write)))
}

impl Servers<'_> {
    fn client(&self, contender: Contender, load: &Load) -> ClientCommand {
        match contender {
            Contender::Wire(_, wire) => self.bed.client_over(wire, load, VOLUME, ""),
            Contender::Stream => {
                let write = if load.is_write { " --write" } else { "" };
                let line = format!("stream {STREAM} --block {} --seconds {}{write}", load.block_bytes, self.seconds);
                (self.this.to_owned(), words(&line))
            }
        }
    }

    fn row(&self, mtu_bytes: u32, contender: Contender, load: &Load) -> Row {
        let command = line(&self.client(contender, load));
        Row { mtu_bytes, contender: contender.name().into(), load: load.name(), command, samples: vec![] }
    }

    fn measure(&self, contender: Contender, load: &Load) -> Result<Sample> {
        let client = self.client(contender, load);
        match contender {
            Contender::Stream => loaded(&self.bed.host, &self.stream, &client, read_stream),
            Contender::Wire(_, Wire::Hdsp(..)) => {
                counting(&self.bed, ("hdsp", load.is_write), || self.bed.measure(&client, read_sanwire))
            }
            Contender::Wire(..) => self.bed.measure(&client, read_sanwire),
        }
    }
}

/// The median of a contender's rounds on a link.
fn value(rows: &[Row], mtu_bytes: u32, contender: Contender, load: &Load, measure: Measure) -> Option<f64> {
    let on_link = rows.iter().filter(|row| row.mtu_bytes == mtu_bytes);
    median(on_link, contender.name(), &load.name(), measure)
}

fn ratio(rows: &[Row], mtu_bytes: u32, [ours, others]: [Contender; 2], load: &Load, measure: Measure) -> Option<f64> {
    let value = |contender| value(rows, mtu_bytes, contender, load, measure);
    Some(value(ours)? / value(others).filter(|value| *value > 0.0)?)
}

fn mtus(rows: &[Row]) -> Vec<u32> {
    let mut mtus: Vec<u32> = rows.iter().map(|row| row.mtu_bytes).collect();
    mtus.dedup();
    mtus
}

/// Loads below each other; contenders beside each other, then HDSP in terms of the others.
fn table(rows: &[Row], depth: u16, measure: Measure, digits: usize) -> String {
    let ratios = [[PACKET, ISCSI], [XDP, ISCSI], [PACKET, Contender::Stream], [XDP, Contender::Stream]];
    let mut header = vec!["MTU".to_owned(), "load".to_owned()];
    header.extend(ALL.map(|contender| contender.name().to_owned()));
    header.extend(ratios.map(|[ours, others]| format!("{} / {}", short(ours), short(others))));
    let mut lines = vec![header];
    for mtu in mtus(rows) {
        for load in loads(depth) {
            let mut line = vec![mtu.to_string(), load.name()];
            line.extend(ALL.map(|contender| cell(value(rows, mtu, contender, &load, measure), digits)));
            line.extend(ratios.map(|pair| cell(ratio(rows, mtu, pair, &load, measure), 2)));
            lines.push(line);
        }
    }
    align(&lines, 2)
}

/// A contender in one word.
fn short(contender: Contender) -> &'static str {
    let name = contender.name();
    name.strip_prefix("HDSP ").or(name.strip_suffix(" stream")).unwrap_or(name)
}

/// The parts of both paths of HDSP, by the size of blocks.
fn copies(rows: &[Row], depth: u16) -> String {
    let mut lines =
        vec![["MTU", "load", "packet: in place", "copied", "xdp: in place", "copied"].map(Into::into).to_vec()];
    for mtu in mtus(rows) {
        for load in loads(depth) {
            let mut line = vec![mtu.to_string(), load.name()];
            for path in [PACKET, XDP] {
                let part = value(rows, mtu, path, &load, Measure::InPlace);
                let percent = |part: f64| format!("{:.1} %", part * 100.0);
                line.extend([part, part.map(|part| 1.0 - part)].map(|part| part.map_or_else(String::new, percent)));
            }
            lines.push(line);
        }
    }
    align(&lines, 2)
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

/// What the paper's figures show, for each link and direction.
pub(super) fn panels(rows: &[Row], depth: u16) -> Vec<Panel> {
    let mut panels = vec![];
    for mtu in mtus(rows) {
        for is_write in [false, true] {
            for (what, measure) in
                [("MiB/s", Measure::MibPerS), ("server, CPU seconds for a GiB", Measure::ServerCpuSecondsPerGib)]
            {
                let loads = || loads(depth).filter(|load| load.is_write == is_write);
                let curve = |contender: Contender| Curve {
                    name: contender.name(),
                    values: loads().map(|load| value(rows, mtu, contender, &load, measure)).collect(),
                };
                let direction = if is_write { "writes" } else { "reads" };
                panels.push(Panel { title: format!("MTU {mtu}, {direction}: {what}"), curves: ALL.map(curve).into() });
            }
        }
    }
    panels
}

/// Each path of HDSP by the block with which it does worst against iSCSI.
fn judge(rows: &[Row], depth: u16) -> Vec<Verdict> {
    let mut verdicts = vec![];
    for mtu in mtus(rows) {
        for (path, is_write) in [(PACKET, false), (XDP, false), (PACKET, true), (XDP, true)] {
            let large = || loads(depth).filter(|load| load.is_write == is_write && load.block_bytes > SMALL_KIB << 10);
            let ratios = |measure| large().filter_map(move |load| ratio(rows, mtu, [path, ISCSI], &load, measure));
            let direction = if is_write { "writes" } else { "reads" };
            let what = format!("MTU {mtu}: {}, {direction} above {SMALL_KIB} KiB", path.name());
            verdicts.extend(ratios(Measure::MibPerS).min_by(f64::total_cmp).map(|worst| {
                Verdict::at_least(format!("{what}, MiB/s, times iSCSI's at the worst block"), worst, THROUGHPUT)
            }));
            verdicts.extend(ratios(Measure::ServerCpuSecondsPerGib).max_by(f64::total_cmp).map(|worst| {
                Verdict::at_most(format!("{what}, server CPU per byte, times iSCSI's at the worst block"), worst, CPU)
            }));
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: Contender, kib: u32, mib_per_s: f64, server_cpu_us: f64) -> Row {
        let load = Load::sequential(kib << 10, 8, false).name();
        let sample = Sample {
            iops: Some(mib_per_s * 1024.0 / f64::from(kib)),
            mib_per_s: Some(mib_per_s),
            server_cpu_us: Some(server_cpu_us),
            ..Sample::default()
        };
        Row { samples: vec![sample], ..Row::of_iops(contender.name(), &load, &[]) }
    }

    #[test]
    fn large_blocks_are_judged_by_the_worst_of_them() {
        let rows = [
            row(ISCSI, 32, 1000.0, 10.0),
            row(PACKET, 32, 10.0, 10.0),
            row(ISCSI, 64, 1000.0, 10.0),
            row(PACKET, 64, 2000.0, 4.0),
            row(ISCSI, 1024, 1000.0, 10.0),
            row(PACKET, 1024, 1400.0, 3.0),
        ];
        let met: Vec<(String, bool)> =
            judge(&rows, 8).iter().map(|verdict| (format!("{:.2}", verdict.measured), verdict.is_met())).collect();
        assert_eq!(met, [("1.40".to_owned(), false), ("0.40".to_owned(), true)]);
        let table = table(&rows, 8, Measure::MibPerS, 0);
        assert!(table.lines().any(|line| line.contains("64K") && line.ends_with("2.00")), "{table}");
    }
}
