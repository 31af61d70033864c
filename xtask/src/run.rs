//! Runs every check and test, and adds up what they say.

mod ahead;
mod command;
mod steps;

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::thread;

use ahead::Ahead;
use command::{Kept, Ran, run};
use steps::SystemTests;

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

/// What a step came to.
type Outcome = Result<Ran, String>;

/// Name and outcome of a step, and what it has printed.
type KeptStep = (String, Outcome, Vec<u8>);

/// What all steps that have ended came to.
#[derive(Default)]
struct Total {
    passed: u64,
    failed: u64,
    skipped: u64,
    failed_tests: Vec<String>,
    failed_steps: Vec<String>,
    /// What the failed steps said last that have no failed test to name: the finding of a check, the error of a compiler.
    findings: Vec<String>,
}

impl Total {
    fn add(&mut self, name: String, outcome: Outcome) -> Result<(), String> {
        let Ran { counts, is_success, last_lines } = outcome.map_err(|error| format!("{name}: {error}"))?;
        self.passed += counts.passed;
        self.skipped += counts.skipped;
        // A step that fails without a failed test (a compiler's error, a finding) counts as one.
        self.failed += if is_success { counts.failed } else { counts.failed.max(1) };
        if is_success && counts.failed == 0 {
            return Ok(());
        }
        if counts.failed_tests.is_empty() {
            self.findings.extend(last_lines.into_iter().map(|line| format!("{name}: {line}")));
        }
        self.failed_tests.extend(counts.failed_tests);
        self.failed_steps.push(name);
        Ok(())
    }

    fn add_kept(&mut self, (name, outcome, printed): KeptStep) -> Result<(), String> {
        println!("== {name}");
        io::stdout().write_all(&printed).map_err(|error| error.to_string())?;
        self.add(name, outcome)
    }

    /// Says it in the last lines, which are what a record keeps that is cut short.
    fn say(self) -> bool {
        if !self.failed_steps.is_empty() {
            println!("failed: {}", self.failed_steps.join(", "));
        }
        for line in self.findings.iter().chain(&self.failed_tests) {
            println!("  {line}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        self.failed == 0 && self.passed > 0
    }
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
    total.add(name, outcome.map_err(|error| error.to_string()))?;
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
        total.add(step.name, outcome.map_err(|error| error.to_string()))?;
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
fn keep(mut step: Step, root: &Path) -> KeptStep {
    let kept = Kept::default();
    let outcome = run(in_root(&mut step.command, root), kept.clone(), kept.clone());
    (step.name, outcome.map_err(|error| error.to_string()), kept.take())
}

#[cfg(test)]
mod tests {
    use super::command::Counts;
    use super::*;

    #[test]
    fn the_last_words_of_a_failed_step_are_kept_unless_it_names_failed_tests() {
        let mut total = Total::default();
        let mut add = |name: &str, failed_tests: &[&str]| {
            let failed_tests: Vec<String> = failed_tests.iter().map(|name| (*name).to_owned()).collect();
            let counts = Counts { failed: failed_tests.len() as u64, failed_tests, ..Counts::default() };
            let last_lines = vec!["a.rs: 401 lines".to_owned()];
            total.add(name.to_owned(), Ok(Ran { counts, is_success: false, last_lines })).unwrap();
        };
        add("tidy", &[]);
        add("other tests", &["a::b"]);
        assert_eq!((total.failed, total.failed_steps), (2, vec!["tidy".to_owned(), "other tests".to_owned()]));
        assert_eq!(
            (total.findings, total.failed_tests),
            (vec!["tidy: a.rs: 401 lines".to_owned()], vec!["a::b".to_owned()])
        );
    }
}
