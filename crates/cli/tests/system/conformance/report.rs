//! Adds up what the suite said in all set-ups, and writes the table of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::newer;
use super::suite::Outcome;

/// When this variable is set, the table is written anew instead of being compared.
const UPDATE: &str = "SANWIRE_UPDATE_DOCS";

/// What the suite does not ask.
const TOKENS: &str = "
## Tokens

libiscsi's suite has no tests of POPULATE TOKEN and WRITE USING TOKEN, and Linux never sends them. Our own are in `crates/device/src/tests/tokens`; sg3_utils reads page 8Fh
and gives the commands by `sg_raw`, from the Linux guest (`tests/guest/jobs/tokens.sh`). Debian's ddpt 0.97 cannot be used for it: it writes its range descriptors one byte too early, so that each block
number and each count is 256 times what it means. Windows was not at hand.
";

/// What is known of each test.
pub struct Report {
    tests: BTreeMap<String, Standing>,
}

/// A test over all set-ups.
#[derive(Default)]
struct Standing {
    /// Set-ups in which it was exercised.
    passed_in: Vec<&'static str>,
    /// Why it was skipped, where it was.
    skipped: Option<String>,
    /// Set-ups in which it failed, and what it said there.
    failures: Vec<(&'static str, String)>,
}

impl Report {
    pub fn new(tests: &BTreeSet<String>, left_out: &[(&str, &str)]) -> Report {
        let reason = |name: &str| left_out.iter().find(|(test, _)| *test == name).map(|(_, why)| (*why).to_owned());
        let standing = |name: &String| Standing { skipped: reason(name), ..Standing::default() };
        Report { tests: tests.iter().map(|name| (name.clone(), standing(name))).collect() }
    }

    pub fn add(&mut self, setup: &'static str, outcomes: Vec<(String, Outcome)>) {
        for (name, outcome) in outcomes {
            let standing = self.tests.entry(name).or_default();
            match outcome {
                Outcome::Passed => standing.passed_in.push(setup),
                Outcome::Skipped(reason) => drop(standing.skipped.get_or_insert(reason)),
                Outcome::Failed(what) => standing.failures.push((setup, what)),
            }
        }
    }

    /// Tests that were exercised in some set-up and failed in none.
    pub fn exercised(&self) -> usize {
        self.tests.values().filter(|test| test.is_exercised()).count()
    }

    #[track_caller]
    pub fn assert_no_failure(&self) {
        let mut text = String::new();
        for (name, standing) in &self.tests {
            for (setup, what) in &standing.failures {
                let _ = writeln!(text, "{name} ({setup}):\n{what}\n");
            }
        }
        assert!(text.is_empty(), "libiscsi's suite finds faults:\n{text}");
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let failed = self.tests.values().filter(|test| !test.failures.is_empty()).count();
        let exercised = self.exercised();
        let skipped = self.tests.len() - exercised - failed;
        let mut text = format!(
            "libiscsi's suite: {} tests, {exercised} exercised and passed, {skipped} skipped, {failed} failed\n",
            self.tests.len()
        );
        for (name, standing) in self.tests.iter().filter(|(_, test)| !test.is_exercised() && test.failures.is_empty()) {
            let _ = writeln!(text, "  skipped: {name}: {}", standing.reason());
        }
        text
    }

    /// The table must say what was found. `partly`: set-ups to which tests are bound, and why.
    #[track_caller]
    pub fn compare_with(&self, partly: &[(&str, String, &str)], path: &Path) {
        let table = self.document(partly);
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(path, &table).expect("the table is written");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == table, "{} is out of date: run this test with {UPDATE}=1", path.display());
    }

    fn document(&self, partly: &[(&str, String, &str)]) -> String {
        let mut text = format!(
            "# Conformance\n\nWhat libiscsi's test suite (`iscsi-test-cu` of Debian's libiscsi-bin 1.19) says of a volume \
             served by iSCSI. This page is made by the test `libiscsi_finds_no_fault` (`SANWIRE_UPDATE_DOCS=1 cargo test \
             --package sanwire --test system conformance`), which fails when it is not true any more.\n\nThe suite has {} \
             tests; {} are exercised and pass, none fails. A test counts as skipped when a part of it was.\n\n\
             | family | tests | exercised | set-ups |\n|---|---|---|---|\n",
            self.tests.len(),
            self.exercised(),
        );
        let mut families: BTreeMap<&str, (usize, usize, BTreeSet<&str>)> = BTreeMap::new();
        for (name, standing) in &self.tests {
            let family = name.split_once('.').map_or(&**name, |(family, _)| family);
            let (tests, exercised, setups) = families.entry(family).or_default();
            *tests += 1;
            *exercised += usize::from(standing.is_exercised());
            setups.extend(standing.passed_in.iter());
        }
        for (family, (tests, exercised, setups)) in families {
            let setups: Vec<&str> = setups.into_iter().collect();
            let _ = writeln!(text, "| {family} | {tests} | {exercised} | {} |", setups.join("; "));
        }
        text.push_str("\n## Skipped\n\n| test | why |\n|---|---|\n");
        for (name, standing) in self.tests.iter().filter(|(_, test)| !test.is_exercised()) {
            let _ = writeln!(text, "| {name} | {} |", standing.reason());
        }
        text.push_str("\n## Run with one kind of volume only\n\n| test | with | why |\n|---|---|---|\n");
        for (setup, tests, why) in partly {
            let _ = writeln!(text, "| {tests} | {setup} | {why} |");
        }
        text + &newer::document() + TOKENS
    }
}

impl Standing {
    fn is_exercised(&self) -> bool {
        self.failures.is_empty() && !self.passed_in.is_empty()
    }

    fn reason(&self) -> &str {
        self.skipped.as_deref().unwrap_or("not run")
    }
}
