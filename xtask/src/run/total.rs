//! What all steps that have ended came to.

use std::io::{self, Write};
use std::mem;

use super::Ended;
use super::command::Ran;
use super::counts::FailedTest;

#[derive(Default)]
pub struct Total {
    passed: u64,
    failed: u64,
    skipped: u64,
    failed_tests: Vec<FailedTest>,
    failed_steps: Vec<String>,
    /// What the failed steps said last that have no failed test to name: the finding of a check, the error of a compiler.
    findings: Vec<String>,
}

impl Total {
    pub fn add(&mut self, ended: Ended) -> Result<(), String> {
        let Ended { name, outcome, .. } = ended;
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

    /// Adds a step of which nothing is printed yet.
    pub fn add_kept(&mut self, mut ended: Ended) -> Result<(), String> {
        println!("== {}", ended.name);
        io::stdout().write_all(&mem::take(&mut ended.printed)).map_err(|error| error.to_string())?;
        self.add(ended)
    }

    /// Says it in the last lines, which are what a record keeps that is cut short.
    pub fn say(self) -> bool {
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

    #[test]
    fn the_last_words_of_a_failed_step_are_kept_unless_it_names_failed_tests() {
        let mut total = Total::default();
        let mut add = |name: &str, failed_tests: Vec<FailedTest>| {
            let counts = Counts { failed: failed_tests.len() as u64, failed_tests, ..Counts::default() };
            let outcome = Ok(Ran { counts, is_success: false, last_lines: vec!["a.rs: 401 lines".to_owned()] });
            total.add(Ended { name: name.to_owned(), outcome, printed: vec![] }).unwrap();
        };
        add("tidy", vec![]);
        add("other tests", vec!["a::b".into()]);
        assert_eq!((total.failed, total.failed_tests), (2, vec!["a::b".into()]));
        assert_eq!(total.failed_steps, ["tidy", "other tests"]);
        assert_eq!(total.findings, ["tidy: a.rs: 401 lines"]);
    }
}
