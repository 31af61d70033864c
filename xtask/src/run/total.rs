//! What all steps that have ended came to.

use std::io::{self, Write};
use std::mem;
use std::path::Path;
use std::process::Command;

use super::command::{Ran, run};
use super::counts::FailedTest;
use super::{Ended, in_root};

/// How many failed tests there may be, of all steps, for some to be run again. More are no accident.
const MOST_AGAIN: u64 = 4;

#[derive(Default)]
pub struct Total {
    passed: u64,
    failed: u64,
    skipped: u64,
    failed_tests: Vec<FailedTest>,
    failed_steps: Vec<String>,
    /// What the failed steps said last that have no failed test to name: the finding of a check, the error of a compiler.
    findings: Vec<String>,
    /// Of the steps that have tests which can be run again: how, and which.
    again: Vec<Again>,
    /// Those that failed, and then passed with nothing beside them.
    passed_alone: Vec<FailedTest>,
}

struct Again {
    step: String,
    command: Command,
    names: Vec<String>,
}

impl Total {
    pub fn add(&mut self, ended: Ended) -> Result<(), String> {
        let Ended { name, outcome, again, .. } = ended;
        let Ran { counts, is_success, last_lines } = outcome.map_err(|error| format!("{name}: {error}"))?;
        self.passed += counts.passed;
        self.skipped += counts.skipped;
        // A step that fails without a failed test (a compiler's error, a finding) counts as one.
        self.failed += if is_success { counts.failed } else { counts.failed.max(1) };
        if is_success && counts.failed == 0 {
            return Ok(());
        }
        let names: Vec<String> = counts.failed_tests.iter().map(|test| test.name.clone()).collect();
        if names.is_empty() {
            self.findings.extend(last_lines.into_iter().map(|line| format!("{name}: {line}")));
        } else if let Some(command) = again.filter(|_| names.len() as u64 == counts.failed) {
            self.again.push(Again { step: name.clone(), command, names });
        }
        self.failed_tests.extend(counts.failed_tests);
        self.failed_steps.push(name);
        Ok(())
    }

    /// Adds a step of which nothing is printed yet.
    pub fn add_kept(&mut self, mut ended: Ended) -> Result<(), String> {
        println!("== {}", ended.name);
        io::stdout().write_all(&mem::take(&mut ended.printed)).map_err(|error| error.to_string())?;
        self.add(ended)
    }

    /// Runs failed tests that wait for the clock once more, if they are few.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn try_again(&mut self, root: &Path) -> Result<(), String> {
        if self.failed > MOST_AGAIN {
            return Ok(());
        }
        for Again { step, mut command, names } in mem::take(&mut self.again) {
            println!("== {step}, those that failed once more");
            let ran = run(in_root(command.args(&names), root), io::stdout(), io::stderr());
            let counts = ran.map_err(|error| format!("{step}: {error}"))?.counts;
            // A test that says that it cannot run has not passed.
            if counts.passed + counts.failed == names.len() as u64 {
                let has_passed = |name: &String| counts.failed_tests.iter().all(|test| test.name != *name);
                self.pass(names.into_iter().filter(has_passed).collect());
                self.failed_steps.retain(|name| counts.failed > 0 || *name != step);
            }
        }
        Ok(())
    }

    /// These tests have passed after all.
    fn pass(&mut self, names: Vec<String>) {
        self.failed -= names.len() as u64;
        self.passed += names.len() as u64;
        self.passed_alone.extend(self.failed_tests.extract_if(.., |test| names.contains(&test.name)));
    }

    /// Says it in the last lines, which are what a record keeps that is cut short.
    pub fn say(self) -> bool {
        for test in &self.passed_alone {
            println!("passed only when it was run again, with nothing beside it:");
            say_test(test);
        }
        if !self.failed_steps.is_empty() {
            println!("failed: {}", self.failed_steps.join(", "));
        }
        self.findings.iter().for_each(|line| println!("  {line}"));
        self.failed_tests.iter().for_each(say_test);
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        self.failed == 0 && self.passed > 0
    }
}

fn say_test(test: &FailedTest) {
    println!("  {}", test.name);
    test.said.iter().for_each(|line| println!("    {line}"));
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::*;

    fn ended(name: &str, failed_tests: &[&str], again: Option<Command>) -> Ended {
        let failed_tests: Vec<FailedTest> = failed_tests.iter().map(|name| (*name).into()).collect();
        let counts = Counts { failed: failed_tests.len() as u64, failed_tests, ..Counts::default() };
        let last_lines = vec!["a.rs: 401 lines".to_owned()];
        let outcome = Ok(Ran { counts, is_success: false, last_lines });
        Ended { name: name.to_owned(), outcome, printed: vec![], again }
    }

    /// What says this, whatever it is given.
    fn says(words: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("printf '{words}'")]);
        shell
    }

    fn names(tests: &[FailedTest]) -> Vec<&str> {
        tests.iter().map(|test| test.name.as_str()).collect()
    }

    #[test]
    fn the_last_words_of_a_failed_step_are_kept_unless_it_names_failed_tests() {
        let mut total = Total::default();
        total.add(ended("tidy", &[], None)).unwrap();
        total.add(ended("other tests", &["a::b"], None)).unwrap();
        assert_eq!((total.failed, names(&total.failed_tests)), (2, vec!["a::b"]));
        assert_eq!(total.failed_steps, ["tidy", "other tests"]);
        assert_eq!(total.findings, ["tidy: a.rs: 401 lines"]);
    }

    #[test]
    fn of_a_few_failed_tests_those_that_can_be_run_again_may_pass_then() {
        let mut total = Total::default();
        let second = r"test b ... FAILED\n1 passed, 1 failed\n";
        total.add(ended("system", &["a", "b"], Some(says(second)))).unwrap();
        total.add(ended("guest", &["c"], Some(says(r"1 passed, 0 failed\n")))).unwrap();
        total.add(ended("other", &["d"], None)).unwrap();
        total.try_again(Path::new(".")).unwrap();
        assert_eq!((total.passed, total.failed), (2, 2));
        assert_eq!((names(&total.passed_alone), names(&total.failed_tests)), (vec!["a", "c"], vec!["b", "d"]));
        assert!(!total.say());
    }

    #[test]
    fn a_run_whose_failed_tests_all_pass_alone_is_a_success() {
        let mut total = Total::default();
        total.add(ended("guest", &["c"], Some(says(r"1 passed, 0 failed\n")))).unwrap();
        total.try_again(Path::new(".")).unwrap();
        assert!(total.failed_steps.is_empty() && total.say());
    }

    #[test]
    fn many_failed_tests_and_tests_that_do_not_run_again_stay_failed() {
        let mut total = Total::default();
        total.add(ended("guest", &["a"], Some(says(r"0 passed, 0 failed\n")))).unwrap();
        total.try_again(Path::new(".")).unwrap();
        assert_eq!((total.passed, total.failed), (0, 1));
        let mut total = Total::default();
        total.add(ended("guest", &["a"; 5], Some(says(r"5 passed, 0 failed\n")))).unwrap();
        total.try_again(Path::new(".")).unwrap();
        assert_eq!((total.passed, total.failed), (0, 5));
    }
}
