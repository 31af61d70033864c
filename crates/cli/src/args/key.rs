//! The options of `sanwire key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanwire_initiator::Url;

use super::ClientArgs;

/// `sanwire key`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sanwire key new /etc/sanwire.secret\n  sanwire key show\n  \
                        sanwire key pin hs+ip://storage --secret-file ./storage.secret")]
pub(crate) struct KeyArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

/// What can be done with keys.
#[derive(Subcommand, Debug)]
pub(crate) enum KeyCommand {
    /// Make a file with a random key: for --key-file, or for --secret-file at both ends
    New {
        /// The file; it must not be there yet
        file: PathBuf,
    },
    /// Print the public key and the client id of a key file; it is made when absent
    Show {
        /// The file [default: that of this user as a client]
        file: Option<PathBuf>,
    },
    /// From now on, take a server under this URL only with the key that it has now
    Pin {
        /// The server, or one of its volumes
        url: Url,

        /// Take it with any key again
        #[arg(long)]
        forget: bool,

        /// How to connect.
        #[command(flatten)]
        client: Box<ClientArgs>,
    },
}
