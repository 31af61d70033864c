//! Sessions that end, or wait, without their clients having said so.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use sanwire_core::{ClientId, Instant, NexusId, SessionEnd};

use super::Server;
use super::session::Session;
use crate::succession;

/// A session that is over, but for commands that stores work on, is looked at so often.
const EXPIRE_AGAIN: Duration = Duration::from_secs(1);

impl Server {
    /// Ends the sessions of a client, with their connections. It learns of it when it asks for something.
    pub fn drop_client(&mut self, client: ClientId, now: Instant) {
        let dropped = self.sessions_of(client).map(|session| session.nexus).collect();
        self.end_sessions(dropped, SessionEnd::Dropped, now);
        self.half_opens.forget(client);
        self.settle_shares(now);
    }

    /// Ends one session, if it is still there, with its connection. Its client learns of it when it asks for something.
    pub fn drop_session(&mut self, nexus: NexusId, now: Instant) {
        if self.sessions.contains_key(&nexus) {
            self.end_sessions(vec![nexus], SessionEnd::Dropped, now);
            self.settle_shares(now);
        }
    }

    /// Ends the sessions that a client has abandoned before this one: nobody will ask for their answers, and what they have
    /// at the stores is to end before this one begins.
    pub(super) fn end_predecessors(&mut self, client: ClientId, session: u64, now: Instant) {
        let Range { start, end } = succession::predecessors(session);
        let abandoned = self.by_client.range((client, start)..(client, end)).map(|(_, nexus)| *nexus).collect();
        self.end_sessions(abandoned, SessionEnd::Replaced, now);
    }

    fn end_sessions(&mut self, nexuses: Vec<NexusId>, end: SessionEnd, now: Instant) {
        for nexus in nexuses {
            let connection = self.sessions.get(&nexus).and_then(|session| session.connection);
            self.close_session(nexus, end);
            connection.into_iter().for_each(|id| self.drop_connection(id, now));
        }
    }

    /// Lets a client send no commands, or lets it go on. Its connections stay, and those that it makes meanwhile are paused too; its
    /// commands wait.
    pub fn pause(&mut self, client: ClientId, is_paused: bool, now: Instant) {
        let changed = if is_paused { self.paused.insert(client) } else { self.paused.remove(&client) };
        let nexuses: Vec<NexusId> = self.sessions_of(client).filter(|_| changed).map(|session| session.nexus).collect();
        nexuses.into_iter().for_each(|nexus| self.say_whether_paused(nexus, now));
    }

    /// Lets the clients of these sessions, and of no others, send no commands until the next call: what they have sent
    /// waits for a store, and keeps too much of the memory. Who is paused by [`Server::pause`] too goes on when both have ended.
    pub fn hold_back(&mut self, sessions: BTreeSet<NexusId>, now: Instant) {
        if sessions == self.held_back {
            return;
        }
        let before = std::mem::replace(&mut self.held_back, sessions);
        let changed: Vec<NexusId> = before.symmetric_difference(&self.held_back).copied().collect();
        changed.into_iter().for_each(|nexus| self.say_whether_paused(nexus, now));
    }

    /// The sessions of a client.
    pub(super) fn sessions_of(&self, client: ClientId) -> impl Iterator<Item = &Session> {
        let own = self.by_client.range((client, 0)..=(client, u64::MAX));
        own.filter_map(|(_, nexus)| self.sessions.get(nexus))
    }

    /// Whether a session has a connection.
    #[must_use]
    pub fn is_connected(&self, nexus: NexusId) -> bool {
        self.sessions.get(&nexus).is_some_and(|session| session.connection.is_some())
    }

    /// Whether a client is to send nothing in a session.
    pub(super) fn is_paused(&self, client: ClientId, nexus: NexusId) -> bool {
        self.paused.contains(&client) || self.held_back.contains(&nexus)
    }

    fn say_whether_paused(&mut self, nexus: NexusId, now: Instant) {
        let Some(session) = self.sessions.get(&nexus) else { return };
        let is_paused = self.is_paused(session.client, nexus);
        let Some(id) = session.connection else { return };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.pause(is_paused, now);
        }
        self.touch(id);
    }

    /// Ends the sessions that have been without a connection for too long.
    pub(super) fn expire_sessions(&mut self, now: Instant) {
        let idle_max = self.config.session_idle_max;
        for (nexus, at) in self.orphans.take_due(now) {
            let Some(session) = self.sessions.get_mut(&nexus) else { continue };
            let has_rung = session.alarm.rings(at);
            let over_at = session.orphaned_at + idle_max;
            if !has_rung || session.connection.is_some() {
                // It is noted anew when it has none.
            } else if over_at <= now && session.executing() == 0 {
                self.close_session(nexus, SessionEnd::Lost);
            } else {
                self.orphans.note(nexus, &mut session.alarm, over_at.max(now + EXPIRE_AGAIN));
            }
        }
    }
}
