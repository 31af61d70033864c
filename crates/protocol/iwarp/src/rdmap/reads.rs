//! RDMA Reads of this end: those that wait, and those that are asked for (RFC 5040 5.5: answered in their order).

use std::collections::VecDeque;

use sanwire_buffer::Frame;

use crate::event::WorkId;
use crate::fault::Fault;
use crate::wire::{ReadRequest, Stag};

/// One read.
#[derive(Debug)]
pub(crate) struct Read {
    /// `None` for one that only says that the responder may begin.
    pub(crate) id: Option<WorkId>,
    pub(crate) frame: Frame,
    /// Where in the frame.
    pub(crate) start: usize,
    pub(crate) request: ReadRequest,
    /// Bytes that have arrived.
    pub(crate) done: u32,
}

/// All of them.
pub(crate) struct Reads {
    waiting: VecDeque<Read>,
    under_way: VecDeque<Read>,
    /// So many under way at a time.
    pub(crate) ord: u16,
}

impl Reads {
    pub(crate) fn new(ord: u16) -> Self {
        Reads { waiting: VecDeque::new(), under_way: VecDeque::new(), ord }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.under_way.len()
    }

    /// Whether the peer owes an answer.
    pub(crate) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    pub(crate) fn push(&mut self, read: Read) {
        self.waiting.push_back(read);
    }

    /// The stream ends: those that wait are not asked for any more.
    pub(crate) fn stop(&mut self) {
        self.ord = 0;
    }

    /// It has been asked for, whatever waits.
    pub(crate) fn begin(&mut self, read: Read) {
        self.under_way.push_back(read);
    }

    /// The next one to ask for, which is under way from now on.
    pub(crate) fn next(&mut self) -> Option<ReadRequest> {
        if self.under_way.len() >= usize::from(self.ord) {
            return None;
        }
        let read = self.waiting.pop_front()?;
        let request = read.request;
        self.under_way.push_back(read);
        Some(request)
    }

    /// Where in its frame a segment of an answer goes, which must be what the oldest read waits for.
    pub(crate) fn place(&self, stag: Stag, offset: u64, length: usize, is_last: bool) -> Result<usize, Fault> {
        let read = self.under_way.front().ok_or(Fault::Opcode)?;
        let request = &read.request;
        let rest = (request.length_bytes - read.done) as usize;
        // RFC 5041 5.3: what has no bytes needs no memory, so its key says nothing.
        if stag != request.sink && length > 0 {
            return Err(Fault::Stag);
        }
        let is_next = offset == request.sink_offset + u64::from(read.done) || length == 0;
        if !is_next || length > rest || is_last != (length == rest) {
            return Err(Fault::Bounds);
        }
        Ok(read.start + read.done as usize)
    }

    /// The frame of the oldest read.
    pub(crate) fn frame_mut(&mut self) -> Option<&mut Frame> {
        self.under_way.front_mut().map(|read| &mut read.frame)
    }

    /// So many more bytes of the oldest read are there. The read, when that was all.
    pub(crate) fn arrived(&mut self, length: usize, is_last: bool) -> Option<Read> {
        let read = self.under_way.front_mut()?;
        read.done += length as u32;
        if is_last { self.under_way.pop_front() } else { None }
    }

    /// All of them, with their frames.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Read> {
        self.under_way.drain(..).chain(self.waiting.drain(..))
    }
}
