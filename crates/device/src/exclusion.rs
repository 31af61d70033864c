//! Which command changes which blocks now: what makes COMPARE AND WRITE one uninterrupted action (SBC-4 5.3), and keeps what a lost
//! initiator's last commands still write from landing on newer data.
//!
//! A command that reads and then writes claims its blocks for itself. While no such claim is there, a write only counts
//! itself, on a cache line that it shares with few others, and a read does nothing at all. While one is there, writes queue
//! up behind it where they touch its blocks, and it waits for those that came before; those that queue begin in order of coming.
//! So none waits forever. Nothing blocks: a command that may not go on yet tries again when the bell has rung.
//!
//! What a store has begun cannot be called back. An initiator that lost the I_T nexus of a write gives it again in the next
//! session, over another path, or not at all, and goes on from there: the lost write must not come after that. So it keeps
//! its blocks until it has ended, from all commands, reads too (SAM-5 6.3.4 lets a nexus begin anew only when the tasks of the lost one
//! have ended; this holds for other ports as well).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_store::Request;

use crate::bell::Bell;
use crate::range::Range;

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
    /// A change at its store, of a nexus that is lost, or may be.
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

    /// Whether the command with this claim may have to wait for the end of the other.
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
    /// It changes nothing, and no command was in its way.
    Nothing,
    /// A change of this range, counted on this lane.
    Counted(Lane, Range),
    /// In the queue under this number.
    Queued(u64),
}

#[derive(Default, Debug)]
pub(crate) struct Exclusion {
    /// How many claims are in the queue for which changes may have to wait: also changes that wait themselves.
    exclusive: AtomicU32,
    /// How many of them are left, or will be: for these, reads wait too.
    left: AtomicU32,
    /// How many writes are under way that did not queue.
    counted: [Stripe; STRIPES],
    queue: Mutex<Queue>,
    /// Rung when a command may go on that could not before.
    pub(crate) bell: Arc<Bell>,
}

#[derive(Default, Debug)]
#[repr(align(64))]
struct Stripe(AtomicU32);

#[derive(Default, Debug)]
struct Queue {
    last: u64,
    /// Ascending by number: in order of coming.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    claim: Claim,
    has_begun: bool,
    /// Its nexus is lost, or may be: the claim stays locked from when it begins, and what comes later waits for that.
    is_lost: bool,
}

impl Queue {
    fn push(&mut self, claim: Claim) -> &mut Entry {
        self.last += 1;
        self.entries.push(Entry { number: self.last, claim, has_begun: false, is_lost: false });
        self.entries.last_mut().expect("it was pushed")
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.number == number)
    }
}

impl Entry {
    /// Whether changes may have to wait for this one's end, or, where a change waits itself, for its beginning: it may be the older
    /// copy of one that comes by another path, after which its initiator writes something else.
    fn is_exclusive(&self) -> bool {
        match self.claim.access {
            Access::Look => false,
            Access::Change => !self.has_begun,
            Access::Alone | Access::Left => true,
        }
    }

    /// Whether reads wait for this one: also before it has begun, for its initiator may have given it up long ago.
    fn is_lost_change(&self) -> bool {
        self.claim.access == Access::Left || self.is_lost && self.claim.access.is_change()
    }

    fn is_in_the_way_of(&self, other: &Entry) -> bool {
        let is_left = self.claim.access == Access::Left;
        let waits = self.is_exclusive() && self.claim.access == Access::Change && other.claim.access == Access::Change;
        let is_first = self.is_lost_change() || waits;
        (self.number < other.number || is_left)
            && (other.claim.conflicts_with(self.claim) || is_first && other.claim.range.overlaps(self.claim.range))
    }
}

impl Exclusion {
    /// Takes a claim in. It may go on when [`Exclusion::may_go`] says so.
    pub(crate) fn enter(&self, claim: Claim, lane: Lane) -> Permit {
        match claim.access {
            Access::Look if self.is_open() => return Permit::Nothing,
            Access::Change => {
                let counted = self.counted(lane);
                // Either this write sees the exclusive claim, or that claim sees this write: one of the two comes first in
                // the one order that all sequentially consistent operations have.
                counted.fetch_add(1, Ordering::SeqCst);
                if self.exclusive.load(Ordering::SeqCst) == 0 {
                    return Permit::Counted(lane, claim.range);
                }
                // It was in the way only as long as others looked: those that looked meanwhile are to look again.
                counted.fetch_sub(1, Ordering::SeqCst);
                self.bell.ring();
            }
            _ => {}
        }
        let queue = &mut *self.lock();
        let number = self.push(queue, claim);
        self.begin(queue, number);
        Permit::Queued(number)
    }

    fn push(&self, queue: &mut Queue, claim: Claim) -> u64 {
        let entry = queue.push(claim);
        self.count(entry);
        entry.number
    }

    /// Whether every block may be looked at now: none is kept for a nexus that is lost.
    pub(crate) fn is_open(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    /// Whether nothing that came before, or was left, is in the way.
    pub(crate) fn may_go(&self, permit: &Permit) -> bool {
        let Permit::Queued(number) = *permit else { return true };
        self.begin(&mut self.lock(), number)
    }

    fn begin(&self, queue: &mut Queue, number: u64) -> bool {
        let Some(at) = queue.position(number) else { return true };
        let own = queue.entries[at];
        if own.has_begun {
            // It goes on at its store; what was kept ahead of it is not all its own yet.
            let is_in_the_way = |entry: &Entry| {
                entry.has_begun && entry.claim.access == Access::Alone && entry.claim.range.overlaps(own.claim.range)
            };
            return own.claim.access != Access::Left || !queue.entries.iter().any(is_in_the_way);
        }
        if own.claim.access != Access::Left && queue.entries.iter().any(|entry| entry.is_in_the_way_of(&own)) {
            return false;
        }
        if own.claim.access == Access::Alone && self.counted.iter().any(|stripe| stripe.0.load(Ordering::SeqCst) != 0) {
            return false;
        }
        let access = if own.is_lost { Access::Left } else { own.claim.access };
        self.alter(&mut queue.entries[at], |entry| (entry.has_begun, entry.claim.access) = (true, access));
        // Changes that it was in the way of as long as it waited may begin.
        self.bell.ring();
        true
    }

    /// Puts a claim that has not begun behind all others.
    pub(crate) fn requeue(&self, permit: &mut Permit) {
        let queue = &mut *self.lock();
        match *permit {
            Permit::Nothing => {}
            Permit::Counted(lane, range) => {
                *permit = Permit::Queued(self.push(queue, Claim { range, access: Access::Change }));
                self.uncount_change(lane);
            }
            Permit::Queued(number) => {
                if let Some(at) = queue.position(number) {
                    let before = queue.entries.remove(at);
                    let entry = queue.push(before.claim);
                    entry.is_lost = before.is_lost;
                    self.count(entry);
                    self.uncount(&before);
                    *permit = Permit::Queued(entry.number);
                    self.bell.ring();
                }
            }
        }
    }

    /// The permit's owner may be lost while its store works on: its range stays locked until it leaves. If it still waits, earlier
    /// entries go first. `ahead`: lock these blocks, its own among them, which it is going to change one after the other.
    pub(crate) fn keep(&self, permit: &mut Permit, ahead: Option<Range>) {
        let queue = &mut *self.lock();
        match *permit {
            Permit::Nothing => {}
            Permit::Counted(lane, range) => {
                let number = self.push(queue, Claim { range: ahead.unwrap_or(range), access: Access::Left });
                self.begin(queue, number);
                *permit = Permit::Queued(number);
                self.uncount_change(lane);
            }
            Permit::Queued(number) => {
                let own = queue.entries.iter_mut().find(|entry| entry.number == number);
                let Some(own) = own.filter(|entry| entry.claim.access != Access::Look) else { return };
                self.alter(own, |entry| {
                    entry.is_lost = true;
                    entry.claim.range = ahead.unwrap_or(entry.claim.range);
                    if entry.has_begun {
                        entry.claim.access = Access::Left;
                    }
                });
            }
        }
    }

    pub(crate) fn leave(&self, permit: &Permit) {
        match *permit {
            Permit::Nothing => {}
            Permit::Counted(lane, _) => self.uncount_change(lane),
            Permit::Queued(number) => {
                let queue = &mut *self.lock();
                let Some(at) = queue.position(number) else { return };
                self.uncount(&queue.entries.remove(at));
                self.bell.ring();
            }
        }
    }

    /// A change that is counted on this lane is over, or stands elsewhere.
    fn uncount_change(&self, lane: Lane) {
        self.counted(lane).fetch_sub(1, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Counts what it is afterwards before what it was is not counted any more: no one sees neither.
    fn alter(&self, entry: &mut Entry, change: impl FnOnce(&mut Entry)) {
        let before = *entry;
        change(entry);
        self.count(entry);
        self.uncount(&before);
    }

    fn count(&self, entry: &Entry) {
        self.waiters_of(entry).for_each(|count| _ = count.fetch_add(1, Ordering::SeqCst));
    }

    fn uncount(&self, entry: &Entry) {
        self.waiters_of(entry).for_each(|count| _ = count.fetch_sub(1, Ordering::SeqCst));
    }

    /// What tells others that they may have to wait for such a claim.
    fn waiters_of(&self, entry: &Entry) -> impl Iterator<Item = &AtomicU32> {
        let exclusive = entry.is_exclusive().then_some(&self.exclusive);
        exclusive.into_iter().chain(entry.is_lost_change().then_some(&self.left))
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
mod tests;
