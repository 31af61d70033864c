//! Who changes which blocks now: what makes COMPARE AND WRITE one uninterrupted action (SBC-4 5.3), and keeps what a lost
//! initiator's last commands still write from landing on newer data.
//!
//! A command that reads and then writes claims its blocks for itself. While no such claim is there, a write only counts
//! itself, on a cache line that it shares with few others, and a read does nothing at all. While one is there, writes queue
//! up behind it where they touch its blocks, and it waits for those that came before. The queue is in order of coming, so
//! nobody waits for ever. Nothing blocks: who may not go on yet is asked again later.
//!
//! What a store has begun cannot be called back. Whoever lost the I_T nexus by which he gave a write gives it again in the next
//! session, over another path, or not at all, and goes on from there: the lost write must not come after that. So it keeps
//! its blocks until it has ended, from everybody, reads too (SAM-5 6.3.4 lets a nexus begin anew only when the tasks of the lost one
//! have ended; this holds for other ports as well).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_store::Request;

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

/// The blocks that a command is going to look at or change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) range: Range,
    pub(crate) access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// It changes nothing.
    Look,
    Change,
    /// No other change may come between: what is there is read before.
    Alone,
    /// A change that is at its store, of somebody who is lost, or may be.
    Left,
}

impl Access {
    /// Whether blocks are other ones afterwards.
    pub(crate) fn is_change(self) -> bool {
        self != Access::Look
    }
}

impl Claim {
    /// All blocks: when this may go, every change that began before has ended, and none begins before it is given back.
    pub(crate) const BARRIER: Claim =
        Claim { range: Range { offset_bytes: 0, length_bytes: u64::MAX }, access: Access::Alone };

    /// What a request needs for itself; nothing, if it is about no blocks.
    pub(crate) fn of(request: &Request) -> Option<Claim> {
        let (offset_bytes, length_bytes) = request.range_bytes();
        let access = if request.is_write() { Access::Change } else { Access::Look };
        (length_bytes > 0).then_some(Claim { range: Range { offset_bytes, length_bytes }, access })
    }

    /// Whether who has this one may have to wait for the other's end.
    fn conflicts_with(self, other: Claim) -> bool {
        let is_waited_for = match (self.access, other.access) {
            (_, Access::Left) => true,
            (Access::Look, _) | (_, Access::Look) => false,
            (access, other) => access == Access::Alone || other == Access::Alone,
        };
        is_waited_for && self.range.overlaps(other.range)
    }
}

/// What a command holds while it changes blocks; given back by [`Exclusion::leave`].
#[derive(Debug)]
pub(crate) enum Permit {
    /// It changes nothing, and nobody was in its way.
    Nothing,
    /// A change of this range, counted on this lane.
    Counted(Lane, Range),
    /// In the queue under this number.
    Queued(u64),
}

#[derive(Default, Debug)]
pub(crate) struct Exclusion {
    /// How many claims are in the queue for which changes may have to wait.
    exclusive: AtomicU32,
    /// How many of them are left: for these, reads wait too.
    left: AtomicU32,
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

impl Queue {
    fn push(&mut self, claim: Claim) -> u64 {
        self.last += 1;
        self.claims.push((self.last, claim));
        self.last
    }
}

impl Exclusion {
    /// Takes a claim in. It may go on when [`Exclusion::may_go`] says so.
    pub(crate) fn enter(&self, claim: Claim, lane: Lane) -> Permit {
        match claim.access {
            Access::Look if self.left.load(Ordering::SeqCst) == 0 => return Permit::Nothing,
            Access::Change => {
                let counted = self.counted(lane);
                // Either this write sees the exclusive claim, or that claim sees this write: one of the two comes first in
                // the one order that all sequentially consistent operations have.
                counted.fetch_add(1, Ordering::SeqCst);
                if self.exclusive.load(Ordering::SeqCst) == 0 {
                    return Permit::Counted(lane, claim.range);
                }
                counted.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
        let mut queue = self.lock();
        self.count(claim.access);
        Permit::Queued(queue.push(claim))
    }

    /// Whether nothing that came before, or was left, is in the way.
    pub(crate) fn may_go(&self, permit: &Permit) -> bool {
        let Permit::Queued(number) = *permit else { return true };
        let queue = self.lock();
        let Some((_, claim)) = queue.claims.iter().find(|(other, _)| *other == number) else { return true };
        let is_in_the_way = |(other_number, other): &(u64, Claim)| {
            (*other_number < number || other.access == Access::Left) && claim.conflicts_with(*other)
        };
        // Who is at his store already goes on there.
        if claim.access != Access::Left && queue.claims.iter().any(is_in_the_way) {
            return false;
        }
        claim.access != Access::Alone || self.counted.iter().all(|stripe| stripe.0.load(Ordering::SeqCst) == 0)
    }

    /// Puts a claim that has not begun behind all others.
    pub(crate) fn requeue(&self, permit: &mut Permit) {
        let mut queue = self.lock();
        match *permit {
            Permit::Nothing => {}
            Permit::Counted(lane, range) => {
                self.count(Access::Change);
                *permit = Permit::Queued(queue.push(Claim { range, access: Access::Change }));
                self.counted(lane).fetch_sub(1, Ordering::SeqCst);
            }
            Permit::Queued(number) => {
                if let Some(at) = queue.claims.iter().position(|(other, _)| *other == number) {
                    let (_, claim) = queue.claims.remove(at);
                    *permit = Permit::Queued(queue.push(claim));
                }
            }
        }
    }

    /// Who holds the permit is lost, or may be, and his store works on: nobody comes to the blocks that he changes until he leaves.
    pub(crate) fn keep(&self, permit: &mut Permit) {
        let mut queue = self.lock();
        match *permit {
            Permit::Nothing => {}
            Permit::Counted(lane, range) => {
                self.count(Access::Left);
                *permit = Permit::Queued(queue.push(Claim { range, access: Access::Left }));
                self.counted(lane).fetch_sub(1, Ordering::SeqCst);
            }
            Permit::Queued(number) => {
                let own = queue.claims.iter_mut().find(|(other, _)| *other == number);
                if let Some((_, claim)) = own.filter(|(_, claim)| claim.access != Access::Look) {
                    self.count(Access::Left);
                    self.uncount(std::mem::replace(&mut claim.access, Access::Left));
                }
            }
        }
    }

    pub(crate) fn leave(&self, permit: &Permit) {
        match *permit {
            Permit::Nothing => {}
            Permit::Counted(lane, _) => {
                self.counted(lane).fetch_sub(1, Ordering::SeqCst);
            }
            Permit::Queued(number) => {
                let mut queue = self.lock();
                let Some(at) = queue.claims.iter().position(|(other, _)| *other == number) else { return };
                let (_, claim) = queue.claims.remove(at);
                self.uncount(claim.access);
            }
        }
    }

    fn count(&self, access: Access) {
        self.waiters_of(access).for_each(|count| _ = count.fetch_add(1, Ordering::SeqCst));
    }

    fn uncount(&self, access: Access) {
        self.waiters_of(access).for_each(|count| _ = count.fetch_sub(1, Ordering::SeqCst));
    }

    /// What tells others that they may have to wait for such a claim.
    fn waiters_of(&self, access: Access) -> impl Iterator<Item = &AtomicU32> {
        let exclusive = matches!(access, Access::Alone | Access::Left).then_some(&self.exclusive);
        exclusive.into_iter().chain((access == Access::Left).then_some(&self.left))
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
    use super::Access::{Alone, Change, Look};
    use super::*;

    const ONE: Lane = Lane(1);
    const OTHER: Lane = Lane(2);

    fn claim(offset_bytes: u64, length_bytes: u64, access: Access) -> Claim {
        Claim { range: Range { offset_bytes, length_bytes }, access }
    }

    #[test]
    fn writes_do_not_wait_for_each_other() {
        let exclusion = Exclusion::default();
        let (a, b) = (exclusion.enter(claim(0, 10, Change), ONE), exclusion.enter(claim(5, 10, Change), ONE));
        assert!(matches!((&a, &b), (Permit::Counted(ONE, _), Permit::Counted(ONE, _))));
        assert!(exclusion.may_go(&a) && exclusion.may_go(&b));
    }

    #[test]
    fn an_exclusive_claim_waits_for_what_came_before_and_is_waited_for() {
        let exclusion = Exclusion::default();
        let before = exclusion.enter(claim(100, 10, Change), ONE);
        let alone = exclusion.enter(claim(0, 10, Alone), OTHER);
        assert!(!exclusion.may_go(&alone), "where the counted write goes is not known");
        let beside = exclusion.enter(claim(10, 10, Change), ONE);
        let within = exclusion.enter(claim(9, 10, Change), ONE);
        assert!(exclusion.may_go(&beside) && !exclusion.may_go(&within));
        exclusion.leave(&before);
        assert!(exclusion.may_go(&alone), "what came later does not hold it up");
        exclusion.leave(&alone);
        assert!(exclusion.may_go(&within));
        let next = exclusion.enter(claim(0, 50, Alone), ONE);
        assert!(!exclusion.may_go(&next));
        exclusion.leave(&beside);
        exclusion.leave(&within);
        assert!(exclusion.may_go(&next));
        exclusion.leave(&next);
        assert!(matches!(exclusion.enter(claim(0, 50, Change), ONE), Permit::Counted(..)), "all is as at first");
    }

    #[test]
    fn exclusive_claims_on_other_blocks_go_side_by_side() {
        let exclusion = Exclusion::default();
        let (a, b) = (exclusion.enter(claim(0, 10, Alone), ONE), exclusion.enter(claim(10, 10, Alone), ONE));
        let c = exclusion.enter(claim(19, 1, Alone), ONE);
        assert!(exclusion.may_go(&a) && exclusion.may_go(&b) && !exclusion.may_go(&c));
        exclusion.leave(&b);
        assert!(exclusion.may_go(&c));
    }

    #[test]
    fn everybody_waits_for_the_blocks_of_a_lost_change() {
        let exclusion = Exclusion::default();
        let before = exclusion.enter(claim(8, 4, Change), OTHER);
        let mut lost = exclusion.enter(claim(0, 10, Change), ONE);
        exclusion.keep(&mut lost);
        let later = [Look, Change, Alone].map(|access| exclusion.enter(claim(9, 10, access), ONE));
        let beside = [Look, Change].map(|access| exclusion.enter(claim(20, 10, access), ONE));
        assert!(exclusion.may_go(&before), "it was under way");
        assert!(!later.iter().any(|permit| exclusion.may_go(permit)));
        assert!(beside.iter().all(|permit| exclusion.may_go(permit)));
        [&before, &beside[0], &beside[1], &lost].into_iter().for_each(|permit| exclusion.leave(permit));
        assert!(exclusion.may_go(&later[0]) && exclusion.may_go(&later[1]));
        assert!(!exclusion.may_go(&later[2]), "a change that came before it");
        later[..2].iter().for_each(|permit| exclusion.leave(permit));
        assert!(exclusion.may_go(&later[2]));
        exclusion.leave(&later[2]);
        assert!(matches!(exclusion.enter(claim(0, 1, Look), ONE), Permit::Nothing), "all is as at first");
        assert!(matches!(exclusion.enter(claim(0, 1, Change), ONE), Permit::Counted(..)));
    }

    #[test]
    fn those_who_were_at_their_stores_together_go_on() {
        let exclusion = Exclusion::default();
        let mut both = [ONE, OTHER].map(|lane| exclusion.enter(claim(0, 10, Change), lane));
        both.iter_mut().for_each(|permit| exclusion.keep(permit));
        assert!(both.iter().all(|permit| exclusion.may_go(permit)), "to flush what they wrote");
    }

    #[test]
    fn a_lost_compare_and_write_keeps_its_blocks_from_reads_too_and_is_kept_once() {
        let exclusion = Exclusion::default();
        let mut lost = exclusion.enter(claim(0, 10, Alone), ONE);
        assert!(exclusion.may_go(&exclusion.enter(claim(0, 1, Look), ONE)));
        exclusion.keep(&mut lost);
        exclusion.keep(&mut lost);
        let read = exclusion.enter(claim(0, 1, Look), ONE);
        assert!(!exclusion.may_go(&read));
        exclusion.leave(&lost);
        assert!(exclusion.may_go(&read));
        assert!(matches!(exclusion.enter(claim(0, 1, Look), ONE), Permit::Nothing));
    }
}
