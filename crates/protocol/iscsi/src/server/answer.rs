//! Answers to commands: data, status, residuals (RFC 7143 11.4, 11.7).

use sanwire_buffer::Slices;
use sanwire_core::Instant;
use sanwire_scsi::{Reply, Status};

use super::commands::{Command, Phase};
use super::retransmit_buffer::Read;
use super::session::Session;
use super::shared::Shared;
use crate::wire::{DataIn, ScsiResponse, TAG_NONE};

/// How much more or less was transferred than was expected (RFC 7143 11.4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Residual {
    overflow: bool,
    underflow: bool,
    bytes: u32,
}

impl Residual {
    fn of(expected: u32, available: u64) -> Self {
        let expected = u64::from(expected);
        let bytes = u32::try_from(expected.abs_diff(available)).unwrap_or(u32::MAX);
        Residual { overflow: available > expected, underflow: available < expected, bytes }
    }
}

/// How data is cut into Data-In: none longer than the other end takes, none beyond the end of a burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cuts {
    length: usize,
    pdu_max: usize,
    burst_max: usize,
    at: usize,
    /// Where the data begins in that of the command, and whether the command's ends with it.
    base: usize,
    is_end: bool,
}

/// One Data-In.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Where it begins in the data of the command.
    offset: usize,
    /// The last one of its burst.
    is_final: bool,
    /// The last one of the command.
    pub(super) is_last: bool,
}

impl Cuts {
    pub(super) fn new(length: usize, pdu_max: u32, burst_max: u32) -> Self {
        let (pdu_max, burst_max) = (pdu_max.max(1) as usize, burst_max.max(1) as usize);
        Cuts { length, pdu_max, burst_max, at: 0, base: 0, is_end: true }
    }

    /// The same for a piece of a command's data.
    fn of_piece(self, from_bytes: u32, is_end: bool) -> Self {
        Cuts { base: from_bytes as usize, is_end, ..self }
    }
}

impl Iterator for Cuts {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        let start = self.at;
        if start >= self.length {
            return None;
        }
        let offset = self.base + start;
        let burst_end = (offset / self.burst_max + 1) * self.burst_max - self.base;
        let end = (start + self.pdu_max).min(burst_end).min(self.length);
        self.at = end;
        let is_last = end == self.length && self.is_end;
        Some(Cut { start, end, offset, is_final: is_last || end == burst_end, is_last })
    }
}

/// The header of a Data-In without a status.
pub(super) fn data_header(task_tag: u32, data_number: u32, cut: &Cut) -> DataIn {
    DataIn {
        is_final: cut.is_final,
        task_tag,
        transfer_tag: TAG_NONE,
        data_number,
        offset_bytes: cut.offset as u32,
        ..DataIn::default()
    }
}

/// Data that is sent for a command.
#[derive(Clone, Copy, Debug)]
struct Sending {
    tag: u32,
    /// The number of its first Data-In.
    data_number: u32,
    /// Where it begins in the data of the command.
    from_bytes: u32,
    /// Nothing comes after it.
    is_end: bool,
}

impl Command {
    fn sending(&self) -> Sending {
        Sending { tag: self.tag, data_number: self.data_number, from_bytes: self.answered_bytes, is_end: true }
    }

    /// As much of what comes next of its data as the initiator has room for; nothing, if there is none.
    fn fit(&self, data: Option<Slices>) -> Option<Slices> {
        let room = self.read_bytes.saturating_sub(self.answered_bytes) as usize;
        let data = data.filter(|data| room > 0 && !data.is_empty())?;
        Some(if data.len() > room { data.slice(0..room) } else { data })
    }
}

impl Session {
    /// The layer above has executed a command.
    pub(super) fn handle_reply(&mut self, number: u64, reply: Reply, shared: &mut Shared, now: Instant) {
        match self.commands.get_mut(number).map(|command| (&command.phase, command.rest)) {
            Some((Phase::Executing, _)) => match reply.rest {
                Some(rest) => self.handle_piece(number, rest, reply.data_in, shared, now),
                None => {
                    self.managements.answered(number);
                    self.finish(number, reply, shared, now);
                }
            },
            Some((Phase::Forsaken, _)) => drop(self.end_command(number)),
            // It was ended between two pieces.
            Some((Phase::Gathering(_), Some(_))) => self.finish(number, reply, shared, now),
            // Nobody asked.
            Some((Phase::Gathering(_) | Phase::Answered(_), _)) | None => {}
        }
        self.ask_for_pieces(shared);
    }

    /// The layer above has ended a command.
    pub(super) fn handle_aborted(&mut self, number: u64, shared: &mut Shared) {
        let is_below = |command: &mut Command| matches!(command.phase, Phase::Gathering(_)) && command.rest.is_none();
        if self.commands.get_mut(number).is_some_and(|command| !is_below(command)) {
            self.end_command(number);
        }
        self.ask_for_pieces(shared);
    }

    /// Ends a command with this answer.
    pub(super) fn finish(&mut self, number: u64, reply: Reply, shared: &mut Shared, _now: Instant) {
        let Some(command) = self.commands.get_mut(number) else { return };
        let connection = command.connection;
        if self.is_suspended(connection) {
            // It is answered when it is reassigned.
            if let Some(command) = self.commands.get_mut(number) {
                command.phase = Phase::Answered(Box::new(reply));
            }
            return;
        }
        let Some(command) = self.settle_command(number) else { return };
        if let Some(at) = self.position(connection) {
            self.answer(at, command, reply, shared);
        }
    }

    pub(super) fn answer(&mut self, at: usize, mut command: Command, reply: Reply, shared: &mut Shared) {
        reply.receipt.into_iter().for_each(|receipt| self.note_receipt(at, receipt));
        let (before, is_long) = (command.answered_bytes, command.rest.is_some());
        let available = before as usize + reply.data_in.as_ref().map_or(0, |data| data.len());
        let first_number = command.data_number;
        let data = command.fit(reply.data_in);
        let is_answered = match &data {
            Some(data) => {
                // RFC 7143 4.2.5.3: the status may ride along when there is nothing to say but GOOD.
                let is_kept = self.connections[at].memory.is_on;
                let rides = reply.status == Status::Good && !command.is_bidirectional && !(is_long && is_kept);
                let residual = rides.then(|| Residual::of(command.read_bytes, available as u64));
                command.data_number = self.send_data(at, command.sending(), data, residual, shared);
                rides
            }
            None => false,
        };
        if !is_answered {
            let taken = reply.data_out_bytes.unwrap_or(command.write_bytes.into());
            let written = Residual::of(command.write_bytes, taken);
            self.respond(at, &command, reply.status, &reply.sense, (available, written), shared);
        }
        let connection = &mut self.connections[at];
        if is_long && !command.is_write {
            // Its pieces have left the memory.
            connection.memory.keep_no_read();
        } else if let Some(data) = data.filter(|_| connection.memory.is_on) {
            let cuts = Cuts::new(data.len(), connection.data_in_max_bytes(), self.parameters.max_burst_bytes);
            connection.memory.keep_read(Read { data, cuts, first_number });
        }
    }

    /// Sends data of a command, with the status in the last PDU if a residual is given. Gives the number of the next Data-In.
    fn send_data(
        &mut self,
        at: usize,
        sending: Sending,
        data: &Slices,
        residual: Option<Residual>,
        shared: &mut Shared,
    ) -> u32 {
        let Sending { tag, mut data_number, from_bytes, is_end } = sending;
        let Some(connection) = self.connections.get_mut(at) else { return data_number };
        let pdu_max = connection.data_in_max_bytes();
        let cuts = Cuts::new(data.len(), pdu_max, self.parameters.max_burst_bytes);
        for cut in cuts.of_piece(from_bytes, is_end) {
            let mut header = data_header(tag, data_number, &cut);
            data_number = data_number.wrapping_add(1);
            let part = data.slice(cut.start..cut.end);
            match residual.filter(|_| cut.is_last) {
                Some(residual) => {
                    header.has_status = true;
                    header.status = Status::Good as u8;
                    header.overflow = residual.overflow;
                    header.underflow = residual.underflow;
                    header.residual_bytes = residual.bytes;
                    connection.push_status(header.write(), Some(part), &self.order);
                }
                None => connection.push(header.write(), Some(part), &self.order),
            }
        }
        shared.wake(connection);
        data_number
    }

    /// Sends a piece of the data of a command, as far as there is room for it.
    pub(super) fn send_piece(&mut self, at: usize, number: u64, data: Option<Slices>, shared: &mut Shared) {
        let Some(command) = self.commands.get_mut(number) else { return };
        let piece_bytes = data.as_ref().map_or(0, |data| data.len() as u32);
        let (part, mut sending) = (command.fit(data), command.sending());
        command.answered_bytes = command.answered_bytes.saturating_add(piece_bytes);
        sending.is_end = command.answered_bytes >= command.read_bytes;
        if let Some(part) = part {
            let data_number = self.send_data(at, sending, &part, None, shared);
            if let Some(command) = self.commands.get_mut(number) {
                command.data_number = data_number;
            }
        }
    }

    fn respond(
        &mut self,
        at: usize,
        command: &Command,
        status: Status,
        sense: &[u8],
        (available, written): (usize, Residual),
        shared: &mut Shared,
    ) {
        let read = Residual::of(command.read_bytes, available as u64);
        let (main, read) = match (command.is_write, command.is_bidirectional) {
            (true, true) => (written, read),
            (true, false) => (written, Residual::default()),
            (false, _) => (read, Residual::default()),
        };
        let header = ScsiResponse {
            is_final: true,
            read_overflow: read.overflow,
            read_underflow: read.underflow,
            overflow: main.overflow,
            underflow: main.underflow,
            status: status as u8,
            task_tag: command.tag,
            expected_data_number: command.data_number,
            read_residual_bytes: read.bytes,
            residual_bytes: main.bytes,
            ..ScsiResponse::default()
        };
        let data = (!sense.is_empty()).then(|| {
            // RFC 7143 11.4.7: its length comes first.
            let length = u16::try_from(sense.len()).unwrap_or(u16::MAX);
            [&length.to_be_bytes()[..], &sense[..usize::from(length)]].concat().into()
        });
        self.send_status(at, header.write(), data, shared);
    }
}
