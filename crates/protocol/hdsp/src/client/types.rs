//! What a client is made of, and what it tells and is told.

use std::time::Duration;

use sanwire_ata::{Registers, TaskFile};
use sanwire_buffer::{Frame, Slices};
use sanwire_core::{Path, Protection};
use sanwire_security::keys::{Identity, Psk};

use crate::server::LinkLimits;
use crate::wire::discovery::Instance;
use crate::wire::offer::VolumeId;
use crate::wire::{DiskType, ErrorCode};

/// How a client is configured: it has one session, with one disk.
pub struct ClientConfig {
    /// Its key.
    pub identity: Identity,
    /// The secret that the server knows too.
    pub psk: Psk,
    /// The server's name; empty for whichever has the secret.
    pub server_name: String,
    /// The server's public key, where it is known.
    pub server_key: Option<[u8; 32]>,
    /// The disk's name; empty for that with `disk_address`.
    pub volume: String,
    /// The disk's address.
    pub disk_address: u8,
    /// Which commands it is to take.
    pub disk_type: DiskType,
    /// How packets are guarded at least.
    pub protection: Protection,
    /// Its links, by their numbers.
    pub links: Vec<LinkLimits>,
    /// Where the server is sought: usually every station of each link.
    pub places: Vec<Path>,
    /// N: packets of a group, to begin with.
    pub group_packets: u16,
    /// How long commands wait for a server that is gone.
    pub patience: Duration,
    /// Of all chance.
    pub seed: [u8; 32],
}

/// A command that was ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub(super) u64);

impl CommandId {
    /// The id of which [`CommandId::number`] is this.
    #[must_use]
    pub fn new(number: u64) -> Self {
        CommandId(number)
    }

    /// Its number, among all of the client.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0
    }
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Of an ATA disk. Of one that writes, COUNT is that of its data.
    Ata(TaskFile),
    /// Of a SCSI disk: a CDB of 255 bytes at the most.
    Scsi(Vec<u8>),
}

/// A command.
#[derive(Debug)]
pub struct Order {
    /// What.
    pub command: Command,
    /// What is written: of an ATA disk whole sectors.
    pub data: Option<Slices>,
    /// Where it is put what is read.
    pub room: Option<Frame>,
    /// More is going to be written right behind it, so the server may wait for that.
    pub more: bool,
    /// It may be given again to a server that has forgotten whether it was executed.
    pub may_repeat: bool,
    /// It goes also while commands are held, to find out whether the disk is the same.
    pub is_probe: bool,
}

/// Why an order is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// The address does not fit: the short form has 24 bits.
    #[error("the command needs 48-bit addresses")]
    Address,
    /// The data is not what the command says, or more than can be.
    #[error("the data of the command has another length than it says, or too much")]
    Data,
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Of an ATA disk.
    Ata(Registers),
    /// Of a SCSI disk.
    Scsi {
        /// The status.
        status: u8,
        /// The sense data.
        sense: Vec<u8>,
    },
    /// Nobody knows whether it was executed: the server has forgotten, or is gone, or its answer makes no sense.
    Lost,
    /// It was not given: it has more data than the server takes ([`ServerInfo::transfer_max_bytes`]).
    TooLong,
}

/// A server that has accepted us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub key: [u8; 32],
    /// Which run of it.
    pub instance: Instance,
    /// Where it is.
    pub path: Path,
    /// Which commands the disk takes.
    pub disk_type: DiskType,
    /// The disk.
    pub disk_address: u8,
    /// Which volume that is.
    pub volume: VolumeId,
    /// How packets are guarded.
    pub protection: Protection,
    /// Data of a command, at the most.
    pub transfer_max_bytes: u32,
    /// The server knows the session, with what was given before.
    pub is_resumed: bool,
}

/// What the client tells.
#[derive(Debug)]
pub enum ClientEvent {
    /// There is a connection.
    Connected(ServerInfo),
    /// It is lost, and the server is sought.
    Disconnected,
    /// The server that answers now knows nothing of this session. Commands are held until [`super::Client::resume`] or
    /// [`super::Client::abandon`]: first find out whether the disk is the same.
    Forgotten,
    /// A server that knows the secret, or the other end of it, does not accept us. It is asked again.
    Refused(ErrorCode),
    /// The server with which this session had its connection says that it has no such volume for this client any more, or another one by
    /// that name, and nobody else has accepted us in an attempt. Commands wait: it is sought on.
    VolumeGone,
    /// A server answers that has this key, and not the one of [`ClientConfig::server_key`]. The right one is sought on.
    OtherServer {
        /// Its key.
        key: [u8; 32],
    },
    /// A command has ended.
    Ended {
        /// Which.
        id: CommandId,
        /// How.
        outcome: Outcome,
        /// The room that was given for what is read.
        data: Option<Frame>,
        /// How much of it was filled, in bytes.
        data_bytes: usize,
    },
}
