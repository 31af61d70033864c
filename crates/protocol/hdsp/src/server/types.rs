//! What a server is made of, and what it tells and is told.

use std::time::Duration;

use sanwire_ata::{Registers, TaskFile};
use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::{ClientId, NexusId, Path, Peer, Protection, SessionEnd};
use sanwire_security::keys::{Identity, Psk};

use crate::wire::DiskType;
use crate::wire::discovery::Instance;
use crate::wire::offer::{COMMANDS_MAX, VolumeId};

/// What a link of a server can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// The largest packet, in bytes: the MTU of the interface.
    pub packet_max_bytes: u16,
    /// W: packets that it has room for.
    pub window_packets: u32,
}

/// A disk as a client may use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// By which packets name it.
    pub address: u8,
    /// Which volume it is: what has been answered about one is never taken for another that has its address later.
    pub volume: VolumeId,
    /// Which commands it takes.
    pub disk_type: DiskType,
    /// How its data is guarded at least.
    pub protection: Protection,
}

impl Disk {
    /// Whether what was answered of one is true of the other.
    pub(super) fn is_same(&self, other: &Disk) -> bool {
        (self.address, self.volume, self.disk_type) == (other.address, other.volume, other.disk_type)
    }
}

/// Which disk a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted<'a> {
    /// By its name.
    Named(&'a str),
    /// By its address.
    At(u8),
}

/// Who may connect, and what is there for whom. What it says may change at any time.
pub trait Directory: Send {
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

    /// A disk that this client may use from there, taking commands of this type where it can; of [`DiskType::Any`], of whichever it likes best.
    fn disk(&self, client: ClientId, peer: Peer, wanted: Wanted<'_>, disk_type: DiskType) -> Option<Disk>;
}

/// How a server is configured.
pub struct ServerConfig {
    /// Its name, by which clients seek it.
    pub name: String,
    /// Its key.
    pub identity: Identity,
    /// The secret that clients must know.
    pub psk: Psk,
    /// Drawn when the server starts.
    pub instance: Instance,
    /// Its links, by their numbers.
    pub links: Vec<LinkLimits>,
    /// N: packets of a group, to begin with.
    pub group_packets: u16,
    /// Data of writes that a session may have without answer; and of answers that have not arrived, beyond which no further command
    /// that reads begins.
    pub write_room_bytes: u32,
    /// Data of a command, at the most.
    pub transfer_max_bytes: u32,
    /// Who is silent for so long is asked; after four times as long he is gone.
    pub keep_alive: Duration,
    /// How long a session without a connection is kept.
    pub linger: Duration,
    /// Sessions, at the most.
    pub sessions_max: usize,
    /// Sessions of one client.
    pub sessions_of_client_max: usize,
    /// M: packets of writes that are held before they are written.
    pub batch_packets: u32,
    /// Which of how many servers behind one address this is: packets whose ports, as one number, are its own modulo `shards` are its own.
    pub shard: u32,
    /// How many there are.
    pub shards: u32,
    /// Its nexuses are numbered from here on, those of each shard differently.
    pub nexus_base: u64,
    /// Where received data is put.
    pub memory: Region,
    /// Who may connect.
    pub directory: Box<dyn Directory>,
    /// Of all chance.
    pub seed: [u8; 32],
}

/// A command, or several writes that are one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandHandle(pub(super) u64);

impl CommandHandle {
    /// The handle of which [`CommandHandle::number`] is this.
    #[must_use]
    pub fn new(number: u64) -> Self {
        CommandHandle(number)
    }

    /// Its number, among all of the server.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0
    }
}

/// What is to be executed.
#[derive(Clone, Debug)]
pub enum Request {
    /// A command of an ATA disk.
    Ata {
        /// Its registers.
        task_file: TaskFile,
        /// What it writes, in order.
        data: Vec<Slice>,
    },
    /// A command of a SCSI disk.
    Scsi {
        /// The command.
        cdb: Vec<u8>,
        /// What it writes, in order.
        data: Vec<Slice>,
        /// How much it may read, in bytes: no more than [`ServerConfig::transfer_max_bytes`].
        room_bytes: u32,
    },
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Of a command of an ATA disk.
    Ata {
        /// Its registers.
        registers: Registers,
        /// What was read: whole sectors.
        data: Option<Slices>,
    },
    /// Of a command of a SCSI disk.
    Scsi {
        /// Its status.
        status: u8,
        /// Its sense data, 252 bytes at the most.
        sense: Vec<u8>,
        /// What was read.
        data: Option<Slices>,
    },
}

impl Answer {
    /// How much was read.
    pub(super) fn data_bytes(&self) -> u64 {
        let (Answer::Ata { data, .. } | Answer::Scsi { data, .. }) = self;
        data.as_ref().map_or(0, Slices::len) as u64
    }
}

/// What the server tells.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client has a session.
    SessionOpened {
        /// By which its commands are known.
        nexus: NexusId,
        /// Whose.
        client: ClientId,
        /// Drawn when the client was started.
        run: u64,
        /// From where.
        path: Path,
        /// Which disk it uses.
        disk: Disk,
        /// How its packets are guarded.
        protection: Protection,
        /// Its share of the memory for received data.
        memory: Region,
    },
    /// A client goes on with its session by a new connection.
    SessionResumed {
        /// Which.
        nexus: NexusId,
        /// Where the client is now.
        path: Path,
        /// How its packets are guarded.
        protection: Protection,
    },
    /// A session has no connection for now.
    Disconnected {
        /// Which.
        nexus: NexusId,
    },
    /// A session is over, and nobody hears the answers to its commands any more. They are to be told of all the same, by
    /// [`super::Server::reply`] or [`super::Server::withdraw`], when they cannot reach the disk any more.
    SessionClosed {
        /// Which.
        nexus: NexusId,
        /// Why.
        end: SessionEnd,
    },
    /// Somebody who may not connect asks, and gets no answer. Of each client it is told once, until [`super::Server::terms_changed`].
    NotAllowed {
        /// As whom it comes; anybody can say so.
        client: ClientId,
        /// Where from.
        path: Path,
    },
    /// A handshake of somebody who does not know the password, or is not the client that it names.
    WrongPassword {
        /// The client whose key it has.
        client: ClientId,
        /// Where from.
        path: Path,
    },
    /// Somebody who has proved who it is broke the rules, and has lost its connection.
    Violation {
        /// Who.
        client: ClientId,
        /// Where from.
        path: Path,
    },
    /// Execute this and call [`super::Server::reply`], or [`super::Server::withdraw`] if it was not executed: one of them for every
    /// command, also when its session is over.
    Command {
        /// For the reply.
        handle: CommandHandle,
        /// Who asks.
        nexus: NexusId,
        /// Which disk.
        disk_address: u8,
        /// What to do.
        request: Request,
        /// When its client has given it.
        given: GivenAt,
    },
}

/// When commands of a session were given that are executed as one: their numbers say that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GivenAt {
    first: u16,
    last: u16,
}

impl GivenAt {
    /// For these numbers, of which there is one at least.
    pub(super) fn new(numbers: impl Iterator<Item = u16>) -> Self {
        let span = numbers.fold(None, |span: Option<GivenAt>, number| match span {
            None => Some(GivenAt { first: number, last: number }),
            Some(GivenAt { first, last }) => Some(GivenAt {
                first: if distance(number, first) > 0 { number } else { first },
                last: if distance(last, number) > 0 { number } else { last },
            }),
        });
        span.unwrap_or(GivenAt { first: 0, last: 0 })
    }

    /// Whether its client had the answers to all of these when it gave any of it: it uses a number only when it has the answers to all
    /// that are 256 or more before that.
    #[must_use]
    pub fn follows_answers_to(&self, before: &GivenAt) -> bool {
        distance(before.last, self.first) >= COMMANDS_MAX as i16
    }

    /// The same of all that its client is going to give after it, which may have come before others that it gave earlier.
    #[must_use]
    pub fn precedes_only_what_follows_answers_to(&self, before: &GivenAt) -> bool {
        distance(before.last, self.first) >= 2 * COMMANDS_MAX as i16
    }
}

/// How many numbers lie from one to another one, which come again after 65,536.
fn distance(from: u16, to: u16) -> i16 {
    to.wrapping_sub(from) as i16
}
