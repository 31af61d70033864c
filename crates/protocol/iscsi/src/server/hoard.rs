//! Memory that initiators keep which do nothing by which it would come home, while others have none.

use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};

use super::Server;
use super::connection::Connection;
use super::event::ServerEvent;
use super::session::Session;

/// So long an initiator may take nothing of what is sent to it, or send nothing of what it was asked for, while others need the
/// memory.
const HOARD_MAX: Duration = Duration::from_secs(2);

impl Server {
    /// The sessions of which something waits for memory, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        self.sessions.values().filter(|session| session.is_starved).map(|session| (session.nexus, &session.memory))
    }

    /// Some sessions of this server or others have no memory: drops the connections of those that keep some from them, by leaving them
    /// not even what is guaranteed or by having taken the share of both, and whose initiators stand still. To be called now and then as
    /// long as it is so.
    pub fn drop_hoards(&mut self, starving: &[(NexusId, Region)], now: Instant) {
        for session in self.sessions.values_mut() {
            let is_for = |(nexus, memory): &(NexusId, Region)| {
                *nexus != session.nexus && (memory.is_denied() || memory.is_same_share(&session.memory))
            };
            if session.memory.held_bytes() == 0 || !starving.iter().any(is_for) {
                continue;
            }
            for at in (0..session.connections.len()).rev() {
                if session.stands_still(at, now) {
                    let connection = session.connections[at].id;
                    session.lose_connection(at, &mut self.shared, now);
                    // What waits to be sent would keep its memory.
                    self.shared.events.push_back(ServerEvent::Cut { connection });
                }
            }
        }
        self.sessions.retain(|_, session| !session.is_over);
        self.feed_starved(now);
    }
}

impl Session {
    fn stands_still(&mut self, at: usize, now: Instant) -> bool {
        let awaits_data = self.holds_memory();
        let Some(connection) = self.connections.get_mut(at) else { return false };
        let is_silent = now.saturating_since(connection.heard_at) >= HOARD_MAX && !connection.is_waiting();
        connection.is_stuck(now) || awaits_data && is_silent
    }
}

impl Connection {
    /// Whether something waits to be sent, and nothing was for a while.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let since = match self.stuck {
            _ if self.outbox.is_empty() => None,
            Some((popped, since)) if popped == self.popped => Some(since),
            _ => Some(now),
        };
        self.stuck = since.map(|since| (self.popped, since));
        since.is_some_and(|since| now.saturating_since(since) >= HOARD_MAX)
    }
}
