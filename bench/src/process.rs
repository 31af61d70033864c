//! Programs on one of the two hosts: started, watched, and ended with their value.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::link::{End, Link};
use crate::servers::state_directory;

/// `/proc/PID/stat` counts in ticks of this length (`USER_HZ`, fixed at 100 on Linux).
const TICK: Duration = Duration::from_millis(10);

/// Where programs run.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub(crate) link: &'a Link,
    /// The processors of the client and of the server; without them the scheduler decides.
    pub(crate) processors: Option<(usize, usize)>,
}

impl Host<'_> {
    /// The command that runs `program` on that end of the link, on its processor.
    pub(crate) fn command(&self, end: End, program: &str, arguments: &[&str]) -> Command {
        // Both replace themselves, so the process keeps its id; and what it mounts is seen by all of the run.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.link.namespace(end)));
        if let Some((client, server)) = self.processors {
            let processor = if end == End::Client { client } else { server };
            command.args(["taskset", "-c", &processor.to_string()]);
        }
        command.arg(program).args(arguments).env("XDG_STATE_HOME", state_directory()).stdin(Stdio::null());
        command
    }

    /// Starts a program that stays until it is dropped.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(&self, end: End, program: &str, arguments: &[&str]) -> Result<Running> {
        let mut command = self.command(end, program, arguments);
        // Without the terminal's signals: an attachment that ended before its file system is unmounted would leave its device.
        command.process_group(0);
        let child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
        Ok(Running { child: child.with_context(|| format!("cannot start {program}"))?, name: program.into() })
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// When it cannot be started or fails.
    pub(crate) fn run(&self, end: End, program: &str, arguments: &[&str]) -> Result<Finished> {
        let mut command = self.command(end, program, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (mut output, mut said) = (String::new(), String::new());
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut output)?;
        }
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        let cpu = cpu_of_ended(child.id());
        let status = child.wait()?;
        if !status.success() {
            bail!("{program} {}: {status}: {} {}", arguments.join(" "), said.trim(), output.trim());
        }
        Ok(Finished { output, cpu })
    }
}

/// A program that ran to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) output: String,
    /// Of all its threads.
    pub(crate) cpu: Duration,
}

/// A program that is running.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// User and system time of all threads, ended ones too.
    ///
    /// # Errors
    /// When the program is gone.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        Ok(stat(self.child.id()).with_context(|| format!("{} has ended", self.name))?.1)
    }

    /// The same to the nanosecond, of the threads that are there.
    ///
    /// # Errors
    /// When the program is gone.
    pub(crate) fn cpu_of_threads(&self) -> Result<Duration> {
        cpu_of_threads(self.child.id()).with_context(|| format!("{} has ended", self.name))
    }

    /// Sends the program a signal, by its name without SIG.
    ///
    /// # Errors
    /// When the program is gone.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status()?;
        if status.success() { Ok(()) } else { bail!("{} has ended", self.name) }
    }

    /// What the kernel says of its main thread: `R`, `S`, `T` when it is stopped, and so on (proc(5)).
    ///
    /// # Errors
    /// When the program has ended.
    pub(crate) fn state(&self) -> Result<char> {
        match stat(self.child.id()) {
            Some((state, _)) if state != 'Z' => Ok(state),
            _ => bail!("{} has ended", self.name),
        }
    }

    /// Resident memory, in bytes.
    ///
    /// # Errors
    /// When the program is gone.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let patience = Instant::now() + Duration::from_secs(3);
        while Instant::now() < patience && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Fails only when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The time of a child that closed its outputs, read after it ended and before it is waited for.
fn cpu_of_ended(id: u32) -> Duration {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        match stat(id) {
            Some(('Z', cpu)) => return cpu,
            Some((_, cpu)) if Instant::now() > patience => return cpu,
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
            None => return Duration::ZERO,
        }
    }
}

/// User and system time of the threads that a program has now.
///
/// # Errors
/// When there is no such program.
pub(crate) fn cpu_of_threads(id: u32) -> Result<Duration> {
    let mut cpu_ns = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        // One that has just ended is missing.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        cpu_ns += text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(cpu_ns))
}

/// User, system and interrupt time of all processors since the machine has started (proc(5)).
///
/// # Errors
/// When the kernel does not tell.
pub(crate) fn cpu_of_machine() -> Result<Duration> {
    parse_machine(&fs::read_to_string("/proc/stat")?).context("no times in /proc/stat")
}

fn parse_machine(text: &str) -> Option<Duration> {
    let mut fields = text.lines().next()?.split_whitespace();
    if fields.next() != Some("cpu") {
        return None;
    }
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, interrupts, soft_interrupts, ..] = ticks[..] else { return None };
    let busy = user + nice + system + interrupts + soft_interrupts;
    Some(Duration::from_millis(busy * TICK.as_millis() as u64))
}

/// State, and user and system time of the thread group (proc(5)).
pub(crate) fn stat(id: u32) -> Option<(char, Duration)> {
    parse_stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<(char, Duration)> {
    // The name in parentheses may hold anything; fields are counted from the one after it, the third.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u32>().ok();
    Some((fields.first()?.chars().next()?, TICK * (ticks(14)? + ticks(15)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_time_are_read_past_an_odd_name() {
        let text = "7 (a) b (c)) Z 1 7 7 0 -1 4 500 0 1 0 150 50 3 4 20 0 2 0 100 1000 300";
        assert_eq!(parse_stat(text), Some(('Z', Duration::from_secs(2))));
        assert_eq!(parse_stat("7 (a) R 1"), None);
    }

    #[test]
    fn what_waits_is_not_busy() {
        let text = "cpu  100 20 30 5000 600 7 43 9 0 0\ncpu0 1 2 3 4 5 6 7\n";
        assert_eq!(parse_machine(text), Some(Duration::from_secs(2)));
        assert_eq!(parse_machine("intr 1 2 3 4 5 6 7"), None);
    }
}
