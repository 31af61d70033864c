//! What comes on the connections of a server.

use std::time::Duration;

use sanwire_buffer::{Region, Shortage};
use sanwire_core::{Alarm, ClientId, Headway, Instant, NexusId, Path, SessionEnd};

use super::intake::{Intake, Request};
use super::{Key, Offence, Server};
use crate::channel::{Channel, Heard, Rejected, Take};
use crate::wire::Header;
use crate::wire::flow::Close;
use crate::wire::header::RawPacket;
use crate::wire::offer::Terms;

/// So long the rest of a request may take, or nothing may arrive of answers.
const STANDSTILL_MAX: Duration = Duration::from_secs(30);

/// The same while others need the memory.
const HOARD_MAX: Duration = Duration::from_secs(2);

/// What all connections of a shard keep that came before what is missing, in bytes.
const HELD_MAX_BYTES: usize = 64 << 20;

/// A client's connection.
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) nexus: NexusId,
    pub(super) terms: Terms,
    pub(super) alarm: Alarm,
    /// It is among those that have something to send, perhaps.
    pub(super) is_queued: bool,
    /// The first Noise message of its handshake, and the last step.
    pub(super) first: [u8; 32],
    pub(super) confirm: Vec<u8>,
    intake: Intake,
    /// Of what is sent, and of what comes.
    headways: [Headway; 2],
}

impl Connection {
    pub(super) fn new(channel: Channel, nexus: NexusId, terms: Terms, (first, confirm): ([u8; 32], Vec<u8>)) -> Self {
        let (alarm, intake, headways) = Default::default();
        Connection { channel, nexus, terms, alarm, is_queued: false, first, confirm, intake, headways }
    }

    /// When something is due on it.
    pub(super) fn poll_timeout(&self) -> Instant {
        let standing = self.stands_since().map(|since| since + STANDSTILL_MAX);
        standing.map_or(self.channel.poll_timeout(), |at| at.min(self.channel.poll_timeout()))
    }

    /// Since when it keeps memory without doing anything by which that would be given back.
    fn stands_since(&self) -> Option<Instant> {
        let ways = [self.intake.unfinished_since(), self.channel.gap_since(), self.channel.stuck_since()];
        ways.into_iter().flatten().min()
    }

    /// Whether it stands still for so long.
    pub(super) fn stands_for(&self, duration: Duration, now: Instant) -> bool {
        self.stands_since().is_some_and(|since| now.saturating_since(since) >= duration)
    }
}

impl Connection {
    /// Whether it has done too little for a while by which the memory that it has would be given back.
    fn hoards(&mut self, now: Instant) -> bool {
        let ways = [self.channel.arrived_and_left_bytes(), self.intake.placed_and_awaited_bytes()];
        let trickles = |(headway, (done, left)): (&mut Headway, (u64, u64))| headway.is_too_slow(done, left, now);
        let is_slow = self.headways.iter_mut().zip(ways).map(trickles).fold(false, |any, is_slow| any | is_slow);
        is_slow || self.stands_for(HOARD_MAX, now)
    }
}

/// What a connection takes its packets with.
struct Taker<'a> {
    intake: &'a mut Intake,
    memory: &'a Region,
    transfer_max_bytes: u32,
    requests: Vec<Request>,
    now: Instant,
}

impl Taker<'_> {
    fn take(&mut self, header: &Header, payload: &[u8]) -> Result<(), Rejected> {
        let room = (self.memory, self.transfer_max_bytes);
        self.requests.extend(self.intake.take(header, payload, room, self.now)?);
        Ok(())
    }
}

impl Server {
    pub(super) fn handle_data(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) {
        let id = raw.header.connection;
        if !self.connections.get(&id).is_some_and(|connection| connection.channel.is_of(path, id)) {
            return self.unknown_connection(path, id, now);
        }
        let mut plain = std::mem::take(&mut self.plain);
        let may_hold = self.held_bytes < HELD_MAX_BYTES;
        self.receive(id, now, |channel, take| channel.handle_data(raw, (&mut plain, may_hold), take, now));
        self.plain = plain;
    }

    /// Has a connection take what has come, or what has waited.
    fn receive(
        &mut self,
        id: u32,
        now: Instant,
        run: impl FnOnce(&mut Channel, &mut Take<'_>) -> Result<(), Rejected>,
    ) {
        let transfer_max_bytes = self.config.transfer_max_bytes;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let nexus = connection.nexus;
        let Some(memory) = self.sessions.get(&nexus).map(|session| session.memory.clone()) else { return };
        let before = connection.channel.held_bytes();
        let Connection { channel, intake, .. } = connection;
        let mut taker = Taker { intake, memory: &memory, transfer_max_bytes, requests: Vec::new(), now };
        let result = run(channel, &mut |header, payload| taker.take(header, payload));
        let requests = taker.requests;
        self.held_bytes = self.held_bytes + connection.channel.held_bytes() - before;
        let (path, is_starved) = (connection.channel.path(), connection.channel.is_starved());
        self.note_starved((id, path), is_starved);
        if is_starved {
            // What it wants may be another request now, or less.
            self.looked_at = None;
        }
        self.note_heard(id);
        self.touch(id);
        for request in requests {
            // One before may have ended the connection.
            if !self.connections.contains_key(&id) {
                break;
            }
            self.handle_request(nexus, request, now);
        }
        match result {
            Ok(()) => {}
            Err(Rejected::Violation) => self.violation_of(nexus, now),
            Err(Rejected::Overrun) => {
                self.reject(nexus, Rejected::Overrun, now);
                self.release(id, now);
            }
            Err(rejected) => self.reject(nexus, rejected, now),
        }
    }

    /// Once something authentic has come on its connection, a session is known to its client.
    fn note_heard(&mut self, id: u32) {
        let heard = self.connections.get(&id).filter(|connection| connection.channel.heard() > 0);
        if let Some(session) = heard.and_then(|connection| self.sessions.get_mut(&connection.nexus)) {
            session.is_heard = true;
        }
    }

    /// A packet was not taken.
    fn reject(&mut self, nexus: NexusId, rejected: Rejected, now: Instant) {
        match rejected {
            Rejected::Malformed => self.counters.malformed += 1,
            Rejected::NotAuthentic => self.note_offence_of(nexus, Offence::NotAuthentic, now),
            Rejected::Downgrade => self.note_offence_of(nexus, Offence::Downgrade, now),
            Rejected::Duplicate => self.counters.duplicates += 1,
            Rejected::OutOfOrder => self.counters.out_of_order += 1,
            Rejected::NoMemory | Rejected::Overrun => self.counters.no_memory += 1,
            Rejected::Violation => self.counters.violations += 1,
        }
    }

    /// Those for whom there was no memory are tried again, once there was a release.
    pub(super) fn feed(&mut self, now: Instant) {
        if self.starved.is_empty() || self.looked_at == Some(self.config.memory.releases()) {
            return;
        }
        self.looked_at = Some(self.config.memory.await_release());
        for id in self.starved.iter().copied().collect::<Vec<u32>>() {
            let looked_at = self.looked_at;
            self.receive(id, now, |channel, take| channel.go_on(take, now));
            // It was looked at just now.
            self.looked_at = looked_at;
        }
    }

    pub(super) fn handle_control(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) {
        let id = raw.header.connection;
        let Some(connection) = self.connections.get_mut(&id).filter(|one| one.channel.is_of(path, id)) else {
            return self.unknown_connection(path, id, now);
        };
        let nexus = connection.nexus;
        let heard = connection.channel.handle_control(raw, now);
        self.note_heard(id);
        self.touch(id);
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        match heard {
            Ok(Heard::Delivered(numbers)) => numbers.into_iter().for_each(|number| session.commands.delivered(number)),
            Ok(Heard::Waits(numbers)) => session.commands.keep_only(&numbers, Some(id)),
            Ok(Heard::Closed(Close::Session)) => self.close_session(nexus, SessionEnd::Closed),
            Ok(Heard::Closed(Close::Connection)) => self.drop_connection(id, now),
            Ok(Heard::Lives) => self.receive(id, now, |channel, take| channel.go_on(take, now)),
            Ok(Heard::Nothing | Heard::Terms(_)) => {}
            Err(Rejected::Violation) => self.violation_of(nexus, now),
            Err(rejected) => self.reject(nexus, rejected, now),
        }
    }

    /// Counts something that is refused, and sees to it that it is told.
    pub(super) fn note_offence(&mut self, offence: Offence, client: ClientId, path: Path, now: Instant) {
        let count = match offence {
            Offence::WrongPassword | Offence::Handshake | Offence::NotAuthentic => &mut self.counters.not_authentic,
            Offence::Downgrade => &mut self.counters.downgrades,
            Offence::Violation | Offence::UncheckedViolation => &mut self.counters.violations,
        };
        *count += 1;
        self.offences.note(offence, Some(client), path, now);
    }

    /// The same, on the connection of a session.
    pub(super) fn note_offence_of(&mut self, nexus: NexusId, offence: Offence, now: Instant) {
        let Some(session) = self.sessions.get(&nexus) else { return };
        let connection = session.connection.and_then(|id| self.connections.get(&id));
        if let Some(path) = connection.map(|connection| connection.channel.path()) {
            self.note_offence(offence, session.client, path, now);
        }
    }

    /// The client of a session breaks the rules: its connection ends, and it may come again.
    pub(super) fn violation_of(&mut self, nexus: NexusId, now: Instant) {
        let Some(session) = self.sessions.get(&nexus) else { return };
        let (client, Some(id)) = (session.client, session.connection) else { return };
        if let Some(Connection { channel, terms, .. }) = self.connections.get(&id) {
            let offence = if terms.is_unchecked { Offence::UncheckedViolation } else { Offence::Violation };
            let path = channel.path();
            self.note_offence(offence, client, path, now);
        }
        self.drop_connection(id, now);
    }

    /// Sees to what is due of a connection whose alarm was set for this moment.
    pub(super) fn tend_connection(&mut self, id: u32, at: Instant, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.alarm.rings(at) {
            return;
        }
        let due_at = connection.poll_timeout();
        if due_at > now {
            // It was put off meanwhile.
            self.deadlines.note(Key::Connection(id), &mut connection.alarm, due_at);
            return;
        }
        let stands_still = connection.stands_for(STANDSTILL_MAX, now);
        self.counters.standstills += u64::from(stands_still);
        match connection.channel.handle_timeout(now) && !stands_still {
            true => {
                let due_at = connection.poll_timeout();
                self.deadlines.note(Key::Connection(id), &mut connection.alarm, due_at);
                self.touch(id);
            }
            false => self.release(id, now),
        }
    }

    /// Some sessions of this server or others have no memory: drops the connections that keep some from them, and whose clients do
    /// nothing that would give it back, or next to nothing. To be called every now and then as long as memory is short.
    pub fn relieve(&mut self, shortage: &Shortage, now: Instant) {
        let sessions = &self.sessions;
        let is_in_the_way = |connection: &mut Connection| {
            let memory = sessions.get(&connection.nexus).map(|session| &session.memory);
            memory.is_some_and(|memory| shortage.is_due_to(connection.nexus, memory)) && connection.hoards(now)
        };
        let all = self.connections.iter_mut();
        let hoards = all.filter_map(|(id, connection)| is_in_the_way(connection).then_some(*id));
        for id in hoards.collect::<Vec<u32>>() {
            self.counters.hoarders += 1;
            self.release(id, now);
        }
    }
}

#[cfg(test)]
mod tests;
