//! Task management (RFC 7143 11.5, 11.6; RFC 7144 4).

use sanwire_core::{Instant, Lun};
use sanwire_scsi::{Reply, Status};

use super::commands::Command;
use super::event::{CommandHandle, Function, ManageOutcome};
use super::session::Session;
use super::shared::Shared;
use crate::ConnectionId;
use crate::serial::Serial;
use crate::wire::{Header, TaskRequest, TaskResponse};

/// Requests of a session that are not answered yet, at the most.
const REQUESTS_MAX: usize = 64;

/// What a request is answered with (RFC 7143 11.6.1, RFC 7144 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Answer {
    Complete = 0,
    NoTask = 1,
    NoLogicalUnit = 2,
    StillAllegiant = 3,
    NoReassignment = 4,
    NotSupported = 5,
    Succeeded = 7,
    Rejected = 255,
}

/// Who is to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pub(super) connection: ConnectionId,
    pub(super) tag: u32,
}

/// What the layer above was asked to do and has not done.
struct Management {
    number: u64,
    function: Function,
    /// `None`: the session itself wants it.
    asker: Option<Asker>,
    /// The command that was to be aborted has been answered instead.
    is_too_late: bool,
    /// Commands of its session with lower numbers count as received once it is done, and wait until then.
    plugs_below: Option<Serial>,
    /// Commands that it has ended here, without an answer: nothing of them was done.
    ended: Vec<Command>,
}

/// Task management requests of a session.
#[derive(Default)]
pub(super) struct Managements {
    under_way: Vec<Management>,
    /// Immediate requests that wait for commands with lower numbers (RFC 7143 4.2.3.3).
    deferred: Vec<(ConnectionId, TaskRequest)>,
    /// Those that are done, and answered when nothing is read any more for what they have ended.
    unsettled: Vec<Asker>,
    count: u64,
}

impl Managements {
    pub(super) fn begin(&mut self, function: Function, asker: Option<Asker>) -> u64 {
        self.count += 1;
        let (number, is_too_late, plugs_below, ended) = (self.count, false, None, Vec::new());
        self.under_way.push(Management { number, function, asker, is_too_late, plugs_below, ended });
        self.count
    }

    /// What the last request has ended already.
    fn has_ended(&mut self, commands: Vec<Command>) {
        if let Some(last) = self.under_way.last_mut() {
            last.ended = commands;
        }
    }

    /// The last request acts on all commands with lower numbers, whether they have arrived or not.
    fn will_plug(&mut self, end: Serial) {
        if let Some(last) = self.under_way.last_mut() {
            last.plugs_below = Some(end);
        }
    }

    /// Commands with lower numbers wait for a request that is under way.
    fn plugs_below(&self) -> Option<Serial> {
        let ends = self.under_way.iter().filter_map(|entry| entry.plugs_below);
        ends.reduce(|one, other| if one < other { other } else { one })
    }

    /// A command was answered: an abort of it comes too late.
    pub(super) fn answered(&mut self, command: u64) {
        for entry in &mut self.under_way {
            entry.is_too_late |= matches!(entry.function, Function::AbortTask(handle) if handle.number == command);
        }
    }

    fn len(&self) -> usize {
        self.under_way.len() + self.deferred.len() + self.unsettled.len()
    }
}

impl Session {
    pub(super) fn handle_management(&mut self, at: usize, header: &Header, shared: &mut Shared, now: Instant) {
        let request = TaskRequest::read(header);
        let asker = Asker { connection: self.connections[at].id, tag: request.task_tag };
        if !request.is_immediate {
            self.order.release();
        }
        if self.managements.len() >= REQUESTS_MAX {
            return self.answer_management(asker, Answer::Rejected, shared);
        }
        let number = Serial(request.command_number);
        let is_ahead = request.is_immediate && number > self.order.expected() && number <= self.order.max().next();
        match request.function {
            2 | 4 | 5 if is_ahead => self.managements.deferred.push((asker.connection, request)),
            6 | 7 if is_ahead => {
                // All that did not come yet counts as received (RFC 7143 4.2.3.3), unless the function is refused.
                self.manage(asker, &request, shared, now);
                self.managements.will_plug(number);
                self.order.hold_below(self.managements.plugs_below());
            }
            _ => self.manage(asker, &request, shared, now),
        }
    }

    /// Deals with requests that waited for commands, if these have arrived.
    pub(super) fn manage_deferred(&mut self, shared: &mut Shared, now: Instant) {
        let expected = self.order.expected();
        let is_due = |(_, request): &mut (ConnectionId, TaskRequest)| Serial(request.command_number) <= expected;
        let due: Vec<_> = self.managements.deferred.extract_if(.., is_due).collect();
        for (connection, request) in due {
            self.manage(Asker { connection, tag: request.task_tag }, &request, shared, now);
        }
    }

    fn manage(&mut self, asker: Asker, request: &TaskRequest, shared: &mut Shared, now: Instant) {
        let lun = Lun::from_wire(request.lun);
        let is_known = request.function < 9 || self.parameters.protocol_level >= 2;
        let of_unit = |command: &Command| command.lun == request.lun;
        let function = match request.function {
            1 => return self.abort_task(asker, request, shared, now),
            2 => Function::AbortTaskSet,
            4 => Function::ClearTaskSet,
            5 => Function::LogicalUnitReset,
            6 | 7 => Function::TargetReset { is_cold: request.function == 7 },
            8 => return self.reassign(asker, request, shared, now),
            9 if is_known => {
                let is_there = self.commands.by_tag(request.referenced_task_tag).is_some_and(of_unit);
                return self.answer_query(asker, is_there, shared);
            }
            10 if is_known => {
                let is_there = self.commands.iter().any(of_unit);
                return self.answer_query(asker, is_there, shared);
            }
            11 if is_known => Function::NexusReset,
            12 if is_known => return self.answer_query(asker, false, shared),
            _ => return self.answer_management(asker, Answer::NotSupported, shared),
        };
        let is_whole = matches!(function, Function::TargetReset { .. } | Function::NexusReset);
        let ended = self.end_below(|command| is_whole || of_unit(command));
        self.ask_above(function, lun.filter(|_| !is_whole), Some(asker), shared);
        self.managements.has_ended(ended);
    }

    fn answer_query(&mut self, asker: Asker, is_there: bool, shared: &mut Shared) {
        let answer = if is_there { Answer::Succeeded } else { Answer::Complete };
        self.answer_management(asker, answer, shared);
    }

    /// Ends commands that the layer above does not have.
    fn end_below(&mut self, is_meant: impl Fn(&Command) -> bool) -> Vec<Command> {
        let meant: Vec<u64> =
            self.commands.iter().filter(|c| !c.is_above() && is_meant(c)).map(|command| command.number).collect();
        meant.into_iter().filter_map(|number| self.end_command(number)).collect()
    }

    /// RFC 7143 11.5.1 and 7.9.
    fn abort_task(&mut self, asker: Asker, request: &TaskRequest, shared: &mut Shared, now: Instant) {
        let found = self.commands.by_tag(request.referenced_task_tag).filter(|command| command.lun == request.lun);
        if let Some(command) = found {
            let number = command.number;
            if !command.is_above() {
                // Its data may still be on its way: nobody waits for it.
                self.end_command(number);
                return self.answer_complete(asker, shared);
            }
            let function = Function::AbortTask(CommandHandle { nexus: self.nexus, number });
            return self.ask_above(function, Lun::from_wire(request.lun), Some(asker), shared);
        }
        // RFC 7143 11.5.1: a command that is aborted before it arrives counts as received.
        let referenced = Serial(request.referenced_command_number);
        let is_earlier = referenced < Serial(request.command_number);
        let is_plugged = is_earlier && self.order.abort(request.referenced_task_tag, referenced);
        self.answer_management(asker, if is_plugged { Answer::Complete } else { Answer::NoTask }, shared);
        if is_plugged {
            self.catch_up(shared, now);
        }
    }

    /// The layer above has done what it was asked, or refused it. `true`: all sessions of the target are to end.
    pub(super) fn handle_managed(
        &mut self,
        number: u64,
        outcome: ManageOutcome,
        shared: &mut Shared,
        now: Instant,
    ) -> bool {
        let Some(at) = self.managements.under_way.iter().position(|entry| entry.number == number) else { return false };
        let Management { function, asker, is_too_late, plugs_below, ended, .. } = self.managements.under_way.remove(at);
        let is_done = outcome == ManageOutcome::Complete;
        let is_cold = function == Function::TargetReset { is_cold: true };
        if let Some(end) = plugs_below {
            self.order.hold_below(self.managements.plugs_below());
            if is_done {
                self.order.void_below(end);
            }
        }
        // The initiator of a function that is not done waits for them.
        for command in ended.into_iter().filter(|_| !is_done) {
            if let Some(at) = self.position(command.connection) {
                self.answer(at, command, Reply::bare(Status::Busy), shared);
            }
        }
        if let Some(asker) = asker {
            let answer = match outcome {
                ManageOutcome::Complete if is_too_late => Answer::NoTask,
                ManageOutcome::Complete => Answer::Complete,
                ManageOutcome::NoLogicalUnit => Answer::NoLogicalUnit,
                ManageOutcome::NotSupported => Answer::NotSupported,
                ManageOutcome::Rejected => Answer::Rejected,
            };
            // After a cold reset all connections end anyway, and nobody could be answered later.
            if answer == Answer::Complete && !is_cold {
                self.answer_complete(asker, shared);
            } else {
                self.answer_management(asker, answer, shared);
            }
        }
        if plugs_below.is_some() {
            self.catch_up(shared, now);
        }
        is_cold && is_done
    }

    /// Answers a function that is done. While another connection still reads from memory that was opened for what it has ended, the
    /// answer waits: who has it closes that memory, and a read that is under way there would cost the connection.
    fn answer_complete(&mut self, asker: Asker, shared: &mut Shared) {
        let mut others = self.connections.iter().filter(|connection| connection.id != asker.connection);
        if others.any(|connection| connection.mover.reaches_for_ended()) {
            self.managements.unsettled.push(asker);
        } else {
            self.answer_management(asker, Answer::Complete, shared);
        }
    }

    /// Gives the answers that have waited for reads, if these are over.
    pub(super) fn answer_settled(&mut self, shared: &mut Shared) {
        for asker in std::mem::take(&mut self.managements.unsettled) {
            self.answer_complete(asker, shared);
        }
    }

    pub(super) fn answer_management(&mut self, asker: Asker, answer: Answer, shared: &mut Shared) {
        let Some(at) = self.position(asker.connection) else { return };
        let header =
            TaskResponse { is_final: true, response: answer as u8, task_tag: asker.tag, ..TaskResponse::default() };
        self.send_status(at, header.write(), None, shared);
    }
}
