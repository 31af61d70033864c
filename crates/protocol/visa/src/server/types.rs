//! What a server is made of, and what it tells.

use std::fmt;
use std::time::Duration;

use sanwire_buffer::{Region, Slice};
use sanwire_core::{ClientId, Lun, NexusId, Path, Peer, Protection, SessionEnd};
use sanwire_scsi::Task;
use sanwire_security::OffenceKind;
use sanwire_security::keys::{Identity, Psk};

use crate::counters::Traffic;
use crate::wire::offer::Terms;

/// What a link can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// The largest packet, in bytes: what fits the path without being taken apart.
    pub packet_max_bytes: u16,
    /// Packets that are taken at once.
    pub window_packets: u32,
    /// TCP carries the packets.
    pub is_stream: bool,
}

/// What an end would like its connections to be, and what it allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// The recovery of 1998: wanted, and so allowed.
    pub classic: bool,
    /// Whether the other end may want it.
    pub allows_classic: bool,
    /// Payload in classic mode, in bytes; 0: what the other end wants, or 8 KiB.
    pub classic_payload_bytes: u32,
    /// No check where a unit demands no more than a checksum: wanted, and so allowed.
    pub unchecked: bool,
    /// Whether the other end may want it.
    pub allows_unchecked: bool,
}

/// Who may connect. What it says may change at any time.
pub trait Doorkeeper: Send {
    /// Whether a client may connect. It is asked with the address alone where no client has named itself.
    fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool;

    /// Whether this very client is listed: it does not wait when others guess passwords.
    fn is_listed(&self, client: ClientId) -> bool {
        let _ = client;
        false
    }

    /// The secret that this client must know instead of the server's.
    fn psk(&self, client: ClientId) -> Option<Psk> {
        let _ = client;
        None
    }
}

/// How a logical unit wants its packets guarded; of none: the least that any of them wants.
pub type ProtectionLookup = Box<dyn Fn(Option<Lun>) -> Protection + Send>;

/// What a server is made of.
pub struct ServerConfig {
    /// The name that clients see.
    pub name: String,
    /// The static key.
    pub identity: Identity,
    /// The secret of all clients that have none of their own.
    pub psk: Psk,
    /// Who may connect.
    pub doorkeeper: Box<dyn Doorkeeper>,
    /// How the logical units are guarded.
    pub levels: ProtectionLookup,
    /// What connections should be.
    pub wishes: Wishes,
    /// Memory for what clients send. Its driver sets [`Region::on_release`], and asks for what is to be sent when it is woken by that.
    pub memory: Region,
    /// The links, in the order of their [`sanwire_core::LinkId`].
    pub links: Vec<LinkLimits>,
    /// This shard's place among all: the connections that it makes have ids of which the remainder by `shards` is `shard`.
    pub shard: u32,
    /// How many shards there are.
    pub shards: u32,
    /// A number that differs each time the server starts.
    pub instance: u64,
    /// Its nexuses are numbered from here on, those of each shard differently.
    pub nexus_base: u64,
    /// Who is silent for so long is asked; after four times as long he is gone.
    pub keep_alive: Duration,
    /// How long a session without a connection is kept.
    pub session_idle_max: Duration,
    /// Commands that a client has in transit.
    pub commands_max: u16,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
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

/// Something that a server refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offence {
    /// A handshake of somebody who took part in it, but does not know the password, or is not the client that it names.
    WrongPassword,
    /// Another handshake that did not verify.
    Handshake,
    /// A packet that does not authenticate.
    NotAuthentic,
    /// A packet or a request that was guarded less than is demanded.
    Downgrade,
    /// Something authentic that the protocol forbids.
    Violation,
    /// The same on a connection without checks: anybody can have sent it.
    UncheckedViolation,
}

impl Offence {
    /// Whether it takes a connection's keys: then it is known whose it was.
    #[must_use]
    pub fn is_proven(self) -> bool {
        self == Offence::Violation
    }
}

impl OffenceKind for Offence {
    fn is_proven(self) -> bool {
        Offence::is_proven(self)
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Offence::WrongPassword => "it does not know the password, or is not who it says it is",
            Offence::Handshake => "a handshake that does not verify",
            Offence::NotAuthentic => "packets that are forged, repeated or damaged",
            Offence::Downgrade => "packets that are protected too little",
            Offence::Violation => "the rules of the protocol are broken",
            Offence::UncheckedViolation => {
                "the rules of the protocol are broken, where packets have no check: anybody may have sent it"
            }
        })
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
        /// Drawn when the client was started.
        run: u64,
        /// Where it is.
        path: Path,
        /// What both ends have agreed on.
        terms: Terms,
        /// Its share of the memory: what its commands need is taken from this.
        memory: Region,
    },
    /// A client goes on with its session by a new connection.
    SessionResumed {
        /// Its nexus.
        nexus: NexusId,
        /// Where the client is now.
        path: Path,
        /// What both ends have agreed on.
        terms: Terms,
    },
    /// A session has no connection for now: what it has given and was not begun is not to wait for memory, unless the session
    /// [`super::Server::is_connected`] again. [`super::Server::withdraw`] is called for each of these commands.
    Disconnected {
        /// Its nexus.
        nexus: NexusId,
    },
    /// A session is gone.
    SessionClosed {
        /// Its nexus.
        nexus: NexusId,
        /// Why.
        end: SessionEnd,
    },
    /// A connection over TCP is of no more use.
    Hangup {
        /// Whose.
        path: Path,
    },
    /// Something was refused: a burst of it, told when it is over.
    Refused {
        /// What.
        offence: Offence,
        /// Whose it is, or in whose name it came; `None` where too many have come at once to tell them apart.
        client: Option<ClientId>,
        /// Where the first came from.
        path: Path,
        /// How many.
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
    /// Execute this and call [`super::Server::reply`].
    Command {
        /// For the reply.
        handle: CommandHandle,
        /// What to do.
        task: Task,
    },
    /// Manage the server, if its client may, and call [`super::Server::administered`]. It came encrypted, and so goes the answer.
    Administer {
        /// For the answer.
        handle: CommandHandle,
        /// What is asked.
        request: Option<Slice>,
        /// The longest answer that the client has room for, in bytes.
        room_bytes: u32,
    },
    /// End a command as soon as that can be done. [`super::Server::reply`] is called for it in any case.
    Abort {
        /// The command.
        handle: CommandHandle,
    },
    /// Reset a logical unit and call [`super::Server::managed`], once every command that it ends has been replied to.
    Reset {
        /// For the answer.
        handle: CommandHandle,
        /// Which; `None` for one that cannot exist.
        lun: Option<Lun>,
    },
}

/// A connection of a server, as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionStatus {
    /// Its session's.
    pub nexus: NexusId,
    /// Where the client is.
    pub path: Path,
    /// What both ends have agreed on.
    pub terms: Terms,
    /// TCP carries it.
    pub is_stream: bool,
    /// What went through it.
    pub traffic: Traffic,
}
