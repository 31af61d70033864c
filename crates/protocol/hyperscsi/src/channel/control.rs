//! Control packets that wait to be sent. They are not acknowledged; what needs an answer is asked again by its timer.

use std::collections::VecDeque;

use sanwire_buffer::Packet;
use sanwire_core::Path;

use super::packet_protection::PacketProtection;
use crate::wire::flow::Snr;
use crate::wire::packet::TAG_BYTES;
use crate::wire::{Opcode, PREFIX_BYTES};

/// More than this many control packets never wait: the oldest goes, as on a lossy wire.
const QUEUE_MAX: usize = 64;

/// The control half of a channel.
#[derive(Default)]
pub(super) struct Control {
    queue: VecDeque<Waiting>,
}

struct Waiting {
    opcode: Opcode,
    body: Vec<u8>,
    /// By which path it must go.
    path: Option<Path>,
}

impl Control {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// `path`: by which one it must go; of none: by any link.
    pub(super) fn push(&mut self, opcode: Opcode, body: Vec<u8>, path: Option<Path>) {
        if self.queue.len() == QUEUE_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(Waiting { opcode, body, path });
    }

    /// The next one, and by which path it goes.
    pub(super) fn poll(&mut self, guard: &mut PacketProtection) -> Option<(Option<Path>, Packet)> {
        let Waiting { opcode, body, path } = self.queue.pop_front()?;
        Some((path, guard.control(opcode, &body)?))
    }
}

/// A probe that makes a packet of `size` bytes.
pub(super) fn probe(guard: &mut PacketProtection, size: usize) -> Option<Packet> {
    let body = Snr::Probe { size_bytes: size as u16 }.write(size - PREFIX_BYTES - TAG_BYTES);
    guard.control(Opcode::AckSnr, &body)
}
