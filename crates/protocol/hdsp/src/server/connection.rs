//! What comes on the connections of a server, and what goes back.

use std::collections::BTreeMap;

use sanwire_buffer::{Arrival, Region};
use sanwire_core::{Alarm, Instant, NexusId, Path, SessionEnd};

use super::Server;
use super::assembly::{Assembly, Came, KEPT_MIN_BYTES, Refused, Whole, single};
use super::flow_control::FlowControl;
use super::session::Session;
use super::types::ServerEvent;
use crate::channel::{Channel, Heard, Rejected};
use crate::wire::connection::{RELEASE, RELEASED};
use crate::wire::offer::{Agreement, COMMANDS_MAX};
use crate::wire::pcu::RawPcu;
use crate::wire::{Class, Header, Pdu};

/// Who shares the memory that packets come into with others may keep a page of it for each so many bytes that it has room for; who is
/// alone, twice as many: enough for the smallest pieces that are kept at all.
const KEPT_LEAST_BYTES: usize = 2 * KEPT_MIN_BYTES;

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
    /// Commands that write, of which packets are missing.
    pub(super) assemblies: BTreeMap<u16, Assembly>,
    /// Packets of these that have stayed where they came.
    pub(super) kept: usize,
    /// Since when there is no memory for what it sends.
    pub(super) starved_since: Option<Instant>,
    /// How much it may send, by whether there is memory for that.
    pub(super) flow: FlowControl,
}

impl Server {
    pub(super) fn handle_pdu(&mut self, path: Path, header: Header, arrival: Arrival<'_>, now: Instant) {
        let port = header.server_port;
        let Some(connection) = self.connections.get_mut(&port).filter(|other| other.channel.is_of(path, &header))
        else {
            return self.unknown_connection(path, header, now);
        };
        let mut plain = std::mem::take(&mut self.plain);
        let taken = match connection.channel.open(arrival.bytes(), &mut plain, |_| None, now) {
            Ok((pdu, opened)) => {
                let nexus = connection.nexus;
                self.take(port, nexus, &pdu, Came { opened, arrival }, now).map(|taken| (nexus, pdu.command, taken))
            }
            Err(rejected) => Err(rejected),
        };
        self.plain = plain;
        if matches!(taken, Err(Rejected::NoMemory)) && !self.is_closed {
            self.refused(port, now);
        }
        self.tell_allowance(port, now);
        self.wake(port);
        match taken {
            Ok((nexus, number, Taken::Whole(whole))) => {
                self.finished(nexus, number);
                self.whole(port, number, whole, now);
            }
            Ok((_, number, Taken::Again)) => self.asked_again(port, number, now),
            Ok((.., Taken::Part)) => {}
            Err(Rejected::Violation) => self.violation(port, now),
            Err(rejected) => self.count(rejected),
        }
    }

    fn take(
        &mut self,
        port: u16,
        nexus: NexusId,
        pdu: &Pdu,
        mut came: Came<'_>,
        now: Instant,
    ) -> Result<Taken, Rejected> {
        let may_take = self.may_take(port, pdu, now);
        let least_bytes = if self.sessions.len() == 1 { KEPT_MIN_BYTES } else { KEPT_LEAST_BYTES };
        let Some(session) = self.sessions.get_mut(&nexus) else { return Err(Rejected::Malformed) };
        session.is_heard = true;
        let Some(connection) = self.connections.get_mut(&port) else { return Err(Rejected::Malformed) };
        if self.is_closed && !session.knows(pdu.command) {
            // It has not come: who ends begins nothing, and what is begun comes to its end.
            return Err(Rejected::NoMemory);
        }
        if (connection.kept + session.kept()) * least_bytes >= self.config.write_room_bytes as usize {
            // All share the memory that packets come into: who has many of its pages has the next ones copied.
            came.arrival = came.arrival.bytes().into();
        }
        let memory = if may_take { session.memory.clone() } else { session.memory.nothing() };
        connection.take(pdu, &came, (session, &memory, self.config.transfer_max_bytes), now)
    }

    /// Once something authentic has come on its connection, a session is known.
    fn note_heard(&mut self, port: u16) {
        let heard = self.connections.get(&port).filter(|connection| connection.channel.is_heard());
        if let Some(session) = heard.and_then(|connection| self.sessions.get_mut(&connection.nexus)) {
            session.is_heard = true;
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
    pub(super) fn violation(&mut self, port: u16, now: Instant) {
        self.counters.violations += 1;
        if let Some(connection) = self.connections.get(&port)
            && let Some(session) = self.sessions.get(&connection.nexus)
        {
            let (client, path) = (session.name.client, connection.channel.path);
            self.events.push_back(ServerEvent::Violation { client, path });
        }
        self.disconnect(port, now);
    }

    pub(super) fn disconnect(&mut self, port: u16, now: Instant) {
        let Some(connection) = self.drop_connection(port) else { return };
        if let Some(session) = self.sessions.get_mut(&connection.nexus).filter(|s| s.connection == Some(port)) {
            session.disconnect(now);
            self.events.push_back(ServerEvent::Disconnected { nexus: connection.nexus });
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
        if let Ok(heard) = &heard {
            connection.flow.heard(now);
            if let Heard::Answer(question) = heard {
                connection.flow.answered(*question);
            }
        }
        self.note_heard(port);
        self.tell_allowance(port, now);
        self.wake(port);
        match heard {
            Ok(Heard::Arrived(numbers)) => {
                if let Some(session) = self.sessions.get_mut(&nexus) {
                    numbers.into_iter().for_each(|number| session.arrived(number));
                }
                self.advance(nexus, now);
            }
            Ok(Heard::Release) => {
                self.farewell(port, RELEASED);
                self.close_session(nexus, SessionEnd::Closed);
            }
            Ok(Heard::Answer(_) | Heard::Nothing | Heard::Released | Heard::Accepted(_)) => {}
            Err(Rejected::Violation) => self.violation(port, now),
            Err(rejected) => self.count(rejected),
        }
    }

    /// The last packet of a connection.
    pub(super) fn farewell(&mut self, port: u16, operation: u8) {
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
}

/// What a packet with data makes of its command.
enum Taken {
    /// More is to come.
    Part,
    /// The command is whole.
    Whole(Whole),
    /// It has come before: what has become of it is known.
    Again,
}

impl Connection {
    /// Takes a packet that is authentic and new.
    fn take(
        &mut self,
        pdu: &Pdu,
        came: &Came<'_>,
        (session, memory, transfer_max_bytes): (&Session, &Region, u32),
        now: Instant,
    ) -> Result<Taken, Rejected> {
        self.flow.heard(now);
        let number = pdu.command;
        let taken = if session.knows(number) {
            // The client gives it again on this connection. What it writes is here, or done.
            Taken::Again
        } else if pdu.flags.write {
            self.take_part(pdu, came, (memory, transfer_max_bytes), now)?
        } else {
            Taken::Whole(single(pdu, &came.opened, transfer_max_bytes)?)
        };
        if self.channel.took(pdu, now) { Ok(taken) } else { Err(Rejected::Violation) }
    }

    fn take_part(
        &mut self,
        pdu: &Pdu,
        came: &Came<'_>,
        memory: (&Region, u32),
        now: Instant,
    ) -> Result<Taken, Refused> {
        let number = pdu.command;
        let is_new = !self.assemblies.contains_key(&number);
        if is_new && self.assemblies.len() >= usize::from(COMMANDS_MAX) {
            return Err(Refused::Violation);
        }
        let assembly = self.assemblies.entry(number).or_insert_with(|| Assembly::new(pdu, now));
        let before = assembly.kept_packets();
        let taken = assembly.take(pdu, came, memory, now);
        self.kept += assembly.kept_packets() - before;
        match taken {
            Err(Refused::NoMemory) => _ = self.starved_since.get_or_insert(now),
            _ => self.starved_since = None,
        }
        match taken? {
            true => self.assemblies.remove(&number).map_or(Ok(Taken::Part), |whole| {
                self.kept -= whole.kept_packets();
                whole.finish().map(Taken::Whole)
            }),
            false => Ok(Taken::Part),
        }
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
