//! One end, as its adapter has it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_iwarp::{Fault, Memory, Order, Registration, Stag, WorkId};

use super::AdapterPlan;
use super::completions::{Completion, Completions};

/// Memory that the other end reaches.
pub(super) struct Window {
    pub(super) registration: Registration,
    /// By which the other end calls its first byte.
    pub(super) address: u64,
    /// The other end has not ended it.
    pub(super) is_valid: bool,
}

/// What was posted to the send queue.
pub(super) enum Post {
    Order(Order, WorkId),
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

pub(super) struct Side {
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
    /// Receives that are posted, with their lengths.
    pub(super) receives: VecDeque<usize>,
    pub(super) windows: BTreeMap<Stag, Window>,
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
    pub(super) fn new(plan: AdapterPlan, is_initiator: bool) -> Self {
        Side {
            plan,
            phase: Phase::Opening,
            is_established: false,
            words: is_initiator.then_some(Word::Request).into_iter().collect(),
            queue: VecDeque::new(),
            reads: VecDeque::new(),
            under_way: 0,
            reads_under_way: 0,
            reads_max: plan.ord,
            receives: VecDeque::new(),
            windows: BTreeMap::new(),
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
                window.is_valid = false;
                Ok(())
            }
            _ => Err(Fault::Invalidation),
        }
    }
}
