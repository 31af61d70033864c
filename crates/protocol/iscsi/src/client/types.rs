//! What a client is made of, is given, and tells.

use std::net::SocketAddr;
use std::time::Duration;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::Lun;
use sanwire_scsi::{Cdb, Status};

use crate::ConnectionId;
use crate::chap::Credential;
use crate::name::{IscsiName, Isid};
use crate::other_portals::OtherPortal;

/// What a client would like to agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DesiredParameters {
    /// Digests on headers and data.
    pub digests: bool,
    /// 0, 1 or 2.
    pub error_recovery_level: u8,
    /// Connections of the session: 1 to 8.
    pub connections: u16,
}

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Who we are.
    pub initiator: IscsiName,
    /// Our part of the session's identity.
    pub isid: Isid,
    /// The target; without one it is a discovery session.
    pub target: Option<IscsiName>,
    /// Where the target may be reached; tried in turn.
    pub portals: Vec<SocketAddr>,
    /// How we show who we are.
    pub credential: Option<Credential>,
    /// Whom the target must show to be.
    pub target_credential: Option<Credential>,
    /// What we would like.
    pub wishes: DesiredParameters,
    /// Commands in transit.
    pub commands_max: u16,
    /// How long to try before giving up: at first, and after a loss (`None`: without a limit).
    pub connect_patience: Duration,
    /// See `connect_patience`.
    pub reconnect_patience: Option<Duration>,
    /// How long a command may stand still at the target before it is aborted (`None`: it never is).
    pub command_patience: Option<Duration>,
    /// All randomness comes from this.
    pub seed: [u8; 32],
}

/// The target that a client is connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Its name; empty in a discovery session.
    pub target: String,
    /// What people call it; may be empty.
    pub alias: String,
    /// Where it is.
    pub portal: SocketAddr,
    /// Commands in transit, for now.
    pub commands_max: u16,
    /// Connections of the session.
    pub connections: u16,
    /// There are no more because the target has dropped commands, or ended sessions, with more.
    pub is_narrowed: bool,
    /// What was agreed on.
    pub session: crate::SessionParameters,
    /// What was agreed on for the leading connection.
    pub connection: crate::ConnectionParameters,
}

/// A target that a discovery session told of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveredTarget {
    /// Its name.
    pub name: IscsiName,
    /// Its addresses (`HOST:PORT`) with their portal group tags.
    pub addresses: Vec<(String, u16)>,
    /// Its portals that are spoken to in another way; `None`: it does not say whether there are any.
    pub others: Option<Vec<OtherPortal>>,
}

/// The number of a command in its client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub(super) u64);

impl CommandId {
    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A command for a target.
#[derive(Debug)]
pub struct Order {
    /// Where.
    pub lun: Lun,
    /// What.
    pub cdb: Cdb,
    /// Whether it does the same when it is done again: the unit's type decides that. One that does not fails when nobody knows
    /// whether it was done.
    pub is_repeatable: bool,
    /// The data to go with it: less than 4 GiB.
    pub data_out: Option<Slice>,
    /// Where the answer's data is to be put; its length, less than 4 GiB, is what the target may send.
    pub data_in: Option<Frame>,
}

/// Why a command has no answer, or a client no session.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answered.
    #[error("no target answered; it may be down or not reachable")]
    NoAnswer,
    /// The target closed the connection before the login was over.
    #[error("the target closed the connection during the login; its log may say why, or it is no iSCSI target")]
    LoginClosed,
    /// The target took the connection and then said nothing.
    #[error("the target took the connection, but does not answer the login; it may be busy, or is no iSCSI target")]
    LoginUnanswered,
    /// What is there does not speak RDMA.
    #[error("the target took the connection, but {reason}")]
    NoIser {
        /// What shows it, and what to do.
        reason: String,
    },
    /// There is no connection by RDMA.
    #[error("there is no RDMA connection to the target: {reason}")]
    NoRdma {
        /// Why, and what to do.
        reason: String,
    },
    /// The target refused us.
    #[error("the target refused the login: {reason}")]
    Refused {
        /// In words, with what to do.
        reason: String,
    },
    /// One end did not show who it is.
    #[error("authentication failed: {reason}")]
    NotAuthentic {
        /// In words, with what to do.
        reason: String,
    },
    /// The session was lost and nobody knows whether the command was executed.
    #[error("the session was lost while the command was under way; it may or may not have been executed")]
    InDoubt,
    /// The target has not answered the command in time.
    #[error(
        "the target has not answered a command for {} s; it may or may not have been executed: look what keeps the target busy",
        after.as_secs()
    )]
    TimedOut {
        /// How long it had.
        after: Duration,
    },
    /// The target broke the rules.
    #[error("the target broke the protocol: {what}")]
    Protocol {
        /// How.
        what: String,
    },
    /// The client was closed.
    #[error("the session was closed")]
    Closed,
}

/// What the driver must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAction {
    /// Open a connection; then call [`super::Client::connected`] or [`super::Client::connection_lost`].
    Connect {
        /// Its number.
        connection: ConnectionId,
        /// Where to.
        to: SocketAddr,
    },
    /// Close a connection, or stop opening it. The client knows nothing of it any more.
    Close {
        /// Which.
        connection: ConnectionId,
    },
}

/// What the layer above must know.
#[derive(Debug)]
pub enum ClientEvent {
    /// There is a session (again).
    Connected {
        /// With whom.
        server: Box<ServerInfo>,
        /// The tasks of the lost session go on (error recovery level 2); else commands in doubt were given again.
        resumed: bool,
    },
    /// The session is gone; it is being sought again.
    Lost {
        /// The target said so before.
        announced: bool,
    },
    /// A command was answered.
    Completed {
        /// Which.
        id: CommandId,
        /// The SAM-5 status.
        status: Status,
        /// Sense data; mostly empty.
        sense: Vec<u8>,
        /// The frame for its data.
        data_in: Option<Frame>,
        /// How much of the frame was filled, from its start.
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
    /// What [`super::Client::discover`] found.
    Targets(Vec<DiscoveredTarget>),
    /// The target has been away for longer than the patience lasts: every command without an answer has failed, and the
    /// search goes on. No command is taken until there is a session again.
    OutOfPatience(Failure),
    /// There never was a session and patience has run out, or the target breaks the rules again and again: the client is
    /// closed.
    GivenUp(Failure),
}
