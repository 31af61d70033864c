//! Whether a link answers: when it is suspected, and asked after again.

use std::time::Duration;

use sanwire_core::Instant;

use super::Link;

/// A link that owes an answer for so long, or for twice its timeout, is suspected when another one lives.
const SILENCE_MIN: Duration = Duration::from_millis(50);

/// At the latest after so long, whatever its timeout, or after three round trips, if they are longer: a link that dies shall cost
/// no more than a fifth of a second.
const SILENCE_MAX: Duration = Duration::from_millis(180);

/// How often a link is asked after that is idle, and one that is suspected: at first, and at last.
const IDLE_MAX: Duration = Duration::from_secs(2);
const RETURN_FIRST: Duration = Duration::from_millis(250);
const RETURN_MAX: Duration = Duration::from_secs(1);

/// Whether a link answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Live,
    /// It does not answer. It is asked after again.
    Suspect {
        again_at: Instant,
        wait: Duration,
    },
}

impl Link {
    /// A question was answered: the link works.
    pub(in crate::channel) fn answered(&mut self, now: Instant) {
        self.state = State::Live;
        self.answered_at = now;
        self.silent_since = (self.in_flight_packets > 0).then_some(now);
    }

    fn silence_max(&self) -> Duration {
        let latest = SILENCE_MAX.max(self.round_trip.smoothed().unwrap_or_default() * 3);
        (self.round_trip.calm_timeout() * 2).clamp(SILENCE_MIN, latest)
    }

    /// When to look after it.
    pub(in crate::channel) fn watched_at(&self) -> Instant {
        match (self.state, self.silent_since) {
            (State::Suspect { again_at, .. }, _) => again_at,
            (State::Live, Some(since)) => since + self.silence_max(),
            (State::Live, None) => self.answered_at + IDLE_MAX,
        }
    }

    /// Whether it lives, and owes an answer for too long.
    pub(in crate::channel) fn is_silent(&self, now: Instant) -> bool {
        self.is_live() && self.silent_since.is_some_and(|since| since + self.silence_max() <= now)
    }

    /// It was looked after, and will be asked. With `has_other`, silence makes it suspected.
    pub(in crate::channel) fn watched(&mut self, has_other: bool, now: Instant) {
        match self.state {
            State::Suspect { wait, .. } => {
                let wait = (wait * 2).min(RETURN_MAX);
                self.state = State::Suspect { again_at: now + wait, wait };
            }
            State::Live if self.is_silent(now) && has_other => {
                self.state = State::Suspect { again_at: now + RETURN_FIRST, wait: RETURN_FIRST };
                self.congestion.collapse();
            }
            State::Live => self.silent_since = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::{LinkId, MacAddress, Path, Peer};

    use super::*;
    use crate::channel::{Capacity, Sizes};

    /// A link that has measured these round trips, in turns.
    fn measured(round_trips_ms: &[u64]) -> Link {
        let path = Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2; 6])) };
        let sizes = Sizes { packet_base_bytes: 1500, packet_limit_bytes: 1500 };
        let mut link = Link::new(path, sizes, Capacity { ours: 64, theirs: 64 }, Instant::ZERO);
        round_trips_ms.iter().cycle().take(50).for_each(|ms| link.round_trip.sample(Duration::from_millis(*ms)));
        link.sent(1000, false, Instant::ZERO);
        link
    }

    fn is_silent_after(link: &Link, ms: u64) -> bool {
        link.is_silent(Instant::ZERO + Duration::from_millis(ms))
    }

    #[test]
    fn a_link_is_suspected_within_a_fifth_of_a_second_however_its_round_trips_vary() {
        let steady = measured(&[1]);
        assert!(!is_silent_after(&steady, 49) && is_silent_after(&steady, 50));
        let uneven = measured(&[1, 90]);
        assert!(uneven.calm_timeout() > Duration::from_millis(100));
        assert!(!is_silent_after(&uneven, 100) && is_silent_after(&uneven, 180));
    }

    #[test]
    fn a_long_way_is_given_three_round_trips() {
        let long = measured(&[150, 250]);
        assert!(!is_silent_after(&long, 550) && is_silent_after(&long, 650));
    }
}
