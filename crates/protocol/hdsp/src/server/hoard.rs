//! Memory for commands of which packets are missing: who waits for it, and who keeps it from others.
//!
//! Packets that were acknowledged do not come again. So what is kept of an unfinished command goes only with its connection: the client
//! connects again, and gives all that is not answered again.

use std::time::Duration;

use sanwire_buffer::{Region, Shortage};
use sanwire_core::{Instant, NexusId};

use super::Server;
use super::assembly::Assembly;
use super::connection::Connection;
use crate::wire::Pdu;
use crate::wire::connection::RELEASE;
use crate::wire::flow::Place;

/// So long the next packet of a command may take.
const BEGINNING_MAX: Duration = Duration::from_secs(30);

/// The same while others need the memory.
const HOARD_MAX: Duration = Duration::from_secs(2);

/// A session that has been without its least for so long is helped, again and again.
const STARVED_MAX: Duration = Duration::from_millis(500);

/// So long others wait for the command that comes before them.
const FAVOURED_MAX: Duration = Duration::from_secs(10);

/// The command that comes first while memory is short: no other one takes any. Of its connection it is the one that was sent first, as a
/// window that waits for a packet of that one lets no later packets go.
pub(super) struct Favoured {
    nexus: NexusId,
    number: u16,
    since: Instant,
}

impl Favoured {
    pub(super) fn is_of(&self, nexus: NexusId) -> bool {
        self.nexus == nexus
    }

    fn is(&self, nexus: NexusId, number: u16) -> bool {
        (self.nexus, self.number) == (nexus, number)
    }
}

impl Connection {
    /// When the first of its unfinished commands has begun, and which one was sent first. That is another one when packets were lost.
    fn unfinished(&self) -> Option<(Instant, NexusId, u16)> {
        let begun_at = self.assemblies.values().map(|assembly| assembly.begun_at).min()?;
        let (number, _) = self.assemblies.iter().min_by_key(|(_, assembly)| assembly.first)?;
        Some((begun_at, self.nexus, *number))
    }

    /// Whether a packet with this place was sent before all that has come of a command.
    fn is_before(&self, place: Place, number: u16) -> bool {
        self.assemblies.get(&number).is_none_or(|assembly| place < assembly.first)
    }

    /// When it has kept an unfinished command for too long.
    pub(super) fn abandoned_at(&self, after: Duration) -> Option<Instant> {
        self.assemblies.values().map(Assembly::moved_at).min().map(|at| at + after)
    }

    /// When something is due on it.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let starved = self.starved_since.map(|since| since + STARVED_MAX);
        let channel = self.channel.poll_timeout().into_iter().chain(self.flow.poll_timeout());
        channel.chain(self.abandoned_at(BEGINNING_MAX)).chain(starved).min()
    }

    /// Time has passed. False: it is over.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        self.flow.handle_timeout(now);
        let is_abandoned = self.abandoned_at(BEGINNING_MAX).is_some_and(|at| at <= now);
        self.channel.handle_timeout(now) && !is_abandoned
    }
}

impl Server {
    /// A session may have been without its least for too long: then the command that has begun first comes to its end before all others,
    /// and those that have begun last give up what they have.
    pub(super) fn feed(&mut self, port: u16, now: Instant) {
        let Some(connection) = self.connections.get_mut(&port) else { return };
        if connection.starved_since.is_none_or(|since| since + STARVED_MAX > now) {
            return;
        }
        // It is looked at again after as long.
        connection.starved_since = Some(now);
        let share = self.sessions.get(&connection.nexus).map(|session| &session.memory);
        if !share.is_some_and(Region::is_denied) {
            return;
        }
        self.forget_favoured(now);
        if self.favoured.is_none() {
            let unfinished = self.connections.values().filter_map(Connection::unfinished);
            let oldest = unfinished.min_by_key(|(begun_at, ..)| *begun_at);
            self.favoured = oldest.map(|(_, nexus, number)| Favoured { nexus, number, since: now });
        }
        if let Some(victim) = self.victim() {
            self.release(victim, now);
        }
    }

    /// Whose memory goes to the favoured command: of others the one that has begun last, at last what its own connection keeps in others.
    fn victim(&self) -> Option<u16> {
        let favoured = self.favoured.as_ref()?;
        let keeps = |connection: &Connection| {
            let others = connection.assemblies.iter().filter(|(number, _)| !favoured.is(connection.nexus, **number));
            others.filter(|(_, assembly)| assembly.takes_memory()).map(|(_, assembly)| assembly.begun_at).min()
        };
        let keeping = self
            .connections
            .iter()
            .filter_map(|(port, connection)| Some((connection.nexus != favoured.nexus, keeps(connection)?, *port)));
        keeping.max().map(|(.., port)| port)
    }

    /// Whether the command of this packet may take memory now. If not, another one goes before it.
    pub(super) fn may_take(&mut self, port: u16, pdu: &Pdu, now: Instant) -> bool {
        self.forget_favoured(now);
        let Some(favoured) = &mut self.favoured else { return true };
        let Some(connection) = self.connections.get(&port) else { return false };
        let Some(session) = self.sessions.get(&connection.nexus) else { return false };
        if !pdu.flags.write || session.knows(pdu.command) {
            // It needs none.
            return true;
        }
        if !favoured.is_of(connection.nexus) {
            session.memory.forgo();
            return false;
        }
        // What this session lacks stays lacking: it is the favoured command that needs it, whatever its client sends besides.
        if connection.is_before((pdu.group, pdu.serial), favoured.number) {
            favoured.number = pdu.command;
        }
        favoured.number == pdu.command
    }

    /// A command has all its packets.
    pub(super) fn finished(&mut self, nexus: NexusId, number: u16) {
        self.favoured.take_if(|favoured| favoured.is(nexus, number));
    }

    /// Who makes nothing of it is favoured no longer, and begins anew behind the others.
    fn forget_favoured(&mut self, now: Instant) {
        let Some(favoured) = self.favoured.take_if(|favoured| favoured.since + FAVOURED_MAX <= now) else { return };
        let port = self.sessions.get(&favoured.nexus).and_then(|session| session.connection);
        port.into_iter().for_each(|port| self.release(port, now));
    }

    /// Whether clients wait for memory.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.starving().next().is_some()
    }

    /// The sessions that cannot send what they have to, for want of memory, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        let starved = self.connections.values().filter(|connection| connection.starved_since.is_some());
        starved.filter_map(|connection| Some((connection.nexus, &self.sessions.get(&connection.nexus)?.memory)))
    }

    /// Some sessions, of this server or others, have no memory: ends the connections that keep some from them in commands that do not
    /// go on. Their clients connect again. To be called every now and then as long as memory is short.
    pub fn relieve(&mut self, shortage: &Shortage, now: Instant) {
        let is_in_the_way = |connection: &Connection| {
            let share = self.sessions.get(&connection.nexus).map(|session| &session.memory);
            connection.abandoned_at(HOARD_MAX).is_some_and(|at| at <= now)
                && share.is_some_and(|share| shortage.is_due_to(connection.nexus, share))
        };
        let hoards = self.connections.iter().filter(|(_, connection)| is_in_the_way(connection));
        for port in hoards.map(|(port, _)| *port).collect::<Vec<u16>>() {
            self.release(port, now);
        }
    }

    /// Ends a connection; its client hears so, and may connect again.
    pub(super) fn release(&mut self, port: u16, now: Instant) {
        self.farewell(port, RELEASE);
        self.disconnect(port, now);
    }
}
