//! Which data packets have arrived: each is taken once, and the sender learns which.

use crate::wire::flow::{IN_FLIGHT_MAX_PACKETS, MAP_MAX_BYTES};

const SLOTS: u64 = IN_FLIGHT_MAX_PACKETS as u64;
const WORDS: usize = (SLOTS / 64) as usize;

/// What a packet's sequence says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// Not seen before.
    New,
    /// It arrived before.
    Duplicate,
    /// Further ahead than any window allows.
    Beyond,
}

/// The packets received: everything below `cumulative`, and a ring of bits from there on.
#[derive(Debug)]
pub(super) struct Received {
    cumulative: u64,
    /// One above the highest sequence received.
    end: u64,
    ring: [u64; WORDS],
}

impl Received {
    pub(super) fn new() -> Self {
        Received { cumulative: 0, end: 0, ring: [0; WORDS] }
    }

    /// The lowest sequence that has not come.
    pub(super) fn cumulative(&self) -> u64 {
        self.cumulative
    }

    /// Whether a later packet has arrived while an earlier one is missing.
    pub(super) fn has_gap(&self) -> bool {
        self.end > self.cumulative
    }

    /// One above the highest sequence that has arrived.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn look(&self, sequence: u64) -> Arrival {
        if sequence < self.cumulative {
            Arrival::Duplicate
        } else if sequence - self.cumulative >= SLOTS {
            Arrival::Beyond
        } else if self.bit(sequence) {
            Arrival::Duplicate
        } else {
            Arrival::New
        }
    }

    /// Notes a packet that [`Received::look`] called new.
    pub(super) fn note(&mut self, sequence: u64) {
        debug_assert_eq!(self.look(sequence), Arrival::New);
        let at = sequence % SLOTS;
        self.ring[(at / 64) as usize] |= 1 << (at % 64);
        self.end = self.end.max(sequence + 1);
        while self.cumulative < self.end && self.bit(self.cumulative) {
            let at = self.cumulative % SLOTS;
            self.ring[(at / 64) as usize] &= !(1 << (at % 64));
            self.cumulative += 1;
        }
    }

    /// The map of what has arrived from `cumulative` on, as FC_ACK_REPLY carries it.
    pub(super) fn map(&self) -> Vec<u8> {
        let span = (self.end - self.cumulative) as usize;
        let mut map = vec![0; span.div_ceil(8).min(MAP_MAX_BYTES)];
        for (index, sequence) in (self.cumulative..self.end).enumerate() {
            if self.bit(sequence) {
                map[index / 8] |= 0x80 >> (index % 8);
            }
        }
        map
    }

    fn bit(&self, sequence: u64) -> bool {
        let at = sequence % SLOTS;
        self.ring[(at / 64) as usize] & (1 << (at % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec(0u64..6000, 1..400)) {
            let mut received = Received::new();
            let mut model = BTreeSet::new();
            for step in steps {
                let sequence = received.cumulative().saturating_sub(10) + step;
                let arrival = received.look(sequence);
                let cumulative = (0..).find(|s| !model.contains(s)).unwrap_or(0);
                prop_assert_eq!(received.cumulative(), cumulative);
                prop_assert_eq!(arrival == Arrival::Duplicate, model.contains(&sequence));
                prop_assert_eq!(arrival == Arrival::Beyond, sequence >= cumulative + SLOTS);
                if arrival == Arrival::New {
                    received.note(sequence);
                    model.insert(sequence);
                }
                let map = received.map();
                for index in 0..(map.len() as u64 * 8) {
                    let bit = map[(index / 8) as usize] & (0x80 >> (index % 8)) != 0;
                    prop_assert_eq!(bit, model.contains(&(received.cumulative() + index)));
                }
            }
        }
    }
}
