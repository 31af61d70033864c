//! Commands of HDSP as tasks for units, and back.

use sanwire_ata::{Answer as AtaAnswer, Ask, Command as AtaCommand, Execution, Step, TaskFile};
use sanwire_buffer::Slices;
use sanwire_core::{ClientId, Instant, Lun, NexusId};
use sanwire_engine::task_aborted;
use sanwire_hdsp::{Answer, CommandHandle, Disk, GivenAt, Request};
use sanwire_scsi::{AdditionalSense, Cdb, Receipts, Reply, Sense, SenseKey, Status, Task};

use super::disks::{Disks, SERVER_ADDRESS};
use super::{Hdsp, Session};
use crate::command::CommandRef;
use crate::front::FrontEvent;
use crate::front::hyperscsi::clients::Clients;
use crate::protection_table::ProtectionTable;

/// A unit that was busy is asked again after this.
const BUSY_WAIT: std::time::Duration = std::time::Duration::from_millis(5);

/// Bytes of a LUN (SAM-5 4.7.1).
const LUN_BYTES: usize = 8;

/// A command under way.
pub(super) struct Running {
    pub(super) nexus: NexusId,
    given: GivenAt,
    /// Of one that came by ATA's registers: how far it is, whether it only reads, and what the client had heard when it gave it.
    ata: Option<Box<(Execution, bool, u64)>>,
}

impl Hdsp {
    /// Begins a command.
    pub(super) fn begin(
        &mut self,
        handle: CommandHandle,
        nexus: NexusId,
        (request, given): (Request, GivenAt),
        now: Instant,
    ) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return self.server.withdraw(handle, now) };
        if !session.has_its_volume(&self.disks) {
            // Another volume is there by now: the client comes again.
            self.server.withdraw(handle, now);
            return self.server.end(nexus);
        }
        let lun = match &request {
            Request::Scsi { cdb, .. } => session.addressed(cdb).and_then(|(lun, _)| lun),
            Request::Ata { .. } => session.lun,
        };
        if lun.is_some_and(|lun| session.is_guarded_too_little(lun, &self.clients, &self.levels)) {
            // It is not executed. The client gives it again by another connection, and the session goes on.
            return self.server.withdraw(handle, now);
        }
        let receipts = receipts(&mut session.receipts, &given);
        match request {
            Request::Scsi { cdb, data, room_bytes } => {
                let Some((lun, cdb)) = session.addressed(&cdb) else {
                    let sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
                    let reply = Reply { sense: sense.to_fixed(), ..Reply::bare(Status::CheckCondition) };
                    return self.server.reply(handle, &scsi_answer(reply), false, now);
                };
                let data_out = Slices::gather(data);
                self.commands.insert(handle.number(), Running { nexus, given, ata: None });
                let ask = Ask { cdb, data_out, data_in_max_bytes: room_bytes };
                self.ask(nexus, handle.number(), (lun, ask, receipts));
            }
            Request::Ata { task_file, data } => {
                let (execution, step) = Execution::begin(task_file, Slices::gather(data), &mut session.drive);
                let ata = Some(Box::new((execution, only_reads(&task_file), receipts)));
                self.commands.insert(handle.number(), Running { nexus, given, ata });
                self.go_on(nexus, handle.number(), step, now);
            }
        }
    }

    /// A task of a command is over; `None` when it was aborted.
    pub(super) fn task_over(&mut self, command: CommandRef, reply: Option<Reply>, now: Instant) {
        let handle = CommandHandle::new(command.number);
        let Some(running) = self.commands.get_mut(&command.number) else { return };
        let Some(session) = self.sessions.get_mut(&running.nexus) else {
            // Nobody hears the answer; the next session of its client may begin.
            self.commands.remove(&command.number);
            return self.server.withdraw(handle, now);
        };
        let reply = reply.unwrap_or_else(task_aborted);
        if let Some(receipt) = reply.receipt.clone() {
            session.receipts.issue(receipt, running.given);
        }
        match &mut running.ata {
            None => {
                self.commands.remove(&command.number);
                let may_repeat = reply.is_bulk_read;
                self.server.reply(handle, &scsi_answer(reply), may_repeat, now);
            }
            // ATA has no words for it. The client gives again in another session what it may: it looks first whose the volume is.
            Some(_) if tells_of_preemption(&reply) => {
                self.commands.remove(&command.number);
                self.server.withdraw(handle, now);
                self.server.end(command.nexus);
            }
            Some(ata) => {
                let step = ata.0.answered(reply, &mut session.drive);
                self.go_on(command.nexus, command.number, step, now);
            }
        }
    }

    /// A command was not begun: its client gives it again.
    pub(super) fn withdraw_command(&mut self, number: u64, now: Instant) {
        if self.commands.remove(&number).is_some() {
            self.server.withdraw(CommandHandle::new(number), now);
        }
    }

    /// A client begins another session with a disk: the program of those before may be gone, and what it gave must not come after what
    /// this one gives. What waits to be asked again is not; a client that lives gives it again.
    pub(super) fn follow(&mut self, client: ClientId, disk: &Disk, now: Instant) {
        let newest = self.commands.last_key_value().map(|(number, _)| *number);
        let is_former = |session: &&mut Session| (session.client, session.disk.volume) == (client, disk.volume);
        self.sessions
            .values_mut()
            .filter(is_former)
            .for_each(|session| session.followed = newest.max(session.followed));
        let waiting: Vec<_> = self.later.keys().copied().filter(|(_, number)| self.is_followed(*number)).collect();
        for (at, number) in waiting {
            self.later.remove(&(at, number));
            self.withdraw_command(number, now);
        }
    }

    fn is_followed(&self, number: u64) -> bool {
        let nexus = self.commands.get(&number).map(|running| running.nexus);
        let session = nexus.and_then(|nexus| self.sessions.get(&nexus));
        session.is_some_and(|session| session.followed.is_some_and(|newest| number <= newest))
    }

    /// Asks units again that were busy.
    pub(super) fn ask_again(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            let ((_, number), ask) = entry.remove_entry();
            self.ask_for_ata(number, ask, now);
        }
    }

    fn go_on(&mut self, nexus: NexusId, number: u64, step: Step, now: Instant) {
        match step {
            Step::Ask(_) | Step::Later(_) if self.is_followed(number) => self.withdraw_command(number, now),
            Step::Ask(ask) => self.ask_for_ata(number, ask, now),
            Step::Later(ask) => drop(self.later.insert((now + BUSY_WAIT, number), ask)),
            Step::Done(AtaAnswer { registers, data }) => {
                let Some(Running { ata: Some(ata), .. }) = self.commands.remove(&number) else { return };
                debug_assert!(self.sessions.contains_key(&nexus), "who goes on has a session");
                let may_repeat = ata.1 && registers.is_success();
                self.server.reply(CommandHandle::new(number), &Answer::Ata { registers, data }, may_repeat, now);
            }
        }
    }

    fn ask_for_ata(&mut self, number: u64, ask: Ask, now: Instant) {
        let Some(Running { nexus, ata: Some(ata), .. }) = self.commands.get(&number) else { return };
        let (nexus, receipts) = (*nexus, ata.2);
        match self.sessions.get(&nexus).map(|session| (session.lun, session.has_its_volume(&self.disks))) {
            Some((lun, true)) => self.ask(nexus, number, (lun, ask, receipts)),
            Some((_, false)) => {
                // It has waited, and another volume is there by now.
                self.withdraw_command(number, now);
                self.server.end(nexus);
            }
            None => self.withdraw_command(number, now),
        }
    }

    fn ask(&mut self, nexus: NexusId, number: u64, (lun, ask, receipts): (Option<Lun>, Ask, u64)) {
        let Ask { cdb, data_out, data_in_max_bytes } = ask;
        let task = Task {
            lun,
            cdb,
            data_out,
            tells_residual: false,
            data_in_max_bytes,
            may_share: true,
            piece: None,
            receipts,
        };
        self.events.push_back(FrontEvent::Command { command: CommandRef { front: self.front, nexus, number }, task });
    }
}

impl Session {
    /// Whether its volume is still where it was when the session began.
    fn has_its_volume(&self, disks: &Disks) -> bool {
        let is_there = |lun| disks.at(self.disk.address).is_some_and(|at| (at.lun, at.uuid) == (lun, self.disk.volume));
        self.disk.address == SERVER_ADDRESS || self.lun.is_some_and(is_there)
    }

    /// Whether a unit demands more than the connection of the session guards. One that the client may not see demands nothing: what
    /// is for it is answered as for one that is not there.
    pub(super) fn is_guarded_too_little(&self, lun: Lun, clients: &Clients, levels: &ProtectionTable) -> bool {
        let is_seen = self.disk.address != SERVER_ADDRESS || clients.may_see_unit(self.client, self.path.peer, lun);
        is_seen && levels.of(Some(lun)) > self.protection
    }

    /// The unit and the block of a SCSI command. To the server as a whole each has the LUN before it.
    fn addressed(&self, cdb: &[u8]) -> Option<(Option<Lun>, Cdb)> {
        if self.disk.address != SERVER_ADDRESS {
            return Some((self.lun, Cdb::new(cdb)?));
        }
        let (lun, cdb) = cdb.split_first_chunk::<LUN_BYTES>()?;
        Some((Lun::from_wire(*lun), Cdb::new(cdb)?))
    }
}

/// Up to which receipt the client had the answers when it gave a command. Time proves nothing: what was given before an answer was heard
/// may come any time after it, when the session goes on by another connection.
fn receipts(receipts: &mut Receipts<GivenAt>, given: &GivenAt) -> u64 {
    let received = receipts.received(|answered| given.follows_answers_to(answered));
    receipts.retain(|answered| !given.precedes_only_what_follows_answers_to(answered));
    received
}

/// Whether somebody else has taken what the client had registered.
fn tells_of_preemption(reply: &Reply) -> bool {
    let told = [AdditionalSense::RESERVATIONS_PREEMPTED, AdditionalSense::REGISTRATIONS_PREEMPTED];
    Sense::parse(&reply.sense)
        .is_some_and(|sense| sense.key == SenseKey::UnitAttention && told.contains(&sense.additional))
}

fn only_reads(task_file: &TaskFile) -> bool {
    matches!(AtaCommand::parse(task_file), Some(AtaCommand::Read { .. }))
}

fn scsi_answer(reply: Reply) -> Answer {
    let Reply { status, sense, data_in, .. } = reply;
    Answer::Scsi { status: status as u8, sense, data: data_in }
}
