//! Clients of this host.

use std::process::Command;
use std::time::Duration;

use super::{Ran, Scratch, run};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A client of this host with a key and pinned servers of its own.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    scratch: &'a Scratch,
    name: &'a str,
}

impl<'a> Client<'a> {
    /// The client of this name: the same name is the same client.
    pub fn new(scratch: &'a Scratch, name: &'a str) -> Self {
        Client { scratch, name }
    }

    /// The program as this client runs it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        let own = self.scratch.path(self.name);
        command.args(arguments).env("XDG_STATE_HOME", &own).env("XDG_CONFIG_HOME", own);
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        run(self.command(arguments), TIMEOUT)
    }

    /// What servers know it by.
    pub fn id(&self) -> String {
        self.run(&["id"]).stdout.trim().to_owned()
    }
}
