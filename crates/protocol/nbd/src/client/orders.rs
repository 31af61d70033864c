//! What is under way, and what was answered and would be lost with the server.

use std::collections::{BTreeMap, VecDeque};

use sanwire_buffer::Slices;

use crate::order::{Extent, Failure, Order};

/// What a write that is kept takes besides its data.
const KEPT_OVERHEAD_BYTES: usize = 64;

/// Why something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The caller ordered it.
    Caller,
    /// A write that was answered, given again.
    Kept,
    /// A flush, so that what is kept may be dropped.
    Own,
    /// A read of what is known to be there.
    Witness,
}

/// An order under way.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) order: Order,
    pub(crate) origin: Origin,
    /// How far requests were made of it.
    pub(crate) cut_bytes: u64,
    /// Whether there are no more to make.
    pub(crate) is_cut: bool,
    /// Requests of it under way.
    pub(crate) pieces: u32,
    pub(crate) failure: Option<Failure>,
    pub(crate) extent: Option<Extent>,
    /// Of a flush: writes up to this one were answered before it was sent.
    pub(crate) covers: u64,
}

impl Entry {
    pub(crate) fn new(order: Order, origin: Origin) -> Self {
        let (cut_bytes, is_cut, pieces) = (0, false, 0);
        Entry { order, origin, cut_bytes, is_cut, pieces, failure: None, extent: None, covers: 0 }
    }

    /// Nothing of it was done, as far as anybody knows.
    pub(crate) fn reset(&mut self) {
        (self.cut_bytes, self.is_cut, self.pieces) = (0, false, 0);
        (self.failure, self.extent) = (None, None);
    }
}

/// Orders under way, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Orders(pub(crate) BTreeMap<u64, Entry>);

impl Orders {
    /// The frame of a read; empty when there is none.
    pub(crate) fn frame(&mut self, number: u64) -> &mut [u8] {
        match self.0.get_mut(&number) {
            Some(Entry { order: Order::Read { frame, .. }, .. }) => frame,
            _ => &mut [],
        }
    }

    /// Whether an older write to some of the same bytes is under way.
    pub(crate) fn is_behind_a_write(&self, number: u64) -> bool {
        let Some(entry) = self.0.get(&number) else { return false };
        self.0.range(..number).any(|(_, older)| older.order.is_write() && older.order.overlaps(&entry.order))
    }

    /// Whether a write to some of the same bytes is under way.
    pub(crate) fn has_write_to(&self, order: &Order) -> bool {
        self.0.values().any(|entry| entry.order.is_write() && entry.order.overlaps(order))
    }
}

/// Writes that were answered and that no flush has made stable: a server that restarts may have lost them.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order of their answers, with the number of that and the number of the order.
    writes: VecDeque<(u64, u64, Order)>,
    bytes: usize,
    answers: u64,
    /// What became of one that could not be given again, or flushed: the next flush tells.
    pub(crate) lost: Option<Failure>,
}

impl Kept {
    /// Keeps a write.
    pub(crate) fn push(&mut self, number: u64, order: Order) {
        let order = match order {
            // Memory of a region is for what is under way.
            Order::Write { offset_bytes, data } if data.pieces().iter().any(|piece| piece.region().is_some()) => {
                Order::Write { offset_bytes, data: Slices::from(data.to_vec()) }
            }
            order => order,
        };
        self.answers += 1;
        self.bytes += kept_bytes(&order);
        self.writes.push_back((self.answers, number, order));
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the last answer: a flush that is sent now covers all up to it.
    pub(crate) fn answers(&self) -> u64 {
        self.answers
    }

    /// Takes out all up to this answer: it is stable, or lost. Gives them with the numbers of their orders.
    pub(crate) fn take_until(&mut self, answer: u64) -> Vec<(u64, Order)> {
        let count = self.writes.partition_point(|(number, ..)| *number <= answer);
        let taken: Vec<_> = self.writes.drain(..count).map(|(_, number, order)| (number, order)).collect();
        self.bytes -= taken.iter().map(|(_, order)| kept_bytes(order)).sum::<usize>();
        taken
    }

    /// Whether some of these bytes are in what is kept.
    pub(crate) fn touches(&self, order: &Order) -> bool {
        self.writes.iter().any(|(.., kept)| kept.overlaps(order))
    }

    /// Takes all of them out, to be given again.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, Order)> {
        self.bytes = 0;
        self.writes.drain(..).map(|(_, number, order)| (number, order))
    }
}

fn kept_bytes(order: &Order) -> usize {
    KEPT_OVERHEAD_BYTES + if let Order::Write { data, .. } = order { data.len() } else { 0 }
}
