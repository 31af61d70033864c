//! The options by which any server is reached. Where a command has commands of its own, they may stand after these as well.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::client::seconds;
use super::links::LinkChoice;

/// How a server is reached, and this client known there.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReachArgs {
    /// A file whose first line is the server's password (iSCSI: the CHAP secret of the URL's user); only its owner may read it
    #[arg(long, value_name = "FILE", global = true, help_heading = "Connection")]
    pub(crate) password_file: Option<PathBuf>,

    /// A file with the key that a server of HyperSCSI or HDSP shares with its clients, in place of a password
    #[arg(long, value_name = "FILE", conflicts_with = "password_file", global = true, help_heading = "Connection")]
    pub(crate) secret_file: Option<PathBuf>,

    /// The file of this client's static key; it is made when absent [default: in the user's state directory]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Connection")]
    pub(crate) key_file: Option<PathBuf>,

    // Not global: `job --wait` is something else.
    /// How long to wait for a server that is away before operations fail, and to seek it at first: seconds (fractions allowed), or
    /// forever [default: 60, and 5 at first]
    #[arg(long, value_name = "SECONDS|forever", value_parser = patience, help_heading = "Connection")]
    pub(crate) wait: Option<Patience>,

    /// Ask this name server for hosts and their SRV records, not those of the system (repeatable)
    #[arg(
        long,
        value_name = "ADDR[:PORT]",
        env = "SANWIRE_NAME_SERVER",
        value_delimiter = ',',
        value_parser = name_server,
        global = true,
        help_heading = "Connection"
    )]
    pub(crate) name_server: Vec<SocketAddr>,

    /// Which interfaces carry a HyperSCSI connection besides that of the URL: at most so many links in all, or those named (IF,IF)
    ///
    /// All that reach the server are used, up to 8. The server tells where it can be reached.
    #[arg(long, value_name = "NUMBER|IF,IF", default_value = "8", global = true, help_heading = "Connection")]
    pub(crate) links: LinkChoice,
}

/// How long something is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// So long.
    For(Duration),
    /// Until it is there.
    Forever,
}

/// An address, with the port of DNS unless it has one.
fn name_server(text: &str) -> Result<SocketAddr, &'static str> {
    let with_usual_port = || text.parse().map(|ip| SocketAddr::new(ip, 53));
    let parsed = text.parse().or_else(|_| with_usual_port());
    parsed.map_err(|_| "a name server is ADDR or ADDR:PORT, like 192.0.2.53, 2001:db8::53 or [2001:db8::53]:5353")
}

fn patience(text: &str) -> Result<Patience, &'static str> {
    let expected = |_| "a time is a number of seconds above 0 and up to 1000000, like 5 or 0.5, or the word forever";
    if text == "forever" { Ok(Patience::Forever) } else { seconds(text).map(Patience::For).map_err(expected) }
}
