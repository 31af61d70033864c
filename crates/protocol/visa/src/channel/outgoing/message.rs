//! What is given to be sent, and what it holds.

use sanwire_buffer::{Head, Slices};
use sanwire_core::Protection;

use crate::wire::message::PROLOGUE_BYTES;

/// A command or an answer.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) tag: u16,
    pub(crate) protection: Protection,
    pub(crate) head: Head,
    pub(crate) data: Option<Slices>,
    /// By which its sender hears that it has arrived.
    pub(crate) cookie: Option<u64>,
}

impl Message {
    pub(super) fn data_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, Slices::len)
    }

    /// All of it, as it is sent.
    pub(super) fn bytes(&self) -> u64 {
        (PROLOGUE_BYTES + self.head.len() + self.data_bytes()) as u64
    }

    pub(super) fn held(&self) -> Held {
        let bytes = |of: fn(&Slices) -> usize| self.data.as_ref().map_or(0, of) as u64;
        Held { messages: 1, heap_bytes: bytes(Slices::heap_bytes), lent_bytes: bytes(Slices::lent_bytes) }
    }
}

/// What messages hold until they have arrived whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    pub(crate) messages: u64,
    /// Their data that nobody accounts for elsewhere.
    pub(crate) heap_bytes: u64,
    /// What they keep of the memory of stores.
    pub(crate) lent_bytes: u64,
}

impl Held {
    pub(super) fn add(&mut self, more: Held) {
        self.messages += more.messages;
        self.heap_bytes += more.heap_bytes;
        self.lent_bytes += more.lent_bytes;
    }

    pub(super) fn take_off(&mut self, less: Held) {
        self.messages -= less.messages;
        self.heap_bytes -= less.heap_bytes;
        self.lent_bytes -= less.lent_bytes;
    }
}
