//! What test runners say: how many tests passed, which failed, and what those said.

/// A test that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedTest {
    pub name: String,
    /// Where it panicked, and the begin of what it said there.
    pub said: Vec<String>,
}

impl From<&str> for FailedTest {
    fn from(name: &str) -> FailedTest {
        FailedTest { name: name.to_owned(), said: vec![] }
    }
}

/// How many lines are kept of what a failed test said, and how many letters of each.
const SAID: [usize; 2] = [8, 300];

/// What one step said.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    /// Tests that cannot run here, and said so. Their runner counts them as passed.
    pub skipped: u64,
    /// The failed tests, as far as their runner says their names.
    pub failed_tests: Vec<FailedTest>,
    /// The failed test whose words now come, and whether it has panicked.
    pub(super) heard: Option<(usize, bool)>,
}

impl Counts {
    /// Hears a line of a runner's output.
    pub fn hear(&mut self, line: &str) {
        if let Some((passed, failed)) = counts_of(line) {
            self.passed += passed;
            self.failed += failed;
        }
        self.failed_tests.extend(failed_test(line).map(FailedTest::from));
        if let Some(name) = line.trim_end().strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            self.heard = self.failed_tests.iter().rposition(|test| test.name == name).map(|place| (place, false));
        } else if let Some((place, has_panicked)) = &mut self.heard {
            *has_panicked |= line.starts_with("thread '") && line.contains(" panicked at ");
            let said = &mut self.failed_tests[*place].said;
            let is_end = line.starts_with("stack backtrace:") || line.starts_with("note: run with");
            if *has_panicked && (is_end || said.len() == SAID[0]) {
                self.heard = None;
            } else if *has_panicked {
                said.push(line.trim_end().chars().take(SAID[1]).collect());
            }
        }
    }

    /// What a runner has counted, without the tests that only said that they do not run.
    pub fn without_skipped(self) -> Counts {
        Counts { passed: self.passed.saturating_sub(self.skipped), heard: None, ..self }
    }
}

/// Passed and failed of `test result: ok. 5 passed; 0 failed; ...` (libtest) or `5 passed, 0 failed` (scripts).
fn counts_of(line: &str) -> Option<(u64, u64)> {
    let line = line.trim();
    let rest = match line.strip_prefix("test result: ") {
        Some(result) => result.split_once(". ")?.1,
        None => line,
    };
    let mut parts = rest.split([';', ',']).map(str::trim);
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

/// The name in `test a::b ... FAILED` (libtest).
fn failed_test(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_both_kinds_of_runners_are_understood() {
        let libtest =
            "test result: FAILED. 25 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.23s";
        assert_eq!(counts_of(libtest), Some((25, 2)));
        assert_eq!(counts_of("12 passed, 0 failed\n"), Some((12, 0)));
        for line in ["", "test a::b ... ok", "7 passed", "x passed, 1 failed", "running 5 tests"] {
            assert_eq!(counts_of(line), None, "{line}");
        }
    }

    #[test]
    fn what_a_failed_test_said_is_kept_from_its_panic_on() {
        let mut counts = Counts::default();
        let long = "x".repeat(400);
        let output = [
            "test a ... FAILED",
            "test b ... FAILED",
            "---- b stdout ----",
            "before",
            "thread 'b' panicked at src/b.rs:1:2:",
            "assertion failed",
            "stack backtrace:",
            "   0: begin",
            "---- a stdout ----",
            "thread 'a' panicked at src/a.rs:3:4:",
            &long,
            "note: run with `RUST_BACKTRACE=1`",
            "---- c stdout ----",
            "thread 'c' panicked at src/c.rs:5:6:",
        ];
        output.iter().for_each(|line| counts.hear(line));
        let said: Vec<Vec<String>> = counts.failed_tests.into_iter().map(|test| test.said).collect();
        let short = "x".repeat(SAID[1]);
        assert_eq!(
            said,
            [
                ["thread 'a' panicked at src/a.rs:3:4:", &short],
                ["thread 'b' panicked at src/b.rs:1:2:", "assertion failed"],
            ]
        );
    }
}
