//! Guarding packets: each transmission has a number of its own, and is sealed or summed under it.
//!
//! Numbers are counted for each direction of a connection, over data and control packets alike, and never used twice:
//! they are the nonces of the seals. What is sent again is sealed anew.

use sanwire_buffer::{Head, Packet, Recycler, Slice};
use sanwire_core::{Carried, Instant};
use sanwire_security::ReplayWindow;

use crate::keys::KeyError;
use crate::option_exchange::{Floors, Former};
use crate::ring::KeyRing;
use crate::vacancy::{Parts, Vacancy, parts};
use crate::wire::packet::{PREFIX_BYTES, Sealed, TAG_BYTES, guard_bytes, put_checksum};
use crate::wire::{Header, Opcode, Prefix, Protection, RawPacket, Tag};

/// Why a data packet was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejected {
    /// It arrived before.
    Duplicate,
    /// Damaged, of another connection, not authentic, or beyond any window.
    Bad,
    /// Guarded less than this connection demands of every packet.
    Weak,
}

/// What makes packets of a connection, and takes them apart.
pub(super) struct PacketProtection {
    connection: u32,
    ring: KeyRing,
    /// Data packets are never guarded less.
    floors: Floors,
    /// What was enough before, for packets that are under way.
    former_floors: Former<Protection>,
    next_number: u64,
    replay: ReplayWindow,
    /// Where sealed and compressed data is made: memory that is used again.
    memory: Recycler,
    carried: Carried,
}

impl PacketProtection {
    pub(super) fn new(connection: u32, ring: KeyRing, floor: Protection, memory: Recycler) -> Self {
        let floors = Floors { outward: floor, inward: floor };
        PacketProtection {
            connection,
            ring,
            floors,
            former_floors: Former::new(),
            next_number: 0,
            replay: ReplayWindow::new(),
            memory,
            carried: Carried::default(),
        }
    }

    /// Data of the packets that were made, also of those that were sent again.
    pub(super) fn carried(&self) -> Carried {
        self.carried
    }

    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    pub(super) fn ring(&self) -> &KeyRing {
        &self.ring
    }

    pub(super) fn ring_mut(&mut self) -> &mut KeyRing {
        &mut self.ring
    }

    /// How packets that we send are guarded at least.
    pub(super) fn floor(&self) -> Protection {
        self.floors.outward
    }

    /// From now on data packets are guarded so at least. Those that are under way are still taken.
    pub(super) fn set_floors(&mut self, floors: Floors, now: Instant) {
        if floors.inward > self.floors.inward {
            self.former_floors.add(self.floors.inward, now);
        }
        self.floors = floors;
    }

    fn is_enough(&self, protection: Protection, now: Instant) -> bool {
        protection >= self.floors.inward || self.former_floors.at(now).any(|floor| protection >= floor)
    }

    fn prefix(&mut self, header: Header, protection: Protection) -> Prefix {
        let number = self.next_number;
        self.next_number += 1;
        let epoch = if protection == Protection::Checksum { 0 } else { self.ring.epoch() };
        Prefix { header, protection, epoch, connection: self.connection, number }
    }

    /// A data packet. `fields` are what its body begins with, before the payload. `None` when the library refuses to seal
    /// it.
    pub(super) fn data(
        &mut self,
        header: Header,
        protection: Protection,
        fields: [&[u8]; 2],
        payload: Option<Slice>,
    ) -> Option<Packet> {
        let prefix = self.prefix(header, protection);
        let payload_bytes = payload.as_ref().map_or(0, |payload| payload.len());
        // What lies in several places is put together on the heap, and so is what is compressed.
        let is_of_heap = payload.as_ref().is_some_and(|payload| payload.heap_bytes() > 0);
        self.carried.add(payload_bytes, is_of_heap || protection != Protection::Checksum);
        let body_bytes = fields[0].len() + fields[1].len() + payload_bytes + guard_bytes(protection);
        let mut head = Head::new();
        head.extend(&prefix.write(body_bytes));
        fields.into_iter().for_each(|part| head.extend(part));
        match protection {
            Protection::Checksum => {
                put_checksum(Some(&self.ring.headers.outward), &mut head, payload.as_deref().unwrap_or(&[]));
                Some(Packet::new(head, payload))
            }
            Protection::Hash => self.hash(prefix.number, head, payload).ok(),
            _ => self.seal(&prefix, head, payload).ok(),
        }
    }

    /// The tag covers the packet as one piece of memory, so the payload is copied behind a second head.
    fn hash(&mut self, number: u64, mut head: Head, payload: Option<Slice>) -> Result<Packet, KeyError> {
        let Some(payload) = payload else {
            let tag = self.ring.hash(number, &head)?;
            head.extend(&tag);
            return Ok(Packet::new(head, None));
        };
        let length_bytes = head.len() + payload.len() + TAG_BYTES;
        let fill = |packet: &mut [u8]| self.ring.hash_into(number, [&head, &payload], packet);
        let behind = self.memory.filled(length_bytes, fill)?.slice(head.len()..length_bytes);
        Ok(Packet::new(head, Some(behind)))
    }

    /// The ciphertext has memory of its own: the payload is shared with the store.
    fn seal(&mut self, prefix: &Prefix, mut head: Head, payload: Option<Slice>) -> Result<Packet, KeyError> {
        let (protection, number) = (prefix.protection, prefix.number);
        let (covered, body) = head.as_mut_slice().split_at_mut_checked(PREFIX_BYTES).ok_or(KeyError)?;
        let mut tag = [0; TAG_BYTES];
        match payload {
            None => {
                self.ring.seal(protection, number, covered, body, &[], &mut tag)?;
                head.extend(&tag);
                Ok(Packet::new(head, None))
            }
            // Of two pieces the library encrypts the second byte by byte: one piece is five times as fast, with its copy.
            Some(payload) if protection == Protection::ChaCha20Poly1305 => {
                let plain_bytes = body.len() + payload.len();
                let sealed = self.memory.filled(plain_bytes + TAG_BYTES, |bytes| {
                    let (plain, tag) = bytes.split_at_mut_checked(plain_bytes).ok_or(KeyError)?;
                    plain[..body.len()].copy_from_slice(body);
                    plain[body.len()..].copy_from_slice(&payload);
                    self.ring.seal(protection, number, covered, plain, &[], tag)
                })?;
                let mut head = Head::new();
                head.extend(covered);
                Ok(Packet::new(head, Some(sealed)))
            }
            Some(payload) => {
                let fill = |sealed: &mut [u8]| self.ring.seal(protection, number, covered, body, &payload, sealed);
                let sealed = self.memory.filled(payload.len() + TAG_BYTES, fill)?;
                Ok(Packet::new(head, Some(sealed)))
            }
        }
    }

    /// What is in a received data packet: decrypted to its place, or into `plain`, or as it came.
    pub(super) fn open_data<'a>(
        &mut self,
        packet: &RawPacket<'a>,
        (plain, vacancy): (&'a mut Vec<u8>, Option<Vacancy<'_>>),
        now: Instant,
    ) -> Result<Parts<'a>, Rejected> {
        let protection = packet.prefix.protection;
        if !self.is_enough(protection, now) {
            return Err(Rejected::Weak);
        }
        let opened = match (protection, vacancy) {
            // Its sequence tells whether it is new.
            (Protection::Checksum, _) => {
                let is_good = packet.checksum_holds(Some(&self.ring.headers.inward));
                is_good.then_some(packet.body).and_then(parts)
            }
            (_, None) => self.open(packet, plain, now).and_then(parts),
            (_, Some(mut vacancy)) => {
                let fields = vacancy.fill(|body| self.open_into(packet, body, now));
                fields.and_then(|fields| vacancy.parts(&fields, plain))
            }
        };
        opened.ok_or(Rejected::Bad)
    }

    /// A control packet; `None` when the library refuses to seal it.
    pub(super) fn control(&mut self, opcode: Opcode, body: &[u8]) -> Option<Packet> {
        let prefix = self.prefix(Header::single(opcode, Tag::default()), Protection::Aes256Gcm);
        let mut head = Head::new();
        head.extend(&prefix.write(body.len() + TAG_BYTES));
        head.extend(body);
        self.seal(&prefix, head, None).ok()
    }

    /// The plain body of a received control packet, if it is authentic and has not come before.
    pub(super) fn open_control(&mut self, packet: &RawPacket<'_>, now: Instant) -> Option<Vec<u8>> {
        let mut plain = Vec::new();
        let is_sealed = packet.prefix.protection == Protection::Aes256Gcm;
        (is_sealed && self.open(packet, &mut plain, now).is_some()).then_some(plain)
    }

    fn open<'a>(&mut self, packet: &RawPacket<'a>, plain: &'a mut Vec<u8>, now: Instant) -> Option<&'a [u8]> {
        let Prefix { protection, epoch, number, .. } = packet.prefix;
        self.open_once(packet, |ring, sealed| ring.open(protection, epoch, number, sealed, plain, now))
    }

    /// The same for an encrypted packet, into `place`, which is as long as its body without the tag.
    fn open_into(&mut self, packet: &RawPacket<'_>, place: &mut [u8], now: Instant) -> Option<()> {
        let Prefix { protection, epoch, number, .. } = packet.prefix;
        self.open_once(packet, |ring, sealed| ring.open_into(protection, epoch, number, sealed, place, now))
    }

    /// What `open` gives for a packet that has not come before; it is not called for others.
    fn open_once<'a, T>(
        &mut self,
        packet: &RawPacket<'a>,
        open: impl FnOnce(&mut KeyRing, Sealed<'a>) -> Result<T, KeyError>,
    ) -> Option<T> {
        let number = packet.prefix.number;
        if !self.replay.is_new(number) {
            return None;
        }
        let opened = open(&mut self.ring, packet.sealed()?).ok()?;
        self.replay.note(number);
        Some(opened)
    }
}
