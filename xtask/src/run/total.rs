//! What all steps that have ended came to.

use std::io::{self, Stderr, Write};
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
    /// Each with its step.
    failed_tests: Vec<(String, FailedTest)>,
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
        self.failed_tests.extend(counts.failed_tests.into_iter().map(|test| (name.clone(), test)));
        self.failed_steps.push(name);
        Ok(())
    }

    /// Adds a step of which nothing is printed yet.
    pub fn add_kept(&mut self, mut ended: Ended) -> Result<(), String> {
        println!("== {}", ended.name);
        io::stdout().write_all(&mem::take(&mut ended.printed)).map_err(|error| error.to_string())?;
        self.add(ended)
    }

    /// Runs failed tests that wait for the clock once more, if they are few, and passes on what is printed.
    pub fn try_again(&mut self, root: &Path, mut output: impl Write, errors: impl Fn() -> Stderr) {
        if self.failed > MOST_AGAIN {
            return;
        }
        for Again { step, mut command, names } in mem::take(&mut self.again) {
            // What cannot be printed is not read either.
            let _ = writeln!(output, "== {step}: what failed once more");
            match run(in_root(command.args(&names), root), &mut output, errors()) {
                Ok(ran) => self.add_again(&step, &names, &ran),
                Err(error) => self.findings.push(format!("{step}: {error}")),
            }
        }
    }

    /// Tests of a step that failed have passed after all, if all is told of them.
    fn add_again(&mut self, step: &str, names: &[String], Ran { counts, is_success, .. }: &Ran) {
        let is_told = counts.failed_tests.len() as u64 == counts.failed && *is_success == (counts.failed == 0);
        // A test that says that it cannot run has not passed.
        if !is_told || counts.passed + counts.failed != names.len() as u64 {
            return;
        }
        let has_passed = |name: &String| counts.failed_tests.iter().all(|test| test.name != *name);
        let is_one =
            |(of, test): &mut (String, FailedTest)| of == step && names.contains(&test.name) && has_passed(&test.name);
        let passed: Vec<FailedTest> = self.failed_tests.extract_if(.., is_one).map(|(_, test)| test).collect();
        self.failed -= passed.len() as u64;
        self.passed += passed.len() as u64;
        self.passed_alone.extend(passed);
        self.failed_steps.retain(|name| !is_success || name != step);
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
        self.failed_tests.iter().for_each(|(_, test)| say_test(test));
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

    fn names<'a>(tests: impl IntoIterator<Item = &'a FailedTest>) -> Vec<&'a str> {
        tests.into_iter().map(|test| test.name.as_str()).collect()
    }

    fn failed(total: &Total) -> Vec<&str> {
        names(total.failed_tests.iter().map(|(_, test)| test))
    }

    /// Not to stdout: whoever counts the words of this very run would count these too.
    fn try_again(total: &mut Total) {
        total.try_again(Path::new("."), io::sink(), io::stderr);
    }

    #[test]
    fn the_last_words_of_a_failed_step_are_kept_unless_it_names_failed_tests() {
        let mut total = Total::default();
        total.add(ended("tidy", &[], None)).unwrap();
        total.add(ended("other tests", &["a::b"], None)).unwrap();
        assert_eq!((total.failed, failed(&total)), (2, vec!["a::b"]));
        assert_eq!(total.failed_steps, ["tidy", "other tests"]);
        assert_eq!(total.findings, ["tidy: a.rs: 401 lines"]);
    }

    #[test]
    fn of_a_few_failed_tests_those_that_can_be_run_again_may_pass_then() {
        let mut total = Total::default();
        let mut second = Command::new("sh");
        second.args(["-c", "echo test b ... FAILED; echo 1 passed, 1 failed; exit 1"]);
        total.add(ended("system", &["a", "b"], Some(second))).unwrap();
        total.add(ended("guest", &["c"], Some(says(r"1 passed, 0 failed\n")))).unwrap();
        // Another one of that name, which is not run again.
        total.add(ended("other", &["a"], None)).unwrap();
        try_again(&mut total);
        assert_eq!((total.passed, total.failed), (2, 2));
        assert_eq!((names(&total.passed_alone), failed(&total)), (vec!["a", "c"], vec!["b", "a"]));
        assert!(!total.say());
    }

    #[test]
    fn a_run_whose_failed_tests_all_pass_alone_is_a_success() {
        let mut total = Total::default();
        total.add(ended("guest", &["c"], Some(says(r"1 passed, 0 failed\n")))).unwrap();
        try_again(&mut total);
        assert!(total.failed_steps.is_empty() && total.say());
    }

    #[test]
    fn a_second_try_of_which_not_all_is_told_changes_nothing() {
        for said in ["1 passed, 0 failed; exit 1", "0 passed, 1 failed", "0 passed, 1 failed; exit 1"] {
            let mut second = Command::new("sh");
            second.args(["-c", &format!("echo {said}")]);
            let mut total = Total::default();
            total.add(ended("guest", &["c"], Some(second))).unwrap();
            try_again(&mut total);
            assert_eq!((total.passed, total.failed, failed(&total)), (0, 1, vec!["c"]), "{said}");
        }
    }

    #[test]
    fn many_failed_tests_and_tests_that_do_not_run_again_stay_failed() {
        let mut total = Total::default();
        total.add(ended("guest", &["a"], Some(says(r"0 passed, 0 failed\n")))).unwrap();
        try_again(&mut total);
        assert_eq!((total.passed, total.failed), (0, 1));
        let mut total = Total::default();
        total.add(ended("guest", &["a"; 5], Some(says(r"5 passed, 0 failed\n")))).unwrap();
        try_again(&mut total);
        assert_eq!((total.passed, total.failed), (0, 5));
    }
}
