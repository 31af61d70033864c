//! Waking a driver thread from another one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

const SLEEPING: u8 = 1;
const WOKEN: u8 = 2;

/// Wakes one sleeping thread; costs no system call while that thread is awake.
///
/// The contract is that of `std::thread::park`: a [`Waker::wake`] is never lost. When it comes while the thread is
/// awake, the thread's next attempt to sleep returns at once. So: hand over work, then `wake()`; and in the driver,
/// look for work after each sleep.
///
/// [`Poller::wait`](crate::Poller::wait) does the sleeper's part. A driver that sleeps elsewhere calls
/// [`Waker::prepare_to_sleep`], sleeps only when it answers `true`, with [`Waker::as_fd`] among what it waits for, and
/// calls [`Waker::drain`] afterwards.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

/// A waker, as long as somebody else has it.
#[derive(Debug)]
pub(crate) struct WeakWaker(Weak<Shared>);

impl WeakWaker {
    /// Wakes the thread; `false`: nobody has its waker any more.
    pub(crate) fn wake(&self) -> bool {
        self.0.upgrade().map(|shared| Waker(shared).wake()).is_some()
    }
}

#[derive(Debug)]
struct Shared {
    /// `SLEEPING` is set and cleared by the sleeper alone; `WOKEN` is set by wakers and cleared by the sleeper.
    state: AtomicU8,
    /// Writes to the event descriptor that the sleeper knows of and has not read yet. Only the sleeper touches it.
    unread: AtomicU64,
    event: OwnedFd,
}

impl Waker {
    /// A waker for one thread to sleep on and any number to wake it with.
    ///
    /// # Errors
    /// The kernel's, when the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(Shared { state: AtomicU8::new(0), unread: AtomicU64::new(0), event })))
    }

    /// Wakes the thread, or keeps it from falling asleep the next time.
    ///
    /// Everything that the caller wrote before is visible to the thread once it has woken.
    pub fn wake(&self) {
        // Only the first waker of a sleep writes: the state then has WOKEN until the sleeper clears it.
        if self.0.state.fetch_or(WOKEN, Ordering::AcqRel) == SLEEPING {
            // It can only fail when the counter is full, and then the event is readable.
            let _ = write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn downgrade(&self) -> WeakWaker {
        WeakWaker(Arc::downgrade(&self.0))
    }

    /// Whether the thread, which is awake, was woken since it last drained.
    pub(crate) fn is_woken(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) & WOKEN != 0
    }

    /// Announces that the thread is about to sleep; `false` when it must not, because it was woken meanwhile.
    #[must_use]
    pub fn prepare_to_sleep(&self) -> bool {
        if self.0.state.compare_exchange(0, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.drain();
        false
    }

    /// Takes note that the thread is awake and has seen every wake so far. Only the sleeper calls this.
    pub fn drain(&self) {
        if self.0.state.swap(0, Ordering::AcqRel) == SLEEPING | WOKEN {
            self.0.unread.fetch_add(1, Ordering::Relaxed);
        }
        if self.0.unread.load(Ordering::Relaxed) == 0 {
            return;
        }
        // A waker that has set WOKEN may not have written yet: then the read finds nothing, and a later one will.
        let mut count = [0; 8];
        if read(&self.0.event, &mut count) == Ok(count.len()) {
            self.0.unread.fetch_sub(u64::from_ne_bytes(count), Ordering::Relaxed);
        }
    }
}

impl AsFd for Waker {
    /// Readable once the thread was woken out of its sleep.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::{Clock, Poller};

    #[test]
    fn a_wake_before_sleep_keeps_the_thread_awake_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert!(!waker.prepare_to_sleep());
        assert!(waker.prepare_to_sleep());
        waker.wake();
        waker.drain();
        assert!(waker.prepare_to_sleep(), "the wake was taken note of");
        waker.drain();
        assert_eq!(waker.0.unread.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_late_write_of_a_waker_is_read_by_a_later_drain() {
        let waker = Waker::new().unwrap();
        assert!(waker.prepare_to_sleep());
        // A waker that has set the state and was interrupted before its write.
        assert_eq!(waker.0.state.fetch_or(WOKEN, Ordering::AcqRel), SLEEPING);
        waker.drain();
        assert_eq!(waker.0.unread.load(Ordering::Relaxed), 1);
        assert_eq!(write(&waker, &1u64.to_ne_bytes()), Ok(8));
        assert!(waker.prepare_to_sleep());
        waker.drain();
        assert_eq!(waker.0.unread.load(Ordering::Relaxed), 0);
        let mut entry = [PollFd::new(&waker, PollFlags::IN)];
        assert_eq!(poll(&mut entry, Some(&Timespec::default())), Ok(0), "nothing left to wake for");
    }

    #[test]
    fn no_wake_is_lost() {
        const TOTAL: u64 = 100_000;
        let (waker, work) = (Waker::new().unwrap(), Arc::new(AtomicU64::new(0)));
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let (waker, work) = (waker.clone(), Arc::clone(&work));
                std::thread::spawn(move || {
                    for round in 0..TOTAL {
                        work.fetch_add(1, Ordering::Relaxed);
                        waker.wake();
                        if round % 16 == 0 {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let (mut poller, clock, mut done) = (Poller::new(), Clock::new(), 0);
        while done < 2 * TOTAL {
            // No deadline: a lost wake would hang here.
            poller.wait(&[], &[], Some(&waker), None, &clock).unwrap();
            done += work.swap(0, Ordering::Relaxed);
        }
        wakers.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
