//! What arrives.

use sanwire_ata::{IDENTIFY_BYTES, Registers, Work, error, status};
use sanwire_core::{Instant, Path};

use super::machine::{Client, Sent, State};
use super::seek::found;
use crate::wire::{AtaHeader, Header, SECTOR_BYTES, command};

/// A read that was answered so often with less data than it asked for has failed: the target does not do it.
const SHORT_ANSWERS_MAX: u32 = 8;

impl Client {
    /// Takes a message.
    pub fn handle_input(&mut self, path: Path, bytes: &[u8], now: Instant) {
        let Some((header, argument)) = Header::parse(bytes) else { return };
        if !header.is_response || header.version != 1 || header.address != self.config.address {
            return;
        }
        match header.command {
            command::CONFIG => {
                let Some(found) = found(bytes) else { return };
                if self.place().is_some_and(|place| place.path == path) {
                    self.heard_at = now;
                }
                self.announced(path, &found, now);
            }
            command::ATA => self.take_ata(&header, argument, now),
            _ => {}
        }
    }

    fn take_ata(&mut self, header: &Header, argument: &[u8], now: Instant) {
        let (ata, data) = match (header.error, AtaHeader::parse(argument)) {
            // Some targets tell what is wrong with a command so, and say nothing more.
            (Some(_), _) => (None, &[][..]),
            (None, Some((ata, data))) => (Some(ata), data),
            (None, None) => return,
        };
        if self.probe_tag == Some(header.tag) {
            if ata.is_some_and(|ata| ata.command & status::ERR == 0) && data.len() >= IDENTIFY_BYTES {
                (self.probe_tag, self.heard_at) = (None, now);
                self.identified(&data[..IDENTIFY_BYTES], now);
            }
            return;
        }
        if !matches!(self.state, State::Up(_)) {
            return self.settle(header.tag);
        }
        let Some(sent) = self.tags.get(&header.tag).copied() else { return };
        self.heard_at = now;
        if !self.pieces.contains_key(&sent.piece) {
            return self.settle(header.tag);
        }
        self.take_answer(header.tag, sent, ata, data, now);
    }

    /// A copy of what is over was executed.
    fn settle(&mut self, tag: u32) {
        if let Some(sent) = self.tags.get(&tag).copied()
            && !self.pieces.contains_key(&sent.piece)
        {
            self.tags.remove(&tag);
            self.ghosts.answered(sent.piece);
        }
    }

    fn take_answer(&mut self, tag: u32, sent: Sent, ata: Option<AtaHeader>, data: &[u8], now: Instant) {
        let Some(piece) = self.pieces.get_mut(&sent.piece) else { return };
        let (order, from, count) = (piece.order, piece.from as usize, piece.count);
        let is_of_one_copy = piece.tag.is_none() || piece.copies == 1;
        let aborted = Registers::failure(&piece.task_file, error::ABRT);
        let mut registers = ata.map_or(aborted, |ata| ata.registers(&piece.task_file));
        let Some(running) = self.orders.get_mut(&order) else { return };
        if let (Some(Work::Read(_)), Some(frame)) = (&running.work, &mut running.data_in)
            && registers.is_success()
        {
            let length = count as usize * SECTOR_BYTES;
            let place = frame.get_mut(from * SECTOR_BYTES..from * SECTOR_BYTES + length);
            match (place, data.get(..length)) {
                (Some(place), Some(data)) => place.copy_from_slice(data),
                // An answer that has less than was asked for is none: it is asked for again.
                _ if piece.short_answers + 1 < SHORT_ANSWERS_MAX => {
                    piece.short_answers += 1;
                    self.tags.remove(&tag);
                    return;
                }
                _ => registers = aborted,
            }
        }
        running.pieces -= 1;
        match registers.is_success() {
            true => running.done += count,
            false => _ = running.failed.get_or_insert(registers),
        }
        self.tags.remove(&tag);
        // Which copy of a flush was answered nobody can tell.
        if is_of_one_copy {
            self.window.answered(now.saturating_since(sent.at));
        }
        self.take_out(sent.piece, 1);
        self.conclude(order, now);
    }

    /// Answers an order when all of it is done, or what was given of it is over after a failure.
    fn conclude(&mut self, number: u64, now: Instant) {
        let Some(running) = self.orders.get(&number) else { return };
        let Some(work) = &running.work else { return };
        let is_done = running.failed.is_some() || running.done >= work.parts();
        if running.pieces > 0 || !is_done {
            return;
        }
        let Some(host) = &self.host else { return };
        let must_confirm = *work == Work::Flush && running.failed.is_none() && host.disk().run.is_some();
        let told = host.told(work, running.failed.as_ref());
        self.queue.retain(|queued| *queued != number);
        if must_confirm { self.confirm(number, now) } else { self.answer(number, told) }
    }

    /// Answers a flush that counts.
    pub(super) fn answer_flush(&mut self, number: u64) {
        if let Some(host) = &self.host {
            self.answer(number, host.told(&Work::Flush, None));
        }
    }
}
