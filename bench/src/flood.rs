//! What a flood of handshakes costs who is served, and who wants to be: forged first steps beside an honest load.

mod forger;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

pub(crate) use self::forger::{FloodArgs, run};
use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{End, INTERFACE, Link, SECOND_INTERFACE};
use crate::load::{ClientCommand, Load, read_sanwire};
use crate::process::Running;
use crate::report::{Column, Outcome, Verdict, table};
use crate::rounds::{Turn, take_turns};
use crate::run::Settings;
use crate::sample::{Measure, Row, compare};
use crate::servers::{Files, VOLUME_BYTES, Wire};

/// Forged packets in a second.
const RATE: u32 = 20_000;

/// The part of them that the server's interface must have received for a measurement to count.
const RECEIVED_MIN: f64 = 0.9;

/// What must be left of the honest client's operations, and how long a new one may take to connect.
const SHARE_MIN: f64 = 0.80;
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// New clients in each round.
const NEWCOMERS: usize = 3;

/// How long the server has to notice the flood before something is measured.
const LEAD: Duration = Duration::from_millis(500);

const QUIET: &str = "quiet";
const VOLUME: &str = "ram";

const COLUMNS: [Column; 5] = [
    Column::IOPS,
    Column::MIB_PER_S,
    Column::LATENCY_P50_US,
    Column::SERVER_US_RANGED,
    Column::ranged("part of quiet", Measure::Share, 2),
];

/// Whether there is a flood, and where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    Quiet,
    /// On this interface of both hosts: on that of the honest client it has to share the ring and the turns of the port too.
    Flooded(&'static str),
}

const FLOODS: [Weather; 2] = [Weather::Flooded(SECOND_INTERFACE), Weather::Flooded(INTERFACE)];

/// All rounds, and then new clients with and without the flood.
///
/// # Errors
/// When the server does not come up, or no client connects.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let link = Link::new(MTU_BYTES)?;
    link.add_second(MTU_BYTES)?;
    let wires = [Wire::Ethernet, Wire::EthernetOn(SECOND_INTERFACE)];
    let bed = Bed::new(settings, &link, files, &wires, &[format!("{VOLUME}=ram:{VOLUME_BYTES}")])?;
    let flood = Flood::new(settings, &bed, files)?;
    let loads = [Load::random_read(4096, 1), Load::random_read(4096, 32), Load::sequential(512 << 10, 8, false)];
    let weathers = [Weather::Quiet].into_iter().chain(FLOODS);
    let turns = loads.into_iter().flat_map(|load| weathers.clone().map(move |weather| (load, weather)));
    let turns = turns.map(|(load, weather)| Turn {
        rows: vec![bed::row(weather.name(), &load, &client(&bed, &load))],
        job: (load, weather),
    });
    let mut rows = take_turns(
        settings,
        "flood",
        turns.collect(),
        |(_, weather)| flood.begin(*weather).map(Some),
        |(load, _), storm, _| {
            let sample = bed.measure(&client(&bed, load), read_sanwire)?;
            storm.check(&link)?;
            Ok(Some(sample))
        },
    )?;
    compare(&mut rows, QUIET);
    let [quiet, flooded] = [Weather::Quiet, FLOODS[0]].map(|weather| flood.newcomers(weather, settings.rounds));
    let (quiet, flooded) = (quiet?, flooded?);
    Ok(Outcome {
        part: "flood",
        verdicts: judge(&rows, &quiet, &flooded),
        table: table(&rows, &COLUMNS),
        idle: json!({
            "packets_per_second": RATE, "connect_s_quiet": quiet, "connect_s_flooded": flooded,
        }),
        rows,
        ..Outcome::default()
    })
}

fn client(bed: &Bed, load: &Load) -> ClientCommand {
    bed.client(load, VOLUME, " --links 1")
}

impl Weather {
    fn name(self) -> &'static str {
        match self {
            Weather::Quiet => QUIET,
            Weather::Flooded(INTERFACE) => "flooded, same link",
            Weather::Flooded(_) => "flooded",
        }
    }
}

/// A flood that lasts until it is dropped, or none.
struct Storm(Option<Falling>);

struct Falling {
    interface: &'static str,
    /// Its drop ends the flood.
    forger: Running,
    begun: Instant,
    /// What the server's interface had received when it began.
    received_before: u64,
}

impl Storm {
    /// # Errors
    /// When the server met less than it was to meet: what was measured says nothing.
    fn check(&self, link: &Link) -> Result<()> {
        let Some(falling) = &self.0 else { return Ok(()) };
        falling.forger.state()?;
        // On the honest client's link its packets are among them; there the forger lives, and the other link tells its pace.
        let received = link.received(End::Server, falling.interface)? - falling.received_before;
        let due = f64::from(RATE) * falling.begun.elapsed().as_secs_f64();
        if (received as f64) < due * RECEIVED_MIN {
            bail!("the server has received {received} packets, and should have {due:.0}");
        }
        Ok(())
    }
}

/// How to make one, and what it meets.
struct Flood<'a> {
    bed: &'a Bed<'a>,
    files: &'a Files,
    this: &'a str,
    sanwire: &'a str,
    /// The client whose shard is flooded.
    victim: String,
}

impl<'a> Flood<'a> {
    fn new(settings: &'a Settings, bed: &'a Bed<'a>, files: &'a Files) -> Result<Self> {
        let [sanwire, _, this] = &settings.programs;
        let id = bed.host.run(End::Client, sanwire, &["id", "--key-file", &files.path("client.key")])?;
        let victim = id.output.split_whitespace().find(|word| word.len() == 32).context("`sanwire id` says no id")?;
        Ok(Flood { bed, files, this, sanwire, victim: victim.to_owned() })
    }

    /// Lasts until what it gives is dropped.
    fn begin(&self, weather: Weather) -> Result<Storm> {
        let Weather::Flooded(interface) = weather else { return Ok(Storm(None)) };
        let link = self.bed.host.link;
        let (server, rate) = (link.mac_address_of(End::Server, interface)?, RATE.to_string());
        let arguments = ["flood", interface, &server, "--rate", &rate, "--shard-of", &self.victim];
        let forger = self.bed.host.start(End::Client, self.this, &arguments)?;
        std::thread::sleep(LEAD);
        let (begun, received_before) = (Instant::now(), link.received(End::Server, interface)?);
        Ok(Storm(Some(Falling { interface, forger, begun, received_before })))
    }

    /// How many seconds new clients take to connect and to be told of the volume.
    fn newcomers(&self, weather: Weather, rounds: usize) -> Result<Vec<f64>> {
        let storm = self.begin(weather)?;
        let url = Wire::Ethernet.url(VOLUME);
        let times = (0..rounds * NEWCOMERS).map(|number| {
            let key = self.files.path(&format!("{}-{number}.key", weather.name()));
            self.bed.host.run(End::Client, self.sanwire, &["id", "--key-file", &key])?;
            let start = Instant::now();
            self.bed.host.run(End::Client, self.sanwire, &["info", &url, "--wait", "30", "--key-file", &key])?;
            Ok(start.elapsed().as_secs_f64())
        });
        let times = times.collect::<Result<_>>()?;
        storm.check(self.bed.host.link)?;
        Ok(times)
    }
}

fn judge(rows: &[Row], quiet: &[f64], flooded: &[f64]) -> Vec<Verdict> {
    let shares = rows.iter().filter(|row| row.contender != QUIET).filter_map(|row| {
        let share = row.spread(Measure::Share)?.median;
        let Row { contender, load, .. } = row;
        let target = format!("HS/eth ram, {load}, {contender}: {RATE} forged handshakes in a second, part of quiet");
        Some(Verdict::at_least(target, share, SHARE_MIN))
    });
    let worst = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let target = format!("beside it a new client is served after so many s at the worst; quiet: {:.2}", worst(quiet));
    let connect = Verdict::at_most(target, worst(flooded), CONNECT_MAX.as_secs_f64());
    shares.chain([connect]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_judged_by_what_it_leaves_and_how_long_it_keeps_out() {
        let row = |contender, iops| Row::of_iops(contender, "4K random read qd1", &[iops]);
        let mut rows = vec![row(QUIET, 100.0), row("flooded", 79.0)];
        compare(&mut rows, QUIET);
        let met: Vec<bool> = judge(&rows, &[0.1, 0.2], &[0.1, 1.9]).iter().map(Verdict::is_met).collect();
        assert_eq!(met, [false, true]);
    }
}
