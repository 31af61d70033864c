//! The clients' shares of the memory, and connections that keep some without doing anything by which it would be given back.

use std::time::Duration;

use sanwire_buffer::{Region, Shortage};
use sanwire_core::{ClientId, Headway, Instant, NexusId};

use super::connection::{Connection, MISSED_MAX_PAUSED};
use super::{Server, ServerEvent};

/// So long a client may leave unsaid what has arrived, when it is asked.
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

    /// Whether clients wait for memory.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// The sessions that cannot send what they have to, for want of memory, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        let wait = self.starved.iter().filter_map(|id| self.connections.get(id));
        wait.filter(|connection| connection.wants_room()).map(|connection| (connection.nexus, &connection.memory))
    }

    /// Some sessions of this server or others have no memory: drops the connections that keep some from them, and whose clients do
    /// nothing that would give it back, or next to nothing. Their sessions go on when they reconnect. To be called every now and then as
    /// long as memory is short.
    pub fn relieve(&mut self, shortage: &Shortage, now: Instant) {
        // All of them are looked at: that is seldom, and who is in the way is seen of each alone.
        let is_in_the_way = |connection: &mut Connection| {
            shortage.is_due_to(connection.nexus, &connection.memory) && connection.hoards(now)
        };
        let hoards =
            self.connections.iter_mut().filter_map(|(id, connection)| is_in_the_way(connection).then_some(*id));
        let ids: Vec<u32> = hoards.collect();
        if ids.is_empty() {
            return;
        }
        self.counters.hoarders += ids.len() as u64;
        ids.into_iter().for_each(|id| self.drop_connection(id, now));
        self.settle_shares(now);
    }
}

impl Connection {
    /// Whether the client does not say what has arrived, heard or not. One that has let the server wait may be stopped.
    pub(super) fn is_deaf(&self, now: Instant) -> bool {
        let answer_max = if self.channel.is_held() { self.keep_alive * MISSED_MAX_PAUSED } else { ANSWER_MAX };
        self.channel.asked_since().is_some_and(|since| now.saturating_since(since) > answer_max)
    }

    /// It is over: its session wants nothing any more of what this connection waited for, and no other is stopped for its sake.
    pub(super) fn end(self) -> Option<ServerEvent> {
        self.memory.forgo();
        self.channel.is_held().then_some(ServerEvent::Held { nexus: self.nexus, is_held: false })
    }

    /// Whether it has done too little for a while by which the memory that it has would be given back.
    fn hoards(&mut self, now: Instant) -> bool {
        let is_late = |since: Instant| now.saturating_since(since) >= HOARD_MAX;
        let is_deaf = self.channel.asked_since().is_some_and(is_late) || self.channel.held_since().is_some_and(is_late);
        let ways = [self.channel.taken_and_kept_bytes(), self.placed_and_awaited_bytes()];
        let trickles = |(headway, (done, left)): (&mut Headway, (u64, u64))| headway.is_too_slow(done, left, now);
        let is_slow = self.headways.iter_mut().zip(ways).map(trickles).fold(false, |any, is_slow| any | is_slow);
        is_deaf || is_slow || self.has_abandoned(HOARD_MAX, now)
    }

    /// Of requests, but for what the client was told not to send.
    fn placed_and_awaited_bytes(&self) -> (u64, u64) {
        let (placed, awaited) = self.intake.placed_and_awaited_bytes(self.channel.no_room_from());
        (placed, if self.channel.is_pausing() { 0 } else { awaited })
    }

    /// Whether nothing more comes of a request for so long, though it may.
    fn has_abandoned(&self, after: Duration, now: Instant) -> bool {
        !self.channel.is_pausing() && self.intake.is_abandoned(self.channel.no_room_from(), now, after)
    }

    /// Whether nothing more comes of a request, however much memory there is.
    pub(super) fn has_abandoned_a_request(&self, now: Instant) -> bool {
        self.has_abandoned(BEGINNING_MAX, now)
    }
}
