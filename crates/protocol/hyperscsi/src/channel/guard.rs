//! Guarding packets: each transmission has a number of its own, and is sealed or summed under it.
//!
//! Numbers are counted for each direction of a connection, over data and control packets alike, and never used twice:
//! they are the nonces of the seals. What is sent again is sealed anew.

use sanwire_buffer::{Head, Packet, Slice};

use super::replay::ReplayWindow;
use crate::keys::Seals;
use crate::wire::packet::{PREFIX_BYTES, TAG_BYTES, put_checksum};
use crate::wire::{Header, Opcode, Prefix, Protection, RawPacket, Tag};

/// What makes packets of a connection, and takes them apart.
pub(super) struct Guard {
    connection: u32,
    seals: Seals,
    next_number: u64,
    replay: ReplayWindow,
}

impl Guard {
    pub(super) fn new(connection: u32, seals: Seals) -> Self {
        Guard { connection, seals, next_number: 0, replay: ReplayWindow::new() }
    }

    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    fn prefix(&mut self, header: Header, protection: Protection) -> Prefix {
        let number = self.next_number;
        self.next_number += 1;
        Prefix { header, protection, epoch: 0, connection: self.connection, number }
    }

    /// A data packet. `fields` are what its body begins with, before the payload.
    pub(super) fn data(&mut self, header: Header, fields: [&[u8]; 2], payload: Option<Slice>) -> Packet {
        let prefix = self.prefix(header, Protection::Checksum);
        let payload_bytes = payload.as_ref().map_or(0, |payload| payload.len());
        let mut head = Head::new();
        head.extend(&prefix.write(fields[0].len() + fields[1].len() + payload_bytes));
        fields.into_iter().for_each(|part| head.extend(part));
        put_checksum(self.seals.salt, &mut head, payload.as_deref().unwrap_or(&[]));
        Packet { head, payload }
    }

    /// Whether a data packet is undamaged and of this connection.
    pub(super) fn is_intact(&self, packet: &RawPacket<'_>) -> bool {
        packet.checksum_holds(self.seals.salt)
    }

    /// A control packet; `None` when the library refuses to seal it.
    pub(super) fn control(&mut self, opcode: Opcode, mut body: Vec<u8>) -> Option<Packet> {
        let prefix = self.prefix(Header::single(opcode, Tag::default()), Protection::Aes256Gcm);
        let written = prefix.write(body.len() + TAG_BYTES);
        self.seals.seal(prefix.number, &written, &mut body).ok()?;
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + body.len());
        bytes.extend_from_slice(&written);
        bytes.extend_from_slice(&body);
        Some(Packet { head: bytes.into(), payload: None })
    }

    /// The plain body of a received control packet, if it is authentic and has not come before.
    pub(super) fn open(&mut self, packet: &RawPacket<'_>) -> Option<Vec<u8>> {
        let prefix = &packet.prefix;
        let is_ours = prefix.protection == Protection::Aes256Gcm && prefix.epoch == 0;
        if !is_ours || !self.replay.is_new(prefix.number) {
            return None;
        }
        let plain = self.seals.open(prefix.number, packet.associated(), packet.body).ok()?;
        self.replay.note(prefix.number);
        Some(plain)
    }
}
