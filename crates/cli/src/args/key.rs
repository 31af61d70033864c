//! The options of `sanwire key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanwire_initiator::Url;

use super::ClientArgs;
use crate::keys;

/// `sanwire key`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sanwire key new /etc/sanwire.secret\n  sanwire key show\n  \
                        sanwire key pin hs+ip://storage --secret-file ./storage.secret\n  \
                        sanwire key pin hs+ip://storage --replace --key \\\n    \
                        e0780b885c3a0f2b16d7a4c9f35e8d1a7b4c0e92d6f8a3b51c7e9d0f2a4b6c8d")]
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
    /// From now on, take a server under this URL only with this key, or with the one that it has now
    Pin {
        /// The server, or one of its volumes
        url: Url,

        /// The server's key, as `sanwire key show` of its key file prints it there [default: the one that the server shows now]
        #[arg(long, value_name = "KEY", value_parser = key)]
        key: Option<[u8; 32]>,

        /// Pin it in place of another key; without --key that is asked on the terminal
        #[arg(long)]
        replace: bool,

        /// Take it with any key again
        #[arg(long, conflicts_with_all = ["key", "replace"])]
        forget: bool,

        /// How to connect.
        #[command(flatten)]
        client: Box<ClientArgs>,
    },
}

fn key(text: &str) -> Result<[u8; 32], &'static str> {
    keys::parse(text).ok_or("a key has 64 hexadecimal digits, as `sanwire key show FILE` prints it on the server")
}
