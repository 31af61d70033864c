//! The options of `sanwire top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sanwire_initiator::Url;

use super::ReachArgs;
use super::client::seconds;
use crate::config::ServerName;

/// `sanwire top`.
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: 1 volumes, 2 clients, 3 links, 4 shards, 5 events; s sorts by the next column, / filters, Enter shows all of \
                  a row, p holds, q ends. Of attachments: 1 attachments, 2 links.\n\nExamples:\n  sanwire top\n  sanwire top hs+ip://storage\n  \
                  sanwire top --attachments\n  sanwire top --once --json"
)]
pub(crate) struct TopArgs {
    /// A server that this client may manage, over HyperSCSI or VISA [default: the server that runs on this host]
    pub(crate) url: Option<Url>,

    /// Which server of this host, by its name [default: the only one that runs here]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["url", "socket"])]
    pub(crate) server: Option<ServerName>,

    /// The socket of a server that was started with --control PATH
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    pub(crate) socket: Option<PathBuf>,

    /// What this host has attached, instead of a server [default where no server runs]
    #[arg(long, conflicts_with_all = ["url", "server", "socket"])]
    pub(crate) attachments: bool,

    /// How often the server is asked, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: Duration,

    /// Print what is done within one interval of a second at the most, and end
    #[arg(long)]
    pub(crate) once: bool,

    /// Print JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,

    /// How to connect.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}
