//! A cap on what goes out, or comes in: a bucket that fills at the agreed rate, and that every data packet is paid from.

use std::time::Duration;

use sanwire_core::Instant;

/// What may go at once after a while of silence: as much as the rate gives in this time.
const BURST: Duration = Duration::from_millis(10);

/// The same for what comes: the way may have gathered what was sent evenly, and a new cap takes a while to be heard of.
const BURST_INWARD: Duration = Duration::from_millis(500);

const SECOND_NANOS: u64 = 1_000_000_000;

/// When the next packet may go. A packet that finds the bucket not empty may take more than is in it: the next one waits for that.
#[derive(Debug)]
pub struct Shaper {
    burst: Duration,
    cap_bytes_per_second: Option<u64>,
    free_at: Option<Instant>,
    /// Whether a packet waits for that.
    waits: bool,
}

impl Default for Shaper {
    fn default() -> Self {
        Shaper { burst: BURST, cap_bytes_per_second: None, free_at: None, waits: false }
    }
}

impl Shaper {
    /// For what comes in: only who keeps to no cap finds it shut.
    pub fn inward() -> Self {
        Shaper { burst: BURST_INWARD, ..Shaper::default() }
    }

    /// Caps the rate, as if nothing had been sent before.
    pub fn set_cap(&mut self, bytes_per_second: Option<u64>) {
        let cap = bytes_per_second.filter(|cap| *cap > 0);
        if self.cap_bytes_per_second != cap {
            *self = Shaper { burst: self.burst, cap_bytes_per_second: cap, ..Shaper::default() };
        }
    }

    /// As [`Shaper::set_cap`], for one that who is bound by it may have changed at will: what was taken too much is still to be
    /// paid, at the new rate, and what was used of a burst is used.
    pub fn change_cap(&mut self, bytes_per_second: Option<u64>, now: Instant) {
        let before = self.cap_bytes_per_second.zip(self.free_at);
        self.set_cap(bytes_per_second);
        if let (Some((before, free_at)), Some(after)) = (before, self.cap_bytes_per_second) {
            let owed = free_at.saturating_since(now).as_nanos().saturating_mul(before.into()) / u128::from(after);
            let owed = Duration::from_nanos(u64::try_from(owed).unwrap_or(u64::MAX));
            self.free_at = Some(if free_at > now { now + owed } else { free_at });
        }
    }

    /// When a packet that waits may go.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.free_at.filter(|_| self.waits)
    }

    /// Time has passed: nobody waits for a time that is over. What waited may be gone, acknowledged or given up.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.waits &= self.free_at.is_some_and(|at| at > now);
    }

    /// Whether a packet may go now; if not, it waits.
    pub fn is_free(&mut self, now: Instant) -> bool {
        self.waits = self.free_at.is_some_and(|at| at > now);
        !self.waits
    }

    /// A packet has gone.
    pub fn sent(&mut self, bytes: usize, now: Instant) {
        let Some(cap) = self.cap_bytes_per_second else { return };
        let nanos = (bytes as u64).saturating_mul(SECOND_NANOS).div_ceil(cap);
        // What was saved up is paid first: the time is behind the clock by as much.
        let full = Instant::from_nanos(now.as_nanos().saturating_sub(self.burst.as_nanos() as u64));
        let from = self.free_at.map_or(full, |at| at.max(full));
        self.free_at = Some(from + Duration::from_nanos(nanos));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that go in a time, by packets of a size, when something always waits.
    fn sent(shaper: &mut Shaper, packet_bytes: usize, from: Instant, duration: Duration) -> u64 {
        let (mut now, mut bytes) = (from, 0);
        while now < from + duration {
            while shaper.is_free(now) {
                shaper.sent(packet_bytes, now);
                bytes += packet_bytes as u64;
            }
            now += Duration::from_micros(100);
        }
        bytes
    }

    #[test]
    fn no_more_goes_than_the_cap_and_no_less() {
        for (cap, packet_bytes) in [(1_000_000, 1500), (100_000_000, 9000), (50_000, 9000)] {
            let mut shaper = Shaper::default();
            shaper.set_cap(Some(cap));
            let start = Instant::from_nanos(SECOND_NANOS);
            let bytes = sent(&mut shaper, packet_bytes, start, Duration::from_secs(10));
            let most = 10 * cap + cap / 100 + 2 * packet_bytes as u64;
            assert!((10 * cap..=most).contains(&bytes), "{bytes} at {cap}");
        }
    }

    #[test]
    fn silence_saves_no_more_than_a_burst() {
        let mut shaper = Shaper::default();
        shaper.set_cap(Some(1_000_000));
        sent(&mut shaper, 1500, Instant::from_nanos(SECOND_NANOS), Duration::from_secs(1));
        let bytes = sent(&mut shaper, 1500, Instant::from_nanos(60 * SECOND_NANOS), Duration::from_millis(1));
        assert!(bytes <= 10_000 + 2 * 1500, "{bytes}");
    }

    #[test]
    fn a_cap_that_changes_often_gives_no_more() {
        let mut shaper = Shaper::inward();
        shaper.set_cap(Some(1_000_000));
        let mut now = Instant::from_nanos(SECOND_NANOS);
        let mut bytes = 0;
        for round in 0..100 {
            shaper.change_cap(Some(1_000_000 - round % 2 * 500_000), now);
            bytes += sent(&mut shaper, 1500, now, Duration::from_millis(100));
            now += Duration::from_millis(100);
        }
        assert!((7_000_000..8_300_000).contains(&bytes), "{bytes} in 10 s, the half of it at 1 MB/s, the other at 0.5");
        shaper.change_cap(Some(1), now);
        shaper.sent(1500, now);
        assert!(!shaper.is_free(now + Duration::from_secs(1000)));
        shaper.change_cap(Some(1_000_000), now);
        assert!(shaper.is_free(now + Duration::from_millis(10)), "what is owed is paid at the new rate");
    }

    #[test]
    fn no_deadline_is_left_when_what_waited_is_gone() {
        let mut shaper = Shaper::default();
        shaper.set_cap(Some(1_000_000));
        let now = Instant::from_nanos(SECOND_NANOS);
        shaper.sent(100_000, now);
        assert!(!shaper.is_free(now));
        let at = shaper.poll_timeout().unwrap();
        shaper.handle_timeout(now);
        assert_eq!(shaper.poll_timeout(), Some(at), "it is still to come");
        shaper.handle_timeout(at);
        assert_eq!(shaper.poll_timeout(), None, "a time that is over, for ever, wakes its owner again and again");
    }

    #[test]
    fn without_a_cap_nothing_waits() {
        let mut shaper = Shaper::default();
        shaper.set_cap(Some(1));
        shaper.sent(1500, Instant::ZERO);
        assert!(!shaper.is_free(Instant::ZERO + Duration::from_secs(1)));
        shaper.set_cap(None);
        shaper.sent(1500, Instant::ZERO);
        assert!(shaper.is_free(Instant::ZERO) && shaper.poll_timeout().is_none());
    }
}
