//! The engine on io_uring.

use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use sanwire_buffer::Region;
use sanwire_store::{Completion, KernelOp};

use super::operation::{Operation, Step};

/// Marks the completion that only makes the ring's descriptor readable.
const WAKE: u64 = u64::MAX;
/// How often a flush asks again when the kernel is short of memory.
const ENTER_TRIES: u32 = 8;
/// `IORING_ENTER_GETEVENTS`: also post the completions that are held back.
const GETEVENTS: u32 = 1;

/// Each operation has a slot, and at most one entry in the submission or completion queue. The queues are larger than
/// the table of slots (by the wake-up), so neither can overflow.
pub(super) struct Ring {
    ring: IoUring,
    slots: Box<[Option<Operation>]>,
    free: Vec<u32>,
    /// Slots whose operation needs another call; empty between calls, kept for its memory.
    again: Vec<u32>,
    /// Addresses of the registered memory; empty when the kernel refused it. Registering pins all of it, so a server that never
    /// reads or writes a file does not have it in memory: it is done with the first operation.
    registered: OnceCell<Range<usize>>,
    is_wake_queued: bool,
    memory: Region,
}

impl Ring {
    pub(super) fn new(memory: &Region, depth: u32) -> io::Result<Self> {
        let ring = build(depth + 1)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Nop::CODE,
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is older than Linux 5.6"));
        }
        Ok(Ring {
            ring,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            again: Vec::with_capacity(depth as usize),
            registered: OnceCell::new(),
            is_wake_queued: false,
            memory: memory.clone(),
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open while `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Queues the first call of an operation; a completion comes back only when that is impossible.
    pub(super) fn submit(&mut self, tag: u64, op: KernelOp) -> Option<Completion> {
        let operation = Operation::new(tag, op);
        let Some(slot) = self.free.pop() else {
            return Some(operation.into_failure(io::ErrorKind::ResourceBusy.into()));
        };
        self.slots[slot as usize] = Some(operation);
        self.push_call(slot).map(|(_, completion)| completion)
    }

    /// Queues the next call of the operation in a slot; if that is impossible, the operation is over.
    fn push_call(&mut self, slot: u32) -> Option<(u64, Completion)> {
        let operation = self.slots[slot as usize].as_mut()?;
        let registered = self.registered.get_or_init(|| register(&self.ring, &self.memory));
        let entry = operation.entry(registered).user_data(u64::from(slot));
        // SAFETY: the operation stays in its slot, untouched, until the completion of this entry was seen (`settle`
        // takes it out, `drop` waits for it or leaks it). So its memory stays valid and unaliased: a frame is unique
        // and moved into it, slices are never written, and its list of where they lie changes only when the next call
        // is made of it. Its file stays open. Registered memory is kept by `memory`.
        if unsafe { push(&mut self.ring, &entry) } {
            return None;
        }
        let operation = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some((operation.tag, operation.into_failure(io::ErrorKind::ResourceBusy.into())))
    }

    pub(super) fn flush(&mut self, must_wake: bool) -> io::Result<()> {
        if must_wake && !self.is_wake_queued {
            // SAFETY: a no-operation refers to no memory.
            self.is_wake_queued = unsafe { push(&mut self.ring, &opcode::Nop::new().build().user_data(WAKE)) };
        }
        if self.ring.submission().is_empty() { Ok(()) } else { self.enter(0) }
    }

    pub(super) fn reap(&mut self, done: &mut dyn FnMut(u64, Completion)) {
        if self.in_flight() == 0 && !self.is_wake_queued {
            return;
        }
        if self.ring.submission().taskrun() {
            // With COOP_TASKRUN completions may wait for the next system call. A failure shows again at the next flush.
            let _ = self.enter(0);
        }
        // One at a time, so that the queue is not borrowed while an operation is settled.
        while let Some(entry) = self.next_completion() {
            self.settle(&entry, done);
        }
        if !self.again.is_empty() {
            while let Some(slot) = self.again.pop() {
                if let Some((tag, completion)) = self.push_call(slot) {
                    done(tag, completion);
                }
            }
            // What stays queued goes with the next flush.
            let _ = self.enter(0);
        }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn settle(&mut self, entry: &cqueue::Entry, done: &mut dyn FnMut(u64, Completion)) {
        if entry.user_data() == WAKE {
            self.is_wake_queued = false;
            return;
        }
        let slot = entry.user_data() as u32;
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        match place.as_mut().map(|operation| operation.advance(entry.result())) {
            None => {}
            Some(Step::Again) => self.again.push(slot),
            Some(Step::Over(result)) => {
                if let Some(operation) = place.take() {
                    self.free.push(slot);
                    done(operation.tag, operation.into_completion(result));
                }
            }
        }
    }

    /// Submits what is queued and waits for `wanted` completions.
    fn enter(&mut self, wanted: u32) -> io::Result<()> {
        let mut tries = 0;
        loop {
            let queued = self.ring.submission().len() as u32;
            // SAFETY: no argument structure is passed; what the queued entries refer to is kept (see `push_call`).
            let entered = unsafe { self.ring.submitter().enter::<()>(queued, wanted, GETEVENTS, None) };
            match entered {
                // Kernels without SUBMIT_ALL stop behind an entry that fails at once.
                Ok(count) if (count as u32) < queued && count > 0 => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tries += 1;
                    if tries == ENTER_TRIES || !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        loop {
            // First, because it also queues the calls that are still to be made.
            self.reap(&mut |_, _| {});
            if self.in_flight() == 0 {
                return;
            }
            if self.enter(1).is_err() {
                // The kernel may still write to the operations' memory: better leaked than reused.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} of {} in flight)", self.in_flight(), self.slots.len())
    }
}

/// # Safety
/// What the entry refers to stays valid until its completion.
unsafe fn push(ring: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: as promised by the caller.
    unsafe { ring.submission().push(entry) }.is_ok()
}

/// The best ring that this kernel builds: from Linux 6.0, from 5.19, older.
///
/// `DEFER_TASKRUN` is left out on purpose: with it, Linux does not wake a sleeper in `poll` on the ring's descriptor
/// when an operation that went to a worker ends (seen on 6.18).
fn build(entries: u32) -> io::Result<IoUring> {
    let entries = entries.next_power_of_two();
    let cooperative = |is_single_issuer| {
        let mut builder = IoUring::builder();
        builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
        if is_single_issuer {
            builder.setup_single_issuer();
        }
        builder.build(entries)
    };
    cooperative(true).or_else(|_| cooperative(false)).or_else(|_| IoUring::new(entries))
}

/// Registers the region as fixed buffer 0 and tells its addresses; none where the kernel refuses.
fn register(ring: &IoUring, memory: &Region) -> Range<usize> {
    let buffer = libc::iovec { iov_base: memory.base().cast(), iov_len: memory.length_bytes() };
    // SAFETY: the mapping lives as long as the ring, which keeps a handle to it.
    match unsafe { ring.submitter().register_buffers(&[buffer]) } {
        Ok(()) => memory.base() as usize..memory.base() as usize + memory.length_bytes(),
        Err(_) => 0..0,
    }
}
