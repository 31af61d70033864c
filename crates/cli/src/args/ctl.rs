//! The options of `sanwire ctl`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanwire_core::Size;
use sanwire_store::VolumeSpec;

/// `sanwire ctl`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sanwire ctl status\n  sanwire ctl add-volume disk1=file:/srv/disk1.img,size=20G\n  \
                        sanwire ctl resize-volume disk1 40G\n  sanwire ctl reload\n\n\
                        Programs may write requests to the socket themselves: one JSON object on a line, like\n  \
                        {\"do\": \"resize-volume\", \"name\": \"disk1\", \"size\": \"40G\"}"
)]
pub(crate) struct CtlArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: CtlCommand,

    /// The server's socket [default: that of the only server that runs here]
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What a running server can be asked.
#[derive(Subcommand, Debug)]
pub(crate) enum CtlCommand {
    /// Show wires, volumes and iSCSI targets
    Status,
    /// Show who uses iSCSI targets
    Sessions,
    /// Serve one more volume
    AddVolume {
        /// The volume: NAME=STORE[,KEY[=VALUE]]...
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Make it a logical unit of this iSCSI target [default: a target of its own]
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
    },
    /// Serve a volume no longer; its content stays where it is
    RemoveVolume {
        /// The volume's name
        name: String,
    },
    /// Make a volume longer
    ResizeVolume {
        /// The volume's name
        name: String,
        /// The new size, like 20G
        size: Size,
    },
    /// Read the configuration file again, and apply what differs
    Reload,
}

/// A volume as it is written on the command line, which must be a legal one; the server reads it again.
pub(crate) fn check_volume(text: &str) -> anyhow::Result<()> {
    text.parse::<VolumeSpec>().map(drop).map_err(|error| crate::failure::misuse(error.to_string()))
}
