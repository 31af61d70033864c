//! The data of commands: what comes in, and what is asked for (RFC 7143 11.7, 11.8).

use sanwire_core::Instant;
use sanwire_scsi::{Reply, Sense, SenseKey, Status, length_field};

use super::command_window::Held;
use super::commands::{Command, Phase};
use super::connection::Connection;
use super::input::Place;
use super::session::{Rejection, Session};
use super::shared::Shared;
use super::write_transfer::{AMOUNT, DAMAGED, Fault, Gathering, Strictness, Unanswered, Verdict};
use crate::ConnectionId;
use crate::receiver::{Destination, Pdu};
use crate::wire::{DataOut, Header, ReadyToTransfer, TAG_NONE};

impl Session {
    fn strictness(&self) -> Strictness {
        Strictness { in_order: self.parameters.data_pdu_in_order, recovers: self.parameters.error_recovery_level > 0 }
    }

    /// The command that waits for this data, on this connection.
    fn gathering(&mut self, connection: ConnectionId, tag: u32) -> Option<(u64, &mut Gathering)> {
        let command = self.commands.by_tag_mut(tag).filter(|command| command.connection == connection)?;
        let number = command.number;
        match &mut command.phase {
            Phase::Gathering(gathering) => Some((number, gathering)),
            _ => None,
        }
    }

    /// Whether memory is held that only goes home when more data comes: also what RDMA still reads into for commands that are over.
    pub(super) fn holds_memory(&self) -> bool {
        let gathers = |command: &Command| matches!(&command.phase, Phase::Gathering(gathering) if gathering.frame.is_some() || gathering.is_lent);
        let is_held = |held: &Held| matches!(held, Held::Request(_, pdu) if pdu.data.is_some());
        let reads_on = |own: &Connection| own.mover.reaches_memory() && own.mover.awaited_bytes() > 0;
        self.order.held().any(is_held) || self.commands.iter().any(gathers) || self.connections.iter().any(reads_on)
    }

    /// Where the data of a Data-Out goes: straight into its command's frame.
    pub(super) fn place_data(&mut self, at: usize, header: &Header) -> Place {
        let data = DataOut::read(header);
        let bytes = header.data_bytes() as u32;
        let strictness = self.strictness();
        let id = self.connections[at].id;
        let nowhere = Place::To(Destination::Nowhere);
        let Some((number, gathering)) = self.gathering(id, data.task_tag) else { return nowhere };
        if gathering.judge(&data, bytes, strictness) != Verdict::Take {
            return nowhere;
        }
        let (start, length, frame) = (gathering.start(), gathering.frame_bytes(), gathering.frame.take());
        let place = match frame.or_else(|| self.frame(length)) {
            Some(frame) => Place::To(Destination::Frame(frame, 0)),
            None => self.without_memory(length),
        };
        let Place::To(Destination::Frame(frame, _)) = place else { return place };
        if let Some(command) = self.commands.get_mut(number)
            && let Phase::Gathering(gathering) = &mut command.phase
        {
            gathering.is_lent = true;
        }
        Place::To(Destination::Frame(frame, (data.offset_bytes - start) as usize))
    }

    pub(super) fn handle_data(&mut self, at: usize, data: DataOut, pdu: Pdu, shared: &mut Shared, now: Instant) {
        let strictness = self.strictness();
        let bytes = pdu.header.data_bytes() as u32;
        let id = self.connections[at].id;
        self.connections[at].data_at = now;
        if !pdu.is_intact {
            self.reject(at, &pdu.header, Rejection::DataDigest, shared);
        }
        let reaches_memory = self.connections[at].mover.reaches_memory();
        let Some((number, gathering)) = self.gathering(id, data.task_tag) else {
            return self.handle_stray(at, &data, &pdu.header, shared);
        };
        let verdict = gathering.judge(&data, bytes, strictness);
        if verdict == Verdict::Stray && reaches_memory {
            // It was read for an earlier command of this tag: the frame is none of this one's.
            return self.handle_stray(at, &data, &pdu.header, shared);
        }
        if pdu.data.is_some() {
            gathering.is_lent = false;
            gathering.frame = pdu.data;
        }
        match verdict {
            Verdict::Stray => return self.handle_stray(at, &data, &pdu.header, shared),
            Verdict::Fail(fault) => gathering.fail(fault),
            Verdict::Take if bytes > 0 && gathering.frame.is_none() => gathering.fail(Fault::Full),
            Verdict::Take if !pdu.is_intact && !strictness.recovers => gathering.fail(DAMAGED),
            Verdict::Take | Verdict::Skip => {}
        }
        let is_new = !matches!(verdict, Verdict::Skip) || gathering.fault().is_some();
        if is_new {
            let taken = verdict == Verdict::Take && pdu.is_intact;
            gathering.arrived(&data, bytes, taken, strictness, now);
        }
        self.go_on(number, shared, now);
    }

    /// Data that no command waits for: what is left of one that ended is forgotten, all else is rejected.
    fn handle_stray(&mut self, at: usize, data: &DataOut, header: &Header, shared: &mut Shared) {
        let was_asked = data.transfer_tag != TAG_NONE && data.transfer_tag < self.next_transfer_tag;
        if !was_asked && !self.lingering.contains(&data.task_tag) {
            self.reject(at, header, Rejection::InvalidField, shared);
        }
    }

    /// Goes on with a command after something of its data has arrived, or nothing will: asks for more, executes or refuses it.
    pub(super) fn go_on(&mut self, number: u64, shared: &mut Shared, now: Instant) {
        let Some(command) = self.commands.get_mut(number) else { return };
        let Phase::Gathering(gathering) = &mut command.phase else { return };
        if !gathering.is_over() {
            if !gathering.is_starved {
                self.solicit_or_wait(number, shared, now);
            }
            return;
        }
        let (frame, fault) = (gathering.frame.take(), gathering.fault());
        match fault {
            None => self.pass_up(number, frame, shared),
            Some(fault) => {
                command.phase = Phase::Executing;
                let reply = refusal(command, fault);
                self.forget_above(number, shared);
                self.finish(number, reply, shared, now);
            }
        }
    }

    /// Asks for data, as much as may be asked for; `false` when there is no memory for it.
    pub(super) fn solicit(&mut self, number: u64, shared: &mut Shared, now: Instant) -> bool {
        let (outstanding_max, burst_max) = (self.parameters.max_outstanding_r2t, self.parameters.max_burst_bytes);
        let must_wait = self.must_wait();
        loop {
            let transfer_tag = self.next_transfer_tag;
            let Some(command) = self.commands.get_mut(number) else { return true };
            let Phase::Gathering(gathering) = &mut command.phase else { return true };
            let Some((offset_bytes, desired_bytes)) = gathering.wanted(outstanding_max, burst_max) else { return true };
            if gathering.frame.is_none() && !gathering.is_lent {
                let frame = || self.memory.frame(gathering.frame_bytes() as usize);
                gathering.frame = if must_wait { None } else { frame() };
                gathering.is_starved = gathering.frame.is_none();
                if gathering.is_starved {
                    return false;
                }
            }
            let (start, end) = (offset_bytes, offset_bytes + desired_bytes);
            let r2t = Unanswered { transfer_tag, number: command.data_number, start, end };
            gathering.ask(r2t, now);
            command.data_number = command.data_number.wrapping_add(1);
            let header = r2t_header(command, &r2t);
            let connection = command.connection;
            self.transfer_tag();
            let Some(at) = self.position(connection) else { continue };
            if self.get_data(at, number, &header, shared) {
                continue;
            }
            if self.connections[at].mover.reaches_memory() {
                self.fail_unread(number, shared, now);
                return true;
            }
            self.send(at, header, None, shared);
        }
    }

    /// A command whose data cannot be read from its initiator's memory ends at once: an R2T has no place there, so nothing would come.
    fn fail_unread(&mut self, number: u64, shared: &mut Shared, now: Instant) {
        if let Some(Phase::Gathering(gathering)) = self.commands.get_mut(number).map(|command| &mut command.phase) {
            gathering.give_up(AMOUNT);
        }
        self.go_on(number, shared, now);
    }

    /// Gets data that is to be asked for straight from the initiator's memory; `false` where it must be asked for by an R2T.
    fn get_data(&mut self, at: usize, number: u64, ready: &Header, shared: &mut Shared) -> bool {
        let Some(command) = self.commands.get_mut(number) else { return false };
        let Phase::Gathering(gathering) = &mut command.phase else { return false };
        let start = gathering.start();
        let Some(frame) = gathering.frame.take() else { return false };
        let connection = &mut self.connections[at];
        match connection.mover.get_data(ready, frame, start) {
            Ok(()) => {
                gathering.is_lent = true;
                shared.wake(connection);
                true
            }
            Err(frame) => {
                gathering.frame = Some(frame);
                false
            }
        }
    }

    /// The next target transfer tag, which is never the one that stands for none.
    pub(super) fn transfer_tag(&mut self) -> u32 {
        let tag = self.next_transfer_tag;
        self.next_transfer_tag = if tag == TAG_NONE - 1 { 0 } else { tag + 1 };
        tag
    }
}

/// The header of an R2T.
pub(super) fn r2t_header(command: &Command, r2t: &Unanswered) -> Header {
    let header = ReadyToTransfer {
        is_final: true,
        lun: command.lun,
        task_tag: command.tag,
        transfer_tag: r2t.transfer_tag,
        number: r2t.number,
        offset_bytes: r2t.start,
        desired_bytes: r2t.end - r2t.start,
        ..ReadyToTransfer::default()
    };
    header.write()
}

/// The answer to a command of which the data was not as it should be.
fn refusal(command: &Command, fault: Fault) -> Reply {
    let sense = match fault {
        Fault::Sense(additional) => Sense::new(SenseKey::AbortedCommand, additional),
        Fault::TooLong => Sense::invalid_field_in_cdb(length_field(command.cdb.operation_code()), None),
        Fault::Full => return Reply::bare(Status::TaskSetFull),
    };
    Reply { sense: sense.to_fixed(), ..Reply::bare(Status::CheckCondition) }
}
