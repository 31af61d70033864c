//! Requests of established sessions, and their answers.

use sanwire_buffer::{Slice, Slices};
use sanwire_core::{Instant, NexusId, Protection};
use sanwire_exchange::{Answer, Ask, Asked, Function, ReplyHead, RequestHead, UnitTerms};
use sanwire_scsi::{Receipt, Reply, Status, Task};

use super::intake::Request;
use super::session::{Kept, ReplyTo, Unit};
use super::{CommandHandle, Offence, Server, ServerEvent};
use crate::channel::Message;

impl Server {
    pub(super) fn handle_request(&mut self, nexus: NexusId, request: Request, now: Instant) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let RequestHead { number, settled_below, ask, .. } = request.head;
        let (lun, demanded) = match ask {
            // What manages the server is of no unit, and encrypted whatever units want.
            Ask::Administer => (None, Protection::STRONGEST),
            Ask::Command(_) | Ask::Manage { .. } => {
                let lun = request.head.logical_unit();
                (lun, (self.config.levels)(lun))
            }
        };
        if request.protection < demanded {
            self.note_offence_of(nexus, Offence::Downgrade, now);
            return self.demand(nexus, request.tag, number, demanded, now);
        }
        let to = ReplyTo { tag: request.tag, protection: request.protection.max(demanded) };
        let unit = Unit { lun, protection: demanded };
        let connection = session.connection;
        let untaken =
            connection.and_then(|id| self.connections.get(&id)).map(|connection| connection.channel.untaken());
        let untaken = untaken.unwrap_or_default();
        let accounts = &mut self.accounts;
        let asked = session.commands.ask((number, settled_below), (to, connection), unit, &mut accounts.numbers);
        let handle = CommandHandle { nexus, number };
        // Who has all its commands under way may still have them ended.
        let is_management = matches!(ask, Ask::Manage { .. });
        let managing_max = 2 * usize::from(self.config.commands_max);
        let mut is_admitted = |executing: usize| match is_management {
            true => executing <= managing_max,
            false => {
                accounts.commands.admits(executing as u64 - 1, 1) && accounts.answer_bytes.admits(untaken.heap_bytes, 0)
            }
        };
        match asked {
            Asked::Execute if !is_admitted(session.commands.executing()) => {
                self.end(handle, ask, Status::TaskSetFull, now);
            }
            Asked::Abort if !is_management => self.end(handle, ask, Status::TaskAborted, now),
            Asked::Execute | Asked::Abort => {
                let may_share = accounts.lent_bytes.admits(untaken.lent_bytes, 0);
                self.execute(handle, request, may_share, now);
            }
            Asked::Wait => {}
            Asked::Repeat(kept) => self.send(nexus, to, (Some(number), kept), now),
            Asked::Refuse => self.violation_of(nexus, now),
        }
    }

    /// Ends what was not begun. Of management of the server, an answer that says nothing tells so.
    fn end(&mut self, handle: CommandHandle, ask: Ask, status: Status, now: Instant) {
        match ask {
            Ask::Administer => self.administered(handle, None, now),
            Ask::Manage { .. } => self.managed(handle, false, now),
            Ask::Command(_) => self.reply(handle, Reply::bare(status), now),
        }
    }

    fn execute(&mut self, handle: CommandHandle, request: Request, may_share: bool, now: Instant) {
        let RequestHead { data_in_max_bytes, ask, settled_below, receipts, .. } = request.head;
        let lun = request.head.logical_unit();
        match ask {
            Ask::Command(cdb) => {
                let data_in_max_bytes = data_in_max_bytes.min(self.config.transfer_max_bytes);
                let session = self.sessions.get(&handle.nexus);
                let receipts = session.map_or(0, |session| session.commands.received(settled_below, receipts));
                let data_out = request.data.map(Slices::from);
                let (tells_residual, piece) = (false, None);
                let task = Task { lun, cdb, data_out, tells_residual, data_in_max_bytes, may_share, piece, receipts };
                self.events.push_back(ServerEvent::Command { handle, task });
            }
            Ask::Manage { function: Function::AbortTask, task } => {
                let session = self.sessions.get_mut(&handle.nexus);
                if session.is_some_and(|session| session.commands.abort(task, handle.number)) {
                    self.events.push_back(ServerEvent::Abort { handle: CommandHandle { number: task, ..handle } });
                } else {
                    // SAM-5 7.2: a task that does not exist (any more, or yet) is aborted successfully.
                    self.managed(handle, true, now);
                }
            }
            Ask::Manage { function: Function::LogicalUnitReset, .. } => {
                self.events.push_back(ServerEvent::Reset { handle, lun });
            }
            Ask::Administer => {
                let room_bytes = data_in_max_bytes.min(self.config.transfer_max_bytes);
                self.events.push_back(ServerEvent::Administer { handle, request: request.data, room_bytes });
            }
        }
    }

    /// The device has executed a command.
    pub fn reply(&mut self, handle: CommandHandle, reply: Reply, now: Instant) {
        let is_bulk_read = reply.is_bulk_read && reply.data_in.is_some();
        let answer = Answer::Command { status: reply.status, sense: reply.sense };
        self.answer(handle, (answer, is_bulk_read), (reply.data_in, reply.receipt), now);
    }

    /// A command has not begun and is not going to, because its session has no connection: it runs when it is asked again.
    pub fn withdraw(&mut self, handle: CommandHandle, now: Instant) {
        let Some(session) = self.sessions.get_mut(&handle.nexus) else { return };
        for by in session.commands.withdraw(handle.number) {
            self.managed(CommandHandle { number: by, ..handle }, true, now);
        }
    }

    /// A task management function has ended.
    pub fn managed(&mut self, handle: CommandHandle, done: bool, now: Instant) {
        self.answer(handle, (Answer::Managed { done }, false), (None, None), now);
    }

    /// What came of a request to manage the server: not more than there is room for. Without anything, it was not begun.
    pub fn administered(&mut self, handle: CommandHandle, answer: Option<Slice>, now: Instant) {
        self.answer(handle, (Answer::Administered, false), (answer.map(Slices::from), None), now);
    }

    /// A request that was guarded too little: it is not executed, and the client learns how to ask.
    fn demand(&mut self, nexus: NexusId, tag: u16, number: u64, demanded: Protection, now: Instant) {
        let head = ReplyHead { number, unit: terms_of(demanded), receipt: 0, answer: None }.write();
        let protection = Protection::STRONGEST;
        let kept = Kept { head, data: None, protection, is_bulk_read: false };
        self.send(nexus, ReplyTo { tag, protection }, (None, kept), now);
    }

    fn answer(
        &mut self,
        handle: CommandHandle,
        (answer, is_bulk_read): (Answer, bool),
        (data, receipt): (Option<Slices>, Option<Receipt>),
        now: Instant,
    ) {
        let Some(session) = self.sessions.get_mut(&handle.nexus) else { return };
        let unit = session.commands.unit(handle.number);
        let Unit { lun, protection } = unit.unwrap_or(Unit { lun: None, protection: Protection::Checksum });
        // The unit may demand more by now.
        let level = lun.map_or(protection, |lun| (self.config.levels)(Some(lun)).max(protection));
        let receipt = receipt.map_or(0, |receipt| session.commands.issue(receipt, handle.number));
        let head = ReplyHead { number: handle.number, unit: terms_of(level), receipt, answer: Some(answer) }.write();
        let kept = Kept { head, data, protection: level, is_bulk_read };
        let answered = session.commands.answer(handle.number, kept.clone(), session.connection);
        if let Some(to) = answered.to {
            self.send(handle.nexus, to, (Some(handle.number), kept), now);
        }
        for by in answered.awaited_by {
            self.managed(CommandHandle { nexus: handle.nexus, number: by }, true, now);
        }
    }

    /// Sends an answer. Who takes none and goes on asking is not served on that connection.
    fn send(&mut self, nexus: NexusId, to: ReplyTo, (cookie, kept): (Option<u64>, Kept), now: Instant) {
        let Some(id) = self.sessions.get(&nexus).and_then(|session| session.connection) else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !self.accounts.answers.admits(connection.channel.untaken().messages, 1) {
            self.counters.hoarders += 1;
            return self.release(id, now);
        }
        let Kept { head, data, protection, .. } = kept;
        let protection = protection.max(to.protection).max(connection.terms.protection_min);
        connection.channel.send(Message { tag: to.tag, protection, head, data, cookie }, now);
        self.touch(id);
    }
}

/// What a unit says of its packets. Nothing is compressed here.
fn terms_of(protection: Protection) -> UnitTerms {
    UnitTerms { protection, is_compressible: false }
}

#[cfg(test)]
mod tests;
