//! What a client is made of, and what it tells.

use std::time::Duration;

use sanwire_buffer::Frame;
use sanwire_core::{Path, Protection};
use sanwire_exchange::{Answer, CommandId};
use sanwire_security::keys::{Identity, Psk};

use crate::server::{LinkLimits, Wishes};
use crate::wire::offer::Terms;

/// What a client is made of.
pub struct ClientConfig {
    /// The static key; its id is on the server's allow list.
    pub identity: Identity,
    /// The shared secret.
    pub psk: Psk,
    /// The server's static public key, when it must be this one.
    pub server_key: Option<[u8; 32]>,
    /// Where the server is sought: all of these are asked.
    pub places: Vec<Path>,
    /// Which server; empty for whichever answers first.
    pub server_name: String,
    /// Its links, by their numbers.
    pub links: Vec<LinkLimits>,
    /// What connections should be.
    pub wishes: Wishes,
    /// Commands in transit, at most [`sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX`].
    pub commands_max: u16,
    /// Packets of commands and answers are never guarded less.
    pub protection_min: Protection,
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
    /// What both ends have agreed on.
    pub terms: Terms,
    /// Commands in transit.
    pub commands_max: u16,
    /// The largest data transfer that it takes, in bytes.
    pub transfer_max_bytes: u32,
    /// How often it asks for a sign of life.
    pub keep_alive: Duration,
    /// Differs each time the server starts.
    pub instance: u64,
    /// Its static public key.
    pub public_key: [u8; 32],
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
    #[error("the server's key is not the pinned one: compare it with that of the server, and pin it if it is the same")]
    OtherServer {
        /// The key that it must have.
        pinned: [u8; 32],
        /// The key that it has.
        received: [u8; 32],
    },
    /// The server has no room.
    #[error("the server has no room for another connection: end some, or see `sanwire ctl statistics` there")]
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

/// What the layer above must know.
#[derive(Debug)]
pub enum ClientEvent {
    /// There is a connection (again), or another one has taken the place of one that was worn, over the same carrier.
    Connected {
        /// With whom.
        server: ServerInfo,
        /// The server remembers the session (always false for the first connection).
        resumed: bool,
    },
    /// The connection is gone; it is being sought again.
    Lost {
        /// The server said that it stops.
        announced: bool,
    },
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
