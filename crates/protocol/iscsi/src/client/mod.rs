//! The initiator's end: one session that is found again when it is lost.

use std::net::SocketAddr;
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Slice};
use sanwire_core::{Instant, Lun};
use sanwire_scsi::{Cdb, Status};

use crate::ConnectionId;
use crate::chap::Credential;
use crate::name::{IscsiName, Isid};

/// What a client would like to agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wishes {
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
    pub wishes: Wishes,
    /// Commands in transit.
    pub commands_max: u16,
    /// How long to try before giving up: at first, and after a loss (`None`: for ever).
    pub connect_patience: Duration,
    /// See `connect_patience`.
    pub reconnect_patience: Option<Duration>,
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
}

/// The number of a command in its client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(u64);

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
    /// The data to go with it.
    pub data_out: Option<Slice>,
    /// Where the answer's data is to be put; its length is what the target may send.
    pub data_in: Option<Frame>,
}

/// Why a command has no answer, or a client no session.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answered.
    #[error("no target answered; it may be down or not reachable")]
    NoAnswer,
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
    /// Open a connection; then call [`Client::connected`] or [`Client::connection_lost`].
    Connect {
        /// Its number.
        connection: ConnectionId,
        /// Where to.
        to: SocketAddr,
    },
    /// Close a connection, once all was sent.
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
    /// What [`Client::discover`] found.
    Targets(Vec<DiscoveredTarget>),
    /// Patience has run out: the client is closed.
    GivenUp(Failure),
}

/// The initiator's end of iSCSI: one session.
pub struct Client {}

impl Client {
    /// A client that seeks its target.
    #[must_use]
    pub fn new(_config: ClientConfig, _now: Instant) -> Self {
        unimplemented!()
    }

    /// What the driver must do next.
    pub fn poll_action(&mut self) -> Option<ClientAction> {
        unimplemented!()
    }

    /// A connection is open.
    pub fn connected(&mut self, _connection: ConnectionId, _now: Instant) {
        unimplemented!()
    }

    /// A connection could not be opened, has ended or failed.
    pub fn connection_lost(&mut self, _connection: ConnectionId, _now: Instant) {
        unimplemented!()
    }

    /// Where the next bytes of a connection belong: first all of the first space, then the second.
    pub fn spaces(&mut self, _connection: ConnectionId) -> [&mut [u8]; 2] {
        unimplemented!()
    }

    /// So many bytes were received into the spaces.
    pub fn filled(&mut self, _connection: ConnectionId, _count: usize, _now: Instant) {
        unimplemented!()
    }

    /// Gives a command; hands it back while there is no room for it.
    ///
    /// # Errors
    /// The order.
    pub fn order(&mut self, _order: Order, _now: Instant) -> Result<CommandId, Order> {
        unimplemented!()
    }

    /// Commands that were given and not answered.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        unimplemented!()
    }

    /// Asks a discovery session for all targets; [`ClientEvent::Targets`] is the answer.
    pub fn discover(&mut self, _now: Instant) {
        unimplemented!()
    }

    /// From now on, after the loss of a session, commands wait for [`Client::release`]: its caller first makes sure that
    /// the units are what they were. Commands given while held go out at once.
    pub fn hold_after_restart(&mut self) {
        unimplemented!()
    }

    /// Lets held commands go.
    pub fn release(&mut self) {
        unimplemented!()
    }

    /// Fails the held commands of a logical unit.
    pub fn abandon(&mut self, _lun: Lun, _failure: Failure) {
        unimplemented!()
    }

    /// Leaves the target: logout, without waiting for commands.
    pub fn disconnect(&mut self, _now: Instant) {
        unimplemented!()
    }

    /// The target, while there is a session.
    #[must_use]
    pub fn server(&self) -> Option<ServerInfo> {
        unimplemented!()
    }

    /// The next thing that the layer above must know.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        unimplemented!()
    }

    /// A connection that has something to send.
    pub fn poll_ready(&mut self) -> Option<ConnectionId> {
        unimplemented!()
    }

    /// The next bytes to send on a connection.
    pub fn poll_transmit(&mut self, _connection: ConnectionId) -> Option<Packet> {
        unimplemented!()
    }

    /// When [`Client::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, _now: Instant) {
        unimplemented!()
    }
}
