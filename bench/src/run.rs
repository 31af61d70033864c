//! A run: its parts one after the other, and the files with what they gave.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::report::Outcome;
use crate::sample::Row;
use crate::servers::{Files, VOLUME_BYTES};
use crate::{
    facts, flood, frozen, hyperscsi, iscsi, iser, links, management, paper, raw, scale, security, snapshots, visa,
};

/// What a run measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// HyperSCSI, vblade, tgt and the bare link
    Hyperscsi,
    /// iSCSI: Sanwire and tgt
    Iscsi,
    /// iSER beside iSCSI, both ends ours, by the size of requests
    Iser,
    /// What guarding a HyperSCSI volume costs
    Security,
    /// What a second link brings a HyperSCSI connection
    Links,
    /// What a flood of forged handshakes costs who is served, and who wants to be
    Flood,
    /// What a client that stands still costs the others
    Frozen,
    /// What 10,000 volumes and 1,000 sessions take
    Scale,
    /// What HTTP, scrapes of metrics and a storm of requests cost
    Management,
    /// How long a snapshot takes and stops writes, and what reads through layers cost
    Snapshots,
    /// Block reads, file copies and IOzone's accesses as a share of the local disk
    Paper,
    /// VISA through a file system, beside HyperSCSI over IP, and what derived volumes and their programs cost
    Visa,
    /// HDSP beside iSCSI and a TCP stream, HyperSCSI beside the bare link, AoE beside vblade, and a mirror beside one member
    Raw,
}

impl Part {
    /// How often and for how many seconds each contender is measured unless somebody asks for another number.
    fn defaults(self) -> (usize, f64) {
        match self {
            Part::Hyperscsi | Part::Iscsi => (5, 2.0),
            Part::Iser | Part::Security | Part::Raw => (5, 1.0),
            Part::Links | Part::Frozen => (5, 3.0),
            Part::Flood => (5, 2.0),
            Part::Paper => (3, 1.0),
            Part::Visa => (5, 0.6),
            Part::Scale | Part::Management | Part::Snapshots => (1, 0.0),
        }
    }

    /// Whether client and server have a processor each. Else they take what there is: threads of the kernel, or of other servers, need
    /// processors too.
    fn is_pinned(self) -> bool {
        matches!(
            self,
            Part::Hyperscsi
                | Part::Iser
                | Part::Security
                | Part::Links
                | Part::Flood
                | Part::Frozen
                | Part::Visa
                | Part::Raw
        )
    }

    fn measure(self, settings: &Settings, files: &Files) -> Result<Outcome> {
        match self {
            Part::Hyperscsi => hyperscsi::measure(settings, files),
            Part::Iscsi => iscsi::measure(settings, files),
            Part::Iser => iser::measure(settings, files),
            Part::Security => security::measure(settings, files),
            Part::Links => links::measure(settings, files),
            Part::Flood => flood::measure(settings, files),
            Part::Frozen => frozen::measure(settings, files),
            Part::Paper => paper::measure(settings, files),
            Part::Visa => visa::measure(settings, files),
            Part::Raw => raw::measure(settings, files),
            Part::Scale => scale::measure(settings, files),
            Part::Management => management::measure(settings, files),
            Part::Snapshots => snapshots::measure(settings, files),
        }
    }
}

/// `sanwire-bench run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Only this part
    part: Option<Part>,
    /// Two short rounds; of hyperscsi and iscsi only the rows that targets speak of
    #[arg(long)]
    pub(crate) quick: bool,
    /// How often each contender is measured [default: 5, paper: 3, quick: 2]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long each measurement takes [default: 2, iser, security and raw: 1, links and frozen: 3, visa: 0.6, quick: 0.5; paper: as long as its bytes take]
    #[arg(long)]
    seconds: Option<f64>,
    /// The link's MTUs, one after the other (hyperscsi, iser, raw)
    #[arg(long, value_delimiter = ',', default_values_t = [9000, 1500])]
    pub(crate) mtu: Vec<u32>,
    /// Operations in flight of the 512 KiB rows
    #[arg(long, default_value = "8")]
    pub(crate) sequential_depth: u16,
    /// Only contenders or loads that contain this text
    #[arg(long)]
    pub(crate) only: Vec<String>,
    /// Let the scheduler place client and server, instead of a processor for each (all but iscsi and paper, where it always does)
    #[arg(long)]
    unpinned: bool,
    /// A directory on the local disk that the paper's table compares with, and where visa has kept what was derived; it must know direct I/O
    #[arg(long, default_value = "/var/tmp")]
    pub(crate) disk: PathBuf,
    /// Where `sanwire` and `examples/rawlink` are
    #[arg(long, default_value = "target/release")]
    programs: PathBuf,
    /// Where the results files go
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// What a part does, with the defaults filled in.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) args: &'a RunArgs,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// The processors of client and server; without them the scheduler decides.
    pub(crate) processors: Option<(usize, usize)>,
    /// The path of `sanwire`, of `rawlink` and of this program.
    pub(crate) programs: [String; 3],
    pub(crate) interrupted: Arc<AtomicBool>,
}

impl<'a> Settings<'a> {
    fn new(args: &'a RunArgs, part: Part, interrupted: &Arc<AtomicBool>) -> Result<Self> {
        let (rounds, seconds) = if args.quick { (2, 0.5) } else { part.defaults() };
        Ok(Settings {
            args,
            rounds: args.rounds.unwrap_or(rounds).max(1),
            seconds: args.seconds.unwrap_or(seconds),
            processors: (part.is_pinned() && !args.unpinned && facts::cores() >= 2).then_some((0, 1)),
            programs: programs(&args.programs)?,
            interrupted: interrupted.clone(),
        })
    }

    /// Whether `--only` lets the row be.
    pub(crate) fn is_wanted(&self, row: &Row) -> bool {
        self.is_named(&format!("{} {}", row.contender, row.load))
    }

    /// The same of what has no row, by its name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.args.only.is_empty() || self.args.only.iter().any(|text| name.contains(text))
    }
}

fn programs(directory: &Path) -> Result<[String; 3]> {
    let directory = fs::canonicalize(directory).with_context(|| directory.display().to_string())?;
    let this = std::env::current_exe()?;
    Ok([directory.join("sanwire"), directory.join("examples/rawlink"), this].map(|path| path.display().to_string()))
}

/// Measures, prints, and writes the results files.
///
/// # Errors
/// When a part cannot begin, was interrupted, or its results cannot be written.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Clients end with the terminal's signal; this one lives on to end the servers and to remove the namespaces.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let machine = facts::machine();
    println!("{machine:#}\n");
    let (date, unix_seconds) = facts::now();
    let parts = args.part.as_ref().map_or_else(|| Part::value_variants(), std::slice::from_ref);
    let mut measured = vec![];
    for &part in parts {
        let settings = Settings::new(args, part, &interrupted)?;
        let outcome = part.measure(&settings, &Files::new()?)?;
        println!("\n{}: {} rounds\n\n{}", outcome.part, settings.rounds, outcome.block());
        let mut part_json = outcome.to_json();
        part_json["rounds"] = json!(settings.rounds);
        part_json["seconds"] = json!(settings.seconds);
        part_json["processors"] = json!(settings.processors);
        measured.push(part_json);
        let results = json!({
            "date": date, "unix_seconds": unix_seconds, "load_average_after": facts::load_average(),
            "arguments": std::env::args().skip(1).collect::<Vec<_>>(), "volume_bytes": VOLUME_BYTES,
            "offloads": "tso off, gso off, gro off at both ends", "parts": measured, "machine": machine,
        });
        // Of a run of one part, so that parts measured in the same minute do not overwrite each other.
        let name = if args.part.is_some() { format!("-{}", outcome.part) } else { String::new() };
        let base = args.results.join(format!("{date}-{}", facts::slug(&machine)));
        write(&base, &format!("{name}.json"), &format!("{results:#}\n"), &outcome)?;
    }
    Ok(())
}

/// The numbers of all parts so far as JSON, and what the documentation takes of this one: the block and the picture.
fn write(base: &Path, json_end: &str, results: &str, outcome: &Outcome) -> Result<()> {
    if let Some(directory) = base.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = |end: &str, text: &str| -> Result<()> {
        let path = PathBuf::from(format!("{}{end}", base.display()));
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("written to {}", path.display());
        Ok(())
    };
    file(json_end, results)?;
    file(&format!("-{}.md", outcome.part), &outcome.block())?;
    outcome.picture.iter().try_for_each(|picture| file(&format!("-{}.svg", outcome.part), picture))
}
