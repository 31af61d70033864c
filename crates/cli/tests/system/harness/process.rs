//! Programs: one that runs beside the test, and one that the test waits for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

/// A program that runs beside the test. Dropping it kills it; a failing test then prints what it said.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    name: String,
}

impl Process {
    /// Starts it; stdout and stderr go to the file.
    pub fn spawn(name: &str, mut command: Command, log: PathBuf) -> Process {
        let file = open_log(&log);
        let both = file.try_clone().expect("a second handle");
        let child = command.stdin(Stdio::null()).stdout(file).stderr(both).spawn().expect("the program starts");
        Process { child, log, name: name.to_owned() }
    }

    /// Starts it to talk with it; only stderr goes to the file.
    pub fn spawn_with_pipes(name: &str, mut command: Command, log: PathBuf) -> (Process, ChildStdin, ChildStdout) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(open_log(&log));
        let mut child = command.spawn().expect("the program starts");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        (Process { child, log, name: name.to_owned() }, stdin, stdout)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it has said this.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str, within: Duration) {
        let what = format!("{} says '{text}'", self.name);
        wait_until(&what, within, || {
            let said = self.log().contains(text);
            assert!(said || self.is_alive(), "{} has ended before it said '{text}':\n{}", self.name, self.log());
            said
        });
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(&mut self) {
        // A process that has ended already needs no killing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the process can be signalled");
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let deadline = Instant::now() + within;
        loop {
            match self.child.try_wait().expect("the process can be waited for") {
                Some(status) => return status,
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                None => panic!("{} has not ended in {} s:\n{}", self.name, within.as_secs(), self.log()),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            println!("--- {}\n{}", self.name, self.log());
        }
    }
}

fn open_log(log: &Path) -> File {
    File::options().create(true).append(true).open(log).expect("a log file")
}

/// What a program did that the test has waited for.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

/// Runs a program to its end.
#[track_caller]
pub fn run(mut command: Command, within: Duration) -> Ran {
    let what = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // The test may have given up.
        let _ = sender.send(child.wait_with_output());
    });
    let Ok(output) = receiver.recv_timeout(within) else {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        panic!("{what} has not ended in {} s", within.as_secs());
    };
    let output = output.expect("the output can be read");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Runs a program that must succeed; gives its stdout.
#[track_caller]
pub fn run_ok(command: Command, within: Duration) -> String {
    let what = format!("{command:?}");
    let ran = run(command, within);
    assert_eq!(ran.code, Some(0), "{what}\n{}{}", ran.stdout, ran.stderr);
    ran.stdout
}
