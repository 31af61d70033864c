//! What a second link brings: the same loads over one of two equal links, and over both as one connection. The links are shaped, so
//! that they and not the processors are the limit.

use anyhow::Result;
use serde_json::Value;

use crate::link::{Link, SECOND_INTERFACE};
use crate::load::{ClientCommand, Load, line, loaded, read_sanwire, sanwire_bench};
use crate::process::{Host, Running};
use crate::report::{Column, Outcome, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample, median};
use crate::servers::{Files, VOLUME_BYTES, Wire, start_sanwire};

const MTU_BYTES: u32 = 9000;

/// What each link carries, and the queue before it.
const MBIT_PER_SECOND: u32 = 1000;
const QUEUE_BYTES: u32 = 512 << 10;

const VOLUME: &str = "disk";

/// Contenders, and what the client is told about links.
const ONE: (&str, &str) = ("one link", " --links 1");
const BOTH: (&str, &str) = ("two links", "");

/// What two links must carry at least, in terms of one.
const TARGET: f64 = 1.6;

const COLUMNS: [Column; 5] = [
    Column { title: "MiB/s med (min-max)", measure: Measure::MibPerS, digits: 0, has_range: true },
    Column { title: "p50 us", measure: Measure::LatencyP50Us, digits: 1, has_range: false },
    Column { title: "server us/IO", measure: Measure::ServerCpuUs, digits: 1, has_range: false },
    Column { title: "client us", measure: Measure::ClientCpuUs, digits: 1, has_range: false },
    Column { title: "times one link", measure: Measure::Share, digits: 2, has_range: true },
];

/// The server, and how clients are started.
struct Bed<'a> {
    host: Host<'a>,
    server: Running,
    client_key: String,
    sanwire: &'a str,
    seconds: f64,
}

/// A load over so many links.
struct Job {
    links: (&'static str, &'static str),
    load: Load,
}

/// All rounds.
///
/// # Errors
/// When the server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let link = Link::new(MTU_BYTES)?;
    link.add_second(MTU_BYTES)?;
    link.shape(MBIT_PER_SECOND, QUEUE_BYTES)?;
    let host = Host { link: &link, processors: settings.processors };
    let wires = [Wire::Ethernet, Wire::EthernetOn(SECOND_INTERFACE)];
    let sanwire = &settings.programs[0];
    let bed = Bed {
        server: start_sanwire(&host, sanwire, files, &wires, &[format!("{VOLUME}=ram:{VOLUME_BYTES}")])?,
        host,
        client_key: files.path("client.key"),
        sanwire,
        seconds: settings.seconds,
    };
    let loads = [true, false].map(|is_write| Load::sequential(512 << 10, settings.args.sequential_depth, is_write));
    let jobs = loads.into_iter().flat_map(|load| [ONE, BOTH].map(|links| Job { links, load }));
    let turns = jobs.map(|job| (job.row(&bed), job)).collect();
    let mut rows = take_single_turns(settings, "links", turns, |job| job.measure(&bed).map(Some))?;
    compare(&mut rows);
    Ok(Outcome {
        part: "links",
        verdicts: judge(&rows),
        table: table(&rows, &COLUMNS),
        idle: Value::Null,
        rows,
        picture: None,
    })
}

impl Job {
    fn client(&self, bed: &Bed) -> ClientCommand {
        let url = Wire::Ethernet.url(VOLUME);
        sanwire_bench(bed.sanwire, &self.load, bed.seconds, &url, &bed.client_key, self.links.1)
    }

    fn row(&self, bed: &Bed) -> Row {
        Row {
            mtu_bytes: MTU_BYTES,
            contender: self.links.0.into(),
            load: self.load.name(),
            command: line(&self.client(bed)),
            samples: vec![],
        }
    }

    fn measure(&self, bed: &Bed) -> Result<Sample> {
        loaded(&bed.host, &bed.server, &self.client(bed), read_sanwire)
    }
}

/// Each sample in terms of one link's median.
fn compare(rows: &mut [Row]) {
    let reference = rows.to_vec();
    for row in rows {
        let one = median(&reference, ONE.0, &row.load, Measure::Iops).filter(|iops| *iops > 0.0);
        for sample in &mut row.samples {
            sample.share = sample.iops.zip(one).map(|(iops, one)| iops / one);
        }
    }
}

fn judge(rows: &[Row]) -> Vec<Verdict> {
    let both = rows.iter().filter(|row| row.contender == BOTH.0);
    both.filter_map(|row| {
        let share = row.spread(Measure::Share)?.median;
        let target =
            format!("MTU {MTU_BYTES}: HS/eth ram, {}, two links of {MBIT_PER_SECOND} Mbit/s, times one", row.load);
        Some(Verdict::at_least(target, share, TARGET))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_links_are_judged_by_what_one_carries() {
        let row = |contender: &str, load: &str, iops| Row {
            mtu_bytes: MTU_BYTES,
            contender: contender.into(),
            load: load.into(),
            command: String::new(),
            samples: vec![Sample { iops: Some(iops), ..Sample::default() }],
        };
        let (read, write) = ("512K sequential read qd8", "512K sequential write qd8");
        let mut rows = vec![
            row(ONE.0, read, 200.0),
            row(BOTH.0, read, 390.0),
            row(ONE.0, write, 200.0),
            row(BOTH.0, write, 300.0),
        ];
        compare(&mut rows);
        let met: Vec<(f64, bool)> = judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(1.95, true), (1.5, false)]);
    }
}
