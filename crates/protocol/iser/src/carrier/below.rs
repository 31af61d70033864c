//! What carries messages and data: RDMA in software over a stream, or an adapter's queue pair.

use sanwire_iscsi::{UNEXPECTED_ANSWERS_MAX, UNEXPECTED_MAX};

use super::stream::Stream;
use crate::queue_pair::QueuePair;
use crate::wire::{SetUp, with_long_fpdus};

/// Messages that may come besides those of commands that are under way, and their answers: requests without a number, signs of life.
const MESSAGES_BESIDE: usize = UNEXPECTED_MAX as usize + UNEXPECTED_ANSWERS_MAX;

pub(super) enum Below {
    Stream(Box<Stream>),
    Adapter(Adapter),
}

/// An adapter's end of a connection.
pub(super) struct Adapter {
    pub(super) queue_pair: Box<dyn QueuePair>,
    /// Somebody wants something sent, or something was since that was last asked.
    pub(super) is_due: bool,
    /// Bytes that were written into windows, as the other end says: an adapter does not know it.
    pub(super) told_bytes: u64,
}

impl Below {
    pub(super) fn over(queue_pair: Box<dyn QueuePair>) -> Self {
        Below::Adapter(Adapter { queue_pair, is_due: false, told_bytes: 0 })
    }

    pub(super) fn pair(&self) -> &dyn QueuePair {
        match self {
            Below::Stream(stream) => &**stream,
            Below::Adapter(adapter) => &*adapter.queue_pair,
        }
    }

    pub(super) fn pair_mut(&mut self) -> &mut dyn QueuePair {
        match self {
            Below::Stream(stream) => &mut **stream,
            Below::Adapter(adapter) => &mut *adapter.queue_pair,
        }
    }

    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match self {
            Below::Stream(stream) => Some(stream),
            Below::Adapter(_) => None,
        }
    }

    /// What this end says of itself when the connection is set up: memory has addresses everywhere.
    pub(super) fn set_up(&self) -> SetUp {
        SetUp { has_addresses: true, lacks_invalidation: !self.pair().invalidates() }
    }

    /// How it says so.
    pub(super) fn private_data(&self) -> [u8; 4] {
        let own = self.set_up().write();
        match self {
            Below::Stream(_) => with_long_fpdus(own),
            Below::Adapter(_) => own,
        }
    }

    /// Messages that may come at once, where so many commands may be under way. A stream brings no more than what is received at once.
    pub(super) fn messages_at_once(&self, commands_max: usize) -> usize {
        match self {
            Below::Stream(stream) => stream.messages_at_once(),
            Below::Adapter(_) => commands_max + MESSAGES_BESIDE,
        }
    }

    /// Whether it has nothing for who asks it for packets.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Below::Stream(stream) => stream.packet.is_none(),
            Below::Adapter(adapter) => !adapter.is_due,
        }
    }

    pub(super) fn note_due(&mut self) {
        if let Below::Adapter(adapter) = self {
            adapter.is_due = true;
        }
    }
}
