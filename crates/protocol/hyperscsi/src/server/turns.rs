//! Who gets how much: clients share a server by their weights, in what it sends (deficit round robin) and in the windows for what it
//! receives. A client's weight counts as often as its priority says, and once more. Where the network is narrower than the server, the
//! same shares hold: congestion control of both ends knows them. A client with several connections has no more by that: they divide
//! what it has, its cap too.

use std::collections::BTreeSet;

use sanwire_core::{ClientId, Instant};

use super::Server;
use super::sharing::Class;
use super::weights::UNIT;
use crate::options::{DesiredOptions, Options};
use crate::succession;
use crate::wire::flow::Window;

/// Packets in flight that a server grants at the most in each direction; congestion may ask for fewer.
const IN_FLIGHT_PACKETS: u32 = 1024;

/// What the client that has the least share sends in a turn, in bytes.
const QUANTUM_BYTES: u64 = 64 << 10;

/// No turn is longer, in bytes: beside much heavier ones, light clients get shorter turns.
const QUANTUM_MAX_BYTES: u64 = 1 << 20;

/// And none is shorter: many turns for one packet are work for nothing.
const QUANTUM_MIN_BYTES: u64 = 128;

/// A connection's turn to send. What was sent too much in one is missing in the next.
#[derive(Debug)]
pub(super) struct Turn {
    quantum_bytes: i64,
    left_bytes: i64,
}

impl Default for Turn {
    fn default() -> Self {
        Turn { quantum_bytes: QUANTUM_BYTES as i64, left_bytes: QUANTUM_BYTES as i64 }
    }
}

impl Turn {
    /// A packet was sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.left_bytes -= bytes as i64;
    }

    /// Whether the next connection has its turn; then this one's next is prepared.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = self.left_bytes <= 0;
        if is_over {
            self.left_bytes += self.quantum_bytes;
        }
        is_over
    }

    /// Who has nothing to send saves nothing up.
    pub(super) fn forget(&mut self) {
        self.left_bytes = self.left_bytes.max(self.quantum_bytes);
    }

    fn set_quantum(&mut self, bytes: u64) {
        self.quantum_bytes = bytes as i64;
        self.left_bytes = self.left_bytes.min(self.quantum_bytes);
    }
}

/// A connection among those of its client.
#[derive(Clone, Copy)]
struct Sharer {
    id: u32,
    client: ClientId,
    /// How many the client has.
    connections: u32,
}

impl Server {
    /// What a link can take at once is shared by all clients, by their weights. The layer above has other terms now for some client,
    /// or perhaps for all: each is looked at.
    pub fn share_windows(&mut self, now: Instant) {
        let clients: BTreeSet<ClientId> = self.by_client.keys().map(|(client, _)| *client).collect();
        clients.into_iter().for_each(|client| self.sharing.note(client));
        self.note_listed();
        self.settle_shares(now);
    }

    /// Sets windows and turns by what has become of connections: these have other shares, and some of the others less, or more. The
    /// other connections of their clients hear of their part of its cap.
    pub(super) fn settle_shares(&mut self, now: Instant) {
        let changed = self.sharing.take_changed();
        if changed.is_empty() {
            return;
        }
        let mut asked = Vec::new();
        for client in changed {
            let sharers = self.sharers(client);
            let classes = sharers.iter().filter_map(|sharer| Some((sharer.id, self.class_of(*sharer)?)));
            let classes = classes.collect();
            self.sharing.put(client, classes);
            asked.extend(sharers);
        }
        for (id, grant) in self.sharing.grants() {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.turn.set_quantum(grant.quantum_bytes);
            if connection.share(grant.windows, grant.weight, now) {
                self.touch(id);
            }
        }
        for sharer in asked {
            if self.connections.get(&sharer.id).is_some_and(|connection| connection.sharers != sharer.connections) {
                self.propose(sharer, now);
            }
        }
    }

    fn class_of(&self, sharer: Sharer) -> Option<Class> {
        let connection = self.connections.get(&sharer.id)?;
        let (admission, priority) = (&self.config.admission, connection.agreed().priority);
        let weight = u64::from(admission.weight(sharer.client).max(1)) * (u64::from(priority) + 1);
        let share = (weight * UNIT / u64::from(sharer.connections)).max(1);
        let most_packets = self.window_max_packets(sharer.client, sharer.connections);
        Some(Class::new(share, connection.channel.capacity(), most_packets))
    }

    /// The connections of a client.
    fn sharers(&self, client: ClientId) -> Vec<Sharer> {
        let own = self.sessions_of(client).filter_map(|session| session.connection);
        let own: Vec<u32> = own.filter(|id| self.connections.contains_key(id)).collect();
        let connections = own.len() as u32;
        own.into_iter().map(|id| Sharer { id, client, connections }).collect()
    }

    /// How many connections a client will have with one for this session, which takes the place of those that the session and the
    /// ones that it follows have.
    pub(super) fn connections_with(&self, client: ClientId, session: u64) -> u32 {
        let replaced = succession::predecessors(session);
        let sessions = self.by_client.range((client, 0)..=(client, u64::MAX));
        let others = sessions.filter(|((_, number), _)| *number != session && !replaced.contains(number));
        let others = others.filter_map(|(_, nexus)| self.sessions.get(nexus)?.connection);
        others.fold(1, |count, _| count + 1)
    }

    /// Asks every client for what the layer above wants of it now.
    pub fn refresh_options(&mut self, now: Instant) {
        let clients: BTreeSet<ClientId> = self.by_client.keys().map(|(client, _)| *client).collect();
        let sharers: Vec<Sharer> = clients.into_iter().flat_map(|client| self.sharers(client)).collect();
        sharers.into_iter().for_each(|sharer| self.propose(sharer, now));
    }

    fn propose(&mut self, sharer: Sharer, now: Instant) {
        let options = self.options_for(sharer.client, sharer.connections);
        let Some(connection) = self.connections.get_mut(&sharer.id) else { return };
        connection.sharers = sharer.connections;
        if connection.propose(options, now) {
            self.rouse(sharer.id);
        }
    }

    /// What we want of a connection with a client that has so many.
    pub(super) fn options_for(&self, client: ClientId, connections: u32) -> Options {
        let mut wishes = self.config.admission.wishes(client);
        let part = |cap: u64| (cap / u64::from(connections.max(1))).max(cap.min(1));
        wishes.rate_cap_bytes_per_second = wishes.rate_cap_bytes_per_second.map(part);
        // A client may ask for what it was given, not take it.
        wishes.priority.get_or_insert(0);
        let protection_min = (self.config.levels)(None);
        wishes.options(protection_min).unwrap_or_else(|_| {
            let without = DesiredOptions { others: Options::default(), ..wishes };
            without.options(protection_min).unwrap_or_default()
        })
    }

    /// Packets in flight each way on one of so many connections of a client.
    fn window_max_packets(&self, client: ClientId, connections: u32) -> u32 {
        let most = self.config.admission.window_max_packets(client).map(|most| (most / connections.max(1)).max(1));
        most.unwrap_or(IN_FLIGHT_PACKETS).min(IN_FLIGHT_PACKETS)
    }
}

/// The turn of a connection with such a share, among others between the least and the most.
pub(super) fn quantum_bytes(share: u64, least: u64, most: u64) -> u64 {
    let longest = (QUANTUM_BYTES * most / least).min(QUANTUM_MAX_BYTES);
    (longest * share / most).max(QUANTUM_MIN_BYTES)
}

/// A part of so many packets, and one at the least.
pub(super) fn scaled(packets: u32, share: u64, of: u64) -> u32 {
    u32::try_from(u64::from(packets) * share / of.max(1)).unwrap_or(u32::MAX).max(1)
}

/// What a client with this share of the sum may send at once over links that take so many packets, and no more than `most`.
pub(super) fn share_of(capacity_packets: u32, share: u64, sum: u64, most: u32) -> Window {
    Window::fitting(scaled(capacity_packets.min(IN_FLIGHT_PACKETS), share, sum).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_as_the_shares_however_large_those_are() {
        assert_eq!(quantum_bytes(UNIT, UNIT, 3 * UNIT), QUANTUM_BYTES);
        assert_eq!(quantum_bytes(3 * UNIT, UNIT, 3 * UNIT), 3 * QUANTUM_BYTES);
        assert_eq!(quantum_bytes(20 * UNIT, UNIT, 40 * UNIT), QUANTUM_MAX_BYTES / 2);
        // The largest weight with the highest priority, beside one of the 4096 connections of a client.
        let most = u64::from(u16::MAX) * 8 * UNIT;
        assert_eq!(quantum_bytes(most, UNIT / 4096, most), QUANTUM_MAX_BYTES);
        assert_eq!(quantum_bytes(UNIT / 4096, UNIT / 4096, most), QUANTUM_MIN_BYTES);
    }
}
