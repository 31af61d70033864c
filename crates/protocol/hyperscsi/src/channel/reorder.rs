//! Packets that come late, because others have overtaken them, and are not lost (RFC 8985, RFC 9002 6.1).
//!
//! As long as nothing was overtaken, a packet is lost when some later ones have arrived: so losses are found at once. When a packet comes
//! that was taken for lost, all are given more time from then on, as far as it takes; and what its loss has cost is undone.

use std::time::Duration;

use sanwire_core::Instant;

/// Later transmissions on the same link that must have been acknowledged before a packet counts as lost.
pub(super) const REORDER_PACKETS: u64 = 3;

/// RFC 8985 6.2 (step 4): how many losses in a row must be ones before packets are given no more time.
const LOSSES_MAX: u8 = 16;

/// A packet that was taken for lost: its transmission, and whose window was made smaller for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) order: u64,
    pub(super) flow: u16,
}

/// What is known of the order on a link.
#[derive(Debug, Default)]
pub(super) struct Reordering {
    /// How long a packet is waited for, beyond the round trip of the newest one that has arrived.
    window: Duration,
    newest_trip: Duration,
    /// Losses since one was none.
    losses: u8,
    /// What was sent before this was sent with a smaller window.
    raised_order: u64,
}

impl Reordering {
    /// The newest packet that has arrived so far took so long.
    pub(super) fn delivered(&mut self, round_trip: Duration) {
        self.newest_trip = round_trip;
    }

    /// Whether a packet that later ones have overtaken has had its time.
    pub(super) fn is_overdue(&self, sent_at: Instant, now: Instant) -> bool {
        self.window.is_zero() || sent_at + self.newest_trip + self.window <= now
    }

    /// A packet is lost, and the last loss was another one.
    pub(super) fn lost(&mut self) {
        self.losses = self.losses.saturating_add(1);
        if self.losses >= LOSSES_MAX {
            self.window = Duration::ZERO;
        }
    }

    /// A packet was not lost, but late. Of those of one round trip the first counts: the window grows by a quarter of the
    /// shortest one, and never beyond the usual one.
    pub(super) fn was_late(&mut self, order: u64, next_order: u64, (shortest, usual): (Duration, Duration)) {
        self.losses = 0;
        if order >= self.raised_order {
            self.raised_order = next_order;
            self.window = (self.window + shortest / 4).min(usual);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIPS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(6));

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn in_order_nothing_is_waited_for() {
        let mut reordering = Reordering::default();
        reordering.delivered(Duration::from_millis(4));
        assert!(reordering.is_overdue(ms(0), ms(0)));
    }

    #[test]
    fn once_a_round_trip_late_packets_are_given_more_time_up_to_a_round_trip() {
        let mut reordering = Reordering::default();
        reordering.delivered(Duration::from_millis(4));
        (10..20).for_each(|order| reordering.was_late(order, 20, TRIPS));
        assert!(!reordering.is_overdue(ms(0), ms(4)) && reordering.is_overdue(ms(0), ms(5)));
        (1..100).for_each(|round| reordering.was_late(20 * round, 20 * (round + 1), TRIPS));
        assert!(!reordering.is_overdue(ms(0), ms(9)) && reordering.is_overdue(ms(0), ms(10)));
    }

    #[test]
    fn after_many_losses_nothing_is_waited_for_again() {
        let mut reordering = Reordering::default();
        reordering.was_late(1, 2, TRIPS);
        (1..LOSSES_MAX).for_each(|_| reordering.lost());
        assert!(!reordering.is_overdue(ms(0), ms(0)));
        reordering.lost();
        assert!(reordering.is_overdue(ms(0), ms(0)));
    }
}
