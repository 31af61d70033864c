//! Keeps a read-modify-write apart from other writes to the same blocks.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Locks on ranges of bytes, granted in the order of coming. Writers of whole blocks share a range; a
/// read-modify-write has it alone.
#[derive(Debug, Default)]
pub(crate) struct RangeLock(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    /// In the order of coming, those held and those that wait.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    range: Range<u64>,
    alone: bool,
    /// Who waits for it; `None` when it is held or not polled yet.
    waker: Option<Waker>,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        (self.alone || other.alone) && self.range.start < other.range.end && other.range.start < self.range.end
    }
}

/// A held range; dropping it lets the next ones in.
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    id: u64,
}

impl RangeLock {
    /// Waits for the range: `alone`, or together with others that share it.
    pub(crate) async fn lock(&self, range: Range<u64>, alone: bool) -> RangeGuard<'_> {
        let id = self.enter(range, alone);
        // Made before the wait: dropping the future leaves the line.
        let guard = RangeGuard { lock: self, id };
        poll_fn(|context| if self.try_hold(id, context.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
        guard
    }

    fn enter(&self, range: Range<u64>, alone: bool) -> u64 {
        let mut table = self.table();
        let id = table.next_id;
        table.next_id += 1;
        table.entries.push(Entry { id, range, alone, waker: None });
        id
    }

    fn try_hold(&self, id: u64, waker: &Waker) -> bool {
        let mut table = self.table();
        let Some(place) = table.entries.iter().position(|entry| entry.id == id) else { return true };
        let (earlier, rest) = table.entries.split_at_mut(place);
        let entry = &mut rest[0];
        let free = !earlier.iter().any(|other| other.conflicts(entry));
        entry.waker = if free { None } else { Some(waker.clone()) };
        free
    }

    fn leave(&self, id: u64) {
        let mut table = self.table();
        table.entries.retain(|entry| entry.id != id);
        // Few wait, and only for a moment: each looks for itself.
        let wakers: Vec<Waker> = table.entries.iter_mut().filter_map(|entry| entry.waker.take()).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics between two writes to the table.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.lock.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn sharers_overlap_and_one_alone_waits_for_them() {
        let lock = RangeLock::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(lock.lock(0..8192, false));
        let mut second = pin!(lock.lock(4096..12288, false));
        let Poll::Ready(first) = first.as_mut().poll(&mut context) else { panic!("free") };
        let Poll::Ready(second) = second.as_mut().poll(&mut context) else { panic!("shared") };
        let mut alone = Box::pin(lock.lock(4096..8192, true));
        let mut later = pin!(lock.lock(0..8192, false));
        let mut elsewhere = pin!(lock.lock(1 << 20..2 << 20, true));
        assert!(alone.as_mut().poll(&mut context).is_pending());
        assert!(later.as_mut().poll(&mut context).is_pending(), "behind the one that waits");
        assert!(elsewhere.as_mut().poll(&mut context).is_ready());
        drop(first);
        assert!(alone.as_mut().poll(&mut context).is_pending());
        drop(second);
        let Poll::Ready(held) = alone.as_mut().poll(&mut context) else { panic!("nobody else left") };
        assert!(later.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert!(later.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn who_gives_up_blocks_nobody() {
        let lock = RangeLock::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut held = pin!(lock.lock(0..10, true));
        let Poll::Ready(held) = held.as_mut().poll(&mut context) else { panic!("free") };
        let mut gives_up = Box::pin(lock.lock(0..10, true));
        assert!(gives_up.as_mut().poll(&mut context).is_pending());
        drop(gives_up);
        drop(held);
        assert!(lock.table().entries.is_empty());
    }
}
