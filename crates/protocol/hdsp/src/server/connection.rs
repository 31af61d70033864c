//! What comes on the connections of a server, and what goes back.

use std::collections::BTreeMap;

use sanwire_ata::{Command, Registers, TaskFile, error};
use sanwire_core::{Alarm, Instant, NexusId, Path};
use sanwire_security::keys::KeyError;

use super::assembly::{Assembly, Refused, Whole, single};
use super::batch::{Run, Write, is_plain_write, sectors};
use super::handshake::{Proven, answering};
use super::session::{Asked, Session};
use super::types::{Answer, CommandHandle, Disk, Request, ServerEvent};
use super::{Key, Server};
use crate::channel::{Channel, Guard, Heard, Opened, Piece, Rejected, Setup, data_bytes};
use crate::pieces;
use crate::wire::connection::{RELEASE, RELEASED};
use crate::wire::offer::{Agreement, COMMANDS_MAX};
use crate::wire::pcu::RawPcu;
use crate::wire::{Class, Header, Pdu};

/// A client's connection.
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) nexus: NexusId,
    pub(super) agreement: Agreement,
    pub(super) alarm: Alarm,
    /// It is among those that have something to send, perhaps.
    pub(super) is_awake: bool,
    /// The first Noise message of its handshake, and the last one.
    pub(super) first: [u8; 32],
    pub(super) proof: Vec<u8>,
    assemblies: BTreeMap<u16, Assembly>,
}

/// The commands that one answer is for.
pub(super) struct Executing {
    nexus: NexusId,
    /// Number, command and sectors of each.
    members: Vec<(u16, Option<TaskFile>, u64)>,
}

impl Server {
    /// Gives a client that has proved who it is a connection, and a session if it has none.
    pub(super) fn accept(&mut self, proven: Proven, disk: Disk, now: Instant) -> Result<(), KeyError> {
        let Proven { path, header, session: name, first, proof, offer, secrets } = proven;
        let run = (name.client, name.run);
        let former = self.names.get(&run).copied();
        let is_known = former.and_then(|nexus| self.sessions.get(&nexus)).is_some_and(|s| s.name == name);
        if let Some(nexus) = former.filter(|_| !is_known) {
            self.close_session(nexus);
        }
        let terms = self.terms(path);
        let agreement = Agreement {
            disk_type: disk.disk_type,
            disk_address: disk.address,
            protection: disk.protection.max(offer.protection),
            window_packets: terms.window_packets.min(offer.terms.window_packets),
            group_packets: terms.group_packets.min(offer.terms.group_packets),
            data_bytes: data_bytes(terms.packet_max_bytes.min(offer.terms.packet_max_bytes), disk.disk_type),
            is_known,
        };
        let ring = secrets.of_server()?;
        let nexus = match former.filter(|_| is_known) {
            Some(nexus) => nexus,
            None => self.open_session((name, disk), path, now),
        };
        let port = header.server_port;
        let own = Header { disk_type: disk.disk_type, disk_address: disk.address, ..answering(header, port) };
        let guard = Guard::new(ring, agreement.protection);
        let setup = Setup { path, header: own, guard, agreement, keep_alive: self.config.keep_alive };
        let mut channel = Channel::new(setup, now);
        channel.control(Class::Connection, agreement.write());
        let Some(session) = self.sessions.get_mut(&nexus) else { return Ok(()) };
        let old = session.connection;
        session.connect(port, &offer.waiting);
        old.inspect(|old| drop(self.connections.remove(old)));
        let (alarm, assemblies) = (Alarm::default(), BTreeMap::new());
        self.connections
            .insert(port, Connection { channel, nexus, agreement, alarm, is_awake: false, first, proof, assemblies });
        self.wake(port);
        Ok(())
    }

    fn open_session(
        &mut self,
        (name, disk): (crate::wire::connection::SessionName, Disk),
        path: Path,
        now: Instant,
    ) -> NexusId {
        self.next_nexus += 1;
        let nexus = NexusId(self.next_nexus);
        let memory = self.config.memory.share(self.config.write_room_bytes as usize);
        self.sessions.insert(nexus, Session::new(name, disk, memory, now));
        self.names.insert((name.client, name.run), nexus);
        self.events.push_back(ServerEvent::SessionOpened { nexus, client: name.client, path, disk });
        nexus
    }

    /// Ends a session. What is executed for it is answered to nobody.
    pub(super) fn close_session(&mut self, nexus: NexusId) {
        let Some(mut session) = self.sessions.remove(&nexus) else { return };
        self.deadlines.forget(Key::Session(nexus), &mut session.alarm);
        self.names.remove(&(session.name.client, session.name.run));
        session.connection.inspect(|port| drop(self.connections.remove(port)));
        self.events.push_back(ServerEvent::SessionClosed { nexus });
    }

    pub(super) fn handle_pdu(&mut self, path: Path, header: Header, packet: &[u8], now: Instant) {
        let port = header.server_port;
        let Some(connection) = self.connections.get_mut(&port).filter(|other| other.channel.is_of(path, &header))
        else {
            return self.unknown_connection(path, header, now);
        };
        let mut plain = std::mem::take(&mut self.plain);
        let taken = match connection.channel.open(packet, &mut plain, now) {
            Ok((pdu, opened)) => match self.sessions.get(&connection.nexus) {
                Some(session) => connection.take(&pdu, &opened, session, self.config.transfer_max_bytes, now),
                None => Err(Rejected::Malformed),
            },
            Err(rejected) => Err(rejected),
        };
        self.plain = plain;
        self.wake(port);
        match taken {
            Ok(Some((number, whole))) => self.whole(port, number, whole, now),
            Ok(None) => {}
            Err(Rejected::Violation) => self.violation(port, now),
            Err(rejected) => self.count(rejected),
        }
    }

    fn count(&mut self, rejected: Rejected) {
        match rejected {
            Rejected::Malformed => self.counters.malformed += 1,
            Rejected::NotAuthentic => self.counters.not_authentic += 1,
            Rejected::Duplicate => self.counters.duplicates += 1,
            Rejected::NoMemory => self.counters.no_memory += 1,
            Rejected::Violation => self.counters.violations += 1,
        }
    }

    /// The client breaks the rules: its connection ends, and it may come again.
    fn violation(&mut self, port: u16, now: Instant) {
        self.counters.violations += 1;
        self.disconnect(port, now);
    }

    pub(super) fn disconnect(&mut self, port: u16, now: Instant) {
        let Some(mut connection) = self.connections.remove(&port) else { return };
        self.deadlines.forget(Key::Connection(port), &mut connection.alarm);
        if let Some(session) = self.sessions.get_mut(&connection.nexus).filter(|s| s.connection == Some(port)) {
            session.disconnect(now);
            self.watch(connection.nexus);
        }
    }

    pub(super) fn handle_sealed(&mut self, path: Path, raw: &RawPcu<'_>, now: Instant) {
        let header = raw.pcu.header;
        let port = header.server_port;
        let Some(connection) = self.connections.get_mut(&port).filter(|other| other.channel.is_of(path, &header))
        else {
            return self.unknown_connection(path, header, now);
        };
        let nexus = connection.nexus;
        let heard = connection.channel.handle_control(raw, now);
        self.wake(port);
        match heard {
            Ok(Heard::Arrived(numbers)) => {
                if let Some(session) = self.sessions.get_mut(&nexus) {
                    numbers.into_iter().for_each(|number| session.arrived(number));
                }
            }
            Ok(Heard::Release) => {
                self.farewell(port, RELEASED);
                self.close_session(nexus);
            }
            Ok(Heard::Nothing | Heard::Released | Heard::Accepted(_)) => {}
            Err(Rejected::Violation) => self.violation(port, now),
            Err(rejected) => self.count(rejected),
        }
    }

    /// The last packet of a connection.
    fn farewell(&mut self, port: u16, operation: u8) {
        let Some(connection) = self.connections.get_mut(&port) else { return };
        let path = connection.channel.path;
        if let Some(packet) = connection.channel.seal(Class::Connection, &[operation]) {
            self.send_packet(path, packet);
        }
    }

    /// The server goes away: all connections are released, nothing new begins. Sessions stay, for what is executed.
    pub fn close(&mut self, now: Instant) {
        self.is_closed = true;
        for port in self.connections.keys().copied().collect::<Vec<u16>>() {
            self.farewell(port, RELEASE);
            self.disconnect(port, now);
        }
    }

    /// A command is whole.
    fn whole(&mut self, port: u16, number: u16, whole: Whole, now: Instant) {
        let Some(nexus) = self.connections.get(&port).map(|connection| connection.nexus) else { return };
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let task_file = match &whole.request {
            Request::Ata { task_file, .. } => Some(*task_file),
            Request::Scsi { .. } => None,
        };
        match session.ask(number, task_file) {
            Asked::Execute => self.begin(nexus, number, whole, now),
            Asked::Wait | Asked::Ignore => {}
            Asked::Repeat(task_file, answer) => self.send_answer(port, (number, task_file), &answer, now),
            Asked::Refuse => self.violation(port, now),
        }
    }

    /// Begins a command, or holds it with others that are written together.
    fn begin(&mut self, nexus: NexusId, number: u16, whole: Whole, now: Instant) {
        let Whole { request, sync, packets } = whole;
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
                let task_file = match &request {
                    Request::Ata { task_file, .. } => Some(*task_file),
                    Request::Scsi { .. } => None,
                };
                self.execute(nexus, vec![(number, task_file, 0)], request);
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
        let disk_address = session.disk.address;
        self.next_handle += 1;
        let handle = CommandHandle(self.next_handle);
        self.executing.insert(handle, Executing { nexus, members });
        self.events.push_back(ServerEvent::Command { handle, nexus, disk_address, request });
    }

    /// A command has been executed. `may_repeat`: it may be executed again (it only reads), so its answer need not be kept.
    pub fn reply(&mut self, handle: CommandHandle, answer: &Answer, may_repeat: bool, now: Instant) {
        let Some(Executing { nexus, members }) = self.executing.remove(&handle) else { return };
        let is_run = members.len() > 1;
        for (number, task_file, sectors) in members {
            let own = match (answer, &task_file) {
                (Answer::Ata { registers, .. }, Some(task_file)) if is_run => {
                    Answer::Ata { registers: of_member(registers, task_file, sectors), data: None }
                }
                _ => answer.clone(),
            };
            let Some(session) = self.sessions.get_mut(&nexus) else { return };
            let (task_file, port) = (session.answer(number, &own, may_repeat), session.connection);
            if let Some((task_file, port)) = task_file.zip(port) {
                self.send_answer(port, (number, task_file), &own, now);
            }
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

impl Connection {
    /// Takes a packet that is authentic and new. Gives the command that it makes whole.
    fn take(
        &mut self,
        pdu: &Pdu,
        opened: &Opened<'_>,
        session: &Session,
        transfer_max_bytes: u32,
        now: Instant,
    ) -> Result<Option<(u16, Whole)>, Rejected> {
        let number = pdu.command;
        let whole = if pdu.flags.write {
            let is_new = !self.assemblies.contains_key(&number);
            if is_new && self.assemblies.len() >= usize::from(COMMANDS_MAX) {
                return Err(Rejected::Violation);
            }
            let assembly = self.assemblies.entry(number).or_insert_with(|| Assembly::new(pdu));
            match assembly.take(pdu, opened, &session.memory, transfer_max_bytes)? {
                true => self.assemblies.remove(&number).map(Assembly::finish).transpose()?,
                false => None,
            }
        } else {
            Some(single(pdu, opened)?)
        };
        if self.channel.took(pdu, now) { Ok(whole.map(|whole| (number, whole))) } else { Err(Rejected::Violation) }
    }
}

impl From<Refused> for Rejected {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoMemory => Rejected::NoMemory,
            Refused::Violation => Rejected::Violation,
        }
    }
}
