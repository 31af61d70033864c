//! The same rows by `serve` itself: what a check refuses is not served, in the same words, and what it warns of is served with them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sanwire_testing::skip;

use super::End::{self, Warned};
use super::rows::{ID, ROWS};
use super::{Scratch, stderr};

/// How long a server may take to serve, or to refuse that.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a server says last when it starts: on which wires it is.
const SERVES: &str = "\n  on ";

/// What stands for nothing but a host with less memory or fewer processors than this one would need: none is started.
const TOO_MUCH: [&str; 2] = ["shards = 1024", "ram:100000G"];

/// A server in a network of its own, where it has every port and nobody reaches it.
struct Server(Child);

impl Server {
    fn start(scratch: &Scratch, text: &str) -> Server {
        let file = scratch.configure(text);
        let said = File::create(scratch.0.join("said")).expect("a file");
        let mut command = Command::new("unshare");
        // Relative paths are relative to that directory, and what a row makes is gone with it.
        let own = scratch.0.join("own");
        fs::create_dir_all(&own).expect("a directory");
        command.current_dir(&own).args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]);
        command.args([env!("CARGO_BIN_EXE_sanwire"), "serve", "--config"]).arg(file);
        if !text.contains("control =") {
            // The usual place is that of all servers of this host.
            command.arg("--control").arg(own.join("control"));
        }
        command.env("XDG_STATE_HOME", scratch.0.join("state"));
        command.env_remove("SANWIRE_LOG").stdin(std::process::Stdio::null());
        command.stdout(said.try_clone().expect("a second handle")).stderr(said);
        Server(command.spawn().expect("the program starts"))
    }

    /// Waits until it serves, or has ended; then it ends. Gives what it has said, and how it has ended if it did by itself.
    fn outcome(mut self, directory: &Path) -> (String, Option<ExitStatus>) {
        let said = || fs::read_to_string(directory.join("said")).unwrap_or_default();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let ended = self.0.try_wait().expect("it can be waited for");
            if ended.is_some() || said().contains(SERVES) || Instant::now() > deadline {
                return (said(), ended);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// The values of a row, as they stand in it, without what says of which kind they are.
fn values(scratch: &Scratch, text: &str) -> Vec<String> {
    let directory = scratch.0.display().to_string();
    let quoted = text.split('\'').skip(1).step_by(2).map(|value| value.replace("DIR", &directory));
    quoted
        .map(|value| value.rsplit(':').next().unwrap_or_default().to_owned())
        .filter(|value| value.len() > 1)
        .collect()
}

/// What is wrong with what became of a row.
fn judge(scratch: &Scratch, (text, end, part): &(&str, End, &str)) -> Option<String> {
    let (said, ended) = Server::start(scratch, text).outcome(&scratch.0);
    let code = ended.and_then(|status| status.code());
    let (has_served, is_told) = (said.contains(SERVES), said.contains(&part.replace("ID", ID)));
    let is_right = match end {
        Warned | End::Apart => has_served && ended.is_none() && is_told,
        End::Refused => code == Some(2) && is_told && said == stderr(&scratch.check(text)),
        // What the host lacks is found in other ways; it is the same that is named.
        End::Missing => {
            let checked = stderr(&scratch.check(text));
            let is_named = values(scratch, text).iter().any(|value| said.contains(value) && checked.contains(value));
            !has_served && matches!(code, Some(1 | 2)) && (is_told || is_named)
        }
    };
    (!is_right).then(|| format!("--- {text}\nwanted {end:?}: {part}\ngot {code:?}: {said}\n"))
}

#[test]
fn what_a_check_refuses_or_warns_of_a_server_does_too() {
    if !rustix::process::geteuid().is_root() {
        return skip("what_a_check_refuses_or_warns_of_a_server_does_too", "it takes root");
    }
    let rows: Vec<_> = ROWS.iter().filter(|(text, ..)| !TOO_MUCH.iter().any(|much| text.contains(much))).collect();
    let halves = rows.split_at(rows.len() / 2);
    let judged = |half: &[&(&'static str, End, &'static str)], name: &str| {
        let judge_one = |row: &&(&'static str, End, &'static str)| {
            // What a server has made would be there for the next one.
            let scratch = Scratch::new(name);
            judge(&scratch, row)
        };
        half.iter().filter_map(judge_one).collect::<String>()
    };
    let failures = thread::scope(|scope| {
        let other = scope.spawn(|| judged(halves.1, "served-2"));
        judged(halves.0, "served-1") + &other.join().expect("the other half")
    });
    assert!(failures.is_empty(), "{failures}");
}
