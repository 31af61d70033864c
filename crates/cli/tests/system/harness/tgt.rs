//! tgt, an iSCSI target of another make.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Process, SERVER_ADDRESS, World, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A running tgtd. It keeps nothing: what it was told is told again when it is started again.
#[derive(Debug)]
pub struct Tgt {
    process: Process,
    /// What tells it from others on this host: one that is taken ends them both.
    control: String,
    told: Vec<String>,
}

impl Tgt {
    /// The programs it takes.
    pub const TOOLS: [&str; 2] = ["tgtd", "tgtadm"];

    /// Starts one on the server, and tells it by `tgtadm` what to serve: a line for each call.
    pub fn start(world: &World, told: &[&str]) -> Tgt {
        // It takes 15 bits.
        let control = 1000 + (std::process::id() * 8 + COUNT.fetch_add(1, Ordering::Relaxed)) % 30_000;
        let control = control.to_string();
        let process = spawn(world, &control);
        let tgt = Tgt { process, control, told: told.iter().map(|line| (*line).to_owned()).collect() };
        tgt.tell_all();
        tgt
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, as it was.
    pub fn restart(&mut self, world: &World) {
        self.clean();
        self.process = spawn(world, &self.control);
        self.tell_all();
    }

    fn tell_all(&self) {
        wait_until("tgtd is ready", TIMEOUT, || {
            run(self.tgtadm("--op show --mode sys"), TIMEOUT).stdout.contains("State: ready")
        });
        for line in &self.told {
            run_ok(self.tgtadm(line), TIMEOUT);
        }
    }

    fn tgtadm(&self, line: &str) -> Command {
        let mut command = Command::new("tgtadm");
        command.args(["-C", &self.control, "--lld", "iscsi"]).args(line.split_ascii_whitespace());
        command
    }

    /// Removes what a killed one leaves.
    fn clean(&self) {
        for suffix in ["", ".lock"] {
            // It may not have come as far as making it.
            let _ = fs::remove_file(format!("/var/run/tgtd/socket.{}{suffix}", self.control));
        }
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        self.process.kill();
        self.clean();
    }
}

fn spawn(world: &World, control: &str) -> Process {
    let mut command = world.on_server("tgtd");
    command.args(["-f", "-C", control, "--iscsi", &format!("portal={SERVER_ADDRESS}:3260")]);
    Process::spawn("tgtd", command, world.scratch.path("tgtd.log"))
}
