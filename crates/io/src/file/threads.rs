//! The engine on threads that make blocking calls, for kernels without io_uring.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use sanwire_store::{Completion, KernelOp};
use sanwire_store_file::blocking;

/// Enough to keep a disk busy; more only wait for it together.
const WORKERS_MAX: u32 = 16;

pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Submitted, not yet flushed.
    staged: VecDeque<(u64, KernelOp)>,
    /// Swapped with the shared list, so that both keep their memory.
    reaped: VecDeque<(u64, Completion)>,
    in_flight: usize,
}

struct Shared {
    work: Mutex<Work>,
    has_work: Condvar,
    done: Mutex<VecDeque<(u64, Completion)>>,
    event: Event,
}

struct Work {
    queue: VecDeque<(u64, KernelOp)>,
    is_closed: bool,
}

impl Threads {
    pub(super) fn new(depth: u32) -> io::Result<Self> {
        let capacity = depth as usize;
        let shared = Arc::new(Shared {
            work: Mutex::new(Work { queue: VecDeque::with_capacity(capacity), is_closed: false }),
            has_work: Condvar::new(),
            done: Mutex::new(VecDeque::with_capacity(capacity)),
            event: Event::new()?,
        });
        let mut threads = Threads {
            shared,
            workers: vec![],
            staged: VecDeque::with_capacity(capacity),
            reaped: VecDeque::with_capacity(capacity),
            in_flight: 0,
        };
        for number in 0..depth.min(WORKERS_MAX) {
            let shared = Arc::clone(&threads.shared);
            let worker = thread::Builder::new().name(format!("file-{number}")).spawn(move || shared.work())?;
            threads.workers.push(worker);
        }
        Ok(threads)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.descriptor.as_fd()
    }

    pub(super) fn submit(&mut self, tag: u64, op: KernelOp) {
        self.staged.push_back((tag, op));
        self.in_flight += 1;
    }

    pub(super) fn flush(&mut self, must_wake: bool) -> io::Result<()> {
        match self.staged.len() {
            0 => {}
            count => {
                lock(&self.shared.work).queue.append(&mut self.staged);
                if count == 1 { self.shared.has_work.notify_one() } else { self.shared.has_work.notify_all() }
            }
        }
        if must_wake { self.shared.event.raise() } else { Ok(()) }
    }

    pub(super) fn reap(&mut self, done: &mut dyn FnMut(u64, Completion)) {
        // Lowered before looking: what is pushed from then on raises it again.
        self.shared.event.lower();
        if self.in_flight == 0 {
            return;
        }
        std::mem::swap(&mut *lock(&self.shared.done), &mut self.reaped);
        while let Some((tag, completion)) = self.reaped.pop_front() {
            self.in_flight -= 1;
            done(tag, completion);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        {
            let mut work = lock(&self.shared.work);
            work.queue.append(&mut self.staged);
            work.is_closed = true;
        }
        self.shared.has_work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked is over too.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({}, {} in flight)", self.workers.len(), self.in_flight)
    }
}

impl Shared {
    /// What each worker does until the queue is closed and empty.
    fn work(&self) {
        while let Some((tag, op)) = self.next() {
            let completion = blocking::perform(op);
            let mut done = lock(&self.done);
            let was_empty = done.is_empty();
            done.push_back((tag, completion));
            drop(done);
            if was_empty {
                // It cannot fail short of an overflow after 2^64 - 1 completions that nobody reaped.
                let _ = self.event.raise();
            }
        }
    }

    fn next(&self) -> Option<(u64, KernelOp)> {
        let mut work = lock(&self.work);
        loop {
            if let Some(job) = work.queue.pop_front() {
                return Some(job);
            }
            if work.is_closed {
                return None;
            }
            work = self.has_work.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A descriptor that is readable from `raise` to the next `lower` after it.
struct Event {
    descriptor: OwnedFd,
    /// Set behind the write, so that `lower` costs a system call only when there is something to read.
    is_raised: AtomicBool,
}

impl Event {
    fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Event { descriptor, is_raised: AtomicBool::new(false) })
    }

    fn raise(&self) -> io::Result<()> {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes and an open descriptor.
        let written = unsafe { libc::write(self.descriptor.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        let result = if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        self.is_raised.store(true, Ordering::Release);
        result
    }

    fn lower(&self) {
        // A load first: an exchange would take the cache line from the workers each time.
        if self.is_raised.load(Ordering::Relaxed) && self.is_raised.swap(false, Ordering::AcqRel) {
            let mut count = [0; 8];
            // SAFETY: eight writable bytes and an open descriptor, which does not block.
            unsafe { libc::read(self.descriptor.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
    }
}

/// No code panics between two writes under these locks, so a poisoned one still guards sound values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
