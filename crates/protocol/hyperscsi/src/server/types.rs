//! What a server is made of, and what it tells.

use std::time::Duration;

use sanwire_buffer::{Region, Slice};
use sanwire_core::{ClientId, Lun, NexusId, Path, Protection, SessionEnd};
use sanwire_scsi::Task;

use super::{Admission, SecurityEvent};
use crate::channel::Recovery;
use crate::keys::{Identity, Psk};
use crate::options::Agreed;
use crate::wire::links::{Address, LinkLimits};

/// How a logical unit wants its packets guarded; of none: the least that any of them wants.
pub type ProtectionLookup = Box<dyn Fn(Option<Lun>) -> Protection + Send>;

/// Whether a logical unit's data may be compressed, with clients with whom that is agreed on.
pub type Compressible = Box<dyn Fn(Lun) -> bool + Send>;

/// What a server is made of.
pub struct ServerConfig {
    /// The name that clients see.
    pub name: String,
    /// The static key.
    pub identity: Identity,
    /// The secret of all clients that have none of their own.
    pub psk: Psk,
    /// Who may connect.
    pub admission: Box<dyn Admission>,
    /// How the logical units are guarded.
    pub levels: ProtectionLookup,
    /// Whose data may be compressed.
    pub compressible: Compressible,
    /// Memory for what clients send. Its driver sets [`Region::on_release`], and asks for what is to be sent when it is woken by that.
    pub memory: Region,
    /// The links, in the order of their [`sanwire_core::LinkId`].
    pub links: Vec<LinkLimits>,
    /// Where clients can reach it, so that they can use several ways at once.
    pub addresses: Vec<Address>,
    /// This shard's place among all: the connections that it makes have ids of which the remainder by `shards` is
    /// `shard`, so that drivers can steer packets.
    pub shard: u32,
    /// How many shards there are.
    pub shards: u32,
    /// A number that differs each time the server starts.
    pub instance: u64,
    /// How often a live connection is asked for a sign of life.
    pub keep_alive: Duration,
    /// How long a connection's keys are used.
    pub rekey_interval: Duration,
    /// How long a session without a connection is kept.
    pub session_idle_max: Duration,
    /// Commands that a client has in transit.
    pub commands_max: u16,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// All randomness comes from this.
    pub seed: [u8; 32],
}

/// Which command of which session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandHandle {
    pub(super) nexus: NexusId,
    pub(super) number: u64,
}

impl CommandHandle {
    /// The handle of which [`CommandHandle::nexus`] and [`CommandHandle::number`] are these.
    #[must_use]
    pub fn new(nexus: NexusId, number: u64) -> Self {
        CommandHandle { nexus, number }
    }

    /// The session's nexus.
    #[must_use]
    pub fn nexus(&self) -> NexusId {
        self.nexus
    }

    /// The command's number in its session.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// What the layer above must know or do.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client has a session now.
    SessionOpened {
        /// Its nexus.
        nexus: NexusId,
        /// Who it is.
        client: ClientId,
        /// Drawn when the client was started: others that have its key have another one, all its sessions the same.
        run: u64,
        /// What it calls itself.
        name: String,
        /// Where it is.
        path: Path,
        /// What both ends have agreed on.
        options: Agreed,
        /// Its share of the memory: what its commands need is taken from this.
        memory: Region,
    },
    /// A session has no connection for now: what it has given and was not begun is not to wait for memory, unless the session
    /// [`Server::is_connected`] again. [`Server::withdraw`] is called for each of these commands.
    Disconnected {
        /// Its nexus.
        nexus: NexusId,
    },
    /// A client takes no answers for a while, or takes them again: what needs memory for its answer is to wait meanwhile.
    Held {
        /// The session's nexus.
        nexus: NexusId,
        /// It takes none. A session that begins, or goes on with another connection, takes some.
        is_held: bool,
    },
    /// A client goes on with its session by a new connection.
    SessionResumed {
        /// Its nexus.
        nexus: NexusId,
        /// Where the client is now.
        path: Path,
        /// What both ends have agreed on.
        options: Box<Agreed>,
    },
    /// Both ends have agreed on other options.
    Options {
        /// The session's nexus.
        nexus: NexusId,
        /// What they have agreed on.
        options: Box<Agreed>,
    },
    /// Something was refused, perhaps several times within a second. All of it is counted.
    Refused {
        /// What.
        offence: SecurityEvent,
        /// The client whose it is by what the packets say, which anybody may have sent; `None`: they name none, or too many.
        client: Option<ClientId>,
        /// Where the first came from.
        path: Path,
        /// How often.
        count: u64,
    },
    /// Somebody who is not allowed asks, and gets no answer. It is told of once a minute.
    NotAllowed {
        /// As whom it comes; anybody can say so.
        client: ClientId,
        /// Where its first packet came from.
        path: Path,
        /// How many have come since it was told of last.
        packets: u64,
    },
    /// A session is gone.
    SessionClosed {
        /// Its nexus.
        nexus: NexusId,
        /// Why.
        end: SessionEnd,
    },
    /// Execute this and call [`Server::reply`].
    Command {
        /// For the reply.
        handle: CommandHandle,
        /// What to do.
        task: Task,
    },
    /// Manage the server, if its client may, and call [`Server::administered`]. It came sealed, and so goes the answer.
    Administer {
        /// For the answer.
        handle: CommandHandle,
        /// What is asked.
        request: Option<Slice>,
        /// The longest answer that the client has room for, in bytes.
        room_bytes: u32,
    },
    /// End a command as soon as that can be done. [`Server::reply`] is called for it in any case, with what came of it or
    /// with TASK ABORTED; who wants its end is answered then.
    Abort {
        /// The command.
        handle: CommandHandle,
    },
    /// Reset a logical unit and call [`Server::managed`], once every command that it ends has been replied to.
    Reset {
        /// For the answer.
        handle: CommandHandle,
        /// Which; `None` for one that cannot exist.
        lun: Option<Lun>,
    },
}
