//! Connections and sessions that end, and the memory of those that are there.

use std::ops::Range;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{ClientId, Instant, NexusId, Path, SessionEnd};
use sanwire_exchange::succession;

use super::session::Session;
use super::{Key, Server, ServerEvent};
use crate::wire::Kind;
use crate::wire::flow::Close;

/// A session that is over, but for commands that stores work on, is looked at so often.
const EXPIRE_AGAIN: Duration = Duration::from_secs(1);

impl Server {
    /// The sessions of a client.
    pub(super) fn sessions_of(&self, client: ClientId) -> impl Iterator<Item = &Session> {
        let own = self.by_client.range((client, 0)..=(client, u64::MAX));
        own.filter_map(|(_, nexus)| self.sessions.get(nexus))
    }

    /// The share of a client, of all its sessions together.
    pub(super) fn memory_of(&self, client: ClientId) -> Region {
        let guaranteed_bytes = self.config.transfer_max_bytes as usize;
        let other = self.sessions_of(client).next().map(|session| session.memory.clone());
        other.unwrap_or_else(|| self.config.memory.share(guaranteed_bytes))
    }

    /// A connection is over whose session has another one already.
    pub(super) fn forget_connection(&mut self, id: u32) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.deadlines.forget(Key::Connection(id), &mut connection.alarm);
        self.held_bytes -= connection.channel.held_bytes();
        let path = connection.channel.path();
        self.forgo((id, path), connection.nexus);
        self.leave_stream(path, id);
    }

    /// What a connection has lacked nobody wants any more.
    fn forgo(&mut self, (id, path): (u32, Path), nexus: NexusId) {
        if self.note_starved((id, path), false)
            && let Some(session) = self.sessions.get(&nexus)
        {
            session.memory.forgo();
        }
    }

    /// A connection waits for memory, or does not. Gives whether that is new.
    pub(super) fn note_starved(&mut self, (id, path): (u32, Path), is_starved: bool) -> bool {
        let is_new = if is_starved { self.starved.insert(id) } else { self.starved.remove(&id) };
        if is_new && self.link(path).is_stream {
            self.streams.note_starved(path, is_starved);
        }
        is_new
    }

    pub(super) fn drop_connection(&mut self, id: u32, now: Instant) {
        let Some(nexus) = self.connections.get(&id).map(|connection| connection.nexus) else { return };
        self.forget_connection(id);
        let idle_max = self.config.session_idle_max;
        if let Some(session) = self.sessions.get_mut(&nexus).filter(|session| session.connection == Some(id)) {
            session.disconnect(now);
            self.deadlines.note(Key::Session(nexus), &mut session.alarm, now + idle_max);
            let client = session.client;
            self.events.push_back(ServerEvent::Disconnected { nexus });
            self.bound_slots(client);
        }
    }

    /// Ends a connection; its client hears so, and may connect again.
    pub(super) fn release(&mut self, id: u32, now: Instant) {
        self.farewell(id, Close::Connection);
        self.drop_connection(id, now);
    }

    /// The last packet of a connection.
    fn farewell(&mut self, id: u32, what: Close) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let path = connection.channel.path();
        if let Some(packet) = connection.channel.seal(Kind::Close, &[what as u8]) {
            self.send_packet(path, packet);
        }
    }

    /// Ends a session. What is executed for it is answered to nobody.
    pub(super) fn close_session(&mut self, nexus: NexusId, end: SessionEnd) {
        let Some(mut session) = self.sessions.remove(&nexus) else { return };
        self.deadlines.forget(Key::Session(nexus), &mut session.alarm);
        self.by_client.remove(&(session.client, session.number));
        self.places.count(&mut session, None);
        session.connection.into_iter().for_each(|id| self.forget_connection(id));
        self.events.push_back(ServerEvent::SessionClosed { nexus, end });
    }

    /// Ends the sessions that a client has abandoned before this one: nobody will ask for their answers.
    pub(super) fn end_predecessors(&mut self, client: ClientId, session: u64) {
        let Range { start, end } = succession::predecessors(session);
        let abandoned = self.by_client.range((client, start)..(client, end)).map(|(_, nexus)| *nexus);
        for nexus in abandoned.collect::<Vec<NexusId>>() {
            self.close_session(nexus, SessionEnd::Replaced);
        }
    }

    /// A session begins. Whether the programs of the client's other sessions live nobody knows: one may have been killed, and the new one
    /// be its next run. So what comes on their connections, and what waits there for memory, is given on when these have shown that they
    /// live; else an old write would land on what the new session has written.
    pub(super) fn suspend_others(&mut self, client: ClientId, now: Instant) {
        let others: Vec<u32> = self.sessions_of(client).filter_map(|session| session.connection).collect();
        for id in others {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.channel.suspend(now);
            let (nexus, path) = (connection.nexus, connection.channel.path());
            self.forgo((id, path), nexus);
            self.touch(id);
        }
    }

    /// Ends the sessions of a client. If it may still connect, it hears at once that it should, and gets a session that knows nothing
    /// of this one.
    pub fn drop_client(&mut self, client: ClientId) {
        let own = self.by_client.range((client, 0)..=(client, u64::MAX)).map(|(_, nexus)| *nexus);
        own.collect::<Vec<NexusId>>().into_iter().for_each(|nexus| self.drop_session(nexus));
        self.half_opens.forget(client);
    }

    /// Ends one session, if it is still there.
    pub fn drop_session(&mut self, nexus: NexusId) {
        let Some(session) = self.sessions.get(&nexus) else { return };
        session.connection.into_iter().for_each(|id| self.farewell(id, Close::Connection));
        self.close_session(nexus, SessionEnd::Dropped);
    }

    /// Tells every client that the server stops. Drain the transmits afterwards.
    pub fn shut_down(&mut self) {
        for id in self.connections.keys().copied().collect::<Vec<u32>>() {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.channel.control(Kind::Close, vec![Close::Connection as u8]);
            }
            self.touch(id);
        }
    }

    pub(super) fn tend_session(&mut self, nexus: NexusId, at: Instant, now: Instant) {
        let idle_max = self.config.session_idle_max;
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        if !session.alarm.rings(at) {
            return;
        }
        let over_at = session.orphaned_at + idle_max;
        match session.connection {
            // It is noted anew when it has none.
            Some(_) => {}
            None if over_at <= now && session.commands.executing() == 0 => self.close_session(nexus, SessionEnd::Lost),
            None => {
                let again_at = over_at.max(now + EXPIRE_AGAIN);
                self.deadlines.note(Key::Session(nexus), &mut session.alarm, again_at);
            }
        }
    }

    /// Whether clients wait for memory.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// The sessions that cannot send what they have to, for want of memory, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        let wait = self.starved.iter().filter_map(|id| self.connections.get(id));
        wait.filter_map(|connection| Some((connection.nexus, &self.sessions.get(&connection.nexus)?.memory)))
    }
}
