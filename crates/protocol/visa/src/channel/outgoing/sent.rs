//! Packets that were made, until they have arrived.

use sanwire_buffer::Slice;
use sanwire_core::{Instant, Protection};

use super::Held;

/// Whether a packet is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flight {
    Underway,
    /// It is to be sent again.
    Missed,
    Here,
}

/// A part of a message, as a packet has it whenever it is sent.
#[derive(Debug)]
pub(in crate::channel) struct Part {
    pub(in crate::channel) sequence: u32,
    pub(in crate::channel) tag: u16,
    pub(in crate::channel) protection: Protection,
    pub(in crate::channel) offset: u32,
    pub(in crate::channel) is_last: bool,
    pub(in crate::channel) ack_now: bool,
    /// The prologue and the head of the message, in its first packet.
    pub(in crate::channel) before: Vec<u8>,
    pub(in crate::channel) data: Option<Slice>,
}

#[derive(Debug)]
pub(super) struct Sent {
    pub(super) part: Part,
    pub(super) cookie: Option<u64>,
    /// What the message held that ends with it.
    pub(super) held: Held,
    pub(super) bytes: u64,
    pub(super) at: Instant,
    pub(super) order: u64,
    pub(super) times: u32,
    pub(super) flight: Flight,
    /// As what it was taken for lost: its transmission, and whose that was.
    pub(super) lost: Option<(u64, u16)>,
}
