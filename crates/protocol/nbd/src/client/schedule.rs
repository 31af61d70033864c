//! From orders to requests: which may be sent now, in which parts, on which connection.

use super::orders::Origin;
use super::{Client, Link};
use crate::connection::Piece;
use crate::export::Export;
use crate::order::Order;
use crate::wire::{
    CMD_BLOCK_STATUS, CMD_FLAG_NO_HOLE, CMD_FLAG_REQ_ONE, CMD_FLUSH, CMD_READ, CMD_WRITE, CMD_WRITE_ZEROES,
};
use sanwire_buffer::{Slice, Slices};

/// Requests of one order under way, at the most: a discard of everything leaves room for others.
const PIECES_OF_ORDER_MAX: u32 = 16;

/// The next request of an order.
struct Cut {
    piece: Piece,
    flags: u16,
    data: Option<Slices>,
}

impl Client {
    /// Sends what may be sent.
    pub(super) fn schedule(&mut self) {
        let (Link::Up, Some(export), false) = (&self.link, self.current, self.is_abandoned) else { return };
        if export.flushes() && !self.has_own_flush && self.kept.bytes() > self.config.kept_max_bytes / 2 {
            self.has_own_flush = true;
            self.take(Order::Flush, Origin::Own);
        }
        let mut next = 0;
        while let Some(number) = self.waiting.range(next..).next().copied() {
            if !self.connections.iter().any(|connection| connection.has_room()) {
                return;
            }
            if !self.must_wait(number) {
                self.send(number, &export);
            }
            next = number + 1;
        }
    }

    fn must_wait(&self, number: u64) -> bool {
        let Some(entry) = self.orders.0.get(&number) else { return true };
        if entry.cut_bytes > 0 {
            return entry.pieces >= PIECES_OF_ORDER_MAX;
        }
        if entry.origin == Origin::Witness || self.witnesses.under_way > 0 {
            return entry.origin != Origin::Witness;
        }
        if let Order::Flush = entry.order {
            return self.restoring > 0;
        }
        let is_write = entry.order.is_write();
        let is_too_much = self.kept.bytes() >= self.config.kept_max_bytes;
        if is_write && entry.origin == Origin::Caller && is_too_much && self.keeps_writes() {
            return true;
        }
        if is_write && self.lingering.is_in_the_way_of(number, &entry.order.range()) {
            return true;
        }
        self.writes > usize::from(is_write) && self.orders.is_behind_a_write(number)
    }

    fn send(&mut self, number: u64, export: &Export) {
        loop {
            let room = self.connections.iter_mut().filter(|connection| connection.has_room());
            let Some(connection) = room.min_by_key(|connection| connection.load()) else { return };
            let Some(entry) = self.orders.0.get_mut(&number) else { return };
            if entry.pieces >= PIECES_OF_ORDER_MAX {
                return;
            }
            let range = entry.order.range();
            let cut = cut(number, &entry.order, entry.cut_bytes, export, &self.zeroes);
            let covered = cut.as_ref().map_or(range.end - range.start, |cut| u64::from(cut.piece.length_bytes));
            entry.cut_bytes += covered;
            entry.is_cut = range.start + entry.cut_bytes >= range.end || matches!(entry.order, Order::Extent { .. });
            entry.covers = self.kept.answers();
            if let Some(Cut { piece, flags, data }) = cut {
                entry.pieces += 1;
                connection.send(piece, flags, data);
            }
            if entry.is_cut {
                self.waiting.remove(&number);
                if entry.pieces == 0 {
                    self.finish(number);
                }
                return;
            }
        }
    }
}

/// The request for the next bytes of an order, from `done` on; `None` when there is nothing to ask the server.
fn cut(number: u64, order: &Order, done: u64, export: &Export, zeroes: &Slice) -> Option<Cut> {
    let payload_max_bytes = u64::from(export.blocks.payload_max_bytes);
    let (offset_bytes, start) = (order.range().start + done, done as usize);
    let rest = order.range().end - offset_bytes;
    let piece = |kind, length: u64| Piece::new(number, kind, start, offset_bytes, length as u32);
    let cut = |piece, flags, data| Some(Cut { piece, flags, data });
    let length = rest.min(payload_max_bytes);
    match order {
        Order::Flush if export.flushes() => cut(piece(CMD_FLUSH, 0), 0, None),
        Order::Flush => None,
        _ if rest == 0 => None,
        Order::Read { .. } => cut(piece(CMD_READ, length), 0, None),
        Order::Write { data, .. } => {
            let end = start + length as usize;
            cut(piece(CMD_WRITE, length), 0, Some(data.slice(start..end)))
        }
        Order::Zero { keeps_space, .. } if export.writes_zeroes() => {
            let flags = if *keeps_space { CMD_FLAG_NO_HOLE } else { 0 };
            cut(piece(CMD_WRITE_ZEROES, length), flags, None)
        }
        Order::Zero { .. } => {
            let length = length.min(zeroes.len() as u64);
            cut(piece(CMD_WRITE, length), 0, Some(zeroes.slice(0..length as usize).into()))
        }
        Order::Extent { .. } => {
            export.allocation_context?;
            cut(piece(CMD_BLOCK_STATUS, length), CMD_FLAG_REQ_ONE, None)
        }
    }
}
