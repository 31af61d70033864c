//! The target's end: sessions and connections of one shard.

use std::sync::Arc;

use sanwire_buffer::{Packet, Region};
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_scsi::{Reply, Task};

use crate::ConnectionId;
use crate::login::{Admitted, Directory, TargetId};
use crate::name::{IscsiName, Isid};

/// What a server is made of.
pub struct ServerConfig {
    /// Memory for what initiators send.
    pub memory: Region,
    /// What discovery sessions are told.
    pub directory: Arc<dyn Directory>,
    /// Commands of a session that are under way, at the most: the window of command numbers.
    pub commands_max: u32,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
    /// All randomness comes from this.
    pub seed: [u8; 32],
}

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
    nexus: NexusId,
    /// Counts the commands of the session: a task tag may come again, this never.
    number: u64,
}

impl CommandHandle {
    /// The session's nexus.
    #[must_use]
    pub fn nexus(&self) -> NexusId {
        self.nexus
    }
}

/// Which task management request of which session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ManageHandle {
    nexus: NexusId,
    number: u64,
}

impl ManageHandle {
    /// The session's nexus.
    #[must_use]
    pub fn nexus(&self) -> NexusId {
        self.nexus
    }
}

/// What a task management request wants. Tasks that have not reached the layer above are dealt with by the server itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// End one command; afterwards [`Server::reply`] or [`Server::aborted`] is called for it, then [`Server::managed`].
    AbortTask(CommandHandle),
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
        /// The portal group through which it came.
        group_tag: u16,
    },
    /// A session is gone (discovery sessions have no target, and no [`ServerEvent::SessionOpened`]). Its commands that
    /// are under way are to be ended; nothing is to be answered.
    SessionClosed {
        /// Its nexus.
        nexus: NexusId,
        /// The target's part of its identity, which may be used again.
        tsih: u16,
    },
    /// Execute this, for this target, and call [`Server::reply`].
    Command {
        /// For the reply.
        handle: CommandHandle,
        /// Which target.
        target: TargetId,
        /// What to do.
        task: Task,
    },
    /// Manage tasks and call [`Server::managed`], once every command that it ends has been replied to or aborted.
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
    /// Close this connection, once [`Server::poll_transmit`] has nothing more for it and all was sent.
    Close {
        /// Which.
        connection: ConnectionId,
    },
}

/// The target's end of iSCSI, for one shard.
pub struct Server {}

impl Server {
    /// A server without sessions.
    #[must_use]
    pub fn new(_config: ServerConfig) -> Self {
        unimplemented!()
    }

    /// Takes over a connection that has passed its login, and answers its last login request. It begins a session with
    /// the identity of `admission`, ends and replaces an older session of the same initiator port, or joins the session
    /// that its login request names.
    pub fn admit(&mut self, _connection: ConnectionId, _admitted: Admitted, _admission: Admission, _now: Instant) {
        unimplemented!()
    }

    /// Where the next bytes of a connection belong: first all of the first space, then the second. Both are empty while the
    /// connection must wait (for memory, or until its answers are sent): do not read from it then.
    pub fn spaces(&mut self, _connection: ConnectionId) -> [&mut [u8]; 2] {
        unimplemented!()
    }

    /// So many bytes were received into the spaces.
    pub fn filled(&mut self, _connection: ConnectionId, _count: usize, _now: Instant) {
        unimplemented!()
    }

    /// A connection has ended or failed.
    pub fn connection_lost(&mut self, _connection: ConnectionId, _now: Instant) {
        unimplemented!()
    }

    /// A command was executed.
    pub fn reply(&mut self, _handle: CommandHandle, _reply: Reply, _now: Instant) {
        unimplemented!()
    }

    /// A command was ended without a reply.
    pub fn aborted(&mut self, _handle: CommandHandle, _now: Instant) {
        unimplemented!()
    }

    /// Task management was done.
    pub fn managed(&mut self, _handle: ManageHandle, _outcome: ManageOutcome, _now: Instant) {
        unimplemented!()
    }

    /// Asks initiators to leave (asynchronous message) because the server stops, and drops what they do not answer.
    pub fn shut_down(&mut self, _now: Instant) {
        unimplemented!()
    }

    /// Ends all sessions with a target: it was taken away.
    pub fn drop_target(&mut self, _target: TargetId, _now: Instant) {
        unimplemented!()
    }

    /// The next thing that the layer above must know.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        unimplemented!()
    }

    /// A connection that has something to send, or may be read from again after it had to wait.
    pub fn poll_ready(&mut self) -> Option<ConnectionId> {
        unimplemented!()
    }

    /// The next bytes to send on a connection.
    pub fn poll_transmit(&mut self, _connection: ConnectionId) -> Option<Packet> {
        unimplemented!()
    }

    /// When [`Server::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, _now: Instant) {
        unimplemented!()
    }
}
