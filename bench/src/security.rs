//! What guarding a volume costs: the same loads on volumes that differ in their level only.

use anyhow::{Context, Result};

use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{End, Link};
use crate::load::{ClientCommand, Load, read_sanwire, run_client};
use crate::report::{Column, Outcome, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample, compare};
use crate::servers::{Files, VOLUME_BYTES, Wire};

/// The levels: the values of a volume's `security`, and the names of the volumes.
const LEVELS: [&str; 5] = ["none", "hash", "aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"];
const UNPROTECTED: &str = "none";

/// The least share of the unprotected throughput that the level of the target may have.
const TARGET: (&str, f64) = ("aes-128-gcm", 0.80);

const COLUMNS: [Column; 7] = [
    Column::plain("IOPS", Measure::Iops, 0),
    Column::MIB_PER_S_RANGED,
    Column::LATENCY_P50_US,
    Column::plain("packets/IO", Measure::PacketsPerIo, 1),
    Column::ranged("server us/packet", Measure::ServerCpuUsPerPacket, 2),
    Column::ranged("client us/packet", Measure::ClientCpuUsPerPacket, 2),
    Column::plain("part of none", Measure::Share, 2),
];

/// One load on the volume of one level.
#[derive(Clone, Copy)]
struct Job {
    level: &'static str,
    load: Load,
}

/// All rounds.
///
/// # Errors
/// When the server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let link = Link::new(MTU_BYTES)?;
    let volumes = LEVELS.map(|level| format!("{level}=ram:{VOLUME_BYTES},security={level}"));
    let bed = Bed::new(settings, &link, files, &[Wire::Ethernet], &volumes)?;
    let writes = Load::sequential(512 << 10, settings.args.sequential_depth, true);
    for level in LEVELS {
        // What is read later are the volume's own pages.
        run_client(&bed.host, &Job { level, load: writes }.client(&bed))?;
    }
    let loads = [Load { is_write: false, ..writes }, writes, Load::random_read(4096, 1), Load::random_read(4096, 32)];
    let jobs = loads.into_iter().flat_map(|load| LEVELS.map(|level| Job { level, load }));
    let turns = jobs.map(|job| (bed::row(job.level, &job.load, &job.client(&bed)), job)).collect();
    let mut rows = take_single_turns(settings, "security", turns, |job| job.measure(&bed).map(Some))?;
    compare(&mut rows, UNPROTECTED);
    let (verdicts, table) = (judge(&rows), table(&rows, &COLUMNS));
    Ok(Outcome { part: "security", verdicts, table, rows, ..Outcome::default() })
}

impl Job {
    fn client(&self, bed: &Bed) -> ClientCommand {
        bed.client(&self.load, self.level, "")
    }

    /// Measures once, and counts the packets of both ways at the server's interface.
    fn measure(&self, bed: &Bed) -> Result<Sample> {
        let before = bed.host.link.packets(End::Server)?;
        let mut operations = 0.0;
        let mut sample = bed.measure(&self.client(bed), |text| {
            let read = read_sanwire(text)?;
            operations = read.0;
            Ok(read)
        })?;
        let packets = bed.host.link.packets(End::Server)?.checked_sub(before).context("the link has lost its count")?;
        sample.packets_per_io = Some(packets as f64 / operations.max(1.0));
        Ok(sample)
    }
}

/// The targets that the rows can judge: throughput, so the large loads.
fn judge(rows: &[Row]) -> Vec<Verdict> {
    let (level, bound) = TARGET;
    let large = rows.iter().filter(|row| row.contender == level && row.load.starts_with("512K"));
    large
        .filter_map(|row| {
            let share = row.spread(Measure::Share)?.median;
            let target = format!("MTU {MTU_BYTES}: HS/eth ram {level}, {}, part of the unprotected", row.load);
            Some(Verdict::at_least(target, share, bound))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_judged_by_their_share_of_the_unprotected_throughput() {
        let row = |level: &str, load: &str, iops| Row {
            mtu_bytes: MTU_BYTES,
            contender: level.into(),
            load: load.into(),
            command: String::new(),
            samples: vec![Sample { iops: Some(iops), ..Sample::default() }],
        };
        let mut rows = vec![
            row("none", "512K sequential read qd8", 100.0),
            row("aes-128-gcm", "512K sequential read qd8", 79.0),
            row("none", "512K sequential write qd8", 100.0),
            row("aes-128-gcm", "512K sequential write qd8", 80.0),
            row("aes-128-gcm", "4K random read qd32", 5.0),
        ];
        compare(&mut rows, UNPROTECTED);
        let met: Vec<(f64, bool)> = judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(0.79, false), (0.8, true)]);
    }
}
