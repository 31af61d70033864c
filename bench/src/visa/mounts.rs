//! The paper's tables 1 and 2: files of 25 MB written and read again and again through a file system, on a disk in memory that is
//! local, or attached. Its second network is a link with small packets.
//!
//! "Local" is a loop device with direct I/O over a file in tmpfs; the server's disk is in its own memory. All have ext4.

use std::time::Instant;

use anyhow::Result;

use crate::bars::{self, Bar, Group};
use crate::facts;
use crate::link::{End, call};
use crate::load::{MIB, read_fio};
use crate::mounted::{Device, Mounted};
use crate::process::{Host, Running, cpu_of_machine};
use crate::report::{Column, Section, Verdict, align, table};
use crate::rounds::{Turn, take_turns};
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample, compare, median};
use crate::servers::{Files, VOLUME_BYTES, start_sanwire};

use super::{DISK, EITHER, LARGE_BYTES, SMALL_BYTES, WIRES, Way};

const LOCAL: &str = "local RAM disk";
const WRITE: &str = "write";
const READ: &str = "read";
/// The paper writes and reads a gigabyte, 25 MB at a time.
const FILE_BYTES: u64 = 25 << 20;
const TIMES: u64 = 20;
/// What may take no longer, in seconds.
const LIMIT_S: &str = "60";
/// The target: as fast as the local disk.
const SHARE: f64 = 0.95;

const COLUMNS: [Column; 5] = [
    Column::MIB_PER_S_RANGED,
    Column::plain("processors busy", Measure::Busy, 2),
    Column::plain("server s/GiB", Measure::ServerCpuSecondsPerGib, 2),
    Column::plain("client s/GiB", Measure::ClientCpuSecondsPerGib, 2),
    Column::plain("times local", Measure::Share, 2),
];

/// Whose disk it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contender {
    Local,
    Attached(Way, u32),
}

impl Contender {
    fn all() -> Vec<Contender> {
        let attached = [LARGE_BYTES, SMALL_BYTES].map(|mtu| Way::ALL.map(|way| Contender::Attached(way, mtu)));
        [Contender::Local].into_iter().chain(attached.into_iter().flatten()).collect()
    }

    fn name(self) -> String {
        match self {
            Contender::Local => LOCAL.into(),
            Contender::Attached(way, mtu) => named(way, mtu),
        }
    }
}

fn named(way: Way, mtu: u32) -> String {
    format!("{}, MTU {mtu}", way.name())
}

/// What stays for all turns.
struct Bed<'a> {
    host: Host<'a>,
    files: &'a Files,
    sanwire: &'a str,
    server: Running,
    local: String,
}

/// All rounds.
///
/// # Errors
/// When the server does not come up, or there is no file system.
pub(super) fn measure(settings: &Settings, files: &Files) -> Result<Section> {
    let is_wanted = |contender: &Contender| {
        [WRITE, READ].iter().any(|load| settings.is_named(&format!("{} {load}", contender.name())))
    };
    if !Contender::all().iter().any(is_wanted) {
        return Ok(Section::default());
    }
    let link = super::link()?;
    // Kernel threads of the loop devices have work too, so the scheduler decides.
    let host = Host { link: &link, processors: None };
    let volume = format!("{DISK}=ram:{VOLUME_BYTES},security=none");
    let bed = Bed {
        server: start_sanwire(&host, &settings.programs[0], files, &WIRES, &[volume], &EITHER)?,
        local: files.image("local.img")?,
        sanwire: &settings.programs[0],
        host,
        files,
    };
    for contender in [Contender::Local, Contender::Attached(Way::Modern, LARGE_BYTES)] {
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        call("mkfs.ext4", &["-q", "-F", "-E", options, bed.device(contender)?.path()])?;
    }
    let turn = |contender| Turn { rows: bed.rows(contender), job: contender };
    let turns = Contender::all().into_iter().map(turn).collect();
    let begin = |contender: &Contender| Mounted::new(bed.device(*contender)?, &bed.directory()).map(Some);
    let mut rows = take_turns(settings, "through ext4", turns, begin, |contender, _, row| {
        bed.measure(*contender, row.load == WRITE).map(Some)
    })?;
    compare(&mut rows, LOCAL);
    let tables = vec![
        ("files of 25 MB through ext4 on a disk in memory", table(&rows, &COLUMNS)),
        ("the same as ratios, with what the paper measures or (p) predicts", ratios(&rows)),
    ];
    Ok(Section { verdicts: judge(&rows), tables, rows })
}

impl Bed<'_> {
    fn directory(&self) -> String {
        self.files.path("mount")
    }

    fn device(&self, contender: Contender) -> Result<Device> {
        let Contender::Attached(way, mtu) = contender else { return Device::over(&self.local) };
        let (url, directory, key) =
            (way.wire(mtu).url(DISK), self.files.path("attached"), self.files.path("client.key"));
        let mut arguments = vec!["attach", &url, "--mount-point", &directory, "--key-file", &key, "--log", "error"];
        arguments.extend(way.options().split_whitespace());
        let attachment = self.host.start(End::Client, self.sanwire, &arguments)?;
        Device::of_attachment(attachment, &directory)
    }

    fn rows(&self, contender: Contender) -> Vec<Row> {
        let mtu_bytes = LARGE_BYTES;
        let row = |load: &str| Row {
            mtu_bytes,
            contender: contender.name(),
            load: load.into(),
            command: self.command(load == WRITE).join(" "),
            samples: vec![],
        };
        [WRITE, READ].map(row).into()
    }

    /// One file again and again, as large as the paper's; it is on the disk at the end of each time, and not in the cache at its
    /// beginning.
    fn command(&self, is_write: bool) -> Vec<String> {
        let (directory, order) = (self.directory(), if is_write { "write" } else { "read" });
        let line = format!(
            "{LIMIT_S} fio --name=bonnie --filename={directory}/bonnie.bin --rw={order} --bs=64k --size={FILE_BYTES} \
             --loops={TIMES} --ioengine=psync --fallocate=none --end_fsync=1 --invalidate=1 --output-format=json"
        );
        line.split(' ').map(Into::into).collect()
    }

    fn measure(&self, contender: Contender, is_write: bool) -> Result<Sample> {
        let is_local = contender == Contender::Local;
        let command = self.command(is_write);
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let (machine, server, begun) = (cpu_of_machine()?, self.server.cpu()?, Instant::now());
        let output = self.host.run(End::Client, "timeout", &arguments)?.output;
        let took = begun.elapsed();
        let (machine, server) = (cpu_of_machine()?.saturating_sub(machine), self.server.cpu()?.saturating_sub(server));
        let mib_per_s = read_fio(&output)?;
        let mib = (FILE_BYTES * TIMES) as f64 / MIB;
        let us_per_mib = |time: std::time::Duration| Some(time.as_secs_f64() * 1e6 / mib);
        Ok(Sample {
            // A mebibyte counts as an operation.
            iops: Some(mib_per_s),
            mib_per_s: Some(mib_per_s),
            server_cpu_us: us_per_mib(server).filter(|_| !is_local),
            client_cpu_us: us_per_mib(machine.saturating_sub(server)),
            busy: Some(machine.as_secs_f64() / took.as_secs_f64() / facts::cores() as f64),
            ..Sample::default()
        })
    }
}

fn ratio(rows: &[Row], ours: &str, others: &str, load: &str) -> Option<f64> {
    let speed = |name: &str| median(rows, name, load, Measure::MibPerS).filter(|speed| *speed > 0.0);
    Some(speed(ours)? / speed(others)?)
}

/// What is compared, and what the paper has of it: measured, predicted, or nothing.
fn comparisons() -> [(&'static str, String, String, [&'static str; 2]); 7] {
    let large = |way| named(way, LARGE_BYTES);
    let small = |way| named(way, SMALL_BYTES);
    [
        // 72 and 70 Mbit/s, where SCSI is predicted to reach 110 and 133.
        ("VISA, times local", large(Way::Modern), LOCAL.into(), ["0.65", "0.53"]),
        ("VISA classic, times local", large(Way::Classic), LOCAL.into(), ["0.65", "0.53"]),
        ("TCP, times UDP", large(Way::Tcp), large(Way::Modern), ["0.75-0.90 (p)", "0.75-0.90 (p)"]),
        ("VISA, MTU 1500, times 9000", small(Way::Modern), large(Way::Modern), ["0.90", "0.90"]),
        ("VISA classic, MTU 1500, times 9000", small(Way::Classic), large(Way::Classic), ["0.90", "0.90"]),
        ("classic, times modern", large(Way::Classic), large(Way::Modern), ["", ""]),
        ("VISA, times HS/IP", large(Way::Modern), large(Way::HyperScsi), ["", ""]),
    ]
}

fn ratios(rows: &[Row]) -> String {
    let mut lines = vec![["", WRITE, READ, "paper: write", "read"].map(String::from).to_vec()];
    for (what, ours, others, paper) in comparisons() {
        let cell = |load| ratio(rows, &ours, &others, load).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let mut line = vec![what.to_owned(), cell(WRITE), cell(READ)];
        line.extend(paper.map(String::from));
        lines.push(line);
    }
    align(&lines, 1)
}

fn judge(rows: &[Row]) -> Vec<Verdict> {
    let verdict = |load: &str| {
        let found = ratio(rows, &named(Way::Modern, LARGE_BYTES), LOCAL, load)?;
        Some(Verdict::at_least(format!("MTU 9000: VISA through ext4, {load}, times the local RAM disk"), found, SHARE))
    };
    [WRITE, READ].into_iter().filter_map(verdict).collect()
}

/// The contenders as shares of the local disk.
pub(super) fn picture(rows: &[Row]) -> String {
    let shown = [
        ("VISA", Way::Modern, LARGE_BYTES, [Some(0.65), Some(0.53)]),
        ("classic", Way::Classic, LARGE_BYTES, [None, None]),
        ("TCP", Way::Tcp, LARGE_BYTES, [None, None]),
        ("VISA, MTU 1500", Way::Modern, SMALL_BYTES, [None, None]),
        ("HS/IP", Way::HyperScsi, LARGE_BYTES, [None, None]),
    ];
    let group = |(number, load): (usize, &'static str)| Group {
        load,
        bars: shown
            .map(|(contender, way, mtu, paper)| Bar {
                contender,
                share: ratio(rows, &named(way, mtu), LOCAL, load),
                paper: paper[number],
            })
            .into(),
    };
    bars::draw("a local disk in memory", &[WRITE, READ].into_iter().enumerate().map(group).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_local_disk() {
        let row = |contender: &str, load: &str, mib| {
            let sample = Sample { mib_per_s: Some(mib), ..Sample::default() };
            Row { samples: vec![sample], ..Row::of_iops(contender, load, &[]) }
        };
        let rows = [
            row(LOCAL, WRITE, 1000.0),
            row("VISA, MTU 9000", WRITE, 960.0),
            row("VISA TCP, MTU 9000", WRITE, 480.0),
            row(LOCAL, READ, 1000.0),
            row("VISA, MTU 9000", READ, 500.0),
        ];
        let met: Vec<(f64, bool)> = judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(0.96, true), (0.5, false)]);
        let table = ratios(&rows);
        assert!(table.lines().any(|line| line.starts_with("TCP, times UDP") && line.contains(" 0.50 ")), "{table}");
        assert!(picture(&rows).contains("<title>TCP: 48 %</title>"));
    }
}
