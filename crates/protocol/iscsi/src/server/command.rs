//! SCSI Commands: what an initiator asks for (RFC 7143 11.3).

use sanwire_buffer::Frame;
use sanwire_core::limits::{PIECE_BYTES, TRANSFER_MAX_BYTES};
use sanwire_core::{Instant, Lun};
use sanwire_scsi::{Cdb, Piece, Task, goes_in_pieces};

use super::CommandHandle;
use super::commands::{Command, Phase};
use super::connection::Connection;
use super::event::ServerEvent;
use super::input::Place;
use super::session::Session;
use super::shared::Shared;
use super::write_transfer::{AMOUNT, Fault, Gathering, UNEXPECTED};
use crate::receiver::{Destination, Pdu};
use crate::serial::Serial;
use crate::wire::{Header, ScsiCommand};

/// What stands in additional header segments (RFC 7143 11.2.2).
#[derive(Debug, Default)]
pub(super) struct Additional {
    /// The rest of a long CDB.
    cdb_rest: Vec<u8>,
    /// What the initiator has room for, of a bidirectional command.
    read_bytes: Option<u32>,
}

/// Reads additional header segments; `None` when they are not what they should be.
pub(super) fn read_additional(mut bytes: &[u8]) -> Option<Additional> {
    let mut additional = Additional::default();
    while let [high, low, kind, rest @ ..] = bytes {
        // The length counts what follows the type, without padding.
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let body = rest.get(..length)?;
        match (kind & 0x3f, body) {
            (1, [_reserved, cdb_rest @ ..]) if additional.cdb_rest.is_empty() => {
                additional.cdb_rest = cdb_rest.to_vec();
            }
            (2, &[_reserved, a, b, c, d]) => additional.read_bytes = Some(u32::from_be_bytes([a, b, c, d])),
            _ => return None,
        }
        bytes = bytes.get((3 + length).next_multiple_of(4)..)?;
    }
    Some(additional)
}

impl Additional {
    /// The whole block; `None` when it is longer than any command is.
    pub(super) fn cdb(&self, first: [u8; 16]) -> Option<Cdb> {
        if self.cdb_rest.is_empty() { Some(Cdb::from(first)) } else { Cdb::new(&[&first[..], &self.cdb_rest].concat()) }
    }
}

impl Session {
    /// Where the data goes that comes with a command.
    pub(super) fn place_command(&mut self, header: &Header, shared: &mut Shared) -> Place {
        let command = ScsiCommand::read(header);
        let is_open = command.is_immediate || self.order.is_open(Serial(command.command_number));
        let is_wanted = is_open && command.is_write && !self.commands.has_tag(command.task_tag);
        let nowhere = Place::To(Destination::Nowhere);
        if !is_wanted || self.fault_of(&command, header.data_bytes(), shared).is_some() {
            return nowhere;
        }
        let frame_bytes = self.first_bytes(&command);
        match self.frame(frame_bytes) {
            Some(frame) => Place::To(Destination::Frame(frame, 0)),
            None => self.without_memory(frame_bytes),
        }
    }

    /// Memory for a transfer, if it has its turn and there is any.
    pub(super) fn frame(&self, length_bytes: u32) -> Option<Frame> {
        if self.must_wait() { None } else { self.memory.frame(length_bytes as usize) }
    }

    /// Whether something of the session waits for memory already, or the least that another session of its initiator needs.
    pub(super) fn must_wait(&self) -> bool {
        !self.has_turn && (self.is_starved || self.memory.is_denied())
    }

    /// There is no memory, or others wait for it. A session that holds none may wait too. One that holds some must go on,
    /// or all would wait for each other: it takes what there is, or the command is refused.
    pub(super) fn without_memory(&self, length_bytes: u32) -> Place {
        if !self.holds_memory() {
            return Place::Wait;
        }
        let frame = self.memory.frame(length_bytes as usize);
        Place::To(frame.map_or(Destination::Nowhere, |frame| Destination::Frame(frame, 0)))
    }

    /// What is wrong with the data that a command brings or announces.
    fn fault_of(&self, command: &ScsiCommand, data_bytes: usize, shared: &Shared) -> Option<Fault> {
        let unsolicited_max = self.parameters.first_burst_bytes.min(command.expected_bytes) as usize;
        let is_too_long = command.is_write && command.expected_bytes > longest_bytes(command, shared);
        let announces = command.is_write && !command.is_final && command.expected_bytes > 0;
        if data_bytes > 0 && (!command.is_write || !self.parameters.immediate_data) {
            return Some(UNEXPECTED);
        }
        if data_bytes > 0 && data_bytes > unsolicited_max {
            return Some(AMOUNT);
        }
        if announces && self.parameters.initial_r2t {
            return Some(UNEXPECTED);
        }
        is_too_long.then_some(Fault::TooLong)
    }

    pub(super) fn handle_command(&mut self, at: usize, pdu: Pdu, shared: &mut Shared, now: Instant) {
        let request = ScsiCommand::read(&pdu.header);
        let Some(additional) = read_additional(&pdu.additional) else { return };
        let Some(cdb) = additional.cdb(request.cdb) else { return };
        let data_bytes = pdu.header.data_bytes();
        let read_bytes = match (request.is_read, request.is_write) {
            (true, true) => additional.read_bytes.unwrap_or(0),
            (true, false) => request.expected_bytes,
            (false, _) => 0,
        };
        let mut fault = self.fault_of(&request, data_bytes, shared);
        if fault.is_none() && data_bytes > 0 && pdu.data.is_none() {
            fault = Some(Fault::Full);
        }
        let write_bytes = if request.is_write { request.expected_bytes } else { 0 };
        let unsolicited_max = self.parameters.first_burst_bytes.min(write_bytes);
        let immediate = u32::try_from(data_bytes).unwrap_or(u32::MAX).min(write_bytes);
        let announces = request.is_write && !request.is_final && unsolicited_max > immediate;
        let command = Command {
            tag: request.task_tag,
            number: 0,
            connection: self.connections[at].id,
            lun: request.lun,
            is_immediate: request.is_immediate,
            cdb,
            write_bytes,
            read_bytes,
            is_bidirectional: request.is_read && request.is_write,
            is_write: request.is_write,
            data_number: 0,
            rest: None,
            answered_bytes: 0,
            phase: Phase::Executing,
            receipts: self.received_at(Serial(request.command_number)),
        };
        if fault.is_none() && immediate == write_bytes && !announces {
            let number = self.commands.insert(command);
            return self.pass_up(number, pdu.data, shared);
        }
        let end = announces.then_some(unsolicited_max);
        let first_bytes = self.first_bytes(&request).min(write_bytes);
        let mut gathering = Box::new(Gathering::new(pdu.data, first_bytes, immediate, end, now));
        if let Some(fault) = fault {
            gathering.fail(fault);
        }
        let number = self.commands.insert(Command { phase: Phase::Gathering(gathering), ..command });
        self.go_on(number, shared, now);
    }

    /// How much of a command's data is gathered before it is executed: all of it, or of a long one a piece, with what comes unasked.
    fn first_bytes(&self, command: &ScsiCommand) -> u32 {
        let expected = command.expected_bytes;
        if expected as usize <= TRANSFER_MAX_BYTES {
            return expected;
        }
        let unasked = self.parameters.first_burst_bytes.min(expected).max(1);
        unasked.checked_next_multiple_of(PIECE_BYTES as u32).map_or(expected, |bytes| bytes.min(expected))
    }

    /// Hands a command with all its data, or with the next piece of it, to the layer above.
    pub(super) fn pass_up(&mut self, number: u64, data: Option<Frame>, shared: &mut Shared) {
        let Some(target) = self.target() else { return };
        let nexus = self.nexus;
        let Some(command) = self.commands.get_mut(number) else { return };
        command.phase = Phase::Executing;
        let own = self.connections.iter_mut().find(|connection| connection.id == command.connection);
        let may_share = own.is_some_and(Connection::may_share);
        let (from_bytes, medium) = command.rest.map_or((0, 0), |rest| (rest.from_bytes, rest.medium));
        let task = Task {
            lun: Lun::from_wire(command.lun),
            cdb: command.cdb,
            data_out: data.map(|data| data.freeze().into()),
            // A residual is of what the command moves in the direction that it says.
            tells_residual: command.is_write,
            // More than the initiator has room for is cut off, and counted: RFC 7143 11.4.5.1.
            data_in_max_bytes: shared.config.transfer_max_bytes,
            may_share,
            receipts: command.receipts,
            piece: Some(Piece { from_bytes, medium, data_out_bytes: command.write_bytes }),
        };
        shared.events.push_back(ServerEvent::Command { handle: CommandHandle { nexus, number }, target, task });
    }
}

/// The longest transfer that a command may have.
fn longest_bytes(command: &ScsiCommand, shared: &Shared) -> u32 {
    let most = shared.config.transfer_max_bytes;
    if goes_in_pieces(command.cdb[0]) { most } else { most.min(TRANSFER_MAX_BYTES as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additional_segments_carry_long_blocks_and_read_lengths() {
        let mut bytes = vec![0, 17, 1, 0];
        bytes.extend(16..32);
        bytes.extend([0, 5, 2, 0, 0, 0, 0x10, 0]);
        let additional = read_additional(&bytes).unwrap();
        let first: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(additional.cdb(first).as_deref(), Some(&(0..32).collect::<Vec<u8>>()[..]));
        assert_eq!(additional.read_bytes, Some(4096));
        assert!(read_additional(&[0, 9, 2, 0]).is_none(), "longer than what is there");
        assert!(read_additional(&[0, 1, 3, 0]).is_none(), "unknown type");
        assert!(read_additional(&[0, 0, 1, 0]).is_none(), "too short");
    }
}
