//! What a target is made of, and what it tells.

use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{MacAddress, NexusId, Path};
use sanwire_scsi::Task;

use crate::shelves::Shelves;
use crate::wire::Address;

/// What a target is made of.
pub struct TargetConfig {
    /// The targets.
    pub shelves: Arc<Shelves>,
    /// Which stations are served.
    pub admission: Box<dyn Fn(MacAddress) -> bool + Send>,
    /// Where the data of writes is put.
    pub memory: Region,
    /// By links, the largest packet in bytes.
    pub links: Vec<usize>,
    /// Commands that a station may have under way at a target.
    pub buffers: u16,
    /// The number of the first nexus, and how far they are apart.
    pub nexuses: (u64, u64),
    /// Which run of the server this is: what the one before had not made stable may be lost.
    pub run: u64,
    /// Whether it says at the start which targets there are: one of several shards does.
    pub announces: bool,
}

/// What the layer above must know or do.
#[derive(Debug)]
pub enum TargetEvent {
    /// A station uses a target.
    Opened {
        /// From now on.
        nexus: NexusId,
        /// From where.
        path: Path,
        /// Which target.
        address: Address,
        /// Its memory.
        memory: Region,
    },
    /// It does no longer.
    Closed {
        /// Which.
        nexus: NexusId,
    },
    /// Execute this, and call [`Target::reply`].
    Command {
        /// Whose.
        nexus: NexusId,
        /// By which it is replied to.
        number: u64,
        /// What.
        task: Task,
    },
    /// What a station has set could not be kept: more have set something than there is room for, and every station that comes from now on
    /// begins without its write cache. This is told once.
    SettingsFull,
    /// A mask or a reservation was not changed, because it would have more stations than there is room for.
    ListFull {
        /// Who wanted it.
        path: Path,
        /// Of which target.
        address: Address,
    },
    /// Somebody asks who may not, and gets no answer.
    NotAllowed {
        /// Where.
        path: Path,
    },
}
