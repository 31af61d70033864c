//! Runs `iscsi-test-cu` and reads what it prints.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::harness::{run, run_ok};

/// Some tests wait for resets and retries.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How one test ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was exercised and found nothing.
    Passed,
    /// It, or a part of it, was not exercised: why.
    Skipped(String),
    /// It found a fault: what.
    Failed(String),
}

/// The suite's list of tests.
pub struct Suite {
    tests: BTreeSet<String>,
}

impl Suite {
    /// Asks the program what it has.
    pub fn load() -> Suite {
        let mut list = Command::new("iscsi-test-cu");
        list.arg("--list");
        let list = run_ok(list, Duration::from_secs(10));
        let tests = list.lines().filter_map(|line| line.strip_prefix("ALL.")).filter(|name| name.contains('.'));
        Suite { tests: tests.map(str::to_owned).collect() }
    }

    /// `FAMILY.TEST`, all of them.
    pub fn tests(&self) -> &BTreeSet<String> {
        &self.tests
    }

    /// The families by these names, `ALL` for all; one with a test that is left out comes test by test.
    pub fn parts(&self, names: &[&str], left_out: &[(&str, &str)]) -> BTreeSet<String> {
        let is_wanted = |family: &str| names.contains(&family) || names.contains(&"ALL");
        let is_cut =
            |family: &str| left_out.iter().any(|(test, _)| test.split_once('.').is_some_and(|(f, _)| f == family));
        let run = self.tests.iter().filter(|test| left_out.iter().all(|(name, _)| name != test));
        let parts = run.filter_map(|test| {
            let (family, _) = test.split_once('.')?;
            is_wanted(family).then(|| if is_cut(family) { test.clone() } else { family.to_owned() })
        });
        parts.collect()
    }

    /// Runs a family or a test; gives what each test said.
    pub fn run(&self, part: &str, urls: &[String]) -> Vec<(String, Outcome)> {
        let mut command = Command::new("iscsi-test-cu");
        command.args(["--dataloss", "--allow-sanitize", "--test", &format!("ALL.{part}")]).args(urls);
        let ran = run(command, TIMEOUT);
        let found = read(&ran.stdout);
        assert!(!found.is_empty(), "iscsi-test-cu {part} has run nothing:\n{}{}", ran.stdout, ran.stderr);
        for (name, _) in &found {
            assert!(self.tests.contains(name), "{name} is not in the list");
        }
        found
    }
}

/// Reads the report of CUnit: a line for each suite and for each test; what a test says stands between.
fn read(output: &str) -> Vec<(String, Outcome)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut suite = "";
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("Suite: ") {
            suite = name.trim();
        } else if line.starts_with("Run Summary:") {
            break;
        } else if let Some((name, said)) = line.strip_prefix("  Test: ").and_then(|test| test.split_once(" ...")) {
            found.push((format!("{suite}.{name}"), format!("{said}\n")));
        } else if let Some((_, said)) = found.last_mut() {
            said.push_str(line);
            said.push('\n');
        }
    }
    found.into_iter().map(|(name, said)| (name, outcome(&said))).collect()
}

fn outcome(said: &str) -> Outcome {
    if said.lines().any(|line| line.trim_end().ends_with("FAILED")) {
        return Outcome::Failed(said.trim().to_owned());
    }
    match said.lines().find_map(|line| line.split_once("[SKIPPED]")) {
        Some((_, reason)) => Outcome::Skipped(reason.trim().to_owned()),
        None => Outcome::Passed,
    }
}

#[test]
fn reports_are_read() {
    let output = "\nSuite: A\n  Test: One ...passed\n  Test: Two ...    [SKIPPED] not now.\n    [SKIPPED] no.\npassed\n\
                  Suite: B\n  Test: One ...    [FAILED] wrong\nFAILED\n    1. b.c:3 - assert\n\nRun Summary: FAILED\n";
    let found = read(output);
    assert_eq!(found[0], ("A.One".into(), Outcome::Passed));
    assert_eq!(found[1], ("A.Two".into(), Outcome::Skipped("not now.".into())));
    assert!(matches!(&found[2], (name, Outcome::Failed(what)) if name == "B.One" && what.contains("b.c:3")));
}
