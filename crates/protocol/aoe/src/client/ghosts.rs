//! Copies of writes that are over, and that may land all the same.
//!
//! A message that was sent again may have been late and not lost. When the write was answered by one copy, and the same sectors were
//! written anew, the other copy must not come after that: so nothing is written where a copy may still be on its way. A copy is gone
//! when it was answered, or when it is older than messages and targets' queues live.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_scsi::Extent;

/// How long after it was sent a copy can still be executed.
pub(super) const GHOST_LIFETIME: Duration = Duration::from_secs(3);

/// A write of which copies are unaccounted for.
#[derive(Clone, Copy, Debug)]
struct Ghost {
    extent: Extent,
    /// Whose it was.
    order: u64,
    copies: u32,
    dead_at: Instant,
}

/// All of them, by the pieces that they are of.
#[derive(Clone, Debug, Default)]
pub(super) struct Ghosts(BTreeMap<u64, Ghost>);

impl Ghosts {
    /// So many copies of a piece that is over are unaccounted for; the last was sent at this time.
    pub(super) fn add(&mut self, piece: u64, order: u64, extent: Extent, copies: u32, sent_at: Instant) {
        if copies > 0 {
            self.0.insert(piece, Ghost { extent, order, copies, dead_at: sent_at + GHOST_LIFETIME });
        }
    }

    /// A copy was answered; whether that was the last one.
    pub(super) fn answered(&mut self, piece: u64) -> bool {
        let Some(ghost) = self.0.get_mut(&piece) else { return false };
        ghost.copies -= 1;
        let is_over = ghost.copies == 0;
        if is_over {
            self.0.remove(&piece);
        }
        is_over
    }

    /// Forgets those that are dead; gives their pieces.
    pub(super) fn expire(&mut self, now: Instant) -> BTreeSet<u64> {
        let dead: BTreeSet<u64> =
            self.0.iter().filter(|(_, ghost)| ghost.dead_at <= now).map(|(piece, _)| *piece).collect();
        self.0.retain(|piece, _| !dead.contains(piece));
        dead
    }

    /// Whether a write of this order could be overwritten by one of them. Those of its own have the same content.
    pub(super) fn haunt(&self, order: u64, extent: Extent) -> bool {
        self.0.values().any(|ghost| ghost.order != order && overlap(ghost.extent, extent))
    }

    /// When the next one is dead.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.0.values().map(|ghost| ghost.dead_at).min()
    }
}

/// Whether two extents have a sector in common.
pub(super) fn overlap(one: Extent, other: Extent) -> bool {
    let end = |extent: Extent| extent.lba.saturating_add(extent.blocks.into());
    one.lba < end(other) && other.lba < end(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_haunted_until_every_copy_is_accounted_for_or_dead() {
        let mut ghosts = Ghosts::default();
        let extent = |lba, blocks| Extent { lba, blocks };
        ghosts.add(1, 7, extent(10, 4), 2, Instant::ZERO);
        ghosts.add(2, 7, extent(30, 4), 0, Instant::ZERO);
        assert!(ghosts.haunt(8, extent(13, 1)) && !ghosts.haunt(8, extent(14, 9)) && !ghosts.haunt(8, extent(30, 4)));
        assert!(!ghosts.haunt(7, extent(10, 4)), "it would write the same again");
        assert_eq!((ghosts.answered(1), ghosts.answered(1), ghosts.answered(1)), (false, true, false));
        assert!(!ghosts.haunt(8, extent(13, 1)));
        ghosts.add(3, 7, extent(10, 4), 1, Instant::ZERO);
        let at = ghosts.next_at().unwrap();
        assert_eq!(at, Instant::ZERO + GHOST_LIFETIME);
        assert_eq!(ghosts.expire(at), BTreeSet::from([3]));
        assert!(!ghosts.haunt(8, extent(10, 4)) && ghosts.next_at().is_none());
    }
}
