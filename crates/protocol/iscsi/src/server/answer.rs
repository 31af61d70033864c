//! Answers to commands: data, status, residuals (RFC 7143 11.4, 11.7).

use sanwire_buffer::Slice;
use sanwire_core::Instant;
use sanwire_scsi::{Reply, Status};

use super::commands::{Command, Phase};
use super::retained::Read;
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
}

/// One Data-In.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The last one of its burst.
    is_final: bool,
    /// The last one of the command.
    pub(super) is_last: bool,
}

impl Cuts {
    pub(super) fn new(length: usize, pdu_max: u32, burst_max: u32) -> Self {
        Cuts { length, pdu_max: pdu_max.max(1) as usize, burst_max: burst_max.max(1) as usize, at: 0 }
    }
}

impl Iterator for Cuts {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        let start = self.at;
        if start >= self.length {
            return None;
        }
        let burst_end = (start / self.burst_max + 1) * self.burst_max;
        let end = (start + self.pdu_max).min(burst_end).min(self.length);
        self.at = end;
        let is_last = end == self.length;
        Some(Cut { start, end, is_final: is_last || end == burst_end, is_last })
    }
}

/// The header of a Data-In without a status.
pub(super) fn data_header(task_tag: u32, data_number: u32, cut: &Cut) -> DataIn {
    DataIn {
        is_final: cut.is_final,
        task_tag,
        transfer_tag: TAG_NONE,
        data_number,
        offset_bytes: cut.start as u32,
        ..DataIn::default()
    }
}

impl Session {
    /// The layer above has executed a command.
    pub(super) fn handle_reply(&mut self, number: u64, reply: Reply, shared: &mut Shared, now: Instant) {
        match self.commands.get_mut(number).map(|command| &command.phase) {
            Some(Phase::Executing) => {
                self.managements.answered(number);
                self.finish(number, reply, shared, now);
            }
            Some(Phase::Forsaken) => drop(self.end_command(number)),
            // Nobody asked.
            Some(Phase::Gathering(_) | Phase::Answered(_)) | None => {}
        }
    }

    /// The layer above has ended a command.
    pub(super) fn handle_aborted(&mut self, number: u64) {
        if self.commands.get_mut(number).is_some_and(|command| !matches!(command.phase, Phase::Gathering(_))) {
            self.end_command(number);
        }
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
        let Some(command) = self.end_command(number) else { return };
        if let Some(at) = self.position(connection) {
            self.answer(at, command, reply, shared);
        }
    }

    fn answer(&mut self, at: usize, mut command: Command, reply: Reply, shared: &mut Shared) {
        let available = reply.data_in.as_ref().map_or(0, |data| data.len());
        let room = command.read_bytes as usize;
        let first_number = command.data_number;
        let data = reply.data_in.filter(|_| room > 0 && available > 0);
        let data = data.map(|data| if available > room { data.slice(0..room) } else { data });
        let is_answered = match &data {
            Some(data) => {
                // RFC 7143 4.2.5.3: the status may ride along when there is nothing to say but GOOD.
                let rides = reply.status == Status::Good && !command.is_bidirectional;
                let residual = rides.then(|| Residual::of(command.read_bytes, available as u64));
                self.send_data(at, &mut command, data, residual, shared);
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
        if let Some(data) = data.filter(|_| connection.memory.is_on) {
            let cuts =
                Cuts::new(data.len(), connection.parameters.send_data_max_bytes, self.parameters.max_burst_bytes);
            connection.memory.keep_read(Read { data, cuts, first_number });
        }
    }

    /// Sends the data of a command, with the status in the last PDU if a residual is given.
    fn send_data(
        &mut self,
        at: usize,
        command: &mut Command,
        data: &Slice,
        residual: Option<Residual>,
        shared: &mut Shared,
    ) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let pdu_max = connection.parameters.send_data_max_bytes;
        for cut in Cuts::new(data.len(), pdu_max, self.parameters.max_burst_bytes) {
            let mut header = data_header(command.tag, command.data_number, &cut);
            command.data_number = command.data_number.wrapping_add(1);
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
