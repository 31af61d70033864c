//! One station at one target: what it has set, and what it has under way.

use std::collections::BTreeMap;
use std::ops::Range;

use sanwire_ata::{Ask, Drive, Execution};
use sanwire_buffer::Region;
use sanwire_core::quota::AOE_VERIFIES;
use sanwire_core::{Instant, Lun, MacAddress, NexusId, Path};
use sanwire_scsi::Receipts;

use super::recent::{Mark, Recent};
use crate::wire::{Address, AtaHeader, Header};

/// A station at a target.
pub(super) struct Nexus {
    pub(super) id: NexusId,
    pub(super) station: MacAddress,
    pub(super) address: Address,
    pub(super) lun: Lun,
    /// Which of the units it is that were put there ([`crate::shelves::Entry`]).
    pub(super) put: u64,
    /// Another unit was there when the station gave its last command: until it asks who this one is (IDENTIFY DEVICE), what comes may be meant
    /// for that one.
    pub(super) is_unmet: bool,
    pub(super) drive: Drive,
    /// Its share of the memory.
    pub(super) memory: Region,
    pub(super) commands: BTreeMap<u64, Running>,
    /// The writes that it has given a moment ago.
    pub(super) recent: Recent,
    /// The flushes that have failed.
    pub(super) failures: Recent,
    pub(super) used_at: Instant,
    /// Answers of which it must be known that the station has them, with when they were sent.
    pub(super) receipts: Receipts<Instant>,
}

/// A command under way.
pub(super) struct Running {
    pub(super) path: Path,
    pub(super) header: Header,
    pub(super) ata: AtaHeader,
    pub(super) execution: Execution,
    /// Of what changes the medium: by which it is known when it comes twice.
    pub(super) mark: Option<Mark>,
    /// The sectors that it changes.
    pub(super) changes: Option<Range<u64>>,
    /// It reads what it does not send.
    pub(super) is_verify: bool,
    /// What it begins with, while an earlier command changes some of them, or as many are executed as may be.
    pub(super) waits_with: Option<Ask>,
    /// Up to which receipt the station had the answers when it gave it.
    pub(super) receipts: u64,
}

impl Nexus {
    /// Whether it has nothing under way.
    pub(super) fn is_idle(&self) -> bool {
        self.commands.is_empty()
    }

    /// Whether a command that came before this one changes some of the same sectors, and is not over. An initiator that gives a write again,
    /// under another tag, may take the end of either for the end of both, and write the sectors anew: the other must not come after that.
    pub(super) fn is_in_the_way(&self, number: u64, changes: &Range<u64>) -> bool {
        let overlaps = |other: &Range<u64>| other.start < changes.end && changes.start < other.end;
        self.commands.range(..number).any(|(_, earlier)| earlier.changes.as_ref().is_some_and(overlaps))
    }

    /// Commands that read without sending it, and are executed.
    pub(super) fn verifies(&self) -> usize {
        self.commands.values().filter(|running| running.is_verify && running.waits_with.is_none()).count()
    }

    /// A command that waited, and does not have to any more; with what it begins.
    pub(super) fn next_waiting(&mut self) -> Option<(u64, Ask)> {
        let waiting = self.commands.iter().filter(|(_, running)| running.waits_with.is_some());
        let may_verify = (self.verifies() as u64) < AOE_VERIFIES.limit;
        let free = |(number, running): &(&u64, &Running)| match &running.changes {
            Some(changes) => !self.is_in_the_way(**number, changes),
            None => may_verify,
        };
        let number = *waiting.filter(|command| free(command)).map(|(number, _)| number).next()?;
        let ask = self.commands.get_mut(&number)?.waits_with.take()?;
        Some((number, ask))
    }

    /// Whether a message is one that is being obeyed: initiators that give a command again may do so under its tag.
    pub(super) fn has(&self, header: &Header, ata: &AtaHeader) -> bool {
        self.commands.values().any(|running| running.header.tag == header.tag && running.ata == *ata)
    }
}
