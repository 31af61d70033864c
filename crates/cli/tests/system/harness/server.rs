//! `sanwire serve`.

use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::Signal;

use super::{Process, SERVER_ADDRESS, SERVER_NAME, Wire, World};

const START_TIMEOUT: Duration = Duration::from_secs(90);

/// A running server.
#[derive(Debug)]
pub struct Server {
    process: Process,
    make: Remake,
}

/// How the same server is started again.
#[derive(Debug)]
struct Remake {
    program: String,
    arguments: Vec<String>,
    state: std::path::PathBuf,
    log: std::path::PathBuf,
}

impl Server {
    /// Serves volumes on both wires to everybody.
    pub fn start(world: &World, volumes: &[&str]) -> Server {
        Server::start_with(world, volumes, &["--allow", "any"])
    }

    /// Serves volumes to everybody on both wires, and by another one if that is meant.
    pub fn start_for(world: &World, wire: Wire, volumes: &[&str]) -> Server {
        let portal = format!("iscsi:{SERVER_ADDRESS}");
        match wire {
            Wire::Ethernet | Wire::Ip => Server::start(world, volumes),
            Wire::Iscsi => Server::start_with(world, volumes, &["--allow", "any", "--wire", &portal]),
            Wire::Hdsp | Wire::HdspXdp => {
                let path = if wire == Wire::Hdsp { "packet" } else { "xdp" };
                let wire = format!("hdsp:{},path={path}", world.interface());
                Server::start_with(world, volumes, &["--allow", "any", "--wire", &wire])
            }
            Wire::Visa | Wire::VisaTcp => {
                let wire = format!("visa:{SERVER_ADDRESS}");
                Server::start_with(world, volumes, &["--allow", "any", "--wire", &wire])
            }
        }
    }

    /// Serves volumes on both wires with more options.
    pub fn start_with(world: &World, volumes: &[&str], options: &[&str]) -> Server {
        let wires = [format!("hs-eth:{}", world.interface()), format!("hs-ip:{SERVER_ADDRESS}")];
        Server::start_alone(world, volumes, &[options, &["--wire", &wires[0], "--wire", &wires[1]]].concat())
    }

    /// Serves volumes on the wires that are among the options.
    pub fn start_alone(world: &World, volumes: &[&str], options: &[&str]) -> Server {
        Server::start_in(world, world.on_server(env!("CARGO_BIN_EXE_sanwire")), volumes, options)
    }

    /// The same without some capabilities, as `setpriv` takes them out of the bounding set: `-bpf,-sys_admin`.
    pub fn start_without(world: &World, capabilities: &str, volumes: &[&str], options: &[&str]) -> Server {
        let mut command = world.on_server("setpriv");
        command.args([&format!("--bounding-set={capabilities}"), env!("CARGO_BIN_EXE_sanwire")]);
        Server::start_in(world, command, volumes, options)
    }

    fn start_in(world: &World, mut command: Command, volumes: &[&str], options: &[&str]) -> Server {
        command.args(["serve", "--name", SERVER_NAME]).args(options);
        for volume in volumes {
            command.args(["--volume", volume]);
        }
        Server::spawn(&command, &world.state("server"), world.scratch.path("server.log"))
    }

    /// One more server on the server's host, with its own name and state, on an interface of its own.
    pub fn start_beside(world: &World, name: &str, interface: &str, volumes: &[&str], options: &[&str]) -> Server {
        let mut command = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["serve", "--name", name, "--wire", &format!("hs-eth:{interface}")]).args(options);
        for volume in volumes {
            command.args(["--volume", volume]);
        }
        Server::spawn(&command, &world.state("beside"), world.scratch.path("beside.log"))
    }

    /// Serves volumes on the loopback of this host.
    pub fn start_here(scratch: &super::Scratch, port: u16, volumes: &[&str]) -> Server {
        Server::start_on(scratch, &[&format!("hs-ip:127.0.0.1:{port}")], volumes, &[])
    }

    /// Serves volumes on wires of this host, with more options.
    pub fn start_on(scratch: &super::Scratch, wires: &[&str], volumes: &[&str], options: &[String]) -> Server {
        let command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        Server::start_by(command, scratch, wires, volumes, options)
    }

    /// The same for who may do nothing on this host but in the directory of the test, as far as the test may choose that.
    pub fn start_as_nobody(scratch: &super::Scratch, wires: &[&str], volumes: &[&str], options: &[String]) -> Server {
        /// Nobody's number everywhere.
        const NOBODY: u32 = 65534;
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(scratch.directory(), Some(NOBODY), Some(NOBODY)).expect("the directory");
            command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        }
        command.args(["--no-new-privs", env!("CARGO_BIN_EXE_sanwire")]);
        Server::start_by(command, scratch, wires, volumes, options)
    }

    /// Serves volumes on a wire of this host, with a limit by `ulimit`.
    pub fn start_limited(scratch: &super::Scratch, limit: &str, wire: &str, volumes: &[&str]) -> Server {
        let mut command = Command::new("sh");
        let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_sanwire")]);
        Server::start_by(command, scratch, &[wire], volumes, &[])
    }

    /// Serves volumes on wires of this host, with more options, and an environment of `NAME=VALUE`.
    pub fn start_within(
        environment: &[String],
        scratch: &super::Scratch,
        wires: &[&str],
        volumes: &[&str],
        options: &[String],
    ) -> Server {
        let mut command = Command::new("env");
        command.args(environment).arg(env!("CARGO_BIN_EXE_sanwire"));
        Server::start_by(command, scratch, wires, volumes, options)
    }

    fn start_by(
        mut command: Command,
        scratch: &super::Scratch,
        wires: &[&str],
        volumes: &[&str],
        options: &[String],
    ) -> Server {
        command.args(["serve", "--name", SERVER_NAME]).args(options);
        for wire in wires {
            command.args(["--wire", wire]);
        }
        for volume in volumes {
            command.args(["--volume", volume]);
        }
        Server::spawn(&command, &scratch.path("server-state"), scratch.path("server.log"))
    }

    pub(super) fn spawn(command: &Command, state: &std::path::Path, log: std::path::PathBuf) -> Server {
        let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
        let mut arguments: Vec<String> = command.get_args().map(text).collect();
        // The usual socket is named after the server, and tests at the same time have servers of one name.
        if !arguments.iter().any(|argument| argument.starts_with("--control")) {
            arguments.extend(["--control".to_owned(), log.with_extension("control").display().to_string()]);
        }
        let make = Remake { program: text(command.get_program()), arguments, state: state.to_owned(), log };
        let mut process = make.process();
        process.wait_for("\n  on ", START_TIMEOUT);
        Server { process, make }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, as it was.
    pub fn restart(&mut self) {
        self.process = self.make.process();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Asks it to end (SIGTERM) and waits for that.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait(Duration::from_secs(90))
    }
}

impl Remake {
    fn process(&self) -> Process {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env("XDG_STATE_HOME", &self.state).env_remove("SANWIRE_LOG");
        Process::spawn("server", command, self.log.clone())
    }
}
