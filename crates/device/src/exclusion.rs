//! Who changes which blocks now: what makes COMPARE AND WRITE one uninterrupted action (SBC-4 5.3).
//!
//! A command that reads and then writes claims its blocks for itself, and so does a copy that writes to another target's disk,
//! where a lost session of its initiator must not be followed by newer writes before its last one. While no such claim is there, a write only counts
//! itself, on a cache line that it shares with few others, and a read does nothing at all. While one is there, writes queue
//! up behind it where they touch its blocks, and it waits for those that came before. The queue is in order of coming, so
//! nobody waits for ever. Nothing blocks: who may not go on yet is asked again later.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;

use crate::step::Range;

/// Lines of counters: nexuses that are on different ones do not fight over them.
const STRIPES: usize = 16;

/// The line that a nexus counts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lane(u8);

impl Lane {
    pub(crate) fn of(nexus: NexusId) -> Lane {
        Lane((nexus.0 % STRIPES as u64) as u8)
    }
}

/// The blocks that a command is going to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) range: Range,
    /// Whether no other change may come between, such as when what is there is read before.
    pub(crate) is_exclusive: bool,
}

/// What a command holds while it changes blocks; given back by [`Exclusion::leave`].
#[derive(Debug)]
pub(crate) enum Permit {
    /// It changes nothing.
    Nothing,
    /// Counted on this lane.
    Counted(Lane),
    /// In the queue under this number.
    Queued(u64),
}

#[derive(Default, Debug)]
pub(crate) struct Exclusion {
    /// How many exclusive claims are in the queue.
    exclusive: AtomicU32,
    /// How many writes are under way that did not queue.
    counted: [Stripe; STRIPES],
    queue: Mutex<Queue>,
}

#[derive(Default, Debug)]
#[repr(align(64))]
struct Stripe(AtomicU32);

#[derive(Default, Debug)]
struct Queue {
    last: u64,
    /// Ascending by number: in order of coming.
    claims: Vec<(u64, Claim)>,
}

impl Exclusion {
    /// Takes a claim in. It may go on when [`Exclusion::may_go`] says so.
    pub(crate) fn enter(&self, claim: Claim, lane: Lane) -> Permit {
        if !claim.is_exclusive {
            let counted = self.counted(lane);
            // Either this write sees the exclusive claim, or that claim sees this write: one of the two comes first in
            // the one order that all sequentially consistent operations have.
            counted.fetch_add(1, Ordering::SeqCst);
            if self.exclusive.load(Ordering::SeqCst) == 0 {
                return Permit::Counted(lane);
            }
            counted.fetch_sub(1, Ordering::SeqCst);
        }
        let mut queue = self.lock();
        queue.last += 1;
        let number = queue.last;
        queue.claims.push((number, claim));
        if claim.is_exclusive {
            self.exclusive.fetch_add(1, Ordering::SeqCst);
        }
        Permit::Queued(number)
    }

    /// Whether nothing that came before is in the way.
    pub(crate) fn may_go(&self, permit: &Permit) -> bool {
        let Permit::Queued(number) = *permit else { return true };
        let queue = self.lock();
        let before = queue.claims.iter().take_while(|(other, _)| *other < number);
        let Some((_, claim)) = queue.claims.iter().find(|(other, _)| *other == number) else { return true };
        let is_in_the_way =
            |other: &Claim| (other.is_exclusive || claim.is_exclusive) && other.range.overlaps(claim.range);
        if before.into_iter().any(|(_, other)| is_in_the_way(other)) {
            return false;
        }
        !claim.is_exclusive || self.counted.iter().all(|stripe| stripe.0.load(Ordering::SeqCst) == 0)
    }

    pub(crate) fn leave(&self, permit: &Permit) {
        match *permit {
            Permit::Nothing => {}
            Permit::Counted(lane) => {
                self.counted(lane).fetch_sub(1, Ordering::SeqCst);
            }
            Permit::Queued(number) => {
                let mut queue = self.lock();
                let Some(at) = queue.claims.iter().position(|(other, _)| *other == number) else { return };
                let (_, claim) = queue.claims.remove(at);
                if claim.is_exclusive {
                    self.exclusive.fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
    }

    fn counted(&self, lane: Lane) -> &AtomicU32 {
        &self.counted[usize::from(lane.0)].0
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics between two writes to the queue: a poisoned one is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Lane = Lane(1);
    const OTHER: Lane = Lane(2);

    fn claim(offset_bytes: u64, length_bytes: u64, is_exclusive: bool) -> Claim {
        Claim { range: Range { offset_bytes, length_bytes }, is_exclusive }
    }

    #[test]
    fn writes_do_not_wait_for_each_other() {
        let exclusion = Exclusion::default();
        let (a, b) = (exclusion.enter(claim(0, 10, false), ONE), exclusion.enter(claim(5, 10, false), ONE));
        assert!(matches!((&a, &b), (Permit::Counted(ONE), Permit::Counted(ONE))));
        assert!(exclusion.may_go(&a) && exclusion.may_go(&b));
    }

    #[test]
    fn an_exclusive_claim_waits_for_what_came_before_and_is_waited_for() {
        let exclusion = Exclusion::default();
        let before = exclusion.enter(claim(100, 10, false), ONE);
        let alone = exclusion.enter(claim(0, 10, true), OTHER);
        assert!(!exclusion.may_go(&alone), "where the counted write goes is not known");
        let beside = exclusion.enter(claim(10, 10, false), ONE);
        let within = exclusion.enter(claim(9, 10, false), ONE);
        assert!(exclusion.may_go(&beside) && !exclusion.may_go(&within));
        exclusion.leave(&before);
        assert!(exclusion.may_go(&alone), "what came later does not hold it up");
        exclusion.leave(&alone);
        assert!(exclusion.may_go(&within));
        let next = exclusion.enter(claim(0, 50, true), ONE);
        assert!(!exclusion.may_go(&next));
        exclusion.leave(&beside);
        exclusion.leave(&within);
        assert!(exclusion.may_go(&next));
        exclusion.leave(&next);
        assert!(matches!(exclusion.enter(claim(0, 50, false), ONE), Permit::Counted(_)), "all is as at first");
    }

    #[test]
    fn exclusive_claims_on_other_blocks_go_side_by_side() {
        let exclusion = Exclusion::default();
        let (a, b) = (exclusion.enter(claim(0, 10, true), ONE), exclusion.enter(claim(10, 10, true), ONE));
        let c = exclusion.enter(claim(19, 1, true), ONE);
        assert!(exclusion.may_go(&a) && exclusion.may_go(&b) && !exclusion.may_go(&c));
        exclusion.leave(&b);
        assert!(exclusion.may_go(&c));
    }
}
