//! From a stream of bytes to PDUs. Data segments go where their owner wants them, without a copy where that pays.

mod beginning;

use sanwire_buffer::Frame;

pub use self::beginning::Beginning;
use crate::digest::{DIGEST_BYTES, Digests, digest, padding_bytes};
use crate::wire::{HEADER_BYTES, Header};

/// Additional header segments, at the most.
const ADDITIONAL_MAX_BYTES: usize = 1020;

/// A rest of a data segment of at least so many bytes is received in place; less is copied, with what follows it.
const DIRECT_MIN_BYTES: usize = 4096;

/// After a data segment of at least so many bytes the next ones are taken to be as long.
const LONG_MIN_BYTES: usize = 16 << 10;

/// That many PDUs without data, one after the other, and no more long segments are to be expected.
const LONG_ENDS_AFTER: u8 = 8;

/// Bytes that are received behind such a segment, or instead of one whose place is not known yet: a header, and few to copy.
const BEHIND_LONG_BYTES: usize = 1024;

/// Where a data segment is put.
#[derive(Debug)]
pub enum Destination {
    /// Into a frame, from this offset on. It comes back with the PDU.
    Frame(Frame, usize),
    /// As far as it is kept, into memory of its own. That comes back with the PDU.
    Beginning(Box<Beginning>),
    /// Nowhere: it is read and forgotten.
    Nowhere,
}

impl Destination {
    /// Puts a whole data segment there; gives the frame with it, or what is kept of it.
    #[must_use]
    pub fn put(self, data: &[u8]) -> Option<Frame> {
        match self {
            Destination::Frame(mut frame, offset) => {
                frame.get_mut(offset..offset.checked_add(data.len())?)?.copy_from_slice(data);
                Some(frame)
            }
            Destination::Beginning(mut beginning) => {
                beginning.take(data, false);
                Some(beginning.end(&[]).0)
            }
            Destination::Nowhere => None,
        }
    }
}

/// A PDU that has arrived whole.
#[derive(Debug)]
pub struct Pdu {
    /// Its header.
    pub header: Header,
    /// Additional header segments, mostly none.
    pub additional: Vec<u8>,
    /// The frame that the data was put into, if one was given, or what is kept of it.
    pub data: Option<Frame>,
    /// Whether the data segment is what was sent, as far as a digest tells.
    pub is_intact: bool,
}

/// What [`Receiver::poll`] found.
#[derive(Debug)]
pub enum Step {
    /// More bytes are needed.
    Starving,
    /// A header has arrived and its data follows: call [`Receiver::place`].
    Header(Header),
    /// A whole PDU.
    Pdu(Pdu),
    /// A header whose digest is wrong: the stream cannot be trusted any more (RFC 7143 7.7).
    Torn,
}

enum State {
    Header,
    Placing { header: Header, additional: Vec<u8> },
    Data { header: Header, additional: Vec<u8>, destination: Destination, done: usize },
    Torn,
}

/// Takes a stream apart.
///
/// Receive into [`Receiver::spaces`], say how much with [`Receiver::filled`], then [`Receiver::poll`] until it starves.
pub struct Receiver {
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    digests: Digests,
    state: State,
    /// The last data segment was long; PDUs without data until that counts no more.
    long_for: u8,
    /// PDUs that have arrived whole.
    pdus: u64,
    /// Bytes that have come to their place in a frame, and those of them that were received there.
    placed_bytes: u64,
    direct_bytes: u64,
}

impl Receiver {
    /// A receiver with so many bytes for what is not received in place; at least the longest header.
    #[must_use]
    pub fn new(staging_bytes: usize) -> Self {
        let least = HEADER_BYTES + ADDITIONAL_MAX_BYTES + DIGEST_BYTES;
        let staging = vec![0; staging_bytes.max(least)].into_boxed_slice();
        let (digests, state) = (Digests::default(), State::Header);
        Receiver { staging, start: 0, end: 0, digests, state, long_for: 0, pdus: 0, placed_bytes: 0, direct_bytes: 0 }
    }

    /// From now on there are at least so many bytes for what is not received in place, besides what has arrived already.
    pub fn widen(&mut self, staging_bytes: usize) {
        let leftover = &self.staging[self.start..self.end];
        let mut staging = vec![0; (leftover.len() + staging_bytes).max(self.staging.len())].into_boxed_slice();
        staging[..leftover.len()].copy_from_slice(leftover);
        (self.start, self.end, self.staging) = (0, leftover.len(), staging);
    }

    /// From the next PDU on there are these digests.
    pub fn set_digests(&mut self, digests: Digests) {
        self.digests = digests;
    }

    /// Whether the stream stands between two PDUs, and nothing of the next one has arrived.
    #[cfg(test)]
    fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Header) && self.start == self.end
    }

    /// The number of the PDU whose data is being received into a frame.
    #[must_use]
    pub fn fills_frame_of(&self) -> Option<u64> {
        matches!(&self.state, State::Data { destination: Destination::Frame(..), .. }).then_some(self.pdus)
    }

    /// Bytes that have arrived into frames.
    #[must_use]
    pub fn placed_bytes(&self) -> u64 {
        self.placed_bytes
    }

    /// Those of them that were received straight into their frames, without a copy.
    #[must_use]
    pub fn direct_bytes(&self) -> u64 {
        self.direct_bytes
    }

    /// Bytes that are to come into one before the PDU is whole.
    #[must_use]
    pub fn awaited_bytes(&self) -> u64 {
        match &self.state {
            State::Data { header, destination: Destination::Frame(..), done, .. } => {
                (header.data_bytes() - done) as u64
            }
            _ => 0,
        }
    }

    /// Where the next bytes belong: first all of the first space, then the second. Either may be empty, not both,
    /// once [`Receiver::poll`] has starved.
    pub fn spaces(&mut self) -> [&mut [u8]; 2] {
        if self.start > 0 {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let direct = match &mut self.state {
            State::Data { header, destination: Destination::Frame(frame, offset), done, .. } => {
                let rest = &mut frame[*offset + *done..*offset + header.data_bytes()];
                if rest.len() >= DIRECT_MIN_BYTES && self.end == 0 { rest } else { &mut [] }
            }
            _ => &mut [],
        };
        let end = if self.long_for > 0 { self.end + BEHIND_LONG_BYTES } else { self.staging.len() };
        let end = end.min(self.staging.len());
        [direct, &mut self.staging[self.end..end]]
    }

    /// So many bytes were received into the spaces.
    pub fn filled(&mut self, count: usize) {
        let mut staged = count;
        if let State::Data { header, destination: Destination::Frame(..), done, .. } = &mut self.state {
            let rest = header.data_bytes() - *done;
            if rest >= DIRECT_MIN_BYTES && self.end == 0 {
                let direct = count.min(rest);
                *done += direct;
                self.placed_bytes += direct as u64;
                self.direct_bytes += direct as u64;
                staged -= direct;
            }
        }
        self.end = (self.end + staged).min(self.staging.len());
    }

    /// Takes bytes that were received elsewhere, as many as there is room for, and says how many.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for space in self.spaces() {
            let count = space.len().min(bytes.len() - taken);
            space[..count].copy_from_slice(&bytes[taken..taken + count]);
            taken += count;
        }
        self.filled(taken);
        taken
    }

    /// The next thing in the stream.
    pub fn poll(&mut self) -> Step {
        match std::mem::replace(&mut self.state, State::Torn) {
            State::Header => self.poll_header(),
            State::Data { header, additional, destination, done } => {
                self.poll_data(header, additional, destination, done)
            }
            State::Placing { header, additional } => {
                self.state = State::Placing { header, additional };
                Step::Header(header)
            }
            State::Torn => Step::Torn,
        }
    }

    /// Says where the data segment of the header belongs that [`Receiver::poll`] gave. A frame that has no room for it
    /// is dropped, and the data with it.
    pub fn place(&mut self, destination: Destination) {
        match std::mem::replace(&mut self.state, State::Torn) {
            State::Placing { header, additional } => {
                let has_room = match &destination {
                    Destination::Frame(frame, offset) => {
                        offset.checked_add(header.data_bytes()).is_some_and(|end| end <= frame.len())
                    }
                    Destination::Beginning(_) | Destination::Nowhere => true,
                };
                self.long_for = if header.data_bytes() >= LONG_MIN_BYTES { LONG_ENDS_AFTER } else { 0 };
                let destination = if has_room { destination } else { Destination::Nowhere };
                self.state = State::Data { header, additional, destination, done: 0 };
            }
            other => self.state = other,
        }
    }

    /// Gives back the frame into which data is being received, with the tag of its task; the rest of that data goes nowhere.
    pub fn withdraw(&mut self) -> Option<(u32, Frame)> {
        let State::Data { header, destination, .. } = &mut self.state else { return None };
        match std::mem::replace(destination, Destination::Nowhere) {
            Destination::Frame(frame, _) => Some((header.task_tag(), frame)),
            Destination::Beginning(_) | Destination::Nowhere => None,
        }
    }

    fn poll_header(&mut self) -> Step {
        self.state = State::Header;
        let waiting = &self.staging[self.start..self.end];
        let Some(bytes) = waiting.first_chunk::<HEADER_BYTES>() else { return Step::Starving };
        let header = Header::from_bytes(*bytes);
        let headers_end = HEADER_BYTES + header.additional_bytes();
        let end = headers_end + if self.digests.header { DIGEST_BYTES } else { 0 };
        let Some(whole) = waiting.get(..end) else { return Step::Starving };
        let (headers, found) = whole.split_at(headers_end);
        if self.digests.header && found != digest(&[headers]) {
            self.state = State::Torn;
            return Step::Torn;
        }
        let additional = headers[HEADER_BYTES..].to_vec();
        self.start += end;
        if header.data_bytes() == 0 {
            self.pdus += 1;
            self.long_for = self.long_for.saturating_sub(1);
            return Step::Pdu(Pdu { header, additional, data: None, is_intact: true });
        }
        self.state = State::Placing { header, additional };
        Step::Header(header)
    }

    fn poll_data(&mut self, header: Header, additional: Vec<u8>, mut to: Destination, mut done: usize) -> Step {
        let length = header.data_bytes();
        let staged = (length - done).min(self.end - self.start);
        let part = &self.staging[self.start..self.start + staged];
        match &mut to {
            Destination::Frame(frame, offset) => {
                frame[*offset + done..*offset + done + staged].copy_from_slice(part);
                self.placed_bytes += staged as u64;
            }
            Destination::Beginning(beginning) => beginning.take(part, self.digests.data),
            Destination::Nowhere => {}
        }
        done += staged;
        self.start += staged;
        let padding = padding_bytes(length);
        let trailer = padding + if self.digests.data { DIGEST_BYTES } else { 0 };
        if done < length || self.end - self.start < trailer {
            self.state = State::Data { header, additional, destination: to, done };
            return Step::Starving;
        }
        let (pad, found) = self.staging[self.start..self.start + trailer].split_at(padding);
        let (data, is_intact) = match to {
            Destination::Frame(frame, offset) => {
                let is_intact = !self.digests.data || digest(&[&frame[offset..offset + length], pad]) == found;
                (Some(frame), is_intact)
            }
            Destination::Beginning(beginning) => {
                let (kept, sum) = beginning.end(pad);
                (Some(kept), !self.digests.data || sum == found)
            }
            Destination::Nowhere => (None, true),
        };
        self.start += trailer;
        self.pdus += 1;
        self.state = State::Header;
        Step::Pdu(Pdu { header, additional, data, is_intact })
    }
}

#[cfg(test)]
mod tests;
