//! What is looked at of a server that runs, beside its volumes and sessions.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::client::seconds;

/// Which sessions are shown, and what of them.
#[derive(Args, Debug)]
pub(crate) struct SessionsArgs {
    /// Measure for so many seconds what each does in one
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) rate: Option<Duration>,
    /// Only those that have used this volume
    #[arg(long, value_name = "NAME")]
    pub(crate) volume: Option<String>,
}

/// About how a server stands.
#[derive(Subcommand, Debug)]
pub(crate) enum StandingCommand {
    /// Show the wires: whether each is there, and what has passed
    Links,
    /// Show what is configured, and what was changed while the server ran; no secret is shown
    Configuration {
        /// Print what is served now as the tables of a configuration file, without secrets
        #[arg(long)]
        toml: bool,
    },
    /// Show who is registered for persistent reservations of a volume, and who has reserved it
    Reservations {
        /// The volume's name
        name: String,
    },
    /// Show the commands for a volume that take longest now: what each does, for how long, for what it waits, and whose it is
    Commands {
        /// The volume's name
        name: String,
    },
    /// End the reservations of a volume, and what is registered for them: those of a host that does not come again
    ClearReservations {
        /// The volume's name
        name: String,
        /// Only what is registered with this key, as `reservations` shows it [default: all]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Do it also while those are connected that have registered
        #[arg(long)]
        force: bool,
    },
    /// Print what those who help want to know, as one JSON document; no secret is in it: `ctl support-bundle > FILE`
    SupportBundle,
}
