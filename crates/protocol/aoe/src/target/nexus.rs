//! One station at one target: what it has set, and what it has under way.

use std::collections::BTreeMap;

use sanwire_ata::{Drive, Execution};
use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, MacAddress, NexusId, Path};

use super::recent::{Mark, Recent};
use crate::wire::{Address, AtaHeader, Header};

/// A station at a target.
pub(super) struct Nexus {
    pub(super) id: NexusId,
    pub(super) station: MacAddress,
    pub(super) address: Address,
    pub(super) lun: Lun,
    pub(super) drive: Drive,
    /// Its share of the memory.
    pub(super) memory: Region,
    pub(super) commands: BTreeMap<u64, Running>,
    /// The writes that it has given a moment ago.
    pub(super) recent: Recent,
    pub(super) used_at: Instant,
}

/// A command under way.
pub(super) struct Running {
    pub(super) path: Path,
    pub(super) header: Header,
    pub(super) ata: AtaHeader,
    pub(super) execution: Execution,
    /// Of what changes the medium: by which it is known when it comes twice.
    pub(super) mark: Option<Mark>,
}

impl Nexus {
    /// Whether nothing is lost when it is forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.drive.is_as_new()
    }

    /// Whether a message is one that is being obeyed: initiators that give a command again may do so under its tag.
    pub(super) fn has(&self, header: &Header, ata: &AtaHeader) -> bool {
        self.commands.values().any(|running| running.header.tag == header.tag && running.ata == *ata)
    }
}
