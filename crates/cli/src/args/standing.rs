//! What is looked at of a server that runs, beside its volumes and sessions.

use clap::Subcommand;

/// About how a server stands.
#[derive(Subcommand, Debug)]
pub(crate) enum StandingCommand {
    /// Show the wires: whether each is there, and what has passed
    Links,
    /// Show what is configured, and what was changed while the server ran; no secret is shown
    Configuration,
    /// Show who is registered for persistent reservations of a volume, and who has reserved it
    Reservations {
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
