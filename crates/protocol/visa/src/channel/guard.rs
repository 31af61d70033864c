//! Guarding packets: who made them, and that each is taken once.
//!
//! A data packet is sealed under its sequence. It is never changed: what is sent again is the same bytes, so no number seals two
//! things. Other packets are counted by themselves, and a window takes each once.

use sanwire_buffer::{Head, Packet, Recycler, Slice};
use sanwire_core::{Instant, Protection};
use sanwire_security::ring::{KeyRing, Sealed};
use sanwire_security::{ReplayWindow, TAG_BYTES};

use super::Rejected;
use crate::wire::header::{COVERED_BYTES, RawPacket, crc};
use crate::wire::message::steering_bytes;
use crate::wire::{Guarding, HEADER_BYTES, Header, Kind};

/// All packets are of the first keys of a connection: one that is worn gives way to a new one.
const EPOCH: u8 = 0;

/// What tells the numbers of other packets from those of data packets, in nonces.
const CONTROL: u64 = 1 << 63;

/// What guards the packets of a connection, seen from one end.
pub(crate) struct Guard {
    ring: KeyRing,
    /// Where a unit demands no more than a checksum, there is none.
    is_unchecked: bool,
    next_control: u32,
    highest_control: u32,
    replay: ReplayWindow,
    /// Where sealed packets are made: memory that is used again.
    memory: Recycler,
}

impl Guard {
    /// Connections of one thread share the memory.
    pub(crate) fn new(ring: KeyRing, memory: Recycler) -> Self {
        let replay = ReplayWindow::new();
        Guard { ring, is_unchecked: false, next_control: 0, highest_control: 0, replay, memory }
    }

    /// Both ends have agreed that a checksum is none.
    pub(crate) fn uncheck(&mut self) {
        self.is_unchecked = true;
    }

    /// How packets of this protection are guarded.
    pub(crate) fn guarding(&self, protection: Protection) -> Guarding {
        match protection {
            Protection::Checksum if self.is_unchecked => Guarding::None,
            protection => Guarding::By(protection),
        }
    }

    /// Whether another connection is to take the place of this one: its keys have guarded much.
    pub(crate) fn is_worn(&self) -> bool {
        self.ring.is_worn() || self.next_control.max(self.highest_control) > u32::MAX / 2
    }

    /// Has it guarded much, for tests.
    #[cfg(test)]
    pub(crate) fn wear(&mut self) {
        self.next_control = u32::MAX / 2 + 1;
    }

    /// A data packet of these bytes and this data; `None` when the library refuses.
    pub(crate) fn seal_data(&mut self, header: Header, before: &[u8], data: Option<&Slice>) -> Option<Packet> {
        let plain = data.map_or(&[][..], |data| data);
        let header = Header { payload_bytes: (before.len() + plain.len()) as u16, ..header };
        let mut head = Head::new();
        match header.guarding {
            Guarding::None => {
                head.extend(&header.write(0));
                head.extend(before);
                Some(Packet::new(head, data.cloned()))
            }
            Guarding::By(Protection::Checksum) => {
                let covered = header.write(0);
                let covered = &covered[..COVERED_BYTES];
                let steering = if header.first { before } else { &[] };
                let code = self.ring.headers.outward.code([covered, steering]);
                head.extend(&header.write(crc(&[covered, before, plain]) ^ code));
                head.extend(before);
                Some(Packet::new(head, data.cloned()))
            }
            Guarding::By(Protection::Hash) => {
                head.extend(&header.write(0));
                head.extend(before);
                let length_bytes = head.len() + plain.len() + TAG_BYTES;
                // The tag covers one piece of memory.
                let fill = |packet: &mut [u8]| self.ring.hash_into(header.sequence.into(), [&head, plain], packet);
                let behind = self.memory.filled(length_bytes, fill).ok()?.slice(head.len()..length_bytes);
                Some(Packet::new(head, Some(behind)))
            }
            Guarding::By(protection) => {
                let written = header.write(0);
                let (mut before, number) = (before.to_vec(), header.sequence.into());
                let fill = |sealed: &mut [u8]| self.ring.seal(protection, number, &written, &mut before, plain, sealed);
                let sealed = self.memory.filled(plain.len() + TAG_BYTES, fill).ok()?;
                head.extend(&written);
                head.extend(&before);
                Some(Packet::new(head, Some(sealed)))
            }
        }
    }

    /// The payload of a received data packet, decrypted into `plain`, or as it came.
    pub(crate) fn open_data<'a>(
        &mut self,
        raw: &RawPacket<'a>,
        plain: &'a mut Vec<u8>,
        now: Instant,
    ) -> Result<&'a [u8], Rejected> {
        let opened = match raw.header.guarding {
            Guarding::None => return if self.is_unchecked { Ok(raw.payload) } else { Err(Rejected::NotAuthentic) },
            Guarding::By(Protection::Checksum) => {
                let covered = &raw.header_bytes[..COVERED_BYTES];
                let steering = steering_bytes(raw.header.first, raw.payload);
                let code = self.ring.headers.inward.code([covered, steering]);
                let is_good = raw.check == crc(&[covered, raw.payload]) ^ code;
                return if is_good { Ok(raw.payload) } else { Err(Rejected::NotAuthentic) };
            }
            Guarding::By(protection) => {
                let (prefix, body) = raw.all.split_at(HEADER_BYTES);
                let sealed = Sealed { prefix, body, all: raw.all, tag: raw.tag };
                self.ring.open(protection, EPOCH, raw.header.sequence.into(), sealed, plain, now)
            }
        };
        opened.map_err(|_| Rejected::NotAuthentic)
    }

    /// Another packet of a connection; `None` when there is no number left, or the library refuses.
    pub(crate) fn seal_control(
        &mut self,
        kind: Kind,
        from_device: bool,
        connection: u32,
        body: &[u8],
    ) -> Option<Packet> {
        let sequence = self.next_control;
        self.next_control = sequence.checked_add(1)?;
        let single = Header::single(kind, from_device, connection);
        let header = Header { sequence, payload_bytes: body.len() as u16, ..single }.write(0);
        let (mut body, mut tag) = (body.to_vec(), [0; TAG_BYTES]);
        let number = CONTROL | u64::from(sequence);
        self.ring.seal(Protection::STRONGEST, number, &header, &mut body, &[], &mut tag).ok()?;
        let mut head = Head::new();
        [&header, &body[..], &tag].into_iter().for_each(|part| head.extend(part));
        Some(Packet::new(head, None))
    }

    /// What a received one says, if it is authentic and has not come before.
    pub(crate) fn open_control(&mut self, raw: &RawPacket<'_>, now: Instant) -> Result<Vec<u8>, Rejected> {
        let number = u64::from(raw.header.sequence);
        if !self.replay.is_new(number) {
            return Err(Rejected::Duplicate);
        }
        let (prefix, body) = raw.all.split_at(HEADER_BYTES);
        let sealed = Sealed { prefix, body, all: raw.all, tag: raw.tag };
        let mut plain = Vec::new();
        let opened = self.ring.open(Protection::STRONGEST, EPOCH, CONTROL | number, sealed, &mut plain, now);
        let body = opened.map_err(|_| Rejected::NotAuthentic)?.to_vec();
        self.replay.note(number);
        self.highest_control = self.highest_control.max(raw.header.sequence);
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guards() -> (Guard, Guard) {
        let ring = |own: [u8; 32], theirs: [u8; 32]| KeyRing::new(own.into(), theirs.into()).unwrap();
        let guard = |ring| Guard::new(ring, Recycler::new());
        (guard(ring([1; 32], [2; 32])), guard(ring([2; 32], [1; 32])))
    }

    fn bytes(packet: &Packet) -> Vec<u8> {
        packet.to_vec()
    }

    fn header(guarding: Guarding) -> Header {
        Header { first: true, guarding, sequence: 5, ..Header::single(Kind::Data, false, 9) }
    }

    #[test]
    fn data_is_opened_by_the_other_end_and_only_as_it_was_sealed() {
        let (mut sender, mut receiver) = guards();
        let before = [&[0, 4, 0, 0, 0, 0, 0, 4][..], b"head"].concat();
        let data = Slice::from(b"data".to_vec());
        for protection in Protection::ALL {
            let packet = bytes(&sender.seal_data(header(Guarding::By(protection)), &before, Some(&data)).unwrap());
            let (raw, mut plain) = (RawPacket::read(&packet).unwrap(), Vec::new());
            let opened = receiver.open_data(&raw, &mut plain, Instant::ZERO).unwrap();
            assert_eq!(opened, [&before[..], b"data"].concat(), "{protection}");
            for at in 0..packet.len() {
                let mut bad = packet.clone();
                bad[at] ^= 4;
                let Ok(raw) = RawPacket::read(&bad) else { continue };
                assert!(receiver.open_data(&raw, &mut Vec::new(), Instant::ZERO).is_err(), "{protection} {at}");
            }
        }
    }

    #[test]
    fn without_a_check_anything_is_believed_where_both_have_agreed_to_it_and_nothing_elsewhere() {
        let (mut sender, mut receiver) = guards();
        let packet = bytes(&sender.seal_data(header(Guarding::None), b"........", None).unwrap());
        let raw = RawPacket::read(&packet).unwrap();
        assert!(receiver.open_data(&raw, &mut Vec::new(), Instant::ZERO).is_err());
        receiver.uncheck();
        assert!(receiver.open_data(&raw, &mut Vec::new(), Instant::ZERO).is_ok());
        assert_eq!(receiver.guarding(Protection::Checksum), Guarding::None);
        assert_eq!(receiver.guarding(Protection::Hash), Guarding::By(Protection::Hash));
    }

    #[test]
    fn other_packets_are_taken_once() {
        let (mut sender, mut receiver) = guards();
        let packet = bytes(&sender.seal_control(Kind::Ack, true, 9, b"body").unwrap());
        let raw = RawPacket::read(&packet).unwrap();
        assert_eq!(receiver.open_control(&raw, Instant::ZERO), Ok(b"body".to_vec()));
        assert_eq!(receiver.open_control(&raw, Instant::ZERO), Err(Rejected::Duplicate));
        let mut forged = packet.clone();
        forged[15] = 7;
        assert_eq!(
            receiver.open_control(&RawPacket::read(&forged).unwrap(), Instant::ZERO),
            Err(Rejected::NotAuthentic)
        );
    }
}
