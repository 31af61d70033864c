//! Several shards behind one address: which of them a packet comes to, and how that goes wrong.

use std::collections::BTreeSet;

use crate::random::Random;

/// Where the steering word stands in a packet.
const WORD: std::ops::Range<usize> = 8..12;

/// What the kernel knows of a server's ports. It outlives the server's process.
#[derive(Debug)]
pub struct Steering {
    shards: usize,
    misdirected_per_million: u32,
    /// Ports that are not there: of this link, of this shard.
    away: BTreeSet<(usize, usize)>,
}

impl Steering {
    /// All ports are there; so many of a million packets come to any of them.
    #[must_use]
    pub fn new(shards: usize, misdirected_per_million: u32) -> Self {
        Steering { shards, misdirected_per_million, away: BTreeSet::new() }
    }

    /// The shard that gets a packet; `None` when none has a port there. As the kernel does it, what is steered to a port that is
    /// away goes to one of those that are there (packet(7), `PACKET_FANOUT`: modulo their number).
    pub fn shard_of(&self, link: usize, bytes: &[u8], random: &mut Random) -> Option<usize> {
        let there: Vec<usize> = (0..self.shards).filter(|shard| self.is_there(link, *shard)).collect();
        if there.is_empty() {
            return None;
        }
        if self.misdirected_per_million > 0 && random.chance(self.misdirected_per_million) {
            return Some(random.choose(&there));
        }
        let word = bytes.get(WORD).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes);
        Some(there[word as usize % self.shards % there.len()])
    }

    /// Whether a shard has its port on a link.
    #[must_use]
    pub fn is_there(&self, link: usize, shard: usize) -> bool {
        !self.away.contains(&(link, shard))
    }

    /// A port goes away, or is there again.
    pub fn set_there(&mut self, link: usize, shard: usize, is_there: bool) {
        if is_there {
            self.away.remove(&(link, shard));
        } else {
            self.away.insert((link, shard));
        }
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self) {
        *self = Steering::new(self.shards, 0);
    }
}
