//! Error recovery within a session (RFC 7143 7): what is missed is sent again; commands outlive their connection; what is
//! kept for that is dropped when memory is short.

use std::time::Duration;

use sanwire_core::{Instant, SessionEnd};

use super::commands::{Command, Phase};
use super::connection::Connection;
use super::data_out::r2t_header;
use super::manage::{Answer, Asker};
use super::retransmit_buffer::{ACKNOWLEDGE_MAX, Memory, Relief, is_meant};
use super::session::{Rejection, Session};
use super::shared::Shared;
use crate::ConnectionId;
use crate::wire::{Header, SnackRequest, TaskRequest};

/// Connections that have left their commands behind, of one session.
const SUSPENDED_MAX: usize = 16;

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
        self.wake_at(until, shared);
        let memory = std::mem::take(&mut connection.memory);
        // Data that was on its way is lost with the connection: its memory goes home.
        for command in self.commands.iter_mut().filter(|command| command.connection == connection.id) {
            if let Phase::Gathering(gathering) = &mut command.phase {
                gathering.restart();
            }
        }
        // What was sent of a long one is not kept: it cannot go on from there.
        let is_long = |command: &&Command| command.connection == connection.id && command.rest.is_some();
        let long: Vec<u64> = self.commands.iter().filter(is_long).map(|command| command.number).collect();
        long.into_iter().for_each(|number| self.forsake(number, shared));
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
            self.close(SessionEnd::Lost, shared);
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
            shared.tally.recoveries[1] += 1;
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
            shared.tally.recoveries[2] += 1;
            self.answer_management(asker, Answer::Complete, shared);
            return self.adopt(number, asker.connection, request.expected_data_number, shared, now);
        }
        let Some(at) = self.position(asker.connection) else { return };
        let found = self.suspended.iter_mut().find_map(|suspended| suspended.memory.take_answer(tag));
        let Some(retained) = found.filter(|retained| retained.answers_from(request.expected_data_number)) else {
            return self.answer_management(asker, Answer::NoTask, shared);
        };
        shared.tally.recoveries[2] += 1;
        self.answer_management(asker, Answer::Complete, shared);
        self.connections[at].send_anew(retained, request.expected_data_number, &self.order);
        shared.wake(&mut self.connections[at]);
    }

    /// A command goes on, on another connection.
    fn adopt(&mut self, number: u64, by: ConnectionId, expected: u32, shared: &mut Shared, now: Instant) {
        let Some(command) = self.commands.get_mut(number) else { return };
        command.connection = by;
        match std::mem::replace(&mut command.phase, Phase::Executing) {
            Phase::Gathering(gathering) => {
                // R2Ts are numbered on from what has arrived.
                command.data_number = command.data_number.min(expected);
                command.phase = Phase::Gathering(gathering);
                self.go_on(number, shared, now);
            }
            Phase::Answered(reply) => self.finish(number, *reply, shared, now),
            other => command.phase = other,
        }
    }

    /// Memory is short: lets go what is kept for recovery, as soon as it is acknowledged, or when that does not come.
    /// Tells whether something was let go.
    pub(super) fn relieve(&mut self, shared: &mut Shared, now: Instant) -> bool {
        let mut is_relieved = false;
        for at in 0..self.connections.len() {
            let connection = &mut self.connections[at];
            let is_heard = !connection.is_waiting();
            match connection.memory.relieve(is_heard, now) {
                Relief::Nothing => {}
                Relief::Ask => {
                    self.ping(at, shared);
                    shared.look_for_memory_at(now + ACKNOWLEDGE_MAX);
                }
                Relief::Await(until) => shared.look_for_memory_at(until),
                Relief::Given => is_relieved = true,
            }
        }
        for suspended in &mut self.suspended {
            is_relieved |= suspended.memory.let_data_go();
        }
        self.forget_answers() || is_relieved
    }

    /// Ends commands that are executed and whose data waits for a reassignment: their initiator gives them again.
    fn forget_answers(&mut self) -> bool {
        let has_data = |command: &Command| matches!(&command.phase, Phase::Answered(reply) if reply.data_in.is_some());
        let forgotten: Vec<u64> = self.commands.iter().filter(|c| has_data(c)).map(|command| command.number).collect();
        let is_any = !forgotten.is_empty();
        forgotten.into_iter().for_each(|number| drop(self.end_command(number)));
        is_any
    }
}
