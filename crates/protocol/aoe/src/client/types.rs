//! What a client is made of, and what it tells.

use std::time::Duration;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::{LinkId, Path};
use sanwire_scsi::{Cdb, Status};

use crate::wire::Address;

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The target.
    pub address: Address,
    /// The links on which it may be, each with its largest packet in bytes.
    pub links: Vec<(LinkId, usize)>,
    /// How long it is sought at first.
    pub connect_patience: Duration,
    /// How long commands wait for one that was lost; `None`: without a limit.
    pub reconnect_patience: Option<Duration>,
    /// From where on tags are counted: drawn by chance, so that programs of one host do not take each other's answers.
    pub first_tag: u32,
}

/// Where a target is, and what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// By which link, and at which station.
    pub path: Path,
    /// Sectors of one command.
    pub sectors: u16,
    /// Commands that it takes before it has answered any.
    pub buffers: u16,
}

/// A command for the target.
#[derive(Debug)]
pub struct Order {
    /// What.
    pub cdb: Cdb,
    /// Its data.
    pub data_out: Option<Slice>,
    /// Where the answer's data is to be put.
    pub data_in: Option<Frame>,
}

/// Why a command has no answer, or there is no target.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answered.
    #[error(
        "no AoE target answered; it may be down, on another Ethernet, at another shelf or slot (`sanwire discover aoe://IF` lists \
         those that answer), or not allow this host's MAC address"
    )]
    NoAnswer,
    /// What answered is no disk that can be used.
    #[error("{0}")]
    NoDisk(String),
    /// The target was lost, and nobody knows whether the command was executed.
    #[error("the target was lost while the command was under way; it may or may not have been executed")]
    InDoubt,
    /// The client was closed.
    #[error("the connection was closed")]
    Closed,
}

/// What the layer above must know.
#[derive(Debug)]
pub enum ClientEvent {
    /// The target is there (again).
    Connected(Place),
    /// It does not answer, and is sought.
    Lost,
    /// A command was answered.
    Completed {
        /// Which.
        number: u64,
        /// How it ended.
        status: Status,
        /// What is the matter.
        sense: Vec<u8>,
        /// Where the data was put.
        data_in: Option<Frame>,
        /// How much that is.
        data_in_bytes: usize,
    },
    /// A command will have no answer.
    Failed {
        /// Which.
        number: u64,
        /// Why.
        failure: Failure,
        /// Its frame.
        data_in: Option<Frame>,
    },
    /// Every command has failed, because the target was away for too long. It is sought on.
    OutOfPatience,
    /// There will be no target any more.
    GivenUp(Failure),
}
