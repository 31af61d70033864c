//! Commands that have come whole: what is executed, and what they are answered.

use sanwire_ata::{Command, Registers, TaskFile, error};
use sanwire_core::{ClientId, Instant, NexusId, Protection};

use super::Server;
use super::assembly::Whole;
use super::batch::{Run, Write, is_plain_write, sectors};
use super::session::Asked;
use super::types::{Answer, CommandHandle, Disk, GivenAt, Request, ServerEvent};
use crate::channel::Piece;
use crate::pieces;
use crate::wire::offer::{COMMANDS_MAX, VolumeId};

/// The commands that one answer is for.
pub(super) struct Executing {
    nexus: NexusId,
    client: ClientId,
    volume: VolumeId,
    /// They write.
    has_data: bool,
    /// Number, command and sectors of each.
    members: Vec<(u16, Option<TaskFile>, u64)>,
}

impl Executing {
    pub(super) fn is_of(&self, client: ClientId, volume: VolumeId) -> bool {
        (self.client, self.volume) == (client, volume)
    }

    pub(super) fn nexus(&self) -> NexusId {
        self.nexus
    }
}

impl Server {
    /// A command is whole.
    pub(super) fn whole(&mut self, port: u16, number: u16, whole: Whole, now: Instant) {
        let Some(nexus) = self.connections.get(&port).map(|connection| connection.nexus) else { return };
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        match session.ask(number, whole.request.task_file()) {
            Asked::Execute => match whole.request.refusal(self.config.transfer_max_bytes) {
                Some(answer) => self.answer(nexus, number, &answer, true, now),
                None => {
                    self.written.in_place += whole.kept_bytes;
                    self.written.copied += whole.request.data_bytes() - whole.kept_bytes;
                    session.keep(number, whole.kept);
                    session.ready.push_back((number, whole));
                    self.advance(nexus, now);
                }
            },
            asked => self.asked(port, number, asked, now),
        }
    }

    /// A command that came whole before is given again.
    pub(super) fn asked_again(&mut self, port: u16, number: u16, now: Instant) {
        let nexus = self.connections.get(&port).map(|connection| connection.nexus);
        let Some(session) = nexus.and_then(|nexus| self.sessions.get_mut(&nexus)) else { return };
        let asked = session.ask(number, None);
        self.asked(port, number, asked, now);
    }

    fn asked(&mut self, port: u16, number: u16, asked: Asked, now: Instant) {
        match asked {
            Asked::Execute | Asked::Wait | Asked::Ignore => {}
            Asked::Repeat(task_file, answer) => self.send_answer(port, (number, task_file), &answer, now),
            Asked::Refuse => self.violation(port, now),
        }
    }

    /// Begins what waits for its turn: once the disk has ended what was before this session, as long as there is room for answers.
    pub(super) fn advance(&mut self, nexus: NexusId, now: Instant) {
        let room_bytes = self.config.write_room_bytes;
        while let Some(session) = self.sessions.get_mut(&nexus).filter(|session| session.predecessors == 0) {
            let Some(bytes) = session.ready.front().map(|(_, whole)| whole.request.answer_bytes()) else { return };
            if !session.has_room(bytes, room_bytes) {
                return;
            }
            let Some((number, whole)) = session.ready.pop_front() else { return };
            session.begin(number, bytes);
            self.begin(nexus, number, whole, now);
        }
    }

    /// Begins a command, or holds it with others that are written together.
    fn begin(&mut self, nexus: NexusId, number: u16, whole: Whole, now: Instant) {
        let Whole { request, sync, packets, .. } = whole;
        let (transfer_max, batch_max) = (self.config.transfer_max_bytes, self.config.batch_packets);
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let batch = &mut session.batch;
        match request {
            Request::Ata { task_file, data } if is_plain_write(&task_file) => {
                let sectors = sectors(&task_file);
                // What is over another write follows it.
                let mut runs =
                    if batch.touches(task_file.lba, sectors) { batch.release(transfer_max) } else { Vec::new() };
                if batch.hold(Write { number, task_file, sectors, data, packets }, sync, batch_max, now) {
                    runs.extend(batch.release(transfer_max));
                }
                runs.into_iter().for_each(|run| self.execute_run(nexus, run));
            }
            request => {
                if let Request::Ata { task_file, .. } = &request
                    && !is_apart(task_file, |lba, sectors| !batch.touches(lba, sectors))
                {
                    let runs = batch.release(transfer_max);
                    runs.into_iter().for_each(|run| self.execute_run(nexus, run));
                }
                self.execute(nexus, vec![(number, request.task_file(), 0)], request);
            }
        }
        self.watch(nexus);
    }

    /// What a session holds is written now.
    pub(super) fn release_batch(&mut self, nexus: NexusId) {
        let transfer_max = self.config.transfer_max_bytes;
        let runs = self.sessions.get_mut(&nexus).map(|session| session.batch.release(transfer_max));
        runs.into_iter().flatten().for_each(|run| self.execute_run(nexus, run));
    }

    fn execute_run(&mut self, nexus: NexusId, mut run: Run) {
        let request = run.request();
        let members = run.members.into_iter().map(|(number, task_file, sectors)| (number, Some(task_file), sectors));
        self.execute(nexus, members.collect(), request);
    }

    fn execute(&mut self, nexus: NexusId, members: Vec<(u16, Option<TaskFile>, u64)>, request: Request) {
        let Some(session) = self.sessions.get(&nexus) else { return };
        let (client, Disk { address: disk_address, volume, .. }) = (session.name.client, session.disk);
        self.next_handle += 1;
        let handle = CommandHandle(self.next_handle);
        let has_data = request.data_bytes() > 0;
        let given = GivenAt::new(members.iter().map(|(number, ..)| *number));
        self.executing.insert(handle, Executing { nexus, client, volume, has_data, members });
        self.events.push_back(ServerEvent::Command { handle, nexus, disk_address, request, given });
    }

    /// A command has been executed. `may_repeat`: it may be executed again (it only reads), so its answer need not be kept.
    pub fn reply(&mut self, handle: CommandHandle, answer: &Answer, may_repeat: bool, now: Instant) {
        let Some(Executing { nexus, has_data, members, .. }) = self.executing.remove(&handle) else { return };
        let is_run = members.len() > 1;
        for (number, task_file, sectors) in members {
            let own = match (answer, &task_file) {
                (Answer::Ata { registers, .. }, Some(task_file)) if is_run => {
                    Answer::Ata { registers: of_member(registers, task_file, sectors), data: None }
                }
                _ => answer.clone(),
            };
            self.answer(nexus, number, &own, may_repeat && !has_data, now);
        }
        self.ended(handle, now);
        self.advance(nexus, now);
    }

    /// A command has not been executed, and is not going to be: for its client it is as if it had never come.
    pub fn withdraw(&mut self, handle: CommandHandle, now: Instant) {
        let Some(Executing { nexus, members, .. }) = self.executing.remove(&handle) else { return };
        self.ended(handle, now);
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let is_asked = members.into_iter().fold(false, |any, (number, ..)| any | session.withdraw(number));
        // The client gives it again on its next connection only.
        match session.connection.filter(|_| is_asked) {
            Some(port) => self.release(port, now),
            None => self.advance(nexus, now),
        }
    }

    /// The disk does nothing more for a command: sessions that follow its one may begin.
    fn ended(&mut self, handle: CommandHandle, now: Instant) {
        for nexus in self.followed.remove(&handle).into_iter().flatten() {
            if let Some(session) = self.sessions.get_mut(&nexus) {
                session.predecessors -= 1;
            }
            self.advance(nexus, now);
        }
    }

    fn answer(&mut self, nexus: NexusId, number: u16, answer: &Answer, may_repeat: bool, now: Instant) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let (task_file, port) = (session.answer(number, answer, may_repeat), session.connection);
        if let Some((task_file, port)) = task_file.zip(port) {
            self.send_answer(port, (number, task_file), answer, now);
        }
    }

    fn send_answer(&mut self, port: u16, (number, task_file): (u16, Option<TaskFile>), answer: &Answer, now: Instant) {
        let Some(connection) = self.connections.get_mut(&port) else { return };
        let data_bytes = connection.agreement.data_bytes.into();
        let pieces: Vec<Piece> = match (answer, task_file) {
            (Answer::Ata { registers, data }, Some(task_file)) => {
                let is_whole = data.as_ref().is_none_or(|data| data.len() % crate::wire::pdu::SECTOR_BYTES == 0);
                debug_assert!(is_whole, "an ATA disk reads sectors");
                pieces::ata_answer((number, &task_file), registers, data.as_ref().filter(|_| is_whole), data_bytes)
            }
            (Answer::Ata { .. }, None) => Vec::new(),
            (Answer::Scsi { status, sense, data }, _) => {
                let sense = &sense[..sense.len().min(252)];
                pieces::scsi_answer(number, (*status, sense), data.as_ref(), data_bytes)
            }
        };
        let is_copied = connection.agreement.protection != Protection::Checksum;
        for data in pieces.iter().filter_map(|piece| piece.data.as_ref()) {
            // What lies in several places is put together on the heap.
            self.answered.add(data.len(), is_copied || data.heap_bytes() > 0);
        }
        pieces.into_iter().for_each(|piece| connection.channel.send(piece, now));
        // Of what was not sent whole its client has no answer: it has given more commands than it may.
        match connection.channel.queued() > COMMANDS_MAX.into() {
            true => self.violation(port, now),
            false => self.wake(port),
        }
    }
}

/// Whether a command may go before what is held: a read of other sectors.
fn is_apart(task_file: &TaskFile, is_free: impl Fn(u64, u64) -> bool) -> bool {
    matches!(Command::parse(task_file), Some(Command::Read { .. })) && is_free(task_file.lba, sectors(task_file))
}

/// The registers of one write of a run that has been executed as a whole.
fn of_member(registers: &Registers, task_file: &TaskFile, sectors: u64) -> Registers {
    if registers.is_success() {
        return Registers::success(task_file);
    }
    let is_its = (task_file.lba..task_file.lba + sectors).contains(&registers.lba);
    let failed = Registers::failure(task_file, registers.error | if registers.error == 0 { error::ABRT } else { 0 });
    Registers { lba: if is_its { registers.lba } else { task_file.lba }, ..failed }
}
