//! `sanwire attach`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::{Process, World, run, run_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A volume attached on the client. Dropping it takes it away, in order or not.
#[derive(Debug)]
pub struct Attached {
    /// The block device, the file, or the NBD address.
    pub place: PathBuf,
    process: Process,
    is_detached: bool,
}

impl Attached {
    /// Attaches as a block device.
    pub fn device(world: &World, url: &str) -> Attached {
        Attached::fuse(world, url, &[])
    }

    /// Attaches as a block device with more options.
    pub fn device_with(world: &World, url: &str, options: &[&str]) -> Attached {
        Attached::fuse(world, url, options)
    }

    /// Attaches as a file alone.
    pub fn file(world: &World, url: &str) -> Attached {
        Attached::fuse(world, url, &["--no-device"])
    }

    /// Attaches as an NBD export on a unix socket.
    pub fn nbd(world: &World, url: &str) -> Attached {
        let socket = world.scratch.text("nbd.sock");
        Attached::spawn(world, url, &["--as", "nbd", "--socket", &socket])
    }

    /// Attaches as a file, and a block device unless the options say otherwise.
    pub fn fuse(world: &World, url: &str, options: &[&str]) -> Attached {
        let mount_point = world.scratch.text(&format!("volume-{}", label(url)));
        let mut arguments = vec!["--mount-point", mount_point.as_str()];
        arguments.extend(options);
        Attached::spawn(world, url, &arguments)
    }

    fn spawn(world: &World, url: &str, options: &[&str]) -> Attached {
        let mut arguments = vec!["attach", url];
        if !options.contains(&"--wait") {
            arguments.extend(["--wait", "600"]);
        }
        arguments.extend(options);
        let log = world.scratch.path(&format!("attach-{}.log", label(url)));
        // A new attachment of the same volume has a new log.
        let _ = fs::remove_file(&log);
        let mut process = Process::spawn("attach", world.sanwire(&arguments), log);
        process.wait_for("is attached as\n", TIMEOUT);
        let log = process.log();
        let place = log.lines().skip_while(|line| !line.ends_with("is attached as")).nth(1).expect("a place");
        Attached { place: place.into(), process, is_detached: false }
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Detaches by `sanwire detach`, and checks that the process ends well.
    #[track_caller]
    pub fn detach(mut self, world: &World) {
        let place = self.place.display().to_string();
        run_ok(world.sanwire(&["detach", &place]), TIMEOUT);
        let status = self.process.wait(TIMEOUT);
        assert!(status.success(), "{status}\n{}", self.log());
        self.is_detached = true;
    }

    /// The same of one that has lost something, which it says.
    pub fn detach_failed(mut self, world: &World) {
        run_ok(world.sanwire(&["detach", &self.place.display().to_string()]), TIMEOUT);
        let status = self.process.wait(TIMEOUT);
        assert_eq!(status.code(), Some(1), "{}", self.log());
        self.is_detached = true;
    }

    /// Asks the process to end (SIGTERM), without waiting for that.
    pub fn ask_to_end(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits until the process has ended well.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let status = self.process.wait(TIMEOUT);
        assert!(status.success(), "{status}\n{}", self.log());
        self.is_detached = true;
    }

    /// Kills the process (SIGKILL), which must be gone soon; nothing that it leaves is removed.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(TIMEOUT);
        self.is_detached = true;
    }

    /// Kills the process, so that whoever waits for the volume gets an error.
    pub fn abandon(&self) {
        self.process.signal(Signal::KILL);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.is_detached {
            return;
        }
        self.process.kill();
        // Listing attachments removes the remains of the dead.
        let mut list = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        list.arg("ls");
        run(list, TIMEOUT);
    }
}

/// What tells the volume from others in names of files: the URL's end, and by iSCSI the target's too.
fn label(url: &str) -> String {
    let mut parts = url.rsplit('/');
    let last = parts.next().unwrap_or_default();
    match parts.next() {
        Some(target) if url.starts_with("iscsi:") || url.starts_with("iser:") => {
            format!("{}-{last}", target.replace(':', "-"))
        }
        _ => last.to_owned(),
    }
}
