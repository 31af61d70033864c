//! Requests of established sessions, and their answers.

use sanwire_buffer::{Slice, Slices};
use sanwire_core::{Instant, Lun, NexusId, Path};
use sanwire_scsi::{Receipt, Reply, Status, Task};

use super::connection::{Connection, Request};
use super::session::{Asked, Kept, ReplyTo, Unit};
use super::{CommandHandle, SecurityEvent, Server, ServerEvent};
use crate::channel::Message;
use crate::option_exchange::Former;
use crate::wire::command::{Answer, Ask, Function, ReplyHead, RequestHead, UnitTerms};
use crate::wire::{Protection, Tag};

/// What says that a message is no session's answer: no command has this number.
const NOT_KEPT: u64 = u64::MAX;

impl Server {
    pub(super) fn handle_request(&mut self, nexus: NexusId, path: Path, request: Request, now: Instant) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let (number, ask) = (request.head.number, request.head.ask);
        if (ask == Ask::Administer) != request.is_local {
            self.note_offence_of(nexus, SecurityEvent::Violation, path, now);
            return;
        }
        let lun = request.head.logical_unit();
        let of_unit = || (self.config.levels)(lun);
        let terms = UnitTerms {
            protection: if request.is_local { Protection::STRONGEST } else { of_unit() },
            is_compressible: !request.is_local && lun.is_some_and(|lun| (self.config.compressible)(lun)),
        };
        if request.protection < terms.protection {
            let was_enough = lun.is_some_and(|lun| self.was_enough(lun, request.protection, now));
            if !was_enough {
                self.note_offence_of(nexus, SecurityEvent::Downgrade, path, now);
            }
            self.demand(nexus, request.tag, number, terms, now);
            return;
        }
        let protection = request.protection.max(terms.protection);
        let to = ReplyTo { tag: request.tag, protection, is_local: request.is_local };
        let unit = Unit { lun: lun.filter(|_| !request.is_local), terms };
        // Who has all its commands under way may still have them ended.
        let is_management = matches!(ask, Ask::Manage { .. });
        let connection = session.connection.and_then(|id| self.connections.get(&id));
        let untaken = connection.map(|connection| connection.channel.untaken()).unwrap_or_default();
        let (accounts, managing_max) = (&mut self.accounts, 2 * usize::from(self.config.commands_max));
        let asked = session.ask((number, request.head.settled_below), to, unit, &mut accounts.numbers);
        let mut is_admitted = |executing: usize| match is_management {
            true => executing <= managing_max,
            false => {
                accounts.commands.admits(executing as u64 - 1, 1) && accounts.answer_bytes.admits(untaken.heap_bytes, 0)
            }
        };
        match asked {
            Asked::Execute if !is_admitted(session.executing()) => {
                self.end(CommandHandle { nexus, number }, ask, Status::TaskSetFull, now);
            }
            Asked::Abort if !matches!(ask, Ask::Manage { .. }) => {
                self.end(CommandHandle { nexus, number }, ask, Status::TaskAborted, now)
            }
            Asked::Execute | Asked::Abort => {
                let may_share = accounts.lent_bytes.admits(untaken.lent_bytes, 0);
                self.execute(CommandHandle { nexus, number }, request, may_share, now);
            }
            Asked::Wait => {}
            Asked::Repeat(kept) => self.send(nexus, to, (number, kept), now),
            Asked::Refuse => self.note_offence_of(nexus, SecurityEvent::Violation, path, now),
        }
    }

    /// A logical unit is about to demand more than this. What comes for it so guarded for a while is not executed, but no offence
    /// either: its client could not know.
    pub fn unit_demands_more(&mut self, lun: Lun, than: Protection, now: Instant) {
        self.former_levels.entry(lun).or_insert_with(Former::new).add(than, now);
    }

    fn was_enough(&self, lun: Lun, protection: Protection, now: Instant) -> bool {
        self.former_levels.get(&lun).is_some_and(|former| former.at(now).any(|level| protection >= level))
    }

    /// Ends what was not begun. Of management, an answer that says nothing tells so.
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
                let data_in_max_bytes = data_in_max_bytes.min(self.taken_transfer_bytes(handle.nexus));
                self.tally.written.add(request.data.as_ref().map_or(0, |data| data.len()), true);
                let (data_out, tells_residual, piece) = (request.data.map(Slices::from), false, None);
                let session = self.sessions.get(&handle.nexus);
                let receipts = session.map_or(0, |session| session.received(settled_below, receipts));
                let task = Task { lun, cdb, data_out, tells_residual, data_in_max_bytes, may_share, piece, receipts };
                self.events.push_back(ServerEvent::Command { handle, task });
            }
            Ask::Manage { function: Function::AbortTask, task } => {
                let waits = self.sessions.get_mut(&handle.nexus).is_some_and(|s| s.abort(task, handle.number));
                if waits {
                    let handle = CommandHandle { number: task, ..handle };
                    self.events.push_back(ServerEvent::Abort { handle });
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

    fn taken_transfer_bytes(&self, nexus: NexusId) -> u32 {
        let connection = self.sessions.get(&nexus).and_then(|session| self.connections.get(&session.connection?));
        connection.map_or(self.config.transfer_max_bytes, Connection::taken_transfer_bytes)
    }

    /// Tells sessions which of their answers have arrived.
    pub(super) fn deliver(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(session) = self.sessions.get_mut(&connection.nexus) {
            while let Some(number) = connection.channel.poll_delivered() {
                match number {
                    // A client may have given a command this number.
                    NOT_KEPT => {}
                    number => session.delivered(number),
                }
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
        for by in session.withdraw(handle.number) {
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
    fn demand(&mut self, nexus: NexusId, tag: Tag, number: u64, unit: UnitTerms, now: Instant) {
        let head = ReplyHead { number, unit, receipt: 0, answer: None }.write();
        let to = ReplyTo { tag, protection: Protection::STRONGEST, is_local: false };
        let kept = Kept { head, data: None, is_compressible: false, is_bulk_read: false };
        self.send(nexus, to, (NOT_KEPT, kept), now);
    }

    fn answer(
        &mut self,
        handle: CommandHandle,
        (answer, is_bulk_read): (Answer, bool),
        (data, receipt): (Option<Slices>, Option<Receipt>),
        now: Instant,
    ) {
        let Some(session) = self.sessions.get_mut(&handle.nexus) else { return };
        let Unit { lun, terms } = session.unit(handle.number);
        // The unit may demand more by now.
        let level = lun.map_or(terms.protection, |lun| (self.config.levels)(Some(lun)).max(terms.protection));
        let unit = UnitTerms { protection: level, ..terms };
        let receipt = receipt.map_or(0, |receipt| session.issue(receipt, handle.number));
        let head = ReplyHead { number: handle.number, unit, receipt, answer: Some(answer) }.write();
        let kept = Kept { head, data, is_compressible: unit.is_compressible, is_bulk_read };
        let answered = session.answer(handle.number, kept.clone());
        if let Some(to) = answered.to {
            let to = ReplyTo { protection: to.protection.max(level), ..to };
            self.send(handle.nexus, to, (handle.number, kept), now);
        }
        for by in answered.awaited_by {
            self.managed(CommandHandle { nexus: handle.nexus, number: by }, true, now);
        }
    }

    /// Sends an answer. Who takes none and goes on asking is not served on that connection.
    fn send(&mut self, nexus: NexusId, to: ReplyTo, (cookie, kept): (u64, Kept), now: Instant) {
        let Some(id) = self.sessions.get(&nexus).and_then(|session| session.connection) else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let untaken = connection.channel.untaken();
        if !self.accounts.answers.admits(untaken.messages as u64, 1) {
            self.counters.unheeded += 1;
            self.drop_connection(id, now);
            return self.settle_shares(now);
        }
        // What is compressed is no longer in the memory for data.
        let is_compressible = kept.is_compressible && self.accounts.answer_bytes.has_room(untaken.heap_bytes, 0);
        let message = Message::new(to.tag, cookie, to.protection, kept.head, kept.data);
        connection.channel.send(message.local(to.is_local).compressible(is_compressible));
        self.touch(id);
    }
}
