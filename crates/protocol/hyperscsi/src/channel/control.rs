//! Sealed control packets: numbered, authentic, each taken once. They are not acknowledged; what needs an answer is
//! asked again by its timer.

use std::collections::VecDeque;

use sanwire_buffer::Packet;

use super::receive::ReplayWindow;
use crate::keys::{SEAL_BYTES, Seals};
use crate::wire::flow::Snr;
use crate::wire::packet::COVERED_BYTES;
use crate::wire::{Header, Opcode, PREFIX_BYTES, Prefix, Protection, RawPacket, Tag};

/// More than this many control packets never wait: the oldest goes, as on a lossy wire.
const QUEUE_MAX: usize = 64;

/// The control half of a channel.
pub(super) struct Control {
    seals: Seals,
    connection: u32,
    next_number: u64,
    replay: ReplayWindow,
    queue: VecDeque<(Opcode, Vec<u8>)>,
}

impl Control {
    pub(super) fn new(seals: Seals, connection: u32) -> Self {
        Control { seals, connection, next_number: 0, replay: ReplayWindow::default(), queue: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, opcode: Opcode, body: Vec<u8>) {
        if self.queue.len() == QUEUE_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back((opcode, body));
    }

    pub(super) fn poll(&mut self) -> Option<Packet> {
        let (opcode, body) = self.queue.pop_front()?;
        self.seal(opcode, body)
    }

    /// A probe that makes a packet of `size` bytes.
    pub(super) fn seal_probe(&mut self, size: usize) -> Packet {
        let body = Snr::Probe { size_bytes: size as u16 }.write(size - PREFIX_BYTES - SEAL_BYTES);
        self.seal(Opcode::AckSnr, body).unwrap_or_else(|| Packet { head: Vec::new().into(), payload: None })
    }

    fn seal(&mut self, opcode: Opcode, mut body: Vec<u8>) -> Option<Packet> {
        let number = self.next_number;
        self.next_number += 1;
        let prefix = Prefix {
            header: Header::single(opcode, Tag::default()),
            protection: Protection::Sealed,
            connection: self.connection,
            number,
        }
        .write(body.len() + SEAL_BYTES);
        self.seals.seal(number, &prefix[..COVERED_BYTES], &mut body).ok()?;
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + body.len());
        bytes.extend_from_slice(&prefix);
        bytes.extend_from_slice(&body);
        Some(Packet { head: bytes.into(), payload: None })
    }

    /// The plain body of a received control packet, if it is authentic and has not come before.
    pub(super) fn open(&mut self, packet: &RawPacket<'_>) -> Option<Vec<u8>> {
        let prefix = &packet.prefix;
        if prefix.protection != Protection::Sealed || !self.replay.is_new(prefix.number) {
            return None;
        }
        let plain = self.seals.open(prefix.number, packet.covered(), packet.body).ok()?;
        self.replay.note(prefix.number);
        Some(plain)
    }
}
