//! The recovery of 1998: a fixed window, and all again from what is missing.

use sanwire_core::Instant;

use super::{Arrived, CLASSIC_WINDOW_BYTES, Outgoing};
use crate::channel::Recovery;

impl Outgoing {
    /// In order, as far as the fixed window goes; after a roll-back those again that were sent.
    pub(super) fn next_classic(&mut self, now: Instant) -> Option<u32> {
        if self.cursor == self.next() {
            // Else it would be cut with a number before its turn.
            if !self.fits_classic(self.peek_bytes()?) || self.next() == u32::MAX {
                return None;
            }
            self.cut(now);
        }
        let index = (self.cursor - self.base) as usize;
        let bytes = self.sent.get(index)?.bytes;
        if !self.fits_classic(bytes) {
            return None;
        }
        self.cursor += 1;
        Some(self.cursor - 1)
    }

    pub(super) fn fits_classic(&self, bytes: u64) -> bool {
        self.in_flight_bytes == 0 || self.in_flight_bytes + bytes <= CLASSIC_WINDOW_BYTES as u64
    }

    /// The receiver has all before this one, and nothing after it: that is sent again. `None`: nothing such was sent.
    pub(in crate::channel) fn roll_back(&mut self, expected: u32, now: Instant) -> Option<Vec<u64>> {
        if self.recovery != Recovery::Classic || expected > self.next() {
            return None;
        }
        let mut arrived = Arrived::default();
        let delivered = self.pass(expected, &mut arrived);
        if expected == self.base && self.may_roll_back(now) {
            self.rolled_back = Some((self.base, now));
            self.send_from(self.base);
        }
        if arrived.packets > 0 {
            self.round_trip.progress();
            self.moved_at = now;
        }
        self.timer_at = None;
        self.watch(now);
        Some(delivered)
    }

    /// A receiver names a packet once, and goes on when it has come, which takes a round trip: for all else there is the timer. Else
    /// a few small packets would have us send a whole window each.
    fn may_roll_back(&self, now: Instant) -> bool {
        let least = self.round_trip.smoothed().unwrap_or_default() / 2;
        self.rolled_back.is_none_or(|(base, at)| base != self.base && now.saturating_since(at) >= least)
    }

    /// Classic: from this one on all is sent (again).
    pub(super) fn send_from(&mut self, sequence: u32) {
        let count = self.cursor.saturating_sub(sequence) as usize;
        let rolled: u64 = self.sent.iter().take(count).map(|sent| sent.bytes).sum();
        self.in_flight_bytes -= rolled;
        self.cursor = sequence;
    }
}
