//! The options of `sanwire ctl`.

use std::path::PathBuf;

use clap::Args;

use super::{AskingArgs, ManageCommand};
use crate::config::ServerName;

/// `sanwire ctl`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sanwire ctl status\n  sanwire ctl add-volume disk1=file:/srv/disk1.img,size=20G\n  \
                        sanwire ctl resize-volume disk1 40G\n  \
                        sanwire ctl remove-volume disk1 --if-revision 3762504530690048\n  \
                        sanwire ctl add-client 0f1e... --name alice --volumes 'vm-*' --read-only\n  \
                        sanwire ctl add-target vm --chap-user host=/root/host.secret\n  \
                        sanwire ctl reload\n\n\
                        Programs may write requests to the socket themselves: one JSON object on a line, like\n  \
                        {\"do\": \"resize-volume\", \"name\": \"disk1\", \"size\": \"40G\"}"
)]
pub(crate) struct CtlArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: ManageCommand,

    /// Which server of this host, by its name [default: the only one that runs here]
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "socket")]
    pub(crate) server: Option<ServerName>,

    /// The socket of a server that was started with --control PATH
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,

    /// On which terms.
    #[command(flatten)]
    pub(crate) terms: AskingArgs,
}
