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
}
