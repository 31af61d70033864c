//! Runs one command, and counts what its test runners say.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::mem;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::counts::Counts;

/// How the line begins by which a test says that it does not run here (`sanwire_testing::skip`).
pub const SKIPPED: &str = "SKIPPED: ";
/// What a step ends with when something from elsewhere cannot be had (EX_TEMPFAIL): it says what, and nothing is wrong here.
const UNAVAILABLE: i32 = 75;

/// How one step ended.
#[derive(Debug)]
pub struct Ran {
    pub counts: Counts,
    pub is_success: bool,
    /// The last lines that say anything, of both of its outputs.
    pub last_lines: Vec<String>,
}

/// How many lines are kept of what a step has said last.
const LAST_LINES: usize = 5;

/// Keeps the last lines of all that are heard.
fn hear_last(lines: &Mutex<VecDeque<String>>, line: &str) {
    let line = line.trim_end();
    if !line.is_empty() {
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line.to_owned());
        let surplus = lines.len().saturating_sub(LAST_LINES);
        lines.drain(..surplus);
    }
}

/// Keeps what is written to it. Clones keep it together, in the order of the writes.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    /// What was written since the last call.
    pub fn take(&self) -> Vec<u8> {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a command, passing on what it prints and counting what its test runners say.
pub fn run(command: &mut Command, output_to: impl Write, errors_to: impl Write + Send + 'static) -> io::Result<Ran> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let last_lines = Arc::new(Mutex::new(VecDeque::new()));
    let errors = child.stderr.take();
    let last_errors = Arc::clone(&last_lines);
    let errors = thread::spawn(move || {
        let mut skipped = 0;
        let hear = |line: &str| {
            skipped += u64::from(line.starts_with(SKIPPED));
            hear_last(&last_errors, line);
        };
        errors.map_or(Ok(()), |errors| pass_on(errors, errors_to, hear)).map(|()| skipped)
    });
    let mut counts = Counts::default();
    if let Some(output) = child.stdout.take() {
        pass_on(output, output_to, |line| {
            counts.hear(line);
            hear_last(&last_lines, line);
        })?;
    }
    counts.skipped += errors.join().map_err(|_| io::Error::other("the thread for stderr panicked"))??;
    let status = child.wait()?;
    let is_unavailable = status.code() == Some(UNAVAILABLE);
    if is_unavailable {
        println!("SKIPPED: what this step needs cannot be had here");
        counts.skipped += 1;
    }
    let last_lines = mem::take(&mut *last_lines.lock().unwrap_or_else(PoisonError::into_inner)).into();
    Ok(Ran { counts: counts.without_skipped(), is_success: status.success() || is_unavailable, last_lines })
}

fn pass_on(from: impl io::Read, mut to: impl Write, mut hear: impl FnMut(&str)) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        hear(&String::from_utf8_lossy(&line));
        line.clear();
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_and_counts_come_from_the_command() {
        let mut shell = Command::new("sh");
        let said = "echo 3 passed, 1 failed; echo test a::b ... FAILED; echo 2 passed, 0 failed; echo 9 passed, 9 failed >&2; exit 1";
        shell.args(["-c", said]);
        // Not to stdout: whoever counts the words of this very run would count these too.
        let mut output = vec![];
        let counts =
            Counts { passed: 5, failed: 1, skipped: 0, failed_tests: vec!["a::b".into()], ..Counts::default() };
        let ran = run(&mut shell, &mut output, io::sink()).unwrap();
        assert_eq!((ran.counts, ran.is_success), (counts, false));
        assert_eq!(output, b"3 passed, 1 failed\ntest a::b ... FAILED\n2 passed, 0 failed\n");
    }

    #[test]
    fn what_a_command_prints_is_kept_in_order_and_counted() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo 1 passed, 0 failed; sleep 0.1; echo SKIPPED: b >&2"]);
        let kept = Kept::default();
        assert_eq!(
            run(&mut shell, kept.clone(), kept.clone()).unwrap().counts,
            Counts { skipped: 1, ..Counts::default() }
        );
        assert_eq!(kept.take(), b"1 passed, 0 failed\nSKIPPED: b\n");
    }

    #[test]
    fn what_is_skipped_is_not_passed() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo 'SKIPPED: a: it takes root' >&2; echo 3 passed, 0 failed"]);
        let counts = Counts { passed: 2, skipped: 1, ..Counts::default() };
        let ended =
            |mut command| run(&mut command, io::sink(), io::sink()).map(|ran| (ran.counts, ran.is_success)).unwrap();
        assert_eq!(ended(shell), (counts, true));
        let mut unavailable = Command::new("sh");
        unavailable.args(["-c", &format!("exit {UNAVAILABLE}")]);
        let counts = Counts { skipped: 1, ..Counts::default() };
        assert_eq!(ended(unavailable), (counts, true));
    }

    #[test]
    fn the_last_lines_that_say_anything_are_kept_of_both_outputs() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "seq 9; echo; sleep 0.1; echo 'what is wrong' >&2; echo >&2"]);
        let ran = run(&mut shell, io::sink(), io::sink()).unwrap();
        assert_eq!(ran.last_lines, ["6", "7", "8", "9", "what is wrong"]);
    }
}
