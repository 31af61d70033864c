//! Pieces of orders on their way: cut, sent, and sent again.

use std::time::Duration;

use sanwire_ata::{Work, trim};
use sanwire_buffer::{Packet, Slice};
use sanwire_core::Instant;
use sanwire_scsi::Extent;

use super::ghosts::overlap;
use super::machine::{Client, Piece, Sent, State};
use super::types::Place;
use crate::wire::{self, AtaHeader, Header, SECTOR_BYTES, command};

/// The longest time after which a piece is sent again.
const RESEND_MAX: Duration = Duration::from_secs(4);

/// A flush writes all that the target has, so it is not given again soon.
const FLUSH_RESEND_MIN: Duration = Duration::from_secs(2);

/// Messages that are made at once, before they are sent.
const BATCH: usize = 64;

impl Client {
    /// Cuts pieces from orders as long as the window has room.
    pub(super) fn fill(&mut self, now: Instant) {
        let State::Up(place) = self.state else { return };
        self.is_haunted = false;
        let mut turns = self.queue.len();
        // A question takes a place at the target, too.
        let asked = usize::from(self.probe_tag.is_some());
        while turns > 0 && self.pieces.len() + asked < self.window.size() && self.outbox.len() < BATCH {
            let Some(number) = self.queue.pop_front() else { return };
            turns -= 1;
            match self.cut(number, place, now) {
                Cut::Given => {
                    self.queue.push_front(number);
                    turns += 1;
                }
                // Others may go before it.
                Cut::Waits => {
                    self.is_haunted = true;
                    self.queue.push_back(number);
                }
                Cut::Nothing => {}
            }
        }
    }

    /// Gives the next piece of an order.
    fn cut(&mut self, number: u64, place: Place, now: Instant) -> Cut {
        let Some(work) = self.plan(number) else { return Cut::Nothing };
        let Some(running) = self.orders.get_mut(&number) else { return Cut::Nothing };
        let parts = work.parts();
        let is_over = running.failed.is_some() || (running.given >= parts && (parts > 0 || running.pieces > 0));
        if is_over {
            return Cut::Nothing;
        }
        let from = running.given;
        let Some(host) = &self.host else { return Cut::Nothing };
        let count = (parts - from).min(place.sectors.into()).min(host.parts_max(&work));
        let task_file = host.command(&work, from, count as u16);
        if let Some(extent) = work.changes(from, count)
            && self.is_taken(number, extent)
        {
            return Cut::Waits;
        }
        if let Some(running) = self.orders.get_mut(&number) {
            running.given += count;
            running.pieces += 1;
        }
        let id = self.next_piece;
        self.next_piece += 1;
        self.pieces.insert(
            id,
            Piece {
                order: number,
                from,
                count,
                task_file,
                tag: None,
                copies: 0,
                short_answers: 0,
                sent_at: now,
                due_at: now,
            },
        );
        self.send(id, place, now);
        Cut::Given
    }

    /// Whether another write is under way there, or a copy of one may be: which of both came last nobody could tell.
    fn is_taken(&self, order: u64, extent: Extent) -> bool {
        let is_other = |piece: &&Piece| piece.order != order;
        let changes = |piece: &Piece| {
            let work = self.orders.get(&piece.order)?.work.as_ref()?;
            work.changes(piece.from, piece.count)
        };
        self.ghosts.haunt(order, extent)
            || self.pieces.values().filter(is_other).filter_map(changes).any(|other| overlap(other, extent))
    }

    /// Sends a piece, under a tag of its own each time, but for flushes: so each copy is accounted for.
    fn send(&mut self, id: u64, place: Place, now: Instant) {
        let tag = self.tag();
        let timeout = self.window.timeout();
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        let Some(running) = self.orders.get(&piece.order) else { return };
        let Some(work) = &running.work else { return };
        // A failure of a flush is told once, so it must be known that its copies are copies.
        let tag = if *work == Work::Flush { *piece.tag.get_or_insert(tag) } else { tag };
        let payload = data_of(work, running.data_out.as_ref(), piece.from, piece.count);
        let Some(ata) = AtaHeader::of(&piece.task_file, payload.is_some()) else { return };
        let header = Header::request(self.config.address, command::ATA, tag);
        let head = wire::head(&header, &ata.to_bytes(), payload.as_ref().map_or(0, |payload| payload.len()));
        self.outbox.push_back((place.path, Packet::new(head, payload)));
        let timeout = if *work == Work::Flush { timeout.max(FLUSH_RESEND_MIN) } else { timeout };
        let timeout = (timeout * (1 << piece.copies.min(6))).min(RESEND_MAX.max(timeout));
        self.due.remove(&(piece.due_at, id));
        piece.copies += 1;
        (piece.sent_at, piece.due_at) = (now, now + timeout);
        self.due.insert((piece.due_at, id));
        self.tags.insert(tag, Sent { piece: id, at: now });
        self.first_unanswered.get_or_insert(now);
        self.ask_at.get_or_insert(now + super::machine::SEEK_EVERY * 5);
    }

    /// Sends what was not answered in time.
    pub(super) fn send_again(&mut self, now: Instant) {
        let State::Up(place) = self.state else { return };
        while self.due.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, id)) = self.due.pop_first()
        {
            if let Some(piece) = self.pieces.get(&id) {
                self.window.lost(piece.sent_at, now);
                self.send(id, place, now);
            }
        }
    }

    /// A piece is over, with so many of its copies answered: what the others may still do is remembered.
    pub(super) fn take_out(&mut self, id: u64, answered: u32) {
        let Some(piece) = self.pieces.remove(&id) else { return };
        self.due.remove(&(piece.due_at, id));
        let copies = piece.copies - answered;
        let work = self.orders.get(&piece.order).and_then(|running| running.work.as_ref());
        match work.and_then(|work| work.changes(piece.from, piece.count)) {
            Some(extent) => self.ghosts.add(id, piece.order, extent, copies, piece.sent_at),
            None if copies > 0 => self.tags.retain(|_, sent| sent.piece != id),
            None => {}
        }
        if self.pieces.is_empty() {
            self.first_unanswered = None;
        }
    }

    /// Takes all pieces back: their orders begin anew, if they do.
    pub(super) fn recall(&mut self) {
        let all: Vec<u64> = self.pieces.keys().copied().collect();
        all.into_iter().for_each(|id| self.take_out(id, 0));
        self.outbox.clear();
        for running in self.orders.values_mut() {
            (running.given, running.done, running.pieces) = (0, 0, 0);
            (running.failed, running.work) = (None, None);
        }
        self.queue.clear();
    }
}

/// What came of giving a piece of an order.
enum Cut {
    Given,
    Waits,
    Nothing,
}

/// The data of a part of some work.
fn data_of(work: &Work, data_out: Option<&Slice>, from: u32, count: u32) -> Option<Slice> {
    let range = |bytes: usize| from as usize * bytes..(from + count) as usize * bytes;
    match work {
        Work::Write { .. } => data_out.map(|data| data.slice(range(SECTOR_BYTES))),
        Work::Trim { ranges, .. } => ranges.get(range(trim::BLOCK_BYTES)).map(|part| Slice::from(part.to_vec())),
        Work::Read(_) | Work::Verify(_) | Work::Flush => None,
    }
}
