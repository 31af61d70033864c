//! What a client is made of, and what it tells.

use std::time::Duration;

use sanwire_buffer::Frame;
use sanwire_core::quota::{SESSIONS_OF_ADDRESS, SESSIONS_OF_CLIENT};
use sanwire_core::{Path, Protection};
use sanwire_exchange::CommandId;

use crate::channel::Recovery;
use crate::keys::{Identity, Psk};
use crate::options::{Agreed, DesiredOptions, DeviceOption};
use crate::server::LinkLimits;
use crate::wire::command::Answer;
use crate::wire::links::Address;

/// What a client is made of.
pub struct ClientConfig {
    /// What the server may call us.
    pub name: String,
    /// The static key; its id is on the server's allow list.
    pub identity: Identity,
    /// The shared secret.
    pub psk: Psk,
    /// The server's static public key, when it must be this one.
    pub server_key: Option<[u8; 32]>,
    /// Where to look: a server's address, or everybody on the link.
    pub path: Path,
    /// Which server; empty for whichever answers first.
    pub server_name: String,
    /// Our link.
    pub link: LinkLimits,
    /// Commands in transit, at most [`sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX`].
    pub commands_max: u16,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
    /// Packets of commands and answers are never guarded less.
    pub protection_min: Protection,
    /// What we want of connections.
    pub wishes: DesiredOptions,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// How long to seek a server at first before giving up.
    pub connect_patience: Duration,
    /// How long commands wait for a lost server; `None`: without a limit.
    pub reconnect_patience: Option<Duration>,
    /// All randomness comes from this.
    pub seed: [u8; 32],
}

/// The server that a client is connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: Path,
    /// The largest packet that the path is known to take, in bytes.
    pub packet_max_bytes: u32,
    /// Commands in transit.
    pub commands_max: u16,
    /// To what the data transfer of a command is to be cut, in bytes.
    pub transfer_max_bytes: u32,
    /// The largest data transfer that it takes, in bytes: that before a change is still taken while the connection lives.
    pub transfer_limit_bytes: u32,
    /// How often it asks for a sign of life.
    pub keep_alive: Duration,
    /// Differs each time the server starts.
    pub instance: u64,
    /// Its static public key.
    pub public_key: [u8; 32],
    /// What both ends have agreed on.
    pub options: Agreed,
}

/// Why a command has no answer, or a client no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answered, or nobody who may be meant.
    #[error(
        "no server answered; it may be down, not reachable, or not configured to serve this client: `sanwire id` prints the id that its \
         `allow` or a `[[client]]` must name"
    )]
    NoAnswer,
    /// The server refused the handshake, in which we have shown no password.
    #[error(
        "authentication failed: the server requires a password, and none was given: add --password-file or --secret-file"
    )]
    NoPassword,
    /// The server refused the handshake, in which we have shown a password.
    #[error("authentication failed, the passwords differ: the one that was given is wrong, or the server wants none")]
    WrongPassword,
    /// A server answered that has another static key.
    #[error(
        "SERVER KEY CHANGED: pinned {}, received {}. Either the server was set up anew, or somebody else answers in its place. Compare \
         with `sanwire key show` of the key file on the server; if the server's key is the received one, pin it",
        hexadecimal(pinned),
        hexadecimal(received)
    )]
    OtherServer {
        /// The key that it must have.
        pinned: [u8; 32],
        /// The key that it has.
        received: [u8; 32],
    },
    /// One end enforces an option that the other does not support.
    #[error(
        "one end enforces the option {name}, and the other end does not support it so: change it at one of them",
        name = .0.name()
    )]
    Option(DeviceOption),
    /// The server says that it enforces an option that we do not support; which one, only its log tells.
    #[error("the server enforces an option that this client does not support")]
    RefusedOptions,
    /// The server has no room.
    #[error(
        "the server has no room for another connection: each program that uses it has one, of which a client has {of_client} at most, \
         and a host {of_host}; end some, or see `sanwire ctl statistics` there",
        of_client = SESSIONS_OF_CLIENT.limit, of_host = SESSIONS_OF_ADDRESS.limit
    )]
    Full,
    /// The server was restarted and nobody knows whether the command was executed.
    #[error("the server was restarted while the command was under way; it may or may not have been executed")]
    InDoubt,
    /// The command has more data than the server takes.
    #[error("the command has more data than the server takes in one transfer: split it")]
    TooLarge,
    /// The client was closed.
    #[error("the connection was closed")]
    Closed,
}

/// A key as people compare it.
fn hexadecimal(key: &[u8; 32]) -> String {
    key.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// What the layer above must know.
#[derive(Debug)]
pub enum ClientEvent {
    /// There is a connection (again).
    Connected {
        /// With whom.
        server: ServerInfo,
        /// The server remembers the session (always false for the first connection).
        resumed: bool,
    },
    /// What both ends have agreed on is this now: the server wants so, or has answered [`super::Client::wish`].
    Options(Box<Agreed>),
    /// The server does not agree to what was wished for this option: what held before holds.
    WishRefused(DeviceOption),
    /// The connection is gone; it is being sought again.
    Lost {
        /// The server said that it stops.
        announced: bool,
    },
    /// The server tells where it can be reached: paths to there can be joined by [`super::Client::join`].
    Addresses(Vec<Address>),
    /// A command was answered.
    Completed {
        /// Which.
        id: CommandId,
        /// How.
        answer: Answer,
        /// The frame for its data.
        data_in: Option<Frame>,
        /// How much of the frame was filled.
        data_in_bytes: usize,
    },
    /// A command will not be answered.
    Failed {
        /// Which.
        id: CommandId,
        /// Why.
        failure: Failure,
        /// The frame for its data.
        data_in: Option<Frame>,
    },
    /// The server has been away for longer than the patience lasts: every command without an answer has failed, and the
    /// search goes on. No command is taken until there is a connection again.
    OutOfPatience(Failure),
    /// There never was a connection, and patience has run out: the client is closed.
    GivenUp(Failure),
}
