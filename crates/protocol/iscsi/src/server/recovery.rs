//! Error recovery within a session (RFC 7143 7): what was sent is kept until it is acknowledged, and sent again when it is
//! missed; commands outlive their connection.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Slice;
use sanwire_core::Instant;

use super::answer::{Cuts, data_header};
use super::commands::Phase;
use super::connection::{Connection, stamp};
use super::data_out::r2t_header;
use super::manage::{Answer, Asker};
use super::order::Order;
use super::session::{Rejection, Session};
use super::shared::Shared;
use crate::ConnectionId;
use crate::serial::Serial;
use crate::wire::{DataIn, Header, Opcode, ScsiResponse, SnackRequest, TaskRequest};

/// PDUs with a status that one connection keeps, at the most; older ones cannot be asked for again.
const RETAINED_MAX: usize = 512;

/// Data that one connection keeps with them.
const RETAINED_MAX_BYTES: usize = 4 << 20;

/// Connections that have left their commands behind, of one session.
const SUSPENDED_MAX: usize = 16;

/// A PDU with a status that is not acknowledged yet.
pub(super) struct Retained {
    status_number: Serial,
    header: Header,
    data: Option<Slice>,
    read: Option<Read>,
}

/// The data that a command was answered with.
pub(super) struct Read {
    pub(super) data: Slice,
    pub(super) cuts: Cuts,
    /// The number of its first Data-In.
    pub(super) first_number: u32,
}

impl Retained {
    fn read_bytes(&self) -> usize {
        self.read.as_ref().map_or(0, |read| read.data.len())
    }

    fn is_of_command(&self, tag: u32) -> bool {
        let is_answer = matches!(self.header.opcode(), Some(Opcode::ScsiResponse | Opcode::DataIn));
        is_answer && self.header.task_tag() == tag
    }

    /// The status stands in the last Data-In.
    fn rides(&self) -> bool {
        self.header.opcode() == Some(Opcode::DataIn)
    }
}

/// What is kept of one connection.
#[derive(Default)]
pub(super) struct Memory {
    /// Nothing is, below error recovery level 1.
    pub(super) is_on: bool,
    retained: VecDeque<Retained>,
    read_bytes: usize,
}

impl Memory {
    pub(super) fn keep(&mut self, status_number: Serial, header: Header, data: Option<Slice>) {
        if self.is_on {
            self.retained.push_back(Retained { status_number, header, data, read: None });
            self.trim();
        }
    }

    /// The status that was kept last came with this data.
    pub(super) fn keep_read(&mut self, read: Read) {
        if let Some(last) = self.retained.back_mut() {
            self.read_bytes += read.data.len();
            last.read = Some(read);
            self.trim();
        }
    }

    fn trim(&mut self) {
        while self.retained.len() > RETAINED_MAX || self.read_bytes > RETAINED_MAX_BYTES && self.retained.len() > 1 {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.retained.pop_front() {
            self.read_bytes -= oldest.read_bytes();
        }
    }

    /// All statuses below this number have arrived. A number that is behind says nothing.
    pub(super) fn acknowledge(&mut self, expected: Serial, next: Serial) {
        while expected <= next && self.retained.front().is_some_and(|oldest| oldest.status_number < expected) {
            self.forget_oldest();
        }
    }
}

/// What a connection has left behind, until its commands are reassigned.
pub(super) struct Suspended {
    connection: ConnectionId,
    pub(super) cid: u16,
    memory: Memory,
    until: Instant,
}

impl Session {
    pub(super) fn recovers_connections(&self) -> bool {
        self.parameters.error_recovery_level >= 2 && self.parameters.time_to_retain_s > 0 && !self.is_over
    }

    /// The commands of a connection that is gone wait for another one (RFC 7143 7.2.2).
    pub(super) fn suspend(&mut self, connection: &mut Connection, shared: &mut Shared, now: Instant) -> bool {
        if !self.recovers_connections() || self.suspended.len() >= SUSPENDED_MAX {
            return false;
        }
        let (wait_s, retain_s) = (self.parameters.time_to_wait_s, self.parameters.time_to_retain_s);
        let until = now + Duration::from_secs(u64::from(wait_s) + u64::from(retain_s));
        shared.wake_at(until);
        let memory = std::mem::take(&mut connection.memory);
        self.suspended.push(Suspended { connection: connection.id, cid: connection.cid, memory, until });
        true
    }

    pub(super) fn is_suspended(&self, connection: ConnectionId) -> bool {
        self.suspended.iter().any(|suspended| suspended.connection == connection)
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.suspended.iter().map(|suspended| suspended.until).min()
    }

    /// Ends the commands that nobody has reassigned in time, and the session if nothing is left of it.
    pub(super) fn expire_suspended(&mut self, shared: &mut Shared, now: Instant) {
        let expired: Vec<_> = self.suspended.extract_if(.., |suspended| suspended.until <= now).collect();
        for suspended in expired {
            self.end_commands_of(suspended.connection, shared);
        }
        if self.connections.is_empty() && self.suspended.is_empty() {
            self.close(shared);
        }
    }

    /// RFC 7143 11.16.
    pub(super) fn handle_snack(&mut self, at: usize, request: SnackRequest, header: &Header, shared: &mut Shared) {
        let connection = &mut self.connections[at];
        if !connection.memory.is_on {
            return self.reject(at, header, Rejection::Protocol, shared);
        }
        let is_done = match request.kind {
            0 => connection.resend_data(&request, &self.order) || self.resend_r2ts(at, &request),
            1 => connection.resend_statuses(&request, &self.order),
            // No Data-In of ours asks for an acknowledgement (RFC 7143 11.7.2 leaves that to the target).
            2 => return self.reject(at, header, Rejection::InvalidDataAck, shared),
            3 => connection.resend_resegmented(&request, self.parameters.max_burst_bytes, &self.order),
            _ => return self.reject(at, header, Rejection::InvalidField, shared),
        };
        if is_done {
            shared.wake(&mut self.connections[at]);
        } else {
            self.reject(at, header, Rejection::Snack, shared);
        }
    }

    fn resend_r2ts(&mut self, at: usize, request: &SnackRequest) -> bool {
        let id = self.connections[at].id;
        let command = self.commands.by_tag(request.task_tag).filter(|command| command.connection == id);
        let Some(command) = command else { return false };
        let Phase::Gathering(gathering) = &command.phase else { return false };
        let mut is_done = false;
        for r2t in gathering.unanswered().filter(|r2t| is_meant(request, r2t.number)) {
            let header = r2t_header(command, &r2t);
            self.connections[at].push(header, None, &self.order);
            is_done = true;
        }
        is_done
    }

    /// TASK REASSIGN: a command of a connection that is gone goes on here (RFC 7143 11.5.1, 7.2.2).
    pub(super) fn reassign(&mut self, asker: Asker, request: &TaskRequest, shared: &mut Shared, now: Instant) {
        if self.parameters.error_recovery_level < 2 {
            return self.answer_management(asker, Answer::NoReassignment, shared);
        }
        let tag = request.referenced_task_tag;
        if let Some((number, connection)) =
            self.commands.by_tag(tag).map(|command| (command.number, command.connection))
        {
            if !self.is_suspended(connection) {
                return self.answer_management(asker, Answer::StillAllegiant, shared);
            }
            self.answer_management(asker, Answer::Complete, shared);
            return self.adopt(number, asker.connection, request.expected_data_number, shared, now);
        }
        let Some(at) = self.position(asker.connection) else { return };
        let found = self.suspended.iter_mut().find_map(|suspended| {
            let place = suspended.memory.retained.iter().position(|retained| retained.is_of_command(tag))?;
            suspended.memory.retained.remove(place)
        });
        let Some(retained) = found else { return self.answer_management(asker, Answer::NoTask, shared) };
        self.answer_management(asker, Answer::Complete, shared);
        self.connections[at].send_anew(retained, request.expected_data_number, &self.order);
        shared.wake(&mut self.connections[at]);
    }

    /// A command goes on, on another connection.
    fn adopt(&mut self, number: u64, by: ConnectionId, expected: u32, shared: &mut Shared, now: Instant) {
        let Some(command) = self.commands.get_mut(number) else { return };
        command.connection = by;
        match std::mem::replace(&mut command.phase, Phase::Executing) {
            Phase::Gathering(mut gathering) => {
                // What was on its way is lost with the connection; R2Ts are numbered on from what has arrived.
                gathering.restart();
                command.data_number = command.data_number.min(expected);
                command.phase = Phase::Gathering(gathering);
                self.go_on(number, shared, now);
            }
            Phase::Answered(reply) => self.finish(number, *reply, shared, now),
            other => command.phase = other,
        }
    }
}

/// Whether a SNACK asks for this number (RFC 7143 11.16.4, 11.16.5).
fn is_meant(request: &SnackRequest, number: u32) -> bool {
    let distance = number.wrapping_sub(request.first);
    number >= request.first && (request.count == 0 || distance < request.count)
}

impl Connection {
    fn resend_statuses(&mut self, request: &SnackRequest, order: &Order) -> bool {
        let first = Serial(request.first);
        let is_meant = |number: Serial| {
            let is_all = request.first == 0 && request.count == 0;
            is_all || number >= first && (request.count == 0 || (number.since(first) as u32) < request.count)
        };
        let meant: Vec<_> = self.memory.retained.iter().filter(|retained| is_meant(retained.status_number)).collect();
        for retained in &meant {
            let mut header = retained.header;
            stamp(&mut header, retained.status_number, order);
            self.outbox.push(header, retained.data.clone());
        }
        !meant.is_empty()
    }

    fn resend_data(&mut self, request: &SnackRequest, order: &Order) -> bool {
        let found = self.memory.retained.iter().find(|retained| retained.is_of_command(request.task_tag));
        let Some((retained, read)) = found.and_then(|retained| Some((retained, retained.read.as_ref()?))) else {
            return false;
        };
        let mut is_done = false;
        for (number, cut) in (read.first_number..).zip(read.cuts) {
            if !is_meant(request, number) {
                continue;
            }
            let carries_status = cut.is_last && retained.rides();
            let mut header =
                if carries_status { retained.header } else { data_header(request.task_tag, number, &cut).write() };
            stamp(&mut header, retained.status_number, order);
            self.outbox.push(header, Some(read.data.slice(cut.start..cut.end)));
            is_done = true;
        }
        is_done
    }

    /// R-Data: all of it in pieces as long as they may be now, and the status again (RFC 7143 11.16.3).
    fn resend_resegmented(&mut self, request: &SnackRequest, burst_max: u32, order: &Order) -> bool {
        let pdu_max = self.parameters.send_data_max_bytes;
        let found = self.memory.retained.iter_mut().find(|retained| retained.is_of_command(request.task_tag));
        let Some(retained) = found else { return false };
        let Some(read) = retained.read.as_mut() else { return false };
        read.cuts = Cuts::new(read.data.len(), pdu_max, burst_max);
        let mut next_number = read.first_number;
        for cut in read.cuts {
            let mut header = data_header(request.task_tag, next_number, &cut).write();
            next_number = next_number.wrapping_add(1);
            stamp(&mut header, retained.status_number, order);
            self.outbox.push(header, Some(read.data.slice(cut.start..cut.end)));
        }
        let mut response = separate_status(&retained.header, next_number);
        response.snack_tag = request.transfer_tag;
        if retained.rides() {
            retained.data = None;
        }
        retained.header = response.write();
        stamp(&mut retained.header, retained.status_number, order);
        self.outbox.push(retained.header, retained.data.clone());
        true
    }

    /// Answers a command that was answered on a connection that is gone, from this Data-In on.
    fn send_anew(&mut self, retained: Retained, expected: u32, order: &Order) {
        let Retained { header, data, read, .. } = retained;
        let rides = header.opcode() == Some(Opcode::DataIn);
        if let Some(read) = &read {
            for (number, cut) in (read.first_number..).zip(read.cuts) {
                let carries_status = rides && cut.is_last;
                if number >= expected && !carries_status {
                    let header = data_header(header.task_tag(), number, &cut).write();
                    self.push(header, Some(read.data.slice(cut.start..cut.end)), order);
                }
            }
        }
        self.push_status(header, data, order);
        if let Some(read) = read.filter(|_| self.memory.is_on) {
            self.memory.keep_read(read);
        }
    }
}

/// The status of a command, in a PDU of its own.
fn separate_status(header: &Header, data_number: u32) -> ScsiResponse {
    if header.opcode() == Some(Opcode::ScsiResponse) {
        return ScsiResponse { expected_data_number: data_number, ..ScsiResponse::read(header) };
    }
    let last = DataIn::read(header);
    ScsiResponse {
        is_final: true,
        overflow: last.overflow,
        underflow: last.underflow,
        status: last.status,
        task_tag: last.task_tag,
        expected_data_number: data_number,
        residual_bytes: last.residual_bytes,
        ..ScsiResponse::default()
    }
}
