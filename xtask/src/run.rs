//! Runs every check and test, and adds up what they say.

mod ahead;
mod command;
mod counts;
mod steps;
mod total;

use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;

use ahead::Ahead;
use command::{Kept, Ran, run};
use steps::SystemTests;
use total::Total;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Format, lints, rules and unit tests: what is quick enough to run before each commit.
    Check,
    /// What every change must pass.
    Short,
    /// That, more simulation, fuzzing, and proofs that need compilers of their own.
    Long,
}

/// What is run, and what is said of it.
struct Step {
    name: String,
    command: Command,
    /// Rows of steps that run beside this one, the steps of each one after the other. What they print follows when this step has ended.
    beside: Vec<Vec<Step>>,
}

/// A step that has ended.
struct Ended {
    name: String,
    outcome: Result<Ran, String>,
    /// What it printed, if that is not printed yet.
    printed: Vec<u8>,
}

/// Runs all steps, also after one failed, and prints `N passed, N failed, N skipped` at the end. A step that cannot run here is
/// one that is skipped. Without the system tests, which all of the product is compiled for, nothing is tried but what comes before.
/// With packages, what tests need of Debian's is installed meanwhile.
///
/// # Errors
/// When a step cannot be started.
pub fn all(root: &Path, length: Length, with_packages: bool) -> Result<bool, String> {
    let mut total = Total::default();
    let ahead = (length != Length::Check).then(|| Ahead::begin(root, with_packages));
    for step in steps::checks(root) {
        take(step, root, &mut total)?;
    }
    match ahead {
        None => take(steps::unit_tests(), root, &mut total)?,
        Some(ahead) => {
            let built = build_system_tests(root, &mut total)?;
            for packages in ahead.packages() {
                total.add_kept(packages)?;
            }
            for step in built.map(|programs| steps::tests(root, &programs, length)).into_iter().flatten() {
                take(step, root, &mut total)?;
            }
            ahead.end();
        }
    }
    Ok(total.say())
}

/// Compiles the program and its system tests; gives where these are, if they are.
fn build_system_tests(root: &Path, total: &mut Total) -> Result<Option<SystemTests>, String> {
    let Step { name, mut command, .. } = steps::build_of_system_tests();
    println!("== {name}");
    let told = Kept::default();
    let outcome = run(in_root(&mut command, root), told.clone(), io::stderr());
    total.add(Ended { name, outcome: outcome.map_err(|error| error.to_string()), printed: vec![] })?;
    Ok(steps::system_tests_among(&String::from_utf8_lossy(&told.take())))
}

/// Runs a step, and what is to run beside it.
fn take(mut step: Step, root: &Path, total: &mut Total) -> Result<(), String> {
    println!("== {}", step.name);
    let beside = step.beside;
    thread::scope(|scope| {
        let keep_all = |row: Vec<Step>| row.into_iter().map(|step| keep(step, root)).collect::<Vec<_>>();
        let beside: Vec<_> = beside.into_iter().map(|row| scope.spawn(move || keep_all(row))).collect();
        let outcome = run(in_root(&mut step.command, root), io::stdout(), io::stderr());
        let outcome = outcome.map_err(|error| error.to_string());
        total.add(Ended { name: step.name, outcome, printed: vec![] })?;
        for row in beside {
            for kept in row.join().map_err(|_| "a thread beside a step panicked")? {
                total.add_kept(kept)?;
            }
        }
        Ok(())
    })
}

/// Commands run there unless they say where.
fn in_root<'a>(command: &'a mut Command, root: &Path) -> &'a mut Command {
    if command.get_current_dir().is_some() { command } else { command.current_dir(root) }
}

/// Runs a step, and keeps what it prints.
fn keep(mut step: Step, root: &Path) -> Ended {
    let kept = Kept::default();
    let outcome = run(in_root(&mut step.command, root), kept.clone(), kept.clone());
    let outcome = outcome.map_err(|error| error.to_string());
    Ended { name: step.name, outcome, printed: kept.take() }
}
