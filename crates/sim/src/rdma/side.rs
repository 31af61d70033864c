//! One end, as its adapter has it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_iwarp::{Fault, Memory, Order, Registration, Stag, WorkId};

use super::completions::{Completion, Completions};
use super::{Adapter, AdapterPlan};

/// Memory that the other end reaches.
pub(super) struct Window {
    pub(super) registration: Registration,
    /// By which the other end calls its first byte.
    pub(super) address: u64,
    /// It is bound, and the other end has not ended it.
    pub(super) is_valid: bool,
    pub(super) is_ended: bool,
    /// What was posted does not tell the adapter to bind it.
    pub(super) is_unbound: bool,
}

/// What was posted to the send queue.
pub(super) enum Post {
    /// Before it these windows are bound.
    Order(Order, WorkId, Vec<Stag>),
    Read(Reading),
}

/// A read, and the memory that it is from.
pub(super) struct Reading {
    pub(super) id: WorkId,
    pub(super) frame: Frame,
    pub(super) part: Range<usize>,
    pub(super) stag: Stag,
    pub(super) address: u64,
}

/// What is said when a connection is set up.
pub(super) enum Word {
    Request,
    Accept(Vec<u8>),
    Reject(Vec<u8>),
    /// The end that was connected to learns that the other one knows.
    Ready,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It has asked, or will be asked.
    Opening,
    /// It is asked.
    Deciding,
    /// What is posted goes to the other end.
    Open,
    Ended,
}

/// The messages that an end may receive.
#[derive(Debug)]
pub(super) enum Receives {
    /// Receives that it has posted, with their lengths.
    Own(VecDeque<usize>),
    /// Of those that it shares: so many that it has not told of, each of at most so many bytes.
    Shared(usize, usize),
}

impl Receives {
    /// How many.
    pub(super) fn len(&self) -> usize {
        match self {
            Receives::Own(posted) => posted.len(),
            Receives::Shared(left, _) => *left,
        }
    }
}

pub(super) struct Side {
    pub(super) adapter: Adapter,
    pub(super) plan: AdapterPlan,
    pub(super) phase: Phase,
    /// Its owner knows that it is open.
    pub(super) is_established: bool,
    pub(super) words: VecDeque<Word>,
    pub(super) queue: VecDeque<Post>,
    /// Requests that have gone out, and are not answered.
    pub(super) reads: VecDeque<Reading>,
    /// What was posted and not told to be done; and the reads among that.
    pub(super) under_way: usize,
    pub(super) reads_under_way: usize,
    pub(super) reads_max: u16,
    pub(super) receives: Receives,
    pub(super) windows: BTreeMap<Stag, Window>,
    /// Memory windows that are bound to nothing, by the keys that they have had last.
    pub(super) free_windows: Vec<u32>,
    pub(super) registered_ever: u64,
    pub(super) moved_bytes: u64,
    pub(super) completions: Completions,
    /// What its owner has given, and cannot have back before the end is dropped.
    pub(super) kept: Vec<Post>,
    pub(super) kept_untold: Vec<Completion>,
    pub(super) trouble: Option<&'static str>,
    pub(super) on_ready: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Something can be told of which nobody was told.
    pub(super) is_call_due: bool,
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side")
            .field("phase", &self.phase)
            .field("words", &self.words.len())
            .field("posted", &self.queue.len())
            .field("reads", &self.reads.len())
            .field("under_way", &self.under_way)
            .field("receives", &self.receives.len())
            .field("windows", &self.windows.len())
            .field("is_ready", &self.completions.is_ready())
            .finish_non_exhaustive()
    }
}

impl Side {
    pub(super) fn new(adapter: Adapter, is_initiator: bool) -> Self {
        let plan = adapter.plan();
        let shares = !is_initiator && plan.waits_for_receives && plan.shared_receives > 0;
        Side {
            adapter,
            plan,
            phase: Phase::Opening,
            is_established: false,
            words: is_initiator.then_some(Word::Request).into_iter().collect(),
            queue: VecDeque::new(),
            reads: VecDeque::new(),
            under_way: 0,
            reads_under_way: 0,
            reads_max: plan.ord,
            receives: if shares { Receives::Shared(0, 0) } else { Receives::Own(VecDeque::new()) },
            windows: BTreeMap::new(),
            free_windows: Vec::new(),
            registered_ever: 0,
            moved_bytes: 0,
            completions: Completions::default(),
            kept: Vec::new(),
            kept_untold: Vec::new(),
            trouble: None,
            on_ready: None,
            is_call_due: false,
        }
    }

    pub(super) fn shares(&self) -> bool {
        matches!(self.receives, Receives::Shared(..))
    }

    /// The key of a window that is opened, another one each time. Without memory windows the keys of a connection are its own, and nothing
    /// to others.
    pub(super) fn next_key(&mut self) -> Stag {
        if !self.plan.has_memory_windows {
            // As Linux' software iWARP has them.
            return Stag((self.registered_ever as u32) << 8);
        }
        let last = self.free_windows.pop().unwrap_or_else(|| self.adapter.new_window());
        Stag(last & !0xff | (last.wrapping_add(1) & 0xff))
    }

    /// Windows that wait for an order with which they are bound.
    pub(super) fn unbound(&self) -> impl Iterator<Item = Stag> {
        self.windows.iter().filter(|(_, window)| window.is_unbound).map(|(stag, _)| *stag)
    }

    /// Closes a window.
    pub(super) fn close(&mut self, stag: Stag) -> Option<Memory> {
        let window = self.windows.remove(&stag)?;
        // One that the other end has not ended is given back to the adapter.
        if self.plan.has_memory_windows && (window.is_unbound || window.is_ended) {
            self.free_windows.push(stag.0);
        }
        Some(window.registration.memory)
    }

    /// Where in a window so many bytes are that the other end wants.
    fn within(&self, stag: Stag, address: u64, length: usize) -> Result<(&Window, Range<usize>), Fault> {
        let window = self.windows.get(&stag).filter(|window| window.is_valid).ok_or(Fault::Stag)?;
        let range = &window.registration.range;
        let start = address.checked_sub(window.address).and_then(|behind| usize::try_from(behind).ok());
        let start = start.and_then(|behind| range.start.checked_add(behind)).ok_or(Fault::Bounds)?;
        let end = start.checked_add(length).filter(|end| *end <= range.end).ok_or(Fault::Bounds)?;
        Ok((window, start..end))
    }

    /// The other end writes.
    pub(super) fn write(&mut self, stag: Stag, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (window, range) = self.within(stag, address, bytes.len())?;
        if !window.registration.rights.remote_write {
            return Err(Fault::Access);
        }
        match self.windows.get_mut(&stag).map(|window| &mut window.registration.memory) {
            Some(Memory::Frame(frame)) => frame[range].copy_from_slice(bytes),
            _ => return Err(Fault::Access),
        }
        Ok(())
    }

    /// The other end reads.
    pub(super) fn read(&self, stag: Stag, address: u64, place: &mut [u8]) -> Result<(), Fault> {
        let (window, range) = self.within(stag, address, place.len())?;
        if !window.registration.rights.remote_read {
            return Err(Fault::Access);
        }
        match &window.registration.memory {
            Memory::Frame(frame) => place.copy_from_slice(&frame[range]),
            Memory::Slices(slices) => place.copy_from_slice(&slices.bytes(range)),
        }
        Ok(())
    }

    /// The other end ends a window.
    pub(super) fn invalidate(&mut self, stag: Stag) -> Result<(), Fault> {
        let speaks = self.plan.invalidates;
        match self.windows.get_mut(&stag) {
            Some(window) if speaks && window.is_valid && window.registration.rights.remote_invalidate => {
                (window.is_valid, window.is_ended) = (false, true);
                Ok(())
            }
            _ => Err(Fault::Invalidation),
        }
    }
}
