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
}

impl Access {
    /// Whether a command with such a claim may have to wait for the end of one with the other, on the same blocks.
    fn conflicts_with(self, other: Access) -> bool {
        match (self, other) {
            (_, Access::Left) => true,
            (Access::Look, _) | (_, Access::Look) => false,
            (access, other) => access == Access::Alone || other == Access::Alone,
        }
    }
}

/// The blocks of a claim where they lie: one range, or several of a unit whose blocks lie in several places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Places {
    One(Range),
    Several(Arc<[Range]>),
}

impl Places {
    fn ranges(&self) -> &[Range] {
        match self {
            Places::One(range) => std::slice::from_ref(range),
            Places::Several(ranges) => ranges,
        }
    }

    fn overlap(&self, other: &Places) -> bool {
        self.ranges().iter().any(|own| other.ranges().iter().any(|other| own.overlaps(*other)))
    }
}

/// What a command holds while it changes blocks; given back by [`Exclusion::leave`].
#[derive(Debug)]
pub(crate) enum Permit {
    /// It changes nothing, and no command was in its way.
    Nothing,
    /// A change of these blocks, counted on this lane.
    Counted(Lane, Places),
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

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    places: Places,
    access: Access,
    has_begun: bool,
    /// Its nexus is lost, or may be: the claim stays locked from when it begins, and what comes later waits for that.
    is_lost: bool,
}

impl Queue {
    fn push(&mut self, places: Places, access: Access) -> &mut Entry {
        self.last += 1;
        self.entries.push(Entry { number: self.last, places, access, has_begun: false, is_lost: false });
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
        match self.access {
            Access::Look => false,
            Access::Change => !self.has_begun,
            Access::Alone | Access::Left => true,
        }
    }

    /// Whether reads wait for this one: also before it has begun, for its initiator may have given it up long ago.
    fn is_lost_change(&self) -> bool {
        self.access == Access::Left || self.is_lost && self.access.is_change()
    }

    fn is_in_the_way_of(&self, other: &Entry) -> bool {
        let is_left = self.access == Access::Left;
        let waits = self.is_exclusive() && self.access == Access::Change && other.access == Access::Change;
        let is_first = self.is_lost_change() || waits;
        (self.number < other.number || is_left)
            && (is_first || other.access.conflicts_with(self.access))
            && other.places.overlap(&self.places)
    }
}

impl Exclusion {
    /// Takes a claim of a unit in whose blocks are where they are numbered. It may go on when [`Exclusion::may_go`] says so.
    pub(crate) fn enter(&self, claim: Claim, lane: Lane) -> Permit {
        self.enter_at(Places::One(claim.range), claim.access, lane)
    }

    /// The same of any unit. However many places they are, they are claimed at one moment.
    pub(crate) fn enter_at(&self, places: Places, access: Access, lane: Lane) -> Permit {
        match access {
            Access::Look if self.is_open() => return Permit::Nothing,
            Access::Change => {
                let counted = self.counted(lane);
                // Either this write sees the exclusive claim, or that claim sees this write: one of the two comes first in
                // the one order that all sequentially consistent operations have.
                counted.fetch_add(1, Ordering::SeqCst);
                if self.exclusive.load(Ordering::SeqCst) == 0 {
                    return Permit::Counted(lane, places);
                }
                // It was in the way only as long as others looked: those that looked meanwhile are to look again.
                counted.fetch_sub(1, Ordering::SeqCst);
                self.bell.ring();
            }
            _ => {}
        }
        let queue = &mut *self.lock();
        let number = self.push(queue, places, access);
        self.begin(queue, number);
        Permit::Queued(number)
    }

    fn push(&self, queue: &mut Queue, places: Places, access: Access) -> u64 {
        let entry = queue.push(places, access);
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
        let own = queue.entries[at].clone();
        if own.has_begun {
            // It goes on at its store; what was kept ahead of it is not all its own yet.
            let is_in_the_way =
                |entry: &Entry| entry.has_begun && entry.access == Access::Alone && entry.places.overlap(&own.places);
            return own.access != Access::Left || !queue.entries.iter().any(is_in_the_way);
        }
        if own.access != Access::Left && queue.entries.iter().any(|entry| entry.is_in_the_way_of(&own)) {
            return false;
        }
        if own.access == Access::Alone && self.counted.iter().any(|stripe| stripe.0.load(Ordering::SeqCst) != 0) {
            return false;
        }
        let access = if own.is_lost { Access::Left } else { own.access };
        self.alter(&mut queue.entries[at], |entry| (entry.has_begun, entry.access) = (true, access));
        // Changes that it was in the way of as long as it waited may begin.
        self.bell.ring();
        true
    }

    /// Puts a claim that has not begun behind all others.
    pub(crate) fn requeue(&self, permit: &mut Permit) {
        let queue = &mut *self.lock();
        match permit {
            Permit::Nothing => {}
            Permit::Counted(lane, places) => {
                let lane = *lane;
                *permit = Permit::Queued(self.push(queue, places.clone(), Access::Change));
                self.uncount_change(lane);
            }
            Permit::Queued(number) => {
                if let Some(at) = queue.position(*number) {
                    let before = queue.entries.remove(at);
                    let entry = queue.push(before.places.clone(), before.access);
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
    pub(crate) fn keep(&self, permit: &mut Permit, ahead: Option<Places>) {
        let queue = &mut *self.lock();
        match permit {
            Permit::Nothing => {}
            Permit::Counted(lane, places) => {
                let (lane, places) = (*lane, ahead.unwrap_or_else(|| places.clone()));
                let number = self.push(queue, places, Access::Left);
                self.begin(queue, number);
                *permit = Permit::Queued(number);
                self.uncount_change(lane);
            }
            Permit::Queued(number) => {
                let own = queue.entries.iter_mut().find(|entry| entry.number == *number);
                let Some(own) = own.filter(|entry| entry.access != Access::Look) else { return };
                self.alter(own, |entry| {
                    entry.is_lost = true;
                    if let Some(ahead) = ahead {
                        entry.places = ahead;
                    }
                    if entry.has_begun {
                        entry.access = Access::Left;
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
        let before = entry.clone();
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
