//! What a mirror reads whose members are over a link each, beside what the links carry: a server of the array, in front of that of
//! its members, on the client's host. The links are shaped, so that they and not the processors are the limit.

use anyhow::{Result, ensure};

use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{End, INTERFACE, Link, SECOND_INTERFACE};
use crate::load::{ClientCommand, Load, read_sanwire};
use crate::process::Running;
use crate::report::{Column, Section, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, median};
use crate::servers::{Files, Wire, wait_for};

/// What each link carries, and the queue before it.
const MBIT_PER_SECOND: u32 = 1000;
const QUEUE_BYTES: u32 = 512 << 10;

/// Each member has this, and each volume that is read beside them: nobody else reads what is reserved for an array.
const STORE: &str = "ram:64M,security=none";

/// An HDSP connection stays on one link.
const WIRES: [Wire; 2] = [Wire::Hdsp(INTERFACE, "packet"), Wire::Hdsp(SECOND_INTERFACE, "packet")];
const MEMBERS: [&str; 2] = ["one", "two"];
const BESIDE: [&str; 2] = ["first", "second"];
const LINKS: [&str; 2] = ["the first link", "the second link"];

const ARRAY: &str = "linked";
const VOLUME: &str = "pair";
const FRONT_ADDRESS: &str = "127.0.0.1";
const FRONT: &str = "mirror over both";

/// What the mirror must read at least, of what both links carry together.
const TARGET: f64 = 0.9;

const COLUMNS: [Column; 4] = [
    Column::MIB_PER_S_RANGED,
    Column::LATENCY_P50_US,
    Column::CLIENT_US,
    Column::ranged("of the sum of both", Measure::Share, 2),
];

/// All rounds.
///
/// # Errors
/// When the array cannot be made, or a server does not come up.
pub(super) fn measure(settings: &Settings, files: &Files) -> Result<Section> {
    let link = Link::new(MTU_BYTES)?;
    link.add_second(MTU_BYTES)?;
    link.shape(MBIT_PER_SECOND, QUEUE_BYTES)?;
    let volumes: Vec<String> = MEMBERS.iter().chain(&BESIDE).map(|name| format!("{name}={STORE}")).collect();
    let bed = Bed::new(settings, &link, files, &WIRES, &volumes)?;
    let _front = start_front(settings, files, &bed)?;
    let load = Load::sequential(512 << 10, settings.args.sequential_depth, false);
    let alone = [0, 1].map(|number| (LINKS[number], bed.client_over(WIRES[number], &load, BESIDE[number], "")));
    let both = (FRONT, bed.client_over(Wire::IpOn(FRONT_ADDRESS), &load, VOLUME, ""));
    let clients = alone.into_iter().chain([both]);
    let turns = clients.map(|(contender, client)| (bed::row(contender, &load, &client), client)).collect();
    let measure = |client: &ClientCommand| bed.measure(client, read_sanwire).map(Some);
    let mut rows = take_single_turns(settings, "mirror over links", turns, measure)?;
    share(&mut rows);
    let tables =
        vec![("reads of a mirror of two, each over a link of 1 Gbit/s, beside the links", table(&rows, &COLUMNS))];
    Ok(Section { verdicts: judge(&rows), rows, tables })
}

/// Makes the array and a server of it, beside the client.
fn start_front(settings: &Settings, files: &Files, bed: &Bed) -> Result<Running> {
    let (host, sanwire) = (&bed.host, &settings.programs[0]);
    let members = [0, 1].map(|member| WIRES[member].url(MEMBERS[member]));
    host.run(End::Client, sanwire, &["array", "create", ARRAY, "--mirror", &members[0], &members[1], "--force"])?;
    // Of a member that lacks something nothing is read.
    host.run(End::Client, sanwire, &["array", "scrub", ARRAY, &members[0], &members[1]])?;
    let volume = format!("{VOLUME}=array:{ARRAY},member={},member={},security=none", members[0], members[1]);
    let [key, control, state] = ["front.key", "front-control", "front-state"].map(|name| files.path(name));
    let wire = format!("hs-ip:{FRONT_ADDRESS}");
    let named = ["serve", "--name", "front", "--allow", "any", "--log", "error", "--wire", &wire, "--volume", &volume];
    let places = ["--key-file", &key, "--control", &control, "--state-directory", &state];
    let front = host.start(End::Client, sanwire, &[&named[..], &places].concat())?;
    let (url, client_key) = (format!("hs+ip://{FRONT_ADDRESS}"), files.path("client.key"));
    wait_for("the server of the array", || {
        let found = host.run(End::Client, sanwire, &["ls", &url, "--wait", "20", "--key-file", &client_key])?;
        ensure!(found.output.contains(VOLUME), "no {VOLUME} in: {}", found.output);
        Ok(())
    })?;
    Ok(front)
}

/// Gives each sample its share of what both links carry, one after the other.
fn share(rows: &mut [Row]) {
    let reference = rows.to_vec();
    for row in rows {
        let carried = LINKS.map(|link| median(&reference, link, &row.load, Measure::Iops));
        let sum = carried[0].zip(carried[1]).map(|(one, other)| one + other).filter(|sum| *sum > 0.0);
        for sample in &mut row.samples {
            sample.share = sample.iops.zip(sum).map(|(iops, sum)| iops / sum);
        }
    }
}

fn judge(rows: &[Row]) -> Vec<Verdict> {
    let front = rows.iter().filter(|row| row.contender == FRONT);
    front
        .filter_map(|row| {
            let share = row.spread(Measure::Share)?.median;
            let target = format!(
                "MTU {MTU_BYTES}: a mirror over two links of {MBIT_PER_SECOND} Mbit/s, {}, of what both carry",
                row.load
            );
            Some(Verdict::at_least(target, share, TARGET))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_judged_by_what_both_links_carry_together() {
        let load = "512K sequential read qd8";
        for (iops, is_met) in [(380.0, true), (320.0, false)] {
            let mut rows = vec![
                Row::of_iops(LINKS[0], load, &[200.0]),
                Row::of_iops(LINKS[1], load, &[200.0]),
                Row::of_iops(FRONT, load, &[iops]),
            ];
            share(&mut rows);
            let met: Vec<(f64, bool)> =
                judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
            assert_eq!(met, [(iops / 400.0, is_met)]);
        }
    }
}
