//! Measures what goes on a connection, as an onlooker sees it, by the cap that its ends have agreed on.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::Instant;

/// What may go at once after a while of silence: what the cap gives in so many parts of a second.
const BURST_PARTS: u128 = 100;

/// A server hears of a change after the client, and begins anew then: so many bursts may come together.
const BURSTS_MAX: u128 = 3;

/// After the world is healed both ends have agreed on the latest change within this.
const AGREED_WITHIN: Duration = Duration::from_secs(3);

const NANOS: u128 = 1_000_000_000;

/// No cap.
const FREE: u64 = u64::MAX;

/// What both ends of a client's connections believe.
#[derive(Debug)]
struct Belief {
    /// The client.
    ours: u64,
    /// The server, at the most: it may not have heard of the client's latest answers.
    theirs: u64,
    is_settled: bool,
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
    /// What a client believes of its cap now, `healed_for` so long.
    pub(super) fn believe(&mut self, client: usize, cap: Option<u64>, healed_for: Option<Duration>) {
        let cap = cap.unwrap_or(FREE);
        let belief = self.beliefs.entry(client).or_insert(Belief { ours: cap, theirs: cap, is_settled: false });
        belief.ours = cap;
        if healed_for.is_some_and(|healed_for| healed_for > AGREED_WITHIN) && !belief.is_settled {
            (belief.theirs, belief.is_settled) = (cap, true);
        }
        belief.theirs = belief.theirs.max(cap);
    }

    /// A packet of data is sent; `false`: that is faster than was agreed on.
    pub(super) fn pass(&mut self, passing: Passing, now: Instant) -> bool {
        let Some(belief) = self.beliefs.get(&passing.client) else { return true };
        let cap = if passing.to_server { belief.ours } else { belief.theirs };
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
