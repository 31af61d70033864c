//! Guarding packets: who made them, and that each is taken once.
//!
//! A packet with data is sealed under its group and serial number. It is never changed: what is sent again is the same bytes, so no
//! number seals two things. Control packets are counted, and a window takes each once.

use sanwire_buffer::{Head, Packet, Recycler, Slice, Tail};
use sanwire_core::{Instant, Protection};
use sanwire_security::keys::KeyError;
use sanwire_security::ring::{KeyRing, Sealed};
use sanwire_security::{ReplayWindow, TAG_BYTES};

use super::Rejected;
use crate::wire::pcu::{CRC_BYTES, PCU_BYTES, RawPcu, crc};
use crate::wire::pdu::{GROUPS_MAX, PDU_BYTES};
use crate::wire::{Pcu, Pdu};

/// All packets are of the first keys of a connection: one that is worn gives way to a new one.
const EPOCH: u8 = 0;

/// Control packets of a connection, at the most; half of them are enough to wear it.
const NUMBERS_MAX: u32 = u32::MAX;

/// Bytes behind the data of a packet.
pub(crate) const fn code_bytes(protection: Protection) -> usize {
    if matches!(protection, Protection::Checksum) { CRC_BYTES } else { TAG_BYTES }
}

/// What guards the packets of a connection, seen from one end.
pub(crate) struct Guard {
    ring: KeyRing,
    protection: Protection,
    next_number: u32,
    /// The highest of those that have come.
    highest_number: u32,
    replay: ReplayWindow,
    /// Where sealed packets are made: memory that is used again.
    memory: Recycler,
}

/// What lies behind the header of a packet with data.
pub(crate) struct Opened<'a> {
    /// Upper bytes of registers, a CDB, or sense data.
    pub(crate) before: &'a [u8],
    /// Data.
    pub(crate) data: &'a [u8],
    /// So many bytes of data were decrypted to where they belong instead.
    pub(crate) in_place_bytes: usize,
}

impl Opened<'_> {
    /// Bytes of data, wherever they are.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data.len() + self.in_place_bytes
    }
}

impl Guard {
    /// Connections of one thread share the memory.
    pub(crate) fn new(ring: KeyRing, protection: Protection, memory: Recycler) -> Self {
        Guard { ring, protection, next_number: 0, highest_number: 0, replay: ReplayWindow::new(), memory }
    }

    /// How packets with data are guarded from now on: before the first one is sent.
    pub(crate) fn set_protection(&mut self, protection: Protection) {
        self.protection = protection;
    }

    /// Whether packets with data are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.protection.encrypts()
    }

    /// Whether another connection is to take the place of this one: its keys have guarded much.
    pub(crate) fn is_worn(&self) -> bool {
        self.ring.is_worn() || self.next_number.max(self.highest_number) > NUMBERS_MAX / 2
    }

    /// A packet with data, and what stands before it; `None` when there is no number for it, or the library refuses.
    pub(crate) fn seal_pdu(&mut self, pdu: &Pdu, before: &[u8], data: Option<&Slice>) -> Option<Packet> {
        // Its number would be that of a control packet.
        if pdu.group >= GROUPS_MAX {
            return None;
        }
        let header = pdu.write();
        let payload = data.map_or(&[][..], |data| data);
        let mut head = Head::new();
        head.extend(&header);
        match self.protection {
            Protection::Checksum => {
                head.extend(before);
                let code = crc(&[&head, payload]) ^ self.ring.headers.outward.code([&header, before]);
                Some(Packet { head, payload: data.cloned(), tail: Tail::new(&code.to_be_bytes())? })
            }
            Protection::Hash => {
                head.extend(before);
                let length_bytes = head.len() + payload.len() + TAG_BYTES;
                // The tag covers one piece of memory.
                let fill = |packet: &mut [u8]| self.ring.hash_into(pdu.number(), [&head, payload], packet);
                let behind = self.memory.filled(length_bytes, fill).ok()?.slice(head.len()..length_bytes);
                Some(Packet::new(head, Some(behind)))
            }
            sealing => {
                let mut before = before.to_vec();
                let fill =
                    |sealed: &mut [u8]| self.ring.seal(sealing, pdu.number(), &header, &mut before, payload, sealed);
                let sealed = self.memory.filled(payload.len() + TAG_BYTES, fill).ok()?;
                head.extend(&before);
                Some(Packet::new(head, Some(sealed)))
            }
        }
    }

    /// What lies behind the header of a received packet: data that is encrypted, and alone there, decrypted into `place`, if that is
    /// as long; else decrypted into `plain`, or as it came. What is in `place` counts for nothing if the packet is not authentic.
    pub(crate) fn open_pdu<'a>(
        &mut self,
        pdu: &Pdu,
        packet: &'a [u8],
        (plain, place): (&'a mut Vec<u8>, Option<&mut [u8]>),
        now: Instant,
    ) -> Result<Opened<'a>, Rejected> {
        let body = pdu.body();
        let end = PDU_BYTES + body.before_bytes + body.data_bytes;
        let (all, rest) = packet.split_at_checked(end).ok_or(Rejected::Malformed)?;
        let code = rest.get(..code_bytes(self.protection)).ok_or(Rejected::Malformed)?;
        let (header, content) = all.split_at(PDU_BYTES);
        let place = place.filter(|place| self.encrypts() && place.len() == content.len() && body.before_bytes == 0);
        let sealed = Sealed { prefix: header, body: content, all, tag: code };
        let content = match (self.protection, place) {
            (Protection::Checksum, _) => {
                let own = self.ring.headers.inward.code([header, &content[..body.before_bytes]]);
                let is_good = code == (crc(&[all]) ^ own).to_be_bytes();
                if is_good { Ok(content) } else { Err(KeyError) }
            }
            (protection, None) => self.ring.open(protection, EPOCH, pdu.number(), sealed, plain, now),
            (protection, Some(place)) => {
                let opened = self.ring.open_into(protection, EPOCH, pdu.number(), sealed, place, now);
                opened.map_err(|_| Rejected::NotAuthentic)?;
                return Ok(Opened { before: &[], data: &[], in_place_bytes: body.data_bytes });
            }
        };
        let (before, data) = content.map_err(|_| Rejected::NotAuthentic)?.split_at(body.before_bytes);
        Ok(Opened { before, data, in_place_bytes: 0 })
    }

    /// A control packet; the number in `pcu` is set here. `None` when there is no number left, or the library refuses.
    pub(crate) fn seal_pcu(&mut self, pcu: Pcu, operation: &[u8]) -> Option<Packet> {
        let number = self.next_number;
        self.next_number = number.checked_add(1)?;
        let pcu = Pcu { is_sealed: true, number, ..pcu };
        let (header, mut body) = (pcu.write(operation.len()), operation.to_vec());
        let mut tag = [0; TAG_BYTES];
        self.ring.seal(Protection::STRONGEST, pcu.nonce(), &header, &mut body, &[], &mut tag).ok()?;
        let mut head = Head::new();
        [&header, &body[..], &tag].into_iter().for_each(|part| head.extend(part));
        Some(Packet::new(head, None))
    }

    /// The operation of a received control packet, if it is authentic and has not come before.
    pub(crate) fn open_pcu(&mut self, raw: &RawPcu<'_>, now: Instant) -> Result<Vec<u8>, Rejected> {
        if !raw.pcu.is_sealed {
            return Err(Rejected::NotAuthentic);
        }
        let number = u64::from(raw.pcu.number);
        if !self.replay.is_new(number) {
            return Err(Rejected::Duplicate);
        }
        debug_assert_eq!(raw.covered.len(), PCU_BYTES);
        let sealed = Sealed { prefix: raw.covered, body: raw.operation, all: raw.all, tag: raw.code };
        let mut plain = Vec::new();
        let opened = self.ring.open(Protection::STRONGEST, EPOCH, raw.pcu.nonce(), sealed, &mut plain, now);
        let operation = opened.map_err(|_| Rejected::NotAuthentic)?.to_vec();
        self.replay.note(number);
        self.highest_number = self.highest_number.max(raw.pcu.number);
        Ok(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pdu::{Fields, Flags, Scsi};
    use crate::wire::{DiskType, Header, PacketType};

    #[test]
    fn a_connection_on_which_either_end_has_sent_very_many_control_packets_is_worn() {
        let ring = |own: [u8; 32], theirs: [u8; 32]| KeyRing::new(own.into(), theirs.into()).unwrap();
        let mut sender = Guard::new(ring([1; 32], [2; 32]), Protection::Hash, Recycler::new());
        let mut receiver = Guard::new(ring([2; 32], [1; 32]), Protection::Hash, Recycler::new());
        let header = Header {
            from_server: true,
            error: None,
            packet_type: PacketType::Pcu,
            disk_type: DiskType::Scsi,
            disk_address: 0,
            server_port: 1,
            client_port: 1,
        };
        for (number, is_worn) in [(NUMBERS_MAX / 2, false), (NUMBERS_MAX / 2 + 1, true)] {
            sender.next_number = number;
            let pcu = Pcu { header, class: crate::wire::Class::Flow, is_sealed: true, number: 0 };
            let packet = sender.seal_pcu(pcu, &[1]).unwrap();
            let raw = RawPcu::read(&packet.head).unwrap();
            assert!(receiver.open_pcu(&raw, Instant::ZERO).is_ok());
            assert_eq!(receiver.is_worn(), is_worn);
        }
        assert!(sender.is_worn());
    }

    #[test]
    fn no_packet_with_data_is_sealed_under_the_number_of_a_control_packet() {
        let header = Header {
            from_server: false,
            error: None,
            packet_type: PacketType::Pdu,
            disk_type: DiskType::Scsi,
            disk_address: 0,
            server_port: 1,
            client_port: 1,
        };
        let fields = Fields::Scsi(Scsi { before_bytes: 6, status: 0, length_bytes: 0, offset_bytes: 0 });
        for protection in Protection::ALL {
            let ring = KeyRing::new([1; 32].into(), [2; 32].into()).unwrap();
            let mut guard = Guard::new(ring, protection, Recycler::new());
            let mut seal = |group| {
                let pdu = Pdu { header, flags: Flags::default(), fields, command: 0, group, serial: 0 };
                guard.seal_pdu(&pdu, &[0; 6], None).is_some()
            };
            assert!(seal(GROUPS_MAX - 1) && !seal(GROUPS_MAX), "{protection}");
        }
    }
}
