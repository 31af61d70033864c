//! Answers to commands: data, status, residuals (RFC 7143 11.4, 11.7).

use sanwire_buffer::Slice;
use sanwire_core::Instant;
use sanwire_scsi::{Reply, Status};

use super::commands::{Command, Phase};
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

impl Session {
    /// The layer above has executed a command.
    pub(super) fn handle_reply(&mut self, number: u64, reply: Reply, shared: &mut Shared, now: Instant) {
        match self.commands.get_mut(number).map(|command| &command.phase) {
            Some(Phase::Executing) => self.finish(number, reply, shared, now),
            Some(Phase::Forsaken) => drop(self.end_command(number)),
            // Nobody asked.
            Some(Phase::Gathering(_)) | None => {}
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
        let Some(command) = self.end_command(number) else { return };
        if let Some(at) = self.position(command.connection) {
            self.answer(at, command, reply, shared);
        }
    }

    fn answer(&mut self, at: usize, mut command: Command, reply: Reply, shared: &mut Shared) {
        let available = reply.data_in.as_ref().map_or(0, |data| data.len());
        let room = command.read_bytes as usize;
        let is_answered = match reply.data_in {
            Some(data) if room > 0 && available > 0 => {
                let data = if available > room { data.slice(0..room) } else { data };
                // RFC 7143 4.2.5.3: the status may ride along when there is nothing to say but GOOD.
                let rides = reply.status == Status::Good && !command.is_bidirectional;
                let residual = rides.then(|| Residual::of(command.read_bytes, available as u64));
                self.send_data(at, &mut command, &data, residual, shared);
                rides
            }
            _ => false,
        };
        if !is_answered {
            self.respond(at, &command, reply.status, &reply.sense, available, shared);
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
        let pdu_max = connection.parameters.send_data_max_bytes.max(1) as usize;
        let burst_max = self.parameters.max_burst_bytes.max(1) as usize;
        let mut offset = 0;
        let mut burst_end = burst_max;
        while offset < data.len() {
            let end = (offset + pdu_max).min(burst_end).min(data.len());
            let is_last = end == data.len();
            let mut header = DataIn {
                is_final: is_last || end == burst_end,
                task_tag: command.tag,
                transfer_tag: TAG_NONE,
                data_number: command.data_number,
                offset_bytes: offset as u32,
                ..DataIn::default()
            };
            command.data_number += 1;
            let part = data.slice(offset..end);
            match residual.filter(|_| is_last) {
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
            if end == burst_end {
                burst_end = end + burst_max;
            }
            offset = end;
        }
        shared.wake(connection);
    }

    fn respond(
        &mut self,
        at: usize,
        command: &Command,
        status: Status,
        sense: &[u8],
        available: usize,
        shared: &mut Shared,
    ) {
        let read = Residual::of(command.read_bytes, available as u64);
        let (main, read) = match (command.is_write, command.is_bidirectional) {
            (true, true) => (Residual::default(), read),
            (true, false) => (Residual::default(), Residual::default()),
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
