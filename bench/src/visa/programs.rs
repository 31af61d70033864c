//! What a program costs a derived volume: the same reads of the disk itself, of all of it as a derived volume, and of one with a
//! program. They are measured in short turns, and each is compared with what the same round gave, so that the machine's drift is none
//! of theirs.

use anyhow::Result;

use crate::bed::Bed;
use crate::load::{ClientCommand, Load, line, read_sanwire};
use crate::report::{Column, Section, Verdict, align, table};
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample};
use crate::servers::{Wire, check_interrupted};

use super::{DISK, LARGE_BYTES, Way};

/// Derived volumes: all of the disk, without and with a program.
pub(super) const PLAIN: &str = "plain";
pub(super) const JUDGED: &str = "judged";

const LOAD: Load = Load::random_read(4096, 32);
/// Short ones, for each of the run's.
const ROUNDS: usize = 4;

/// The targets: of the operations in a second, and more time of the server for a command, in nanoseconds.
const SHARE: f64 = 0.97;
const MORE_NS: f64 = 100.0;

const COLUMNS: [Column; 4] =
    [Column::IOPS, Column::LATENCY_P50_US, Column::ranged("server us/IO", Measure::ServerCpuUs, 3), Column::CLIENT_US];

/// What is read; the disk twice, which tells how well this can be measured at all.
const CONTENDERS: [(&str, &str); 4] = [
    ("the disk", DISK),
    ("derived, without a program", PLAIN),
    ("derived, with a program", JUDGED),
    ("the disk again", DISK),
];

/// Whether it is to be measured: all of it or nothing, since it is compared.
pub(super) fn is_wanted(settings: &Settings) -> bool {
    CONTENDERS.iter().any(|(contender, _)| settings.is_named(&format!("{contender} {}", LOAD.name())))
}

/// All rounds.
///
/// # Errors
/// When the server ends, or the run was interrupted.
pub(super) fn measure(settings: &Settings, bed: &Bed) -> Result<Section> {
    if !is_wanted(settings) {
        return Ok(Section::default());
    }
    let wire = Way::Modern.wire(LARGE_BYTES);
    let mut turns = CONTENDERS.map(|(contender, volume)| turn(bed, wire, contender, volume));
    for round in 0..settings.rounds * ROUNDS {
        check_interrupted(&settings.interrupted)?;
        eprintln!("programs round {}/{}", round + 1, settings.rounds * ROUNDS);
        let mut order: Vec<usize> = (0..turns.len()).collect();
        order.rotate_left(round % turns.len());
        for number in order {
            let (row, client) = &mut turns[number];
            row.samples.push(bed.measure_threads(client, read_sanwire)?);
        }
    }
    let rows = turns.map(|(row, _)| row);
    let tables = vec![
        ("a program of a dozen instructions, by VISA, MTU 9000", table(&rows, &COLUMNS)),
        ("the same, compared within each round", comparisons(&rows)),
    ];
    Ok(Section { verdicts: judge(&rows), tables, rows: rows.into() })
}

fn turn(bed: &Bed, wire: Wire, contender: &str, volume: &str) -> (Row, ClientCommand) {
    let client = bed.client_over(wire, &LOAD, volume, "");
    let (contender, load, command) = (contender.into(), LOAD.name(), line(&client));
    (Row { mtu_bytes: LARGE_BYTES, contender, load, command, samples: vec![] }, client)
}

/// What one gives in terms of the other, round by round: the middle.
fn middle(ours: &Row, others: &Row, compare: impl Fn(&Sample, &Sample) -> Option<f64>) -> Option<f64> {
    let pairs = ours.samples.iter().zip(&others.samples);
    let mut values: Vec<f64> = pairs.filter_map(|(ours, others)| compare(ours, others)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn share(ours: &Sample, others: &Sample) -> Option<f64> {
    Some(ours.iops? / others.iops.filter(|iops| *iops > 0.0)?)
}

fn more_ns(ours: &Sample, others: &Sample) -> Option<f64> {
    Some(1000.0 * (ours.server_cpu_us? - others.server_cpu_us?))
}

fn comparisons([disk, plain, judged, again]: &[Row; 4]) -> String {
    let mut lines = vec![["", "IOPS, times", "server ns/IO more"].map(String::from).to_vec()];
    for (what, ours, others) in [
        ("the disk again, the disk", again, disk),
        ("derived, the disk", plain, disk),
        ("with a program, without", judged, plain),
    ] {
        let cell =
            |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
        let numbers = [cell(middle(ours, others, share), 3), cell(middle(ours, others, more_ns), 0)];
        lines.push([what.to_owned()].into_iter().chain(numbers).collect());
    }
    align(&lines, 1)
}

fn judge([disk, plain, judged, again]: &[Row; 4]) -> Vec<Verdict> {
    let load = LOAD.name();
    // Two measurements of the same disk differ by so much.
    let noise = middle(again, disk, |ours, others| share(ours, others).map(|share| (share - 1.0).abs()));
    let derived = middle(plain, disk, share).zip(noise).map(|(found, noise)| {
        let target = format!("derived without a program, {load}, IOPS, times the disk's; within noise");
        Verdict::at_least(target, found, 1.0 - noise)
    });
    let iops = middle(judged, plain, share)
        .map(|found| Verdict::at_least(format!("derived with a program, {load}, IOPS, times without"), found, SHARE));
    let more = middle(judged, plain, more_ns).map(|found| {
        Verdict::at_most(format!("derived with a program, {load}, server ns/IO more than without"), found, MORE_NS)
    });
    [derived, iops, more].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_one_by_one() {
        let row = |rounds: [(f64, f64); 3]| {
            let sample = |(iops, us)| Sample { iops: Some(iops), server_cpu_us: Some(us), ..Sample::default() };
            Row { samples: rounds.map(sample).into(), ..Row::of_iops("", "", &[]) }
        };
        // The machine became twice as fast in the middle, which is nobody's merit.
        let rows = [
            row([(100.0, 4.0), (200.0, 2.0), (100.0, 4.0)]),
            row([(99.0, 4.01), (200.0, 2.0), (101.0, 3.99)]),
            row([(96.0, 4.05), (192.0, 2.05), (96.0, 4.2)]),
            row([(102.0, 4.0), (198.0, 2.0), (103.0, 4.0)]),
        ];
        let verdicts = judge(&rows);
        let found: Vec<String> =
            verdicts.iter().map(|it| format!("{:.3} {:.3} {}", it.measured, it.bound, it.is_met())).collect();
        assert_eq!(found, ["1.000 0.980 true", "0.960 0.970 false", "50.000 100.000 true"]);
    }
}
