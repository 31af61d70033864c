//! A Linux host with a kernel of its own: the guest of `tests/guest`, on two links to the server.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use super::{Process, World, is_installed, run, skip};

/// A build needs some minutes, and may wait for another one.
const BUILD_TIMEOUT: Duration = Duration::from_secs(1800);
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// How much later than its own limit a job may answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A link between the server and the guest: a tap device on the server's side.
#[derive(Clone, Copy, Debug)]
pub struct GuestLink {
    /// The interface on the server.
    pub interface: &'static str,
    /// The server's address.
    pub server: &'static str,
    /// The guest's address.
    pub guest: &'static str,
}

/// The links of a guest: `eth0` and `eth1` there.
pub const GUEST_LINKS: [GuestLink; 2] = [
    GuestLink { interface: "guest0", server: "10.78.0.1", guest: "10.78.0.2" },
    GuestLink { interface: "guest1", server: "10.78.1.1", guest: "10.78.1.2" },
];

/// What `build.sh` ends with when it cannot download what it needs.
const UNAVAILABLE: i32 = 75;

/// A guest that runs. Dropping it switches it off; a failing test then prints its console.
#[derive(Debug)]
pub struct Guest {
    orders: ChildStdin,
    answers: Receiver<String>,
    // Killed when the orders have ended.
    _machine: Process,
}

impl Guest {
    /// Boots it with links to the server of this world, or says why it cannot be. The links are there from now on.
    pub fn boot(world: &World, test: &str) -> Option<Guest> {
        Guest::boot_with(world, test, &[])
    }

    /// The same with systemd, which restarts; `/host` in it is `shared`.
    pub fn boot_with_systemd(world: &World, test: &str, shared: &Path) -> Option<Guest> {
        Guest::boot_as(world, test, &["--systemd"], shared)
    }

    /// The same with a newer kernel, where the driver of its cards has AF_XDP's zero-copy mode.
    pub fn boot_with_new_kernel(world: &World, test: &str) -> Option<Guest> {
        Guest::boot_with(world, test, &["--new-kernel"])
    }

    fn boot_with(world: &World, test: &str, options: &[&str]) -> Option<Guest> {
        let program = Path::new(env!("CARGO_BIN_EXE_sanwire"));
        Guest::boot_as(world, test, options, program.parent().expect("the directory of the program"))
    }

    fn boot_as(world: &World, test: &str, options: &[&str], shared: &Path) -> Option<Guest> {
        guest_files(test)?;
        let log = world.scratch.path("guest.log");
        let mut boot = world.on_server(rig("boot.sh"));
        boot.arg("--agent").arg(&log);
        for link in &GUEST_LINKS {
            world.add_tap(link.interface, link.server);
            boot.arg("--tap").arg(format!("{}={}/24", link.interface, link.guest));
        }
        boot.args(options).arg("--share").arg(shared);
        let (machine, orders, answers) = Process::spawn_with_pipes("guest", boot, log);
        let mut guest = Guest { orders, answers: lines(answers), _machine: machine };
        assert_eq!(guest.answer(Instant::now() + BOOT_TIMEOUT).1, "ready", "the guest's first word");
        Some(guest)
    }

    /// Runs `tests/guest/jobs/NAME.sh` with arguments; gives what it wrote.
    ///
    /// # Panics
    /// When it fails, or takes longer than its limit.
    #[track_caller]
    pub fn run(&mut self, job: &str, arguments: &[&str], limit: Duration) -> String {
        let started = Instant::now();
        let mut order = format!("{} bash /rig/jobs/{job}.sh", limit.as_secs());
        for argument in arguments {
            order.push_str(&format!(" '{}'", argument.replace('\'', r"'\''")));
        }
        writeln!(self.orders, "{order}").expect("the guest takes an order");
        let (output, status) = self.answer(started + limit + ANSWER_TIMEOUT);
        let took_s = started.elapsed().as_secs();
        println!("guest: {job} {}: {took_s} s\n{output}", arguments.join(" "));
        match status.as_str() {
            "0" => output,
            "124" | "137" => panic!("{job} was not over after {} s:\n{output}", limit.as_secs()),
            status => panic!("{job} failed with status {status}:\n{output}"),
        }
    }

    /// Restarts it in order, and waits until it is there again.
    ///
    /// # Panics
    /// When it does not come back.
    #[track_caller]
    pub fn restart(&mut self) {
        // A little later, so that the order itself is answered.
        let order = "10 systemd-run --collect --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot";
        writeln!(self.orders, "{order}").expect("the guest takes an order");
        let mut words = std::iter::from_fn(|| Some(self.answer(Instant::now() + BOOT_TIMEOUT).1));
        assert_eq!(words.next().as_deref(), Some("0"), "it is going to restart");
        assert_eq!(words.next().as_deref(), Some("ready"), "it is there again");
    }

    /// The lines after `|` and the word after `=`.
    #[track_caller]
    fn answer(&mut self, deadline: Instant) -> (String, String) {
        let mut output = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.answers.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("the guest does not answer: {error}\n{output}"));
            match (line.strip_prefix('|'), line.strip_prefix('=')) {
                (Some(text), _) => output.extend([text, "\n"]),
                (None, Some(word)) => return (output, word.to_owned()),
                (None, None) => panic!("the guest answers {line:?}"),
            }
        }
    }
}

/// The directory in which the guest's files are: it is built now if it is not there. Or says why it cannot be.
pub fn guest_files(test: &str) -> Option<PathBuf> {
    if let Some(missing) = ["qemu-system-x86_64", "debootstrap"].into_iter().find(|tool| !is_installed(tool)) {
        skip(test, &format!("the program {missing} is not installed"));
        return None;
    }
    let mut build = Command::new(rig("build.sh"));
    build.stdin(std::process::Stdio::null());
    let built = run(build, BUILD_TIMEOUT);
    if built.code == Some(UNAVAILABLE) {
        skip(test, "what the guest is made of cannot be downloaded");
        return None;
    }
    assert_eq!(built.code, Some(0), "the guest is built\n{}", built.stderr);
    Some(PathBuf::from(built.stdout.trim()))
}

/// Reads beside the test, so that waiting can have an end.
fn lines(answers: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(answers).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn rig(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guest").join(name)
}
