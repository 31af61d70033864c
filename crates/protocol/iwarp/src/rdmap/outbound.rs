//! What is sent: messages, cut into segments, each an FPDU.

use std::collections::VecDeque;

use sanwire_buffer::{Head, Packet, Slice, Slices, Tail};

use super::reads::Reads;
use crate::crc::{RunningCrc, crc};
use crate::event::{Event, WorkId};
use crate::fault::Fault;
use crate::memory::{Denial, Registrations};
use crate::wire::{
    CRC_BYTES, DDP_VERSION, Opcode, Queue, RDMAP_VERSION, ReadRequest, Segment, Stag, TAGGED_BYTES, Target,
    UNTAGGED_BYTES, padding_bytes,
};

/// Segments of two of these and more are cut where pages of the receiver's memory end, if that begins at one.
const PAGE_BYTES: usize = 4096;

/// A message that is to be sent.
pub(crate) struct Outgoing {
    opcode: Opcode,
    /// Where it goes; the offset is that of its first byte, and the number is given when it begins.
    target: Target,
    body: Body,
    length: usize,
    sent: usize,
    id: Option<WorkId>,
}

enum Body {
    Given {
        head: Head,
        data: Option<Slices>,
    },
    /// What the peer reads: looked up segment by segment, since it may end.
    Source {
        stag: Stag,
        offset: u64,
    },
}

impl Outgoing {
    /// A message into a queue.
    pub(crate) fn untagged(opcode: Opcode, invalidate: Stag, head: Head, data: Option<Slices>) -> Self {
        let queue = opcode.queue().unwrap_or(Queue::Send) as u32;
        let target = Target::Untagged { invalidate, queue, sequence: 0, offset: 0 };
        let length = head.len() + data.as_ref().map_or(0, Slices::len);
        Outgoing { opcode, target, body: Body::Given { head, data }, length, sent: 0, id: None }
    }

    /// Bytes into the peer's memory.
    pub(crate) fn write(stag: Stag, offset: u64, data: Option<Slices>) -> Self {
        let target = Target::Tagged { stag, offset };
        let length = data.as_ref().map_or(0, Slices::len);
        let body = Body::Given { head: Head::new(), data };
        Outgoing { opcode: Opcode::Write, target, body, length, sent: 0, id: None }
    }

    pub(crate) fn read_request(request: &ReadRequest) -> Self {
        Outgoing::untagged(Opcode::ReadRequest, Stag(0), request.write().to_vec().into(), None)
    }

    /// The answer to a read of the peer.
    fn response(request: &ReadRequest) -> Self {
        let target = Target::Tagged { stag: request.sink, offset: request.sink_offset };
        let body = Body::Source { stag: request.source, offset: request.source_offset };
        let length = request.length_bytes as usize;
        Outgoing { opcode: Opcode::ReadResponse, target, body, length, sent: 0, id: None }
    }

    /// Its owner is told when it is sent.
    pub(crate) fn told(mut self, id: Option<WorkId>) -> Self {
        self.id = id;
        self
    }

    /// The bytes of a part: some of the head, and the data behind it.
    fn part(&self, length: usize, registrations: &Registrations) -> Result<(&[u8], Option<Slices>), Fault> {
        let end = self.sent + length;
        match &self.body {
            Body::Given { head, data } => {
                let of_head = &head[self.sent.min(head.len())..end.min(head.len())];
                let from = self.sent.max(head.len()) - head.len();
                let to = end.max(head.len()) - head.len();
                Ok((of_head, data.as_ref().filter(|_| to > from).map(|data| data.slice(from..to))))
            }
            Body::Source { .. } if length == 0 => Ok((&[], None)),
            Body::Source { stag, offset } => {
                let source = registrations.source(*stag, offset + self.sent as u64, length);
                Ok((&[], Some(source.map_err(read_fault)?)))
            }
        }
    }
}

/// How long the next segment of a message is of which so much is left, when segments have at most so many bytes. All that follow are about
/// as long: a short one at the end would be copied at the receiver, where long ones go straight to their place.
fn segment_bytes(most: usize, left: usize) -> usize {
    if left <= most {
        left
    } else if most < 2 * PAGE_BYTES {
        most - most % 8
    } else {
        let count = left.div_ceil(most - most % PAGE_BYTES);
        left.div_ceil(count).next_multiple_of(PAGE_BYTES)
    }
}

/// What it is when a peer may not read what it asks for (RFC 5040 7.1).
pub(crate) fn read_fault(denial: Denial) -> Fault {
    match denial {
        Denial::Stag => Fault::ReadStag,
        Denial::Bounds => Fault::ReadBounds,
        Denial::Access => Fault::Access,
        Denial::Wrap => Fault::ReadWrap,
    }
}

/// Everything that is to be sent.
pub(crate) struct Outbound {
    /// Packets of an FPDU that has been begun, or of a frame of setup.
    pieces: VecDeque<Packet>,
    /// Who is told when these are gone.
    told: Option<WorkId>,
    current: Option<Outgoing>,
    queue: VecDeque<Outgoing>,
    responses: VecDeque<Outgoing>,
    /// Whose turn it is when there are both.
    is_turn_of_responses: bool,
    /// The number of the last message in each queue.
    sequences: [u32; 3],
    mulpdu_bytes: usize,
    crc: bool,
    /// A responder sends nothing before the initiator's first FPDU (RFC 5044 7.1.2).
    is_held: bool,
}

impl Outbound {
    pub(crate) fn new(mulpdu_bytes: usize) -> Self {
        Outbound {
            pieces: VecDeque::new(),
            told: None,
            current: None,
            queue: VecDeque::new(),
            responses: VecDeque::new(),
            is_turn_of_responses: true,
            sequences: [0; 3],
            mulpdu_bytes,
            crc: true,
            is_held: false,
        }
    }

    /// What is cut from now on has at most so many.
    pub(crate) fn set_mulpdu_bytes(&mut self, mulpdu_bytes: usize) {
        self.mulpdu_bytes = mulpdu_bytes;
    }

    /// Bytes of the longest ULPDU.
    pub(crate) fn mulpdu_bytes(&self) -> usize {
        self.mulpdu_bytes
    }

    /// From now on there are FPDUs, which wait as long as it is held.
    pub(crate) fn establish(&mut self, crc: bool, is_held: bool) {
        (self.crc, self.is_held) = (crc, is_held);
    }

    /// The peer has sent its first FPDU.
    pub(crate) fn release(&mut self) {
        self.is_held = false;
    }

    /// A frame of setup, or what is no FPDU.
    pub(crate) fn push_raw(&mut self, bytes: Vec<u8>) {
        self.pieces.push_back(Packet::new(bytes.into(), None));
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.queue.push_back(outgoing);
    }

    /// It is sent before all others.
    pub(crate) fn push_first(&mut self, outgoing: Outgoing) {
        self.current = Some(self.numbered(outgoing));
    }

    /// The peer's reads are answered in their order.
    pub(crate) fn respond(&mut self, request: &ReadRequest) {
        self.responses.push_back(Outgoing::response(request));
    }

    /// Reads of the peer that are not wholly answered.
    pub(crate) fn responses(&self) -> usize {
        let current = self.current.as_ref().is_some_and(|current| current.opcode == Opcode::ReadResponse);
        self.responses.len() + usize::from(current)
    }

    /// Whether it waits for the initiator.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Orders that wait.
    pub(crate) fn orders(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.current.is_none() && self.queue.is_empty() && self.responses.is_empty()
    }

    /// Forgets what waits, but for the rest of an FPDU that has been begun; `last` follows it.
    pub(crate) fn cut(&mut self, last: Option<Outgoing>) {
        (self.queue, self.responses) = (VecDeque::new(), VecDeque::new());
        self.current = last.map(|last| self.numbered(last));
        self.is_held = false;
    }

    /// The next packet.
    pub(crate) fn poll(
        &mut self,
        registrations: &Registrations,
        reads: &mut Reads,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<Packet>, Fault> {
        if self.pieces.is_empty() && !self.is_held {
            if self.current.is_none() {
                self.current = self.next(reads);
            }
            if let Some(outgoing) = self.current.take() {
                self.cut_segment(outgoing, registrations)?;
            }
        }
        let packet = self.pieces.pop_front();
        if self.pieces.is_empty()
            && let Some(id) = self.told.take()
        {
            events.push_back(Event::Sent(id));
        }
        Ok(packet)
    }

    fn next(&mut self, reads: &mut Reads) -> Option<Outgoing> {
        let next = if let Some(request) = reads.next() {
            Outgoing::read_request(&request)
        } else if !self.responses.is_empty() && (self.is_turn_of_responses || self.queue.is_empty()) {
            self.is_turn_of_responses = false;
            self.responses.pop_front()?
        } else {
            self.is_turn_of_responses = true;
            self.queue.pop_front()?
        };
        Some(self.numbered(next))
    }

    /// Untagged messages are numbered from 1, queue by queue (RFC 5041 4.5).
    fn numbered(&mut self, mut outgoing: Outgoing) -> Outgoing {
        if let Target::Untagged { queue, sequence, .. } = &mut outgoing.target {
            let last = &mut self.sequences[*queue as usize];
            *last = last.wrapping_add(1);
            *sequence = *last;
        }
        outgoing
    }

    /// Makes the packets of the next segment.
    fn cut_segment(&mut self, mut outgoing: Outgoing, registrations: &Registrations) -> Result<(), Fault> {
        let header_bytes = if outgoing.target_is_tagged() { TAGGED_BYTES } else { UNTAGGED_BYTES };
        let length = segment_bytes(self.mulpdu_bytes - header_bytes, outgoing.length - outgoing.sent);
        let (of_head, data) = outgoing.part(length, registrations)?;
        let segment = Segment {
            is_last: outgoing.sent + length == outgoing.length,
            ddp_version: DDP_VERSION,
            rdmap_version: RDMAP_VERSION,
            opcode: outgoing.opcode as u8,
            target: outgoing.target_of_segment(),
        };
        let ulpdu_bytes = header_bytes + length;
        let mut head = Head::new();
        head.extend(&(ulpdu_bytes as u16).to_be_bytes());
        segment.write(&mut head);
        head.extend(of_head);
        let padding = &[0; 3][..padding_bytes(ulpdu_bytes)];
        if data.is_none() {
            head.extend(padding);
            let sum = if self.crc { crc(&head) } else { [0; CRC_BYTES] };
            // All of it lies in one place: one piece less for the socket to gather.
            head.extend(&sum);
            self.push_packets(head, None, Tail::default());
        } else {
            let tail = self.tail(padding, || {
                let mut crc = RunningCrc::default();
                crc.update(&head);
                data.iter().flat_map(|data| data.pieces()).for_each(|piece| crc.update(piece));
                crc.update(padding);
                crc.end()
            });
            self.push_packets(head, data, tail);
        }
        outgoing.sent += length;
        if segment.is_last {
            self.told = outgoing.id;
        } else {
            self.current = Some(outgoing);
        }
        Ok(())
    }

    /// Padding, and the CRC or what stands in its place.
    fn tail(&self, padding: &[u8], crc: impl FnOnce() -> [u8; CRC_BYTES]) -> Tail {
        let mut bytes = [0; 3 + CRC_BYTES];
        let end = padding.len() + CRC_BYTES;
        if self.crc {
            bytes[padding.len()..end].copy_from_slice(&crc());
        }
        Tail::new(&bytes[..end]).unwrap_or_default()
    }

    fn push_packets(&mut self, head: Head, data: Option<Slices>, tail: Tail) {
        let (first, rest) = match data.map(Slices::split_first) {
            Some((first, rest)) => (Some(first), rest),
            None => (None, Vec::<Slice>::new()),
        };
        self.pieces.push_back(Packet::new(head, first));
        self.pieces.extend(rest.into_iter().map(|piece| Packet::new(Head::new(), Some(piece))));
        if let Some(last) = self.pieces.back_mut() {
            last.tail = tail;
        }
    }
}

impl Outgoing {
    fn target_is_tagged(&self) -> bool {
        matches!(self.target, Target::Tagged { .. })
    }

    fn target_of_segment(&self) -> Target {
        match self.target {
            Target::Tagged { stag, offset } => Target::Tagged { stag, offset: offset.wrapping_add(self.sent as u64) },
            Target::Untagged { invalidate, queue, sequence, offset: _ } => {
                Target::Untagged { invalidate, queue, sequence, offset: self.sent as u32 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(most: usize, mut left: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        while left > 0 {
            let length = segment_bytes(most, left);
            assert!(length > 0 && length <= most, "{length} of {left}");
            lengths.push(length);
            left -= length;
        }
        lengths
    }

    #[test]
    fn a_long_message_goes_in_few_segments_of_which_none_is_short() {
        assert_eq!(lengths(65_521, 65_521), [65_521]);
        assert_eq!(lengths(65_521, 64 << 10), [32 << 10; 2]);
        assert_eq!(lengths(65_521, 128 << 10), [45_056, 45_056, 40_960]);
        let long = lengths(65_521, 1 << 20);
        assert_eq!(long.len(), 18);
        assert!(long.iter().all(|length| (57_344..=61_440).contains(length)), "{long:?}");
        assert_eq!(lengths(8926, 64 << 10), [8192; 8]);
        assert_eq!((lengths(1434, 1434), lengths(1434, 3000)), (vec![1434], vec![1432, 1432, 136]));
    }
}
