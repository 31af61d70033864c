//! What a server and the layer above it say to each other.

use std::net::IpAddr;

use sanwire_buffer::Region;
use sanwire_core::{Lun, NexusId, SessionEnd};
use sanwire_scsi::Task;

use crate::ConnectionId;
use crate::login::TargetId;
use crate::name::{IscsiName, Isid};

/// The identity of a session that begins; never used twice in one server process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// The target's part of the session's identity: not zero, not one of a live session.
    pub tsih: u16,
    /// The nexus.
    pub nexus: NexusId,
}

/// Which command of which session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandHandle {
    pub(super) nexus: NexusId,
    /// Counts the commands of the session: a task tag may come again, this never.
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

    /// The number in its session.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Which task management request of which session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ManageHandle {
    pub(super) nexus: NexusId,
    pub(super) number: u64,
}

impl ManageHandle {
    /// The handle of which [`ManageHandle::nexus`] and [`ManageHandle::number`] are these.
    #[must_use]
    pub fn new(nexus: NexusId, number: u64) -> Self {
        ManageHandle { nexus, number }
    }

    /// The session's nexus.
    #[must_use]
    pub fn nexus(&self) -> NexusId {
        self.nexus
    }

    /// The number in its session.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// What a task management request wants. Tasks that have not reached the layer above are dealt with by the server itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// End one command; afterwards [`super::Server::reply`] or [`super::Server::aborted`] is called for it, then
    /// [`super::Server::managed`].
    AbortTask(CommandHandle),
    /// The same for a command of a connection that is gone, which nobody can answer any more. Its initiator may give it
    /// again on another connection of the session: what comes after this must not overtake what is still done for it.
    AbandonTask(CommandHandle),
    /// End all commands of this nexus for the logical unit.
    AbortTaskSet,
    /// End all commands of all nexuses for the logical unit.
    ClearTaskSet,
    /// Reset the logical unit.
    LogicalUnitReset,
    /// Reset all logical units of the target; afterwards a cold reset drops all its sessions.
    TargetReset {
        /// Sessions are dropped too.
        is_cold: bool,
    },
    /// End what this nexus has under way, and forget what its units know of it (RFC 7144 4.3).
    NexusReset,
}

/// How task management ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ManageOutcome {
    /// It is done.
    Complete,
    /// There is no such logical unit.
    NoLogicalUnit,
    /// The target does not do this.
    NotSupported,
    /// Not now.
    Rejected,
}

/// What the layer above must know or do.
#[derive(Debug)]
pub enum ServerEvent {
    /// An initiator port has a session with a target now.
    SessionOpened {
        /// Its nexus.
        nexus: NexusId,
        /// The target's part of its identity.
        tsih: u16,
        /// The target.
        target: TargetId,
        /// Who it is.
        initiator: IscsiName,
        /// The initiator's part of its identity.
        isid: Isid,
        /// Whom it showed to be, by CHAP.
        user: Option<String>,
        /// Where it is.
        peer: IpAddr,
        /// The portal group through which it came.
        group_tag: u16,
        /// The share of the memory of its initiator: what its commands need is taken from this.
        memory: Region,
    },
    /// A session is gone (discovery sessions have no target, and no [`ServerEvent::SessionOpened`]). Its commands that
    /// are under way are to be ended; nothing is to be answered.
    SessionClosed {
        /// Its nexus.
        nexus: NexusId,
        /// Why.
        end: SessionEnd,
        /// The target's part of its identity, which may be used again.
        tsih: u16,
    },
    /// A session has lost a connection that RDMA carries, and more is known of it than that it has ended. If it was the last one,
    /// [`ServerEvent::SessionClosed`] follows.
    Broken {
        /// Its nexus.
        nexus: NexusId,
        /// What has gone wrong, in words for people.
        why: String,
    },
    /// Execute this, for this target, and call [`super::Server::reply`].
    Command {
        /// For the reply.
        handle: CommandHandle,
        /// Which target.
        target: TargetId,
        /// What to do.
        task: Task,
    },
    /// Manage tasks and call [`super::Server::managed`], once every command that it ends has been replied to or aborted.
    Manage {
        /// For the answer.
        handle: ManageHandle,
        /// Which target.
        target: TargetId,
        /// Which logical unit; `None` for one that cannot exist, or for the whole target.
        lun: Option<Lun>,
        /// What to do.
        function: Function,
    },
    /// Close this connection, once [`super::Server::poll_transmit`] has nothing more for it and all was sent.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// Close this connection at once, and forget what was to be sent on it.
    Cut {
        /// Which.
        connection: ConnectionId,
    },
}
