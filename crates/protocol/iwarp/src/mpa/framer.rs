//! From a stream of bytes to segments at their places.

use crate::crc::{RunningCrc, crc};
use crate::event::Ended;
use crate::fault::Fault;
use crate::rdmap::{Inbound, Outcome, Place};
use crate::wire::{
    CRC_BYTES, HEADER_MAX_BYTES, LENGTH_BYTES, Opcode, PRIVATE_DATA_MAX_BYTES, READ_REQUEST_BYTES, STARTUP_BYTES,
    Segment, TAGGED_BYTES, fpdu_bytes, padding_bytes,
};

/// A rest of a segment of at least so many bytes is received in place; less is copied, with what follows it.
const DIRECT_MIN_BYTES: usize = 4096;

/// After a segment of at least so many bytes the next ones are taken to be as long.
const LONG_MIN_BYTES: usize = 16 << 10;

/// That many short segments, one after the other, and no more long ones are to be expected.
const LONG_ENDS_AFTER: u8 = 8;

/// Bytes that are received behind such a segment: its CRC, the header of the next one, and few to copy.
const BEHIND_LONG_BYTES: usize = 256;

/// The longest that must be whole in one place: a frame of setup.
const STAGING_MIN_BYTES: usize = STARTUP_BYTES + PRIVATE_DATA_MAX_BYTES + 512;

/// Why a stream is broken, and by which segment: the length of its ULPDU, and its headers.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) fault: Fault,
    pub(crate) about: Option<(u16, Vec<u8>)>,
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Step {
    /// More bytes are needed.
    Starving,
    /// An FPDU has arrived.
    Arrived,
    /// The peer has ended the stream.
    Ended(Ended),
}

/// An FPDU whose header has arrived.
struct Fpdu {
    ulpdu_bytes: usize,
    header: [u8; HEADER_MAX_BYTES],
    segment: Segment,
    /// Where it goes, or what is wrong with it: if its CRC is right, that is what the peer did.
    place: Result<Place, Fault>,
    done: usize,
    /// Of what has arrived, where it does not arrive at once and is checked.
    crc: Option<RunningCrc>,
}

impl Fpdu {
    fn length(&self) -> usize {
        self.ulpdu_bytes - self.segment.length_bytes()
    }

    fn rest(&self) -> usize {
        self.length() - self.done
    }

    fn update(&mut self, part: &[u8]) {
        if let Some(crc) = &mut self.crc {
            crc.update(part);
        }
    }
}

/// Takes a stream apart.
pub(crate) struct Framer {
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    crc: bool,
    fpdu: Option<Fpdu>,
    /// The last segment was long; short ones until that counts no more.
    long_for: u8,
    placed_bytes: u64,
    moved_bytes: u64,
    direct_bytes: u64,
}

impl Framer {
    pub(crate) fn new(staging_bytes: usize) -> Self {
        let staging = vec![0; staging_bytes.max(STAGING_MIN_BYTES)].into_boxed_slice();
        Framer {
            staging,
            start: 0,
            end: 0,
            crc: true,
            fpdu: None,
            long_for: 0,
            placed_bytes: 0,
            moved_bytes: 0,
            direct_bytes: 0,
        }
    }

    pub(crate) fn set_crc(&mut self, crc: bool) {
        self.crc = crc;
    }

    /// From now on there are at least so many bytes for what is not received in place.
    pub(crate) fn widen(&mut self, staging_bytes: usize) {
        if staging_bytes > self.staging.len() {
            let mut staging = vec![0; staging_bytes].into_boxed_slice();
            let waiting = self.waiting();
            staging[..waiting.len()].copy_from_slice(waiting);
            (self.start, self.end, self.staging) = (0, waiting.len(), staging);
        }
    }

    /// Bytes that were received straight into their places.
    pub(crate) fn placed_bytes(&self) -> u64 {
        self.placed_bytes
    }

    /// Those of them that came into windows and into the frames of reads.
    pub(crate) fn direct_bytes(&self) -> u64 {
        self.direct_bytes
    }

    /// Bytes that have come into windows and into the frames of reads.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Bytes that have arrived and were not looked at.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.staging[self.start..self.end]
    }

    /// So many of them have been looked at.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Nothing that arrives is looked at any more.
    pub(crate) fn stop(&mut self) {
        (self.fpdu, self.start, self.end) = (None, 0, 0);
    }

    /// Whether the stream stands between two FPDUs.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.fpdu.is_none() && self.start == self.end
    }

    /// Whether the next bytes go straight to their place, and where that is.
    fn direct(&self) -> Option<(Place, usize, usize)> {
        let fpdu = self.fpdu.as_ref().filter(|fpdu| fpdu.rest() >= DIRECT_MIN_BYTES && self.start == self.end)?;
        Some((fpdu.place.ok()?, fpdu.done, fpdu.length()))
    }

    pub(crate) fn spaces<'s>(&'s mut self, inbound: &'s mut Inbound) -> [&'s mut [u8]; 2] {
        if self.start > 0 {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let direct = self.direct().and_then(|(place, from, to)| inbound.bytes_mut(place, from, to));
        let short_rest = if direct.is_some() { 0 } else { self.fpdu.as_ref().map_or(0, Fpdu::rest) };
        let wanted = if self.long_for > 0 { short_rest + BEHIND_LONG_BYTES } else { self.staging.len() };
        let end = (self.end + wanted).min(self.staging.len());
        [direct.unwrap_or_default(), &mut self.staging[self.end..end]]
    }

    pub(crate) fn filled(&mut self, count: usize, inbound: &mut Inbound) {
        let mut staged = count;
        if let Some((place, from, to)) = self.direct()
            && let Some(space) = inbound.bytes_mut(place, from, to)
        {
            let direct = count.min(space.len());
            if let Some(fpdu) = &mut self.fpdu {
                fpdu.update(&space[..direct]);
                fpdu.done += direct;
            }
            self.placed_bytes += direct as u64;
            let into_memory = if place.is_memory() { direct as u64 } else { 0 };
            self.moved_bytes += into_memory;
            self.direct_bytes += into_memory;
            staged -= direct;
        }
        self.end = (self.end + staged).min(self.staging.len());
    }

    /// The next FPDU.
    pub(crate) fn step(&mut self, inbound: &mut Inbound) -> Result<Step, Broken> {
        match self.fpdu.take() {
            None => self.step_header(inbound),
            Some(fpdu) => self.step_data(fpdu, inbound),
        }
    }

    fn step_header(&mut self, inbound: &mut Inbound) -> Result<Step, Broken> {
        let waiting = &self.staging[self.start..self.end];
        let Some(length) = waiting.first_chunk() else { return Ok(Step::Starving) };
        let ulpdu_bytes = usize::from(u16::from_be_bytes(*length));
        if ulpdu_bytes == 0 {
            return self.step_empty(inbound);
        }
        if ulpdu_bytes < TAGGED_BYTES {
            return Err(Broken { fault: Fault::Length, about: None });
        }
        let Some(first) = waiting.get(LENGTH_BYTES) else { return Ok(Step::Starving) };
        let header_bytes = Segment::header_bytes(*first);
        if ulpdu_bytes < header_bytes {
            return Err(Broken { fault: Fault::Length, about: None });
        }
        let whole = fpdu_bytes(ulpdu_bytes);
        let headers_end = LENGTH_BYTES + header_bytes;
        let Some(bytes) = waiting.get(LENGTH_BYTES..headers_end) else { return Ok(Step::Starving) };
        let Some(segment) = Segment::read(bytes) else { return Ok(Step::Starving) };
        let mut header = [0; HEADER_MAX_BYTES];
        header[..header_bytes].copy_from_slice(bytes);
        // One pass over an FPDU that is here as a whole: nothing of it is placed if its CRC is wrong.
        let is_checked = waiting.len() >= whole;
        if is_checked && self.crc && !is_intact(&waiting[..whole]) {
            return Err(Broken { fault: Fault::Crc, about: None });
        }
        let length = ulpdu_bytes - header_bytes;
        let place = inbound.place(&segment, length, is_checked);
        let mut fpdu = Fpdu { ulpdu_bytes, header, segment, place, done: 0, crc: None };
        self.long_for = if length >= LONG_MIN_BYTES { LONG_ENDS_AFTER } else { self.long_for.saturating_sub(1) };
        if !is_checked {
            fpdu.crc = self.crc.then(RunningCrc::default);
            fpdu.update(&waiting[..headers_end]);
            self.start += headers_end;
            return self.step_data(fpdu, inbound);
        }
        let at = self.start + headers_end;
        self.moved_bytes += copy(&self.staging[at..at + length], &fpdu, inbound);
        self.start += whole;
        finish(&fpdu, inbound)
    }

    fn step_empty(&mut self, inbound: &mut Inbound) -> Result<Step, Broken> {
        let whole = fpdu_bytes(0);
        let Some(bytes) = self.waiting().get(..whole) else { return Ok(Step::Starving) };
        if self.crc && !is_intact(bytes) {
            return Err(Broken { fault: Fault::Crc, about: None });
        }
        self.start += whole;
        inbound.take_empty().map(|()| Step::Arrived).map_err(|fault| Broken { fault, about: None })
    }

    fn step_data(&mut self, mut fpdu: Fpdu, inbound: &mut Inbound) -> Result<Step, Broken> {
        let staged = fpdu.rest().min(self.end - self.start);
        let part = &self.staging[self.start..self.start + staged];
        fpdu.update(part);
        self.moved_bytes += copy(part, &fpdu, inbound);
        fpdu.done += staged;
        self.start += staged;
        let padding = padding_bytes(fpdu.ulpdu_bytes);
        let Some(trailer) = self.waiting().get(..padding + CRC_BYTES).filter(|_| fpdu.rest() == 0) else {
            self.fpdu = Some(fpdu);
            return Ok(Step::Starving);
        };
        let (pad, found) = trailer.split_at(padding);
        fpdu.update(pad);
        if fpdu.crc.as_ref().is_some_and(|crc| crc.end() != found) {
            return Err(Broken { fault: Fault::Crc, about: None });
        }
        self.start += padding + CRC_BYTES;
        finish(&fpdu, inbound)
    }
}

/// Whether a whole FPDU has the right CRC.
fn is_intact(fpdu: &[u8]) -> bool {
    fpdu.split_last_chunk::<CRC_BYTES>().is_some_and(|(covered, found)| crc(covered) == *found)
}

/// Puts the next bytes of a segment to their place; gives how many have come into memory that is not this end's own.
fn copy(part: &[u8], fpdu: &Fpdu, inbound: &mut Inbound) -> u64 {
    let Ok(place) = fpdu.place else { return 0 };
    if place == Place::Made {
        inbound.make(part);
        return 0;
    }
    let Some(space) = inbound.bytes_mut(place, fpdu.done, fpdu.done + part.len()) else { return 0 };
    let kept = space.len();
    space.copy_from_slice(&part[..kept]);
    if place.is_memory() { kept as u64 } else { 0 }
}

/// What an FPDU does that has arrived whole.
fn finish(fpdu: &Fpdu, inbound: &mut Inbound) -> Result<Step, Broken> {
    let done = fpdu.place.and_then(|place| inbound.arrived(&fpdu.segment, place, fpdu.length()));
    match done {
        Ok(Outcome::Continues) => Ok(Step::Arrived),
        Ok(Outcome::Terminated(ended)) => Ok(Step::Ended(ended)),
        Err(fault) => Err(Broken { fault, about: Some(about(fpdu, inbound)) }),
    }
}

/// What a Terminate message says about a segment: its length, and its headers (RFC 5040 4.8).
fn about(fpdu: &Fpdu, inbound: &Inbound) -> (u16, Vec<u8>) {
    let mut headers = fpdu.header[..fpdu.segment.length_bytes()].to_vec();
    let is_read = fpdu.segment.opcode == Opcode::ReadRequest as u8 && fpdu.length() == READ_REQUEST_BYTES;
    if is_read && fpdu.place == Ok(Place::Control) {
        headers.extend_from_slice(inbound.read_request_header());
    }
    (fpdu.ulpdu_bytes as u16, headers)
}
