//! What a shard has its system do, besides its streams: so that a simulation can hand in another one.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::Instant;
use sanwire_io::file::{EngineKind, FileEngine};
use sanwire_io::{Clock, Port, thread_time};
use sanwire_store::{Completion, KernelOp};

use crate::link::LinkPort;

/// Operations of the kernel's engine at once.
const ENGINE_DEPTH: u32 = 256;

/// The clock of a shard, and what executes operations on files for it.
pub(super) trait System {
    /// Where packets come and go.
    type Port: LinkPort;

    /// This moment.
    fn now(&self) -> Instant;

    /// Processor time that the shard's thread, which asks, has taken.
    fn busy(&self) -> Duration;

    /// Takes an operation, or hands it back while there is no room.
    fn submit(&mut self, id: u64, op: KernelOp) -> Result<(), KernelOp>;

    /// Operations whose completions were not reaped.
    fn in_flight(&self) -> usize;

    /// Begins what was submitted.
    fn flush(&mut self) -> io::Result<()>;

    /// Gives away the completions that there are.
    fn reap(&mut self, done: &mut dyn FnMut(u64, Completion));
}

/// The operating system.
pub(super) struct Kernel {
    pub(super) clock: Clock,
    files: FileEngine,
}

impl Kernel {
    /// # Errors
    /// What the kernel says of an engine for files.
    pub(super) fn new(memory: &Region, engine: EngineKind) -> io::Result<Self> {
        Ok(Kernel { clock: Clock::new(), files: FileEngine::new(memory, ENGINE_DEPTH, engine)? })
    }

    /// Readable when an operation has ended.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.files.as_fd()
    }
}

impl System for Kernel {
    type Port = Port;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn busy(&self) -> Duration {
        thread_time()
    }

    fn submit(&mut self, id: u64, op: KernelOp) -> Result<(), KernelOp> {
        self.files.submit(id, op)
    }

    fn in_flight(&self) -> usize {
        self.files.in_flight()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.files.flush()
    }

    fn reap(&mut self, done: &mut dyn FnMut(u64, Completion)) {
        self.files.reap(done);
    }
}
