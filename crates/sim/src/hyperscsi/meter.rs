//! Measures what goes on a connection, as an onlooker sees it, by the cap that its ends have agreed on.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::{Instant, Protection};

/// What may go at once after a while of silence: what the cap gives in so many parts of a second.
const BURST_PARTS: u128 = 100;

/// A server hears of a change at another time than the client, and begins anew then: so many bursts may come together.
const BURSTS_MAX: u128 = 3;

/// After the world is healed both ends have agreed on the latest change within this.
pub(super) const AGREED_WITHIN: Duration = Duration::from_secs(3);

const NANOS: u128 = 1_000_000_000;

/// No cap.
const FREE: u64 = u64::MAX;

/// What holds on a client's connections.
#[derive(Debug)]
struct Belief {
    /// What each end has wanted at the most, of the cap: server, client.
    caps: [u64; 2],
    /// What each end has demanded at the least.
    floors: [Protection; 2],
    /// The cap that the client believes in.
    ours: u64,
    is_settled: bool,
}

impl Belief {
    /// The cap that the server believes in, at the most: it may be a change behind the client, or ahead.
    fn theirs(&self) -> u64 {
        if self.is_settled { self.ours } else { self.caps[0].min(self.caps[1]) }
    }
}

/// Bytes times 10⁹ that went beyond the cap, at a moment.
#[derive(Debug, Default)]
struct Excess {
    cap: u64,
    amount: u128,
    at: Instant,
}

/// All connections of a world.
#[derive(Debug, Default)]
pub(super) struct Meters {
    beliefs: BTreeMap<usize, Belief>,
    /// By connection, and whether to the server.
    excess: BTreeMap<(u32, bool), Excess>,
}

/// A packet of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    pub(super) client: usize,
    pub(super) connection: u32,
    pub(super) to_server: bool,
    pub(super) bytes: usize,
    /// The largest that there are.
    pub(super) bytes_max: u32,
}

impl Meters {
    /// The ends want this from now on: server, client.
    pub(super) fn change(&mut self, client: usize, caps: [Option<u64>; 2], floors: [Protection; 2]) {
        let caps = caps.map(|cap| cap.unwrap_or(FREE));
        let belief = self.beliefs.entry(client).or_insert(Belief { caps, floors, ours: FREE, is_settled: false });
        for end in 0..2 {
            belief.caps[end] = belief.caps[end].max(caps[end]);
            belief.floors[end] = belief.floors[end].min(floors[end]);
        }
    }

    /// The world is healed: only the latest change holds.
    pub(super) fn settle(&mut self, client: usize, floors: [Protection; 2]) {
        if let Some(belief) = self.beliefs.get_mut(&client).filter(|belief| !belief.is_settled) {
            (belief.floors, belief.is_settled) = (floors, true);
        }
    }

    /// How packets of data are guarded at least.
    pub(super) fn floor(&self, client: usize) -> Protection {
        self.beliefs.get(&client).map_or(Protection::Checksum, |belief| belief.floors[0].max(belief.floors[1]))
    }

    /// What a client believes of its cap now.
    pub(super) fn believe(&mut self, client: usize, cap: Option<u64>) {
        if let Some(belief) = self.beliefs.get_mut(&client) {
            belief.ours = cap.unwrap_or(FREE);
        }
    }

    /// A packet of data is sent; `false`: that is faster than was agreed on.
    pub(super) fn pass(&mut self, passing: Passing, now: Instant) -> bool {
        let Some(belief) = self.beliefs.get(&passing.client) else { return true };
        let cap = if passing.to_server { belief.ours } else { belief.theirs() };
        let excess = self.excess.entry((passing.connection, passing.to_server)).or_default();
        if excess.cap != cap {
            *excess = Excess { cap, ..Excess::default() };
        }
        if cap == FREE {
            return true;
        }
        let gone = now.saturating_since(excess.at).as_nanos().saturating_mul(u128::from(cap));
        excess.amount = excess.amount.saturating_sub(gone);
        excess.at = now;
        let bursts = if passing.to_server { 1 } else { BURSTS_MAX };
        let burst = u128::from(cap) * NANOS / BURST_PARTS + u128::from(passing.bytes_max) * NANOS;
        excess.amount += passing.bytes as u128 * NANOS;
        excess.amount <= bursts * burst
    }
}
