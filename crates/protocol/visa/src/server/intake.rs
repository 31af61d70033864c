//! The request that is coming in on a connection. Packets are taken in order, so there is one at a time.

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_core::{Instant, Protection};
use sanwire_exchange::RequestHead;

use crate::channel::Rejected;
use crate::wire::Header;
use crate::wire::message::{PROLOGUE_BYTES, Prologue};

/// A request that has come whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tag: u16,
    pub(super) head: RequestHead,
    pub(super) data: Option<Slice>,
    /// How it was guarded at the least.
    pub(super) protection: Protection,
}

#[derive(Debug)]
struct Partial {
    tag: u16,
    head: RequestHead,
    head_bytes: u32,
    room: Frame,
    have: usize,
    protection: Protection,
}

/// What is coming in.
#[derive(Debug, Default)]
pub(super) struct Intake {
    partial: Option<Partial>,
    /// Data that has come, of all requests.
    placed_bytes: u64,
    moved_at: Instant,
}

impl Intake {
    /// Since when nothing has come of a request that has begun.
    pub(super) fn unfinished_since(&self) -> Option<Instant> {
        self.partial.as_ref().map(|_| self.moved_at)
    }

    /// Bytes of data that have come, and that are to come of a request that has begun.
    pub(super) fn placed_and_awaited_bytes(&self) -> (u64, u64) {
        let awaited = self.partial.as_ref().map_or(0, |partial| partial.room.len() - partial.have);
        (self.placed_bytes, awaited as u64)
    }

    /// Takes the next packet. Gives the request that it ends.
    pub(super) fn take(
        &mut self,
        header: &Header,
        payload: &[u8],
        (memory, transfer_max_bytes): (&Region, u32),
        now: Instant,
    ) -> Result<Option<Request>, Rejected> {
        self.moved_at = now;
        match self.partial.take() {
            None if header.first => self.begin(header, payload, (memory, transfer_max_bytes)),
            Some(partial) if !header.first => self.go_on(partial, header, payload),
            partial => {
                self.partial = partial;
                Err(Rejected::Violation)
            }
        }
    }

    fn begin(
        &mut self,
        header: &Header,
        payload: &[u8],
        (memory, transfer_max_bytes): (&Region, u32),
    ) -> Result<Option<Request>, Rejected> {
        let violation = |_| Rejected::Violation;
        let (Prologue { head_bytes, data_bytes }, head, data) = Prologue::read(payload).map_err(violation)?;
        let head = RequestHead::read(head).map_err(|_| Rejected::Violation)?;
        let is_whole = data.len() as u64 == u64::from(data_bytes);
        if header.offset != 0 || data_bytes > transfer_max_bytes || is_whole != header.last {
            return Err(Rejected::Violation);
        }
        let (tag, protection) = (header.tag, header.guarding.protection());
        if data_bytes == 0 {
            return Ok(Some(Request { tag, head, data: None, protection }));
        }
        let mut room = memory.frame(data_bytes as usize).ok_or(Rejected::NoMemory)?;
        room[..data.len()].copy_from_slice(data);
        self.placed_bytes += data.len() as u64;
        if is_whole {
            return Ok(Some(Request { tag, head, data: Some(room.freeze()), protection }));
        }
        let head_bytes = head_bytes.into();
        self.partial = Some(Partial { tag, head, head_bytes, room, have: data.len(), protection });
        Ok(None)
    }

    fn go_on(&mut self, mut partial: Partial, header: &Header, payload: &[u8]) -> Result<Option<Request>, Rejected> {
        let end = partial.have + payload.len();
        let at = PROLOGUE_BYTES as u64 + u64::from(partial.head_bytes) + partial.have as u64;
        let is_next = header.tag == partial.tag && u64::from(header.offset) == at && !payload.is_empty();
        let is_whole = end == partial.room.len();
        let Some(place) = partial.room.get_mut(partial.have..end).filter(|_| is_next && is_whole == header.last) else {
            return Err(Rejected::Violation);
        };
        place.copy_from_slice(payload);
        partial.have = end;
        self.placed_bytes += payload.len() as u64;
        partial.protection = partial.protection.min(header.guarding.protection());
        if !is_whole {
            self.partial = Some(partial);
            return Ok(None);
        }
        let Partial { tag, head, room, protection, .. } = partial;
        Ok(Some(Request { tag, head, data: Some(room.freeze()), protection }))
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::Lun;
    use sanwire_exchange::Ask;
    use sanwire_scsi::Cdb;

    use super::*;
    use crate::wire::{Guarding, Kind};

    fn head() -> Vec<u8> {
        let ask = Ask::Command(Cdb::new(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]).unwrap());
        let lun = Lun::default().to_wire();
        RequestHead { number: 0, settled_below: 0, receipts: 0, lun, data_in_max_bytes: 0, ask }.write().to_vec()
    }

    fn first(data_bytes: u32, data: &[u8]) -> Vec<u8> {
        let head = head();
        [&Prologue { head_bytes: head.len() as u16, data_bytes }.write()[..], &head, data].concat()
    }

    fn header(first: bool, last: bool, offset: u32, protection: Protection) -> Header {
        let guarding = Guarding::By(protection);
        Header { first, last, offset, guarding, tag: 3, ..Header::single(Kind::Data, false, 1) }
    }

    #[test]
    fn a_request_is_whole_with_its_last_packet_and_guarded_as_its_weakest() {
        let (mut intake, memory) = (Intake::default(), Region::new(1 << 16).unwrap());
        let mut take = |header: Header, payload: &[u8]| intake.take(&header, payload, (&memory, 1000), Instant::ZERO);
        let begin = header(true, false, 0, Protection::Aes256Gcm);
        assert!(matches!(take(begin, &first(6, b"abc")), Ok(None)));
        let at = (8 + head().len() + 3) as u32;
        let request = take(header(false, true, at, Protection::Hash), b"def").unwrap().unwrap();
        assert_eq!((request.data.as_deref(), request.protection), (Some(&b"abcdef"[..]), Protection::Hash));
        drop(request);
        assert_eq!(memory.free_bytes(), memory.length_bytes());
    }

    #[test]
    fn packets_that_do_not_fit_each_other_are_refused() {
        let at = (8 + head().len() + 3) as u32;
        let strong = Protection::Hash;
        for (what, second, payload) in [
            ("another offset", header(false, true, at + 1, strong), &b"def"[..]),
            ("too short for the last", header(false, true, at, strong), b"de"),
            ("too long", header(false, true, at, strong), b"defg"),
            ("not said to be the last", header(false, false, at, strong), b"def"),
            ("empty", header(false, false, at, strong), b""),
            ("another message", header(true, true, 0, strong), &first(0, b"")),
            ("another tag", Header { tag: 4, ..header(false, true, at, strong) }, b"def"),
        ] {
            let (mut intake, memory) = (Intake::default(), Region::new(1 << 16).unwrap());
            let mut take =
                |header: Header, payload: &[u8]| intake.take(&header, payload, (&memory, 1000), Instant::ZERO);
            take(header(true, false, 0, strong), &first(6, b"abc")).unwrap();
            assert_eq!(take(second, payload).map(|_| ()), Err(Rejected::Violation), "{what}");
        }
        let (mut intake, memory) = (Intake::default(), Region::new(4096).unwrap());
        let mut take = |header: Header, payload: &[u8]| intake.take(&header, payload, (&memory, 9000), Instant::ZERO);
        assert_eq!(take(header(false, true, 0, strong), b"x").map(|_| ()), Err(Rejected::Violation), "nothing began");
        assert_eq!(take(header(true, false, 0, strong), &first(9001, b"x")).map(|_| ()), Err(Rejected::Violation));
        assert_eq!(take(header(true, false, 0, strong), &first(8192, b"x")).map(|_| ()), Err(Rejected::NoMemory));
    }
}
