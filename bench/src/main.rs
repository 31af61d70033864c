//! Measures Sanwire, its peers and the bare link side by side: HyperSCSI on two network namespaces joined by a veth pair,
//! iSCSI on the loopback of one.
//!
//! One round measures every contender once, so that the machine's drift meets all of them; the table has medians with the
//! smallest and the largest round. The server's processor time is that of its whole thread group; work in interrupts is
//! billed to whoever sent the packet that caused it.
#![forbid(unsafe_code)]

mod aoe;
mod facts;
mod idle;
mod iscsi;
mod latency;
mod link;
mod load;
mod ping;
mod plan;
mod process;
mod random;
mod report;
mod sample;
mod servers;
mod sessions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::json;

use idle::Idle;
use link::{End, Link, SERVER_ADDRESS};
use plan::{Bed, Job};
use process::Host;
use sample::{Row, Sample};
use servers::{Files, VOLUME_BYTES};

/// Measures Sanwire, its peers and the bare link side by side.
#[derive(Parser, Debug)]
#[command(name = "sanwire-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run everything, or one part (root)
    Run(RunArgs),
    /// Log in to an iSCSI target many times, and stay
    Sessions(sessions::SessionsArgs),
    /// Put load on a disk served over ATA over Ethernet
    Aoe(aoe::AoeArgs),
    /// Measure the round trip of the bare link
    Ping(ping::PingArgs),
    /// Answer `ping`
    Pong(ping::PongArgs),
}

/// What a run measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// HyperSCSI, vblade, tgt and the bare link
    Hyperscsi,
    /// iSCSI: Sanwire and tgt
    Iscsi,
}

#[derive(Args, Debug)]
struct RunArgs {
    /// Only this part
    part: Option<Part>,
    /// About a minute: two short rounds, and only the rows that targets speak of
    #[arg(long)]
    quick: bool,
    /// How often each contender is measured [default: 5, quick: 2]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long each measurement takes [default: 2, quick: 0.5]
    #[arg(long)]
    seconds: Option<f64>,
    /// The link's MTUs, one after the other (HyperSCSI)
    #[arg(long, value_delimiter = ',', default_values_t = [9000, 1500])]
    mtu: Vec<u32>,
    /// Operations in flight of the 512 KiB rows
    #[arg(long, default_value = "8")]
    sequential_depth: u16,
    /// Only contenders or loads that contain this text
    #[arg(long)]
    only: Vec<String>,
    /// Let the scheduler place client and server, instead of a processor for each (HyperSCSI; for iSCSI it always does)
    #[arg(long)]
    unpinned: bool,
    /// Where `sanwire` and `examples/rawlink` are
    #[arg(long, default_value = "target/release")]
    programs: PathBuf,
    /// Where the results file goes
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Sessions(args) => sessions::run(&args),
        Command::Aoe(args) => aoe::run(&args),
        Command::Ping(args) => ping::ping(&args),
        Command::Pong(args) => ping::pong(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sanwire-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What a run does, with the defaults filled in.
struct Settings<'a> {
    args: &'a RunArgs,
    rounds: usize,
    seconds: f64,
    processors: Option<(usize, usize)>,
    programs: [String; 3],
    interrupted: Arc<AtomicBool>,
}

fn run(args: &RunArgs) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // The programs end with the terminal's signal; this one lives on to remove the namespaces.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let settings = Settings {
        args,
        rounds: args.rounds.unwrap_or(if args.quick { 2 } else { 5 }).max(1),
        seconds: args.seconds.unwrap_or(if args.quick { 0.5 } else { 2.0 }),
        processors: (!args.unpinned && facts::cores() >= 2).then_some((0, 1)),
        programs: programs(&args.programs)?,
        interrupted,
    };
    let machine = facts::machine();
    println!("{machine:#}\n{}\n", placement(&settings));
    let files = Files::new()?;
    let has = |part| args.part.is_none_or(|only| only == part);
    let (mut rows, mut idle, mut iscsi_idle) = (vec![], None, None);
    if has(Part::Hyperscsi) {
        for &mtu_bytes in &args.mtu {
            rows.extend(measure_link(&settings, &files, mtu_bytes)?);
        }
        if args.only.is_empty() {
            idle = Some(measure_idle(&settings, &files)?);
        }
    }
    if has(Part::Iscsi) {
        rows.extend(iscsi::measure(&settings, &files)?);
        if args.only.is_empty() {
            iscsi_idle = Some(iscsi::measure_idle(&settings, &files)?);
        }
    }
    let mut verdicts = report::judge(&rows, idle.as_ref());
    verdicts.extend(iscsi::judge(&rows, iscsi_idle.as_ref()));
    println!("\n{}\n{}", report::table(&rows), report::targets(&verdicts));
    let (date, unix_seconds) = facts::now();
    let results = json!({
        "date": date, "unix_seconds": unix_seconds, "machine": machine, "load_average_after": facts::load_average(),
        "arguments": std::env::args().skip(1).collect::<Vec<_>>(), "placement": placement(&settings),
        "rounds": settings.rounds, "seconds": settings.seconds, "volume_bytes": VOLUME_BYTES,
        "offloads": "tso off, gso off, gro off at both ends",
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        "idle": idle.as_ref().map(Idle::to_json),
        "iscsi_idle": iscsi_idle.as_ref().map(iscsi::Idle::to_json),
        "targets": verdicts.iter().map(report::Verdict::to_json).collect::<Vec<_>>(),
    });
    fs::create_dir_all(&args.results)?;
    let path = args.results.join(format!("{date}-{}.json", facts::slug(&machine)));
    fs::write(&path, format!("{results:#}\n")).with_context(|| path.display().to_string())?;
    println!("written to {}", path.display());
    Ok(())
}

fn placement(settings: &Settings) -> String {
    match settings.processors {
        Some((client, server)) => {
            format!("HyperSCSI: client on processor {client}, server on processor {server} (taskset)")
        }
        None => "not pinned: the scheduler places client and server".into(),
    }
}

fn programs(directory: &Path) -> Result<[String; 3]> {
    let directory = fs::canonicalize(directory).with_context(|| directory.display().to_string())?;
    let this = std::env::current_exe()?;
    Ok([directory.join("sanwire"), directory.join("examples/rawlink"), this].map(|path| path.display().to_string()))
}

/// All rounds on one link.
fn measure_link(settings: &Settings, files: &Files, mtu_bytes: u32) -> Result<Vec<Row>> {
    let link = Link::new(mtu_bytes)?;
    let host = Host { link: &link, processors: settings.processors };
    let volumes = [format!("ram=ram:{VOLUME_BYTES}"), format!("tmpfs=file:{}", files.path("sanwire.img"))];
    let bed = Bed {
        sanwire: servers::start_sanwire(&host, &settings.programs[0], files, &volumes)?,
        vblade: servers::start_vblade(&host, files)?,
        tgt: servers::start_tgt(&host, &format!("{SERVER_ADDRESS}:3260"), &[&["-b", &files.path("tgt.img")]])?,
        programs: settings.programs.clone(),
        server_mac: link.mac_address(End::Server)?,
        client_key: files.path("client.key"),
        mtu_bytes,
        seconds: settings.seconds,
        host,
    };
    let jobs = plan::jobs(mtu_bytes, settings.args.quick, settings.args.sequential_depth);
    let turns = jobs.into_iter().map(|job| (row(&job, &bed), job)).collect();
    plan::fill(&bed)?;
    take_turns(settings, &format!("MTU {mtu_bytes}"), turns, |job| job.measure(&bed))
}

/// Measures each job once in every round; those that are not wanted or not there have no row.
fn take_turns<J>(
    settings: &Settings,
    title: &str,
    mut turns: Vec<(Row, J)>,
    measure: impl Fn(&J) -> Result<Option<Sample>>,
) -> Result<Vec<Row>> {
    let only = &settings.args.only;
    turns.retain(|(Row { contender, load, .. }, _)| {
        let name = format!("{contender} {load}");
        only.is_empty() || only.iter().any(|text| name.contains(text))
    });
    for round in 1..=settings.rounds {
        for (row, job) in &mut turns {
            servers::check_interrupted(&settings.interrupted)?;
            eprintln!("{title} round {round}/{}: {}, {}", settings.rounds, row.contender, row.load);
            match measure(job) {
                Ok(sample) => row.samples.extend(sample),
                // One contender's failure is a row with a round less, not the end of all the others.
                Err(error) => eprintln!("sanwire-bench: {}, {}: {error:#}", row.contender, row.load),
            }
        }
    }
    Ok(turns.into_iter().map(|(row, _)| row).filter(|row| !row.samples.is_empty()).collect())
}

fn row(job: &Job, bed: &Bed) -> Row {
    Row {
        mtu_bytes: bed.mtu_bytes,
        contender: job.contender(),
        load: job.load(),
        command: job.command(bed),
        samples: vec![],
    }
}

fn measure_idle(settings: &Settings, files: &Files) -> Result<Idle> {
    servers::check_interrupted(&settings.interrupted)?;
    let time = Duration::from_secs(if settings.args.quick { 5 } else { 20 });
    eprintln!("idle server and attached client: {} s", time.as_secs());
    let link = Link::new(9000)?;
    let host = Host { link: &link, processors: settings.processors };
    Idle::measure(&host, &settings.programs[0], files, time)
}
