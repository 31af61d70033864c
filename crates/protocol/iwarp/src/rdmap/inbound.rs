//! What arrives: where each segment goes, and what a message does when it is whole.

use std::collections::VecDeque;

use sanwire_buffer::Frame;

use super::outbound::{Outbound, read_fault};
use super::reads::Reads;
use crate::event::{Ended, Event, Message};
use crate::fault::Fault;
use crate::memory::{Denial, Registrations};
use crate::wire::{
    DDP_VERSION, Opcode, Queue, RDMAP_VERSION, READ_REQUEST_BYTES, ReadRequest, Rtr, Segment, Stag,
    TERMINATE_MAX_BYTES, Target, Terminate,
};

/// Where the bytes of a segment go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Into a window to registered memory, from there on.
    Window(Stag, usize),
    /// Into the frame of the oldest read.
    Read(usize),
    /// Into the buffer that was posted first.
    Message(usize),
    /// Into one that is made of it: the whole message has arrived.
    Made,
    /// To this end itself.
    Control,
    /// There are none.
    Nowhere,
}

impl Place {
    /// Whether it is a window, or the frame of a read.
    pub(crate) fn is_memory(self) -> bool {
        matches!(self, Place::Window(..) | Place::Read(_))
    }
}

/// What comes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The stream goes on.
    Continues,
    /// The peer has ended it.
    Terminated(Ended),
}

/// One end's view of what its peer sends.
pub(crate) struct Inbound {
    pub(crate) registrations: Registrations,
    pub(crate) reads: Reads,
    pub(crate) outbound: Outbound,
    pub(crate) events: VecDeque<Event>,
    receives: VecDeque<Frame>,
    /// So many messages may come besides, each of at most so many bytes: room is made for one when it begins.
    expected: (usize, usize),
    /// The first of the buffers was not posted, but made so.
    is_made: bool,
    /// Bytes of the message that is arriving, and its operation.
    arriving: Option<(usize, Opcode)>,
    /// The numbers of the messages that come next in the queues.
    sequences: [u32; 3],
    /// The header of a Read Request or Terminate.
    control: [u8; TERMINATE_MAX_BYTES],
    /// Reads of the peer at a time.
    ird: u16,
    /// What the first message may be that only says that this end may begin.
    rtr: Option<Rtr>,
}

impl Inbound {
    pub(crate) fn new(registrations: Registrations, outbound: Outbound) -> Self {
        Inbound {
            registrations,
            reads: Reads::new(0),
            outbound,
            events: VecDeque::new(),
            receives: VecDeque::new(),
            expected: (0, 0),
            is_made: false,
            arriving: None,
            sequences: [1; 3],
            control: [0; TERMINATE_MAX_BYTES],
            ird: 0,
            rtr: None,
        }
    }

    /// What has been agreed on.
    pub(crate) fn establish(&mut self, ird: u16, ord: u16, rtr: Option<Rtr>) {
        (self.ird, self.reads.ord, self.rtr) = (ird, ord, rtr);
    }

    pub(crate) fn post_receive(&mut self, frame: Frame) {
        self.receives.push_back(frame);
    }

    pub(crate) fn expect(&mut self, count: usize, longest_bytes: usize) {
        self.expected = (count, longest_bytes);
    }

    /// Messages that may come.
    pub(crate) fn receives(&self) -> usize {
        self.receives.len() + self.expected.0
    }

    /// Whether a message has begun and not ended.
    pub(crate) fn is_within_message(&self) -> bool {
        self.arriving.is_some() || self.reads.are_under_way()
    }

    pub(crate) fn drain_receives(&mut self) -> Vec<Frame> {
        self.receives.drain(..).collect()
    }

    /// An FPDU without a segment: once, as the first one, where that was agreed on (RFC 6581 9.1, flag B).
    pub(crate) fn take_empty(&mut self) -> Result<(), Fault> {
        match self.rtr.take() {
            Some(rtr) if rtr.send => {
                self.outbound.release();
                Ok(())
            }
            _ => Err(Fault::Length),
        }
    }

    /// Where a segment goes that has so many bytes, all of which have arrived or not.
    pub(crate) fn place(&mut self, segment: &Segment, length: usize, is_here: bool) -> Result<Place, Fault> {
        if segment.ddp_version != DDP_VERSION {
            return Err(if segment.is_tagged() { Fault::TaggedVersion } else { Fault::UntaggedVersion });
        }
        if segment.rdmap_version != RDMAP_VERSION {
            return Err(Fault::RdmapVersion);
        }
        let opcode = Opcode::from_code(segment.opcode).ok_or(Fault::Opcode)?;
        match segment.target {
            Target::Tagged { stag, offset } if opcode == Opcode::Write => self.place_write(stag, offset, length),
            Target::Tagged { stag, offset } if opcode == Opcode::ReadResponse => {
                self.reads.place(stag, offset, length, segment.is_last).map(Place::Read)
            }
            Target::Tagged { .. } => Err(Fault::Opcode),
            Target::Untagged { queue, sequence, offset, .. } => {
                let expected = *self.sequences.get(queue as usize).ok_or(Fault::Queue)?;
                if opcode.queue().map(|queue| queue as u32) != Some(queue) {
                    return Err(Fault::Opcode);
                }
                if sequence != expected {
                    return Err(Fault::Sequence);
                }
                match opcode {
                    Opcode::ReadRequest => self.place_read_request(offset, length, segment.is_last),
                    Opcode::Terminate => Inbound::place_control(offset, segment.is_last),
                    _ => self.place_message(opcode, (offset, length), segment.is_last, is_here),
                }
            }
        }
    }

    fn place_write(&self, stag: Stag, offset: u64, length: usize) -> Result<Place, Fault> {
        // RFC 5041 5.3: what has no bytes needs no memory, so its key says nothing.
        if length == 0 {
            return Ok(Place::Nowhere);
        }
        match self.registrations.writable(stag, offset, length) {
            Ok(at) => Ok(Place::Window(stag, at)),
            Err(Denial::Stag) => Err(Fault::Stag),
            Err(Denial::Bounds) => Err(Fault::Bounds),
            Err(Denial::Access) => Err(Fault::Access),
            Err(Denial::Wrap) => Err(Fault::Wrap),
        }
    }

    fn place_read_request(&self, offset: u32, length: usize, is_last: bool) -> Result<Place, Fault> {
        if self.outbound.responses() >= usize::from(self.ird) {
            return Err(Fault::NoBuffer);
        }
        match length.cmp(&READ_REQUEST_BYTES) {
            std::cmp::Ordering::Greater => Err(Fault::TooLong),
            std::cmp::Ordering::Less => Err(Fault::Operation),
            std::cmp::Ordering::Equal => Inbound::place_control(offset, is_last),
        }
    }

    /// What this end takes itself comes in one segment.
    fn place_control(offset: u32, is_last: bool) -> Result<Place, Fault> {
        if offset != 0 {
            Err(Fault::Offset)
        } else if !is_last {
            Err(Fault::TooLong)
        } else {
            Ok(Place::Control)
        }
    }

    fn place_message(
        &mut self,
        opcode: Opcode,
        (offset, length): (u32, usize),
        is_last: bool,
        is_here: bool,
    ) -> Result<Place, Fault> {
        let (at, of) = self.arriving.unwrap_or((0, opcode));
        if self.arriving.is_none() && length == 0 && is_last && self.rtr.is_some_and(|rtr| rtr.send) {
            return if offset == 0 { Ok(Place::Nowhere) } else { Err(Fault::Offset) };
        }
        if self.receives.is_empty() && self.expected.0 > 0 {
            let (count, longest_bytes) = &mut self.expected;
            *count -= 1;
            if is_here && is_last && offset == 0 && length <= *longest_bytes {
                return Ok(Place::Made);
            }
            let bytes = if is_last { length.min(*longest_bytes) } else { *longest_bytes };
            self.receives.push_back(vec![0; bytes].into());
            self.is_made = true;
        }
        let buffer = self.receives.front().ok_or(Fault::NoBuffer)?;
        if offset as usize != at {
            return Err(Fault::Offset);
        }
        if at + length > buffer.len() {
            return Err(Fault::TooLong);
        }
        if of != opcode {
            return Err(Fault::Opcode);
        }
        Ok(Place::Message(at))
    }

    /// A message that was to be [`Place::Made`].
    pub(crate) fn make(&mut self, message: &[u8]) {
        self.receives.push_back(message.to_vec().into());
    }

    /// These bytes of a segment at its place; `None` when they are kept nowhere.
    pub(crate) fn bytes_mut(&mut self, place: Place, from: usize, to: usize) -> Option<&mut [u8]> {
        match place {
            Place::Window(stag, at) => self.registrations.bytes_mut(stag, at + from..at + to),
            Place::Read(at) => self.reads.frame_mut()?.get_mut(at + from..at + to),
            Place::Message(at) => self.receives.front_mut()?.get_mut(at + from..at + to),
            Place::Control => {
                let end = self.control.len();
                Some(&mut self.control[from.min(end)..to.min(end)])
            }
            Place::Made | Place::Nowhere => None,
        }
    }

    /// The header of the Read Request that came last.
    pub(crate) fn read_request_header(&self) -> &[u8] {
        &self.control[..READ_REQUEST_BYTES]
    }

    /// A segment has arrived whole, and it is what was sent.
    pub(crate) fn arrived(&mut self, segment: &Segment, place: Place, length: usize) -> Result<Outcome, Fault> {
        let is_first = self.rtr.take().is_some();
        self.outbound.release();
        let opcode = Opcode::from_code(segment.opcode).ok_or(Fault::Opcode)?;
        match (opcode, segment.target) {
            (Opcode::Write, _) => {
                if let Place::Window(stag, at) = place {
                    self.registrations.note_written(stag, at..at + length).ok_or(Fault::Stag)?;
                }
            }
            (Opcode::ReadResponse, _) => {
                if let Some(read) = self.reads.arrived(length, segment.is_last)
                    && let Some(id) = read.id
                {
                    self.events.push_back(Event::ReadDone { id, frame: read.frame });
                }
            }
            (Opcode::ReadRequest, _) => {
                self.count(Queue::ReadRequest);
                self.take_read_request()?;
            }
            (Opcode::Terminate, _) => return Ok(self.take_terminate(length)),
            (_, Target::Untagged { .. }) if is_first && place == Place::Nowhere => self.count(Queue::Send),
            (_, Target::Untagged { invalidate, .. }) => {
                self.take_message(opcode, invalidate, length, segment.is_last)?;
            }
            (_, Target::Tagged { .. }) => return Err(Fault::Opcode),
        }
        Ok(Outcome::Continues)
    }

    fn count(&mut self, queue: Queue) {
        let next = &mut self.sequences[queue as usize];
        *next = next.wrapping_add(1);
    }

    fn take_message(&mut self, opcode: Opcode, invalidate: Stag, length: usize, is_last: bool) -> Result<(), Fault> {
        let (at, _) = self.arriving.take().unwrap_or((0, opcode));
        let end = at + length;
        if !is_last {
            self.arriving = Some((end, opcode));
            return Ok(());
        }
        self.count(Queue::Send);
        let mut invalidated = None;
        if opcode.invalidates() {
            self.registrations.invalidate(invalidate).map_err(|denial| match denial {
                Denial::Access => Fault::Invalidation,
                _ => Fault::ReadStag,
            })?;
            invalidated = Some(invalidate);
        }
        let mut buffer = self.receives.pop_front().ok_or(Fault::NoBuffer)?;
        if std::mem::take(&mut self.is_made) && end < buffer.len() / 2 {
            // Who sends little, in several segments, would have room kept for much.
            buffer = buffer[..end].to_vec().into();
        } else {
            buffer.truncate(end);
        }
        self.events.push_back(Event::Message(Message { buffer, is_solicited: opcode.is_solicited(), invalidated }));
        Ok(())
    }

    fn take_read_request(&mut self) -> Result<(), Fault> {
        let Some(header) = self.control.first_chunk() else { return Err(Fault::Operation) };
        let request = ReadRequest::read(header);
        let length = request.length_bytes as usize;
        if length > 0 {
            self.registrations.readable(request.source, request.source_offset, length).map_err(read_fault)?;
            request.sink_offset.checked_add(length as u64).ok_or(Fault::ReadWrap)?;
        }
        self.outbound.respond(&request);
        Ok(())
    }

    fn take_terminate(&mut self, length: usize) -> Outcome {
        let told = Terminate::read(&self.control[..length.min(TERMINATE_MAX_BYTES)]);
        Outcome::Terminated(Ended::ByPeer(told.and_then(|terminate| Fault::from_code(terminate.code))))
    }
}
