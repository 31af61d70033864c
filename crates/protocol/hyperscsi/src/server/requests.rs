//! Requests of established sessions, and their answers.

use sanwire_core::{Instant, NexusId};
use sanwire_scsi::{Reply, Status, Task};

use super::connection::Request;
use super::session::{Asked, Kept};
use super::{CommandHandle, Server, ServerEvent};
use crate::wire::command::{Answer, Ask, Function, ReplyHead, RequestHead};

impl Server {
    pub(super) fn handle_request(&mut self, nexus: NexusId, request: Request, now: Instant) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let number = request.head.number;
        match session.ask(number, request.head.settled_below, request.tag) {
            Asked::Execute if session.executing() > usize::from(self.config.commands_max) => {
                self.end(CommandHandle { nexus, number }, Status::TaskSetFull, now);
            }
            Asked::Abort if matches!(request.head.ask, Ask::Command(_)) => {
                self.end(CommandHandle { nexus, number }, Status::TaskAborted, now)
            }
            Asked::Execute | Asked::Abort => self.execute(CommandHandle { nexus, number }, request, now),
            Asked::Wait => {}
            Asked::Repeat(kept) => self.send(nexus, request.tag, number, kept),
            Asked::Refuse => self.counters.violations += 1,
        }
    }

    fn end(&mut self, handle: CommandHandle, status: Status, now: Instant) {
        self.reply(handle, Reply::bare(status), now);
    }

    fn execute(&mut self, handle: CommandHandle, request: Request, now: Instant) {
        let RequestHead { data_in_max_bytes, ask, .. } = request.head;
        let lun = request.head.logical_unit();
        match ask {
            Ask::Command(cdb) => {
                let data_in_max_bytes = data_in_max_bytes.min(self.config.transfer_max_bytes);
                let task = Task { lun, cdb, data_out: request.data, tells_residual: false, data_in_max_bytes };
                self.events.push_back(ServerEvent::Command { handle, task });
            }
            Ask::Manage { function: Function::AbortTask, task } => {
                let waits = self.sessions.get_mut(&handle.nexus).is_some_and(|s| s.abort(task, handle.number));
                if !waits {
                    // SAM-5 7.2: a task that does not exist (any more, or yet) is aborted successfully.
                    self.managed(handle, true, now);
                }
            }
            Ask::Manage { function, .. } => self.events.push_back(ServerEvent::Manage { handle, function, lun }),
        }
    }

    /// The device has executed a command.
    pub fn reply(&mut self, handle: CommandHandle, reply: Reply, now: Instant) {
        let answer = Answer::Command { status: reply.status, sense: reply.sense };
        let head = ReplyHead { number: handle.number, answer }.write();
        self.answer(handle, Kept { head, data: reply.data_in }, now);
    }

    /// A task management function has ended.
    pub fn managed(&mut self, handle: CommandHandle, done: bool, now: Instant) {
        let head = ReplyHead { number: handle.number, answer: Answer::Managed { done } }.write();
        self.answer(handle, Kept { head, data: None }, now);
    }

    fn answer(&mut self, handle: CommandHandle, kept: Kept, now: Instant) {
        let Some(session) = self.sessions.get_mut(&handle.nexus) else { return };
        let answered = session.answer(handle.number, kept.clone());
        if let Some(tag) = answered.tag {
            self.send(handle.nexus, tag, handle.number, kept);
        }
        for by in answered.awaited_by {
            self.managed(CommandHandle { nexus: handle.nexus, number: by }, true, now);
        }
    }

    fn send(&mut self, nexus: NexusId, tag: crate::wire::Tag, number: u64, kept: Kept) {
        let Some(id) = self.sessions.get(&nexus).and_then(|session| session.connection) else { return };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.channel.send(tag, number, kept.head, kept.data);
            self.touch(id);
        }
    }
}
