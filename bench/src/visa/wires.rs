//! VISA's ways beside HyperSCSI over IP, without a file system.

use anyhow::Result;

use crate::bed::Bed;
use crate::load::{Load, line, read_sanwire};
use crate::report::{OPERATIONS, Section, Verdict, align, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, median};

use super::{DISK, LARGE_BYTES, SMALL_BYTES, Way};

/// The target, of HyperSCSI over IP.
const SHARE: f64 = 0.9;

/// Whether anything of it is to be measured.
pub(super) fn is_wanted(settings: &Settings) -> bool {
    let names = Way::ALL
        .into_iter()
        .flat_map(|way| loads(settings.args.sequential_depth).map(|load| format!("{} {}", way.name(), load.name())));
    names.into_iter().any(|name| settings.is_named(&name))
}

/// All rounds on both links.
///
/// # Errors
/// When the run was interrupted.
pub(super) fn measure(settings: &Settings, bed: &Bed) -> Result<Section> {
    let depth = settings.args.sequential_depth;
    let mut turns = vec![];
    for mtu_bytes in [LARGE_BYTES, SMALL_BYTES] {
        for load in loads(depth) {
            for way in Way::ALL {
                let client = bed.client_over(way.wire(mtu_bytes), &load, DISK, way.options());
                let (contender, load, command) = (way.name().into(), load.name(), line(&client));
                turns.push((Row { mtu_bytes, contender, load, command, samples: vec![] }, client));
            }
        }
    }
    let rows = take_single_turns(settings, "wires", turns, |client| bed.measure(client, read_sanwire).map(Some))?;
    let tables = vec![("the wires alone", table(&rows, &OPERATIONS)), ("the same as ratios", ratios(&rows, depth))];
    Ok(Section { verdicts: judge(&rows, depth), tables, rows })
}

fn loads(depth: u16) -> [Load; 4] {
    let large = |is_write| Load::sequential(512 << 10, depth, is_write);
    [Load::random_read(4096, 1), Load::random_read(4096, 32), large(false), large(true)]
}

/// By the median of the operations in a second.
fn ratio(rows: &[Row], mtu: u32, [ours, others]: [Way; 2], load: &Load) -> Option<f64> {
    let speed = |way: Way| {
        let on_link = rows.iter().filter(|row| row.mtu_bytes == mtu);
        median(on_link, way.name(), &load.name(), Measure::Iops).filter(|iops| *iops > 0.0)
    };
    Some(speed(ours)? / speed(others)?)
}

fn ratios(rows: &[Row], depth: u16) -> String {
    let pairs = [
        ("VISA / HS/IP", [Way::Modern, Way::HyperScsi]),
        ("classic / VISA", [Way::Classic, Way::Modern]),
        ("TCP / VISA", [Way::Tcp, Way::Modern]),
    ];
    let mut lines = vec![["MTU", "load"].into_iter().chain(pairs.map(|pair| pair.0)).map(String::from).collect()];
    for mtu in [LARGE_BYTES, SMALL_BYTES] {
        for load in loads(depth) {
            let cell = |pair| ratio(rows, mtu, pair, &load).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let mut line = vec![mtu.to_string(), load.name()];
            line.extend(pairs.map(|(_, pair)| cell(pair)));
            lines.push(line);
        }
    }
    align(&lines, 2)
}

fn judge(rows: &[Row], depth: u16) -> Vec<Verdict> {
    let mut verdicts = vec![];
    for mtu in [LARGE_BYTES, SMALL_BYTES] {
        // The target speaks of throughput, not of one block at a time.
        for load in loads(depth).iter().filter(|load| load.depth > 1) {
            let found = ratio(rows, mtu, [Way::Modern, Way::HyperScsi], load);
            let target = format!("MTU {mtu}: VISA, {}, times HS/IP", load.name());
            verdicts.extend(found.map(|found| Verdict::at_least(target, found, SHARE)));
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modern_mode_is_judged_by_hyperscsi_on_the_same_link() {
        let row = |way: Way, mtu_bytes, iops| Row {
            mtu_bytes,
            ..Row::of_iops(way.name(), &Load::random_read(4096, 32).name(), &[iops])
        };
        let rows = [
            row(Way::Modern, LARGE_BYTES, 90.0),
            row(Way::HyperScsi, LARGE_BYTES, 100.0),
            row(Way::Modern, SMALL_BYTES, 40.0),
            row(Way::HyperScsi, SMALL_BYTES, 50.0),
        ];
        let met: Vec<(f64, bool)> =
            judge(&rows, 8).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(0.9, true), (0.8, false)]);
    }
}
