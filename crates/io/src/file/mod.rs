//! The kernel's I/O on files and block devices: io_uring, or threads where the kernel has none.
//!
//! A shard's loop around it: wait for [`FileEngine::as_fd`], [`FileEngine::reap`], start what follows with
//! [`FileEngine::submit`], [`FileEngine::flush`], wait again. One rule holds: `flush` is the last call before waiting.
//! A `reap` right before that `flush` finds what was done at once and saves a wake-up.

mod memory_file;
mod operation;
mod ring;
mod threads;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use sanwire_buffer::Region;
use sanwire_store::{Completion, KernelOp, Outcome, Request};
use sanwire_store_file::blocking;

use memory_file::MemoryFiles;
use ring::Ring;
use threads::Threads;

/// Operations that one engine has in flight at the most.
pub const DEPTH_MAX: u32 = 4096;

/// How the work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// io_uring when the kernel allows it, else threads.
    Auto,
    /// io_uring or nothing.
    IoUring,
    /// A pool of threads that make blocking calls.
    Threads,
}

/// Runs [`KernelOp`]s and never blocks its thread.
///
/// It owns an operation, with its memory and its file, from `submit` until `reap` gave its completion away. Dropping
/// it does what was submitted and waits for the end of it. It stays in the thread that made it: the kernel ties a ring
/// to its one submitter.
#[derive(Debug)]
pub struct FileEngine {
    way: Way,
    /// Done without waiting, not yet reaped.
    ready: VecDeque<(u64, Completion)>,
    memory_files: MemoryFiles,
    depth: usize,
    stays_in_its_thread: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Way {
    Ring(Box<Ring>),
    Threads(Threads),
}

impl FileEngine {
    /// An engine for up to `depth` operations at once.
    ///
    /// With its first operation a ring registers `memory` with the kernel, which then works on frames of it without looking them up
    /// each time; registered memory stays resident. Where that is refused (`RLIMIT_MEMLOCK`, more than 1 GiB) it works without.
    ///
    /// # Errors
    /// `InvalidInput` unless `depth` is 1 to [`DEPTH_MAX`]; what the kernel says when it refuses the ring that `kind`
    /// insists on, or a thread.
    pub fn new(memory: &Region, depth: u32, kind: EngineKind) -> io::Result<FileEngine> {
        if !(1..=DEPTH_MAX).contains(&depth) {
            let message = format!("a file engine's depth is 1 to {DEPTH_MAX}, not {depth}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let ring = |memory| Ring::new(memory, depth).map(|ring| Way::Ring(Box::new(ring)));
        let way = match kind {
            EngineKind::IoUring => ring(memory)?,
            EngineKind::Threads => Way::Threads(Threads::new(depth)?),
            EngineKind::Auto => match ring(memory) {
                Ok(way) => way,
                Err(_) => Way::Threads(Threads::new(depth)?),
            },
        };
        let depth = depth as usize;
        let ready = VecDeque::with_capacity(depth);
        Ok(FileEngine { way, ready, memory_files: MemoryFiles::default(), depth, stays_in_its_thread: PhantomData })
    }

    /// How the work is done: never [`EngineKind::Auto`].
    #[must_use]
    pub fn kind(&self) -> EngineKind {
        match self.way {
            Way::Ring(_) => EngineKind::IoUring,
            Way::Threads(_) => EngineKind::Threads,
        }
    }

    /// Takes an operation; its completion will carry `tag`. It may wait for [`FileEngine::flush`] before it begins.
    ///
    /// # Errors
    /// Hands the operation back while `depth` others are in flight.
    pub fn submit(&mut self, tag: u64, op: KernelOp) -> Result<(), KernelOp> {
        if self.in_flight() >= self.depth {
            return Err(op);
        }
        let completion = match self.at_once(op) {
            Ok(completion) => Some(completion),
            Err(op) => self.hand_over(tag, op),
        };
        if let Some(completion) = completion {
            self.ready.push_back((tag, completion));
        }
        Ok(())
    }

    /// Gives what was submitted to the kernel, in one system call for all of it. The last call before waiting.
    ///
    /// # Errors
    /// When the kernel is out of resources; the operations stay queued and the next `flush` tries again.
    pub fn flush(&mut self) -> io::Result<()> {
        let must_wake = !self.ready.is_empty();
        match &mut self.way {
            Way::Ring(ring) => ring.flush(must_wake),
            Way::Threads(threads) => threads.flush(must_wake),
        }
    }

    /// Gives away every completion there is, and does not wait for more.
    pub fn reap(&mut self, done: &mut dyn FnMut(u64, Completion)) {
        while let Some((tag, completion)) = self.ready.pop_front() {
            done(tag, completion);
        }
        match &mut self.way {
            Way::Ring(ring) => ring.reap(done),
            Way::Threads(threads) => threads.reap(done),
        }
    }

    /// Readable, after a [`FileEngine::flush`], as soon as `reap` would find something.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Ring(ring) => ring.as_fd(),
            Way::Threads(threads) => threads.as_fd(),
        }
    }

    /// Operations submitted whose completion was not reaped.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let elsewhere = match &self.way {
            Way::Ring(ring) => ring.in_flight(),
            Way::Threads(threads) => threads.in_flight(),
        };
        self.ready.len() + elsewhere
    }

    /// The completion of what needs no waiting, else the operation.
    ///
    /// Files that live in memory (tmpfs) are read and written here: they never wait for a medium, but have no
    /// non-blocking mode in the kernel, so a ring would hand each request to a worker thread.
    fn at_once(&mut self, op: KernelOp) -> Result<Completion, KernelOp> {
        match op.request {
            Request::Flush => Err(op),
            _ if op.request.range_bytes().1 == 0 => Ok(Ok(match op.request {
                Request::Read { buffer, .. } => Outcome::Read(buffer),
                _ => Outcome::Done,
            })),
            Request::Read { .. } | Request::Write { .. } if self.memory_files.has(&op.file) => {
                Ok(blocking::perform(op))
            }
            _ => Err(op),
        }
    }

    fn hand_over(&mut self, tag: u64, op: KernelOp) -> Option<Completion> {
        match &mut self.way {
            Way::Ring(ring) => ring.submit(tag, op),
            Way::Threads(threads) => {
                threads.submit(tag, op);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
