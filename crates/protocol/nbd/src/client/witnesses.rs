//! Blocks by which an export is known again: a server that comes back without them has lost what was stable, or is another one.

use std::collections::VecDeque;

use sanwire_buffer::{Frame, Slice};

use super::Client;
use super::orders::Origin;
use crate::order::{Failure, Order};

/// Blocks that are looked at, at the most; the last ones that were written.
const WITNESSES_MAX: usize = 8;
/// Of those that one flush makes stable.
const OF_FLUSH_MAX: usize = 2;
/// What is looked at of each, or the server's block if that is larger.
const WITNESS_BYTES: usize = 512;

/// What the administrator reads.
pub(super) const OTHER_CONTENT: &str = "the export does not hold what was stable there: another one is served in its place, or its server has lost what it had (one in memory, or a copy that was put back); to go on with what is there, remove the volume and add it again";

/// What is known to be stable.
#[derive(Debug)]
struct Witness {
    offset_bytes: u64,
    bytes: Slice,
}

/// Some of what is known to be stable.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    known: VecDeque<Witness>,
    /// Reads of them under way, before anything else is done.
    pub(super) under_way: usize,
    /// One of those has brought something else.
    pub(super) is_other: bool,
    /// What an order that came later has written is known; of those before it some may be done late, or by half.
    since: u64,
}

impl Witnesses {
    /// Somebody writes there, or may have.
    fn forget(&mut self, order: &Order) {
        let range = order.range();
        self.known.retain(|witness| {
            let end = witness.offset_bytes + witness.bytes.len() as u64;
            end <= range.start || range.end <= witness.offset_bytes
        });
    }
}

impl Client {
    /// A write begins: nobody knows what is there until it is stable.
    pub(super) fn forget_witnesses(&mut self, order: &Order) {
        if order.is_write() {
            self.witnesses.forget(order);
        }
    }

    /// Nobody knows what became of the writes that have failed.
    pub(super) fn doubt_writes(&mut self) {
        self.witnesses.since = self.last_order;
    }

    /// These writes are stable, in the order in which they were answered.
    pub(super) fn remember(&mut self, stable: Vec<(u64, Order)>) {
        for (number, order) in stable.into_iter().rev().take(OF_FLUSH_MAX).rev() {
            let Order::Write { offset_bytes, data } = &order else { continue };
            let length = WITNESS_BYTES.max(self.export.map_or(0, |export| export.blocks.min_bytes as usize));
            let is_last = !self.kept.touches(&order) && !self.orders.has_write_to(&order);
            // Zeroes are everywhere.
            if number <= self.witnesses.since
                || !is_last
                || data.len() < length
                || data.bytes(0..length).iter().all(|byte| *byte == 0)
            {
                continue;
            }
            self.witnesses.forget(&order);
            self.witnesses.known.truncate(WITNESSES_MAX - 1);
            let bytes = Slice::from(data.bytes(0..length).into_owned());
            self.witnesses.known.push_front(Witness { offset_bytes: *offset_bytes, bytes });
        }
    }

    /// Looks at all of them; gives whether there are any.
    pub(super) fn ask_witnesses(&mut self) -> bool {
        let asked: Vec<_> = self.witnesses.known.iter().map(|known| (known.offset_bytes, known.bytes.len())).collect();
        self.witnesses.under_way = asked.len();
        for (offset_bytes, length) in &asked {
            let frame = Frame::from(vec![0; *length]);
            self.take(Order::Read { offset_bytes: *offset_bytes, frame }, Origin::Witness);
        }
        !asked.is_empty()
    }

    /// What was read of one. An error tells nothing.
    pub(super) fn witness_read(&mut self, order: &Order, failure: Option<&Failure>) {
        self.witnesses.under_way -= 1;
        if let (Order::Read { offset_bytes, frame }, None) = (order, failure) {
            let known = self.witnesses.known.iter().find(|known| known.offset_bytes == *offset_bytes);
            self.witnesses.is_other |= known.is_some_and(|known| known.bytes[..] != frame[..]);
        }
    }
}
