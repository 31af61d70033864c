//! The clients' shares of the memory, and connections that keep some without doing anything by which it would come home.

use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{ClientId, Instant, NexusId};

use super::Server;
use super::connection::{Connection, MISSED_MAX_PAUSED};

/// So long a client may leave unsaid what has come, when it is asked.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// So long the rest of a request may take to go on coming.
const BEGINNING_MAX: Duration = Duration::from_secs(30);

/// So long either may take while others need the memory.
const HOARD_MAX: Duration = Duration::from_secs(2);

impl Server {
    /// The share of a client, of all its sessions together.
    pub(super) fn memory_of(&self, client: ClientId) -> Region {
        let other = self.by_client.range((client, 0)..=(client, u64::MAX)).next();
        let other = other.and_then(|(_, nexus)| self.sessions.get(nexus));
        // What comes compressed needs a place for that, and one for what it is expanded to; what is verified, one for what is found.
        let guaranteed_bytes = 2 * self.config.transfer_max_bytes as usize;
        other.map_or_else(|| self.config.memory.share(guaranteed_bytes), |session| session.memory.clone())
    }

    /// The sessions that cannot send what they have to, for want of memory, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        let wait = self.starved.iter().filter_map(|id| self.connections.get(id));
        wait.filter(|connection| connection.wants_room()).map(|connection| (connection.nexus, &connection.memory))
    }

    /// Some sessions of this server or others have no memory: drops the connections that keep some from them, by leaving them not even
    /// what is guaranteed or by having taken the share of both, and whose clients have done nothing for seconds by which it would come
    /// home. Their sessions go on when they come again. To be called now and then as long as it is so.
    pub fn relieve(&mut self, starving: &[(NexusId, Region)], now: Instant) {
        let is_in_the_way = |connection: &Connection| {
            let is_for = |(nexus, memory): &(NexusId, Region)| {
                *nexus != connection.nexus && (memory.is_denied() || memory.is_same_share(&connection.memory))
            };
            starving.iter().any(is_for) && connection.hoards(now)
        };
        let hoards = self.connections.iter().filter(|(_, connection)| is_in_the_way(connection));
        let ids: Vec<u32> = hoards.map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return;
        }
        self.counters.hoarders += ids.len() as u64;
        ids.into_iter().for_each(|id| self.drop_connection(id, now));
        self.share_windows(now);
    }
}

impl Connection {
    /// Whether the client does not say what has come, heard or not. One that has let the server wait may be stopped.
    pub(super) fn is_deaf(&self, now: Instant) -> bool {
        let answer_max = if self.channel.is_held() { self.keep_alive * MISSED_MAX_PAUSED } else { ANSWER_MAX };
        self.channel.asked_since().is_some_and(|since| now.saturating_since(since) > answer_max)
    }

    /// Whether the client has been told to send nothing, or nothing of what needs memory.
    fn is_silenced(&self) -> bool {
        self.channel.is_pausing() || self.channel.no_room_from().is_some()
    }

    /// Whether it holds memory that others need, and has done nothing for a while by which that would come home.
    pub(super) fn hoards(&self, now: Instant) -> bool {
        let is_late = |since: Instant| now.saturating_since(since) >= HOARD_MAX;
        let is_deaf = self.channel.asked_since().is_some_and(is_late) || self.channel.held_since().is_some_and(is_late);
        (is_deaf || self.intake.is_abandoned(now, HOARD_MAX) && !self.is_silenced()) && self.memory.held_bytes() > 0
    }

    /// Whether nothing more comes of a request, though it may.
    pub(super) fn has_abandoned_a_request(&self, now: Instant) -> bool {
        self.intake.is_abandoned(now, BEGINNING_MAX) && !self.is_silenced()
    }
}
