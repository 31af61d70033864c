//! Who gets how much: clients share a server by their weights, in what it sends (deficit round robin) and in the windows for what it
//! receives. A client's weight counts as often as its priority says, and once more. Where the network is narrower than the server, the
//! same shares hold: congestion control of both ends knows them.

use std::collections::BTreeMap;

use sanwire_core::{ClientId, Instant};

use super::Server;
use crate::options::{Options, Wishes};
use crate::wire::flow::{WEIGHT_MAX, Window, Windows};

/// Packets in flight that a server grants at the most in each direction; congestion may ask for fewer.
const IN_FLIGHT_PACKETS: u32 = 1024;

/// What the client that has the least share sends in a turn, in bytes.
const QUANTUM_BYTES: u64 = 64 << 10;

/// No turn is longer, in bytes: beside much heavier ones, light clients get shorter turns.
const QUANTUM_MAX_BYTES: u64 = 1 << 20;

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

/// The shares of all connections.
struct Shares {
    of: BTreeMap<u32, u64>,
    least: u64,
    most: u64,
    sum: u64,
}

impl Server {
    /// What a link can take at once is shared by all clients, by their weights: their windows are set anew when one comes or goes,
    /// or when the layer above has other terms for one.
    pub fn share_windows(&mut self, now: Instant) {
        let shares = self.shares();
        for (&id, &share_of) in &shares.of {
            let Some(connection) = self.connections.get(&id) else { continue };
            let Some(session) = self.sessions.get(&connection.nexus) else { continue };
            let most = self.window_max_packets(session.client);
            let capacity = connection.channel.capacity();
            let outward = scaled(capacity.theirs.min(most), share_of, shares.most);
            let inward = share(capacity.ours, share_of, shares.sum, most);
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let quantum = QUANTUM_BYTES * share_of / shares.least;
            let longest = QUANTUM_BYTES * shares.most / shares.least;
            connection.turn.set_quantum((quantum * QUANTUM_MAX_BYTES / longest.max(QUANTUM_MAX_BYTES)).max(1));
            let weight = share_of.min(u64::from(WEIGHT_MAX)) as u16;
            if connection.share(Windows { outward: Window::fitting(outward), inward }, weight, now) {
                self.touch(id);
            }
        }
    }

    fn shares(&self) -> Shares {
        let share_of = |connection: &super::Connection| {
            let client = self.sessions.get(&connection.nexus)?.client;
            let weight = u64::from(self.config.admission.weight(client).max(1));
            Some(weight * (u64::from(connection.agreed().priority) + 1))
        };
        let of: BTreeMap<u32, u64> = self.connections.iter().filter_map(|(id, c)| Some((*id, share_of(c)?))).collect();
        let least = of.values().copied().min().unwrap_or(1);
        Shares { least, most: of.values().copied().max().unwrap_or(1), sum: of.values().sum::<u64>().max(1), of }
    }

    /// Asks every client for what the layer above wants of it now.
    pub fn refresh_options(&mut self, now: Instant) {
        let clients = self.connections.iter().filter_map(|(id, c)| Some((*id, self.sessions.get(&c.nexus)?.client)));
        let clients: Vec<(u32, ClientId)> = clients.collect();
        for (id, client) in clients {
            let options = self.options_for(client);
            if self.connections.get_mut(&id).is_some_and(|connection| connection.propose(options, now)) {
                self.touch(id);
            }
        }
    }

    /// What we want of connections with a client.
    pub(super) fn options_for(&self, client: ClientId) -> Options {
        let mut wishes = self.config.admission.wishes(client);
        // A client may ask for what it was given, not take it.
        wishes.priority.get_or_insert(0);
        let protection_min = (self.config.levels)(None);
        wishes.options(protection_min).unwrap_or_else(|_| {
            let without = Wishes { others: Options::default(), ..wishes };
            without.options(protection_min).unwrap_or_default()
        })
    }

    pub(super) fn window_max_packets(&self, client: ClientId) -> u32 {
        self.config.admission.window_max_packets(client).unwrap_or(IN_FLIGHT_PACKETS).min(IN_FLIGHT_PACKETS)
    }
}

/// A part of so many packets, and one at the least.
fn scaled(packets: u32, share: u64, of: u64) -> u32 {
    u32::try_from(u64::from(packets) * share / of.max(1)).unwrap_or(u32::MAX).max(1)
}

/// What a client with this share of the sum may send at once over links that take so many packets, and no more than `most`.
pub(super) fn share(capacity_packets: u32, share: u64, sum: u64, most: u32) -> Window {
    Window::fitting(scaled(capacity_packets.min(IN_FLIGHT_PACKETS), share, sum).min(most))
}
