//! `sanwire dvd test`: what a program says of commands, without a server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use sanwire_core::Principal;
use sanwire_device::{CommandProgram, JudgedCommand, Judgement, Verdict};
use sanwire_program::{Description, Judged, Limits, Program, StateKeeper};
use sanwire_server::replace_file;

use super::asked::{self, Asked, Device, Usual};
use super::principal;
use crate::args::DvdTestArgs;
use crate::failure::misuse;
use crate::output;

/// Loads the program and asks it about each command.
pub(crate) fn run(args: &DvdTestArgs) -> anyhow::Result<()> {
    let device = Device { capacity_blocks: args.size.0 / u64::from(args.block_size), block_bytes: args.block_size };
    let usual = usual(args)?;
    let asked = args
        .commands
        .iter()
        .map(|text| asked::parse(text, device, &usual).map_err(|error| misuse(format!("--command '{text}': {error}"))));
    let asked = asked.collect::<anyhow::Result<Vec<Asked>>>()?;
    let file = args.program.display();
    let module = std::fs::read(&args.program).with_context(|| format!("{file} cannot be read"))?;
    let usual_limits = Limits::default();
    let limits = Limits { fuel: args.fuel.unwrap_or(usual_limits.fuel), ..usual_limits };
    let keeper: Arc<dyn StateKeeper> = match &args.state {
        Some(file) => Arc::new(StateFile(file.clone())),
        None => Arc::new(InMemory::default()),
    };
    let program = Program::load(&module, limits, Some(keeper)).map_err(|error| misuse(format!("{file}: {error}")))?;
    let mut rows = vec![];
    let mut principals: Vec<&Principal> = vec![];
    for (asked, text) in asked.iter().zip(&args.commands) {
        let known = principals.iter().position(|known| known.is_same_as(&asked.principal));
        let number = known.unwrap_or(principals.len());
        if known.is_none() {
            principals.push(&asked.principal);
        }
        rows.push(row(&program, asked, text, number, device));
    }
    program.flush().context("the state cannot be kept")?;
    let table = output::table(["COMMAND", "VERDICT", "FUEL", "TIME"], &rows);
    output::print(&format!("{}\n\n{table}", about(&program.description())))?;
    match program.statistics().failed {
        0 => Ok(()),
        failed => anyhow::bail!("{file}: the program failed in {failed} of its calls"),
    }
}

fn usual(args: &DvdTestArgs) -> anyhow::Result<Usual> {
    let principal = principal::parse(&args.principal).map_err(|error| misuse(format!("--principal {error}")))?;
    let unix_ms = match &args.time {
        Some(time) => asked::unix_ms(time).map_err(|error| misuse(format!("--time {error}")))?,
        None => asked::since_1970(SystemTime::now()).context("the clock of this host stands before 1970")?,
    };
    Ok(Usual { principal, unix_ms, data: args.data.clone() })
}

/// What the module says of itself.
fn about(description: &Description) -> String {
    let Description { memory_bytes, state_bytes, data_head_bytes, classes, .. } = description;
    let classes = classes.iter().map(|class| class.word()).collect::<Vec<_>>().join(", ");
    let data = if *data_head_bytes > 0 { format!(", sees {data_head_bytes} bytes of data") } else { String::new() };
    format!("{} KiB of memory, {state_bytes} bytes of state, judges {classes}{data}", memory_bytes / 1024)
}

fn row(program: &Program, asked: &Asked, text: &str, principal: usize, device: Device) -> [String; 4] {
    let command = JudgedCommand {
        cdb: &asked.cdb,
        classes: asked.classes,
        ranges: &asked.ranges,
        capacity_blocks: device.capacity_blocks,
        block_bytes: device.block_bytes,
        principal: &asked.principal,
        principal_number: u32::try_from(principal).map_or(256, |number| number.min(256)),
        unix_ms: asked.unix_ms,
        waited_ms: 0,
        data_out: &asked.data,
    };
    let started = Instant::now();
    let judged = program.run(&command);
    let took = started.elapsed();
    let end = judged.judgement.end;
    let mut verdict = describe(&judged, program.classes().intersects(asked.classes));
    if let Some(token) = end {
        let keeps = program.ended(token, asked.is_good).is_some();
        verdict += if keeps { "; its end is noted durably" } else { "; its end is noted" };
    }
    [text.to_owned(), verdict, judged.fuel.to_string(), shown(took)]
}

fn describe(judged: &Judged, is_asked: bool) -> String {
    if let Some(failure) = judged.failure {
        return format!("refuse: {failure}");
    }
    let Judgement { verdict, keep, .. } = &judged.judgement;
    let verdict = match verdict {
        Verdict::Allow if !is_asked => "allow, without being asked".into(),
        Verdict::Allow => "allow".into(),
        Verdict::Refuse(sense) => format!("refuse: {sense}"),
        Verdict::Redirect { lba } => format!("redirect to LBA {lba}"),
        Verdict::Rewrite(cdb) => {
            format!("rewrite to {}", cdb.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
        }
        Verdict::Defer { milliseconds } => format!("defer for {milliseconds} ms"),
    };
    if keep.is_some() { verdict + ", when the state is durable" } else { verdict }
}

/// A time that is short, to three digits.
fn shown(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 100.0 { format!("{us:.1} us") } else { format!("{us:.0} us") }
}

/// A state that lives as long as this command.
#[derive(Debug, Default)]
struct InMemory(Mutex<Option<Vec<u8>>>);

impl StateKeeper for InMemory {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn save(&self, record: &[u8]) -> io::Result<()> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.to_vec());
        Ok(())
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

/// A state in a file of the user's.
#[derive(Debug)]
struct StateFile(PathBuf);

impl StateKeeper for StateFile {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(&self.0) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn save(&self, record: &[u8]) -> io::Result<()> {
        replace_file(&self.0, record)
    }

    fn place(&self) -> String {
        Path::display(&self.0).to_string()
    }
}
