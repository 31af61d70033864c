//! Detects a peer that gives or takes its data so slowly that it might as well not.

use std::time::Duration;

use crate::Instant;

/// A peer may stay below the least progress for this long.
const SPAN: Duration = Duration::from_secs(2);

/// Progress is to be measured so often while somebody waits for it: who is too slow is found at most this much later.
pub const HEADWAY_PERIOD: Duration = Duration::from_millis(250);

/// The least progress in that time, in bytes, or all that is left if that is less: every usable link is faster.
const LEAST_BYTES: u64 = 32 << 10;

/// The progress of one peer, sampled again and again. After a pause between samples the measurement begins anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headway(Option<Mark>);

#[derive(Clone, Copy, Debug)]
struct Mark {
    done_bytes: u64,
    /// This much progress is enough.
    least_bytes: u64,
    since: Instant,
    looked_at: Instant,
}

impl Headway {
    /// Whether a peer is too slow that has done so much and has so much left to do.
    pub fn is_too_slow(&mut self, done_bytes: u64, left_bytes: u64, now: Instant) -> bool {
        let is_watched = |mark: &Mark| now.saturating_since(mark.looked_at) <= SPAN;
        let is_behind = |mark: &Mark| done_bytes.saturating_sub(mark.done_bytes) < mark.least_bytes;
        let known = self.0.filter(is_watched).filter(is_behind).filter(|_| left_bytes > 0);
        let fresh = Mark { done_bytes, least_bytes: left_bytes.min(LEAST_BYTES), since: now, looked_at: now };
        let mark = Mark { looked_at: now, ..known.unwrap_or(fresh) };
        self.0 = (left_bytes > 0).then_some(mark);
        now.saturating_since(mark.since) >= SPAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    /// How long it takes until somebody is too slow who does so much in a tenth of a second, in tenths.
    fn found(bytes_each: u64, mut left_bytes: impl FnMut(u64) -> u64) -> Option<u32> {
        let mut headway = Headway::default();
        (0..1000).find(|tenths| {
            let done_bytes = u64::from(*tenths) * bytes_each;
            headway.is_too_slow(done_bytes, left_bytes(done_bytes), Instant::ZERO + TENTH * *tenths)
        })
    }

    #[test]
    fn who_trickles_is_found_as_soon_as_who_stands_still() {
        assert_eq!([found(0, |_| 1 << 20), found(1, |_| 1 << 20), found(1000, |_| 1 << 20)], [Some(20); 3]);
        assert_eq!(found(2000, |_| 1 << 20), None, "a slow link is slow");
    }

    #[test]
    fn who_has_little_to_do_need_not_do_more_than_that() {
        assert_eq!([found(0, |_| 0), found(100, |_| 512)], [None; 2]);
        assert_eq!(found(100, |_| 1 << 12), Some(20));
        assert_eq!(found(0, |_| 1), Some(20));
    }

    #[test]
    fn who_had_nothing_to_do_or_was_not_looked_at_begins_anew() {
        let (mut headway, mut now) = (Headway::default(), Instant::ZERO);
        for left_bytes in [1, 0, 1] {
            now += SPAN - TENTH;
            assert!(!headway.is_too_slow(0, left_bytes, now), "{now:?}");
        }
        now += SPAN + TENTH;
        assert!(!headway.is_too_slow(0, 1, now), "nobody has looked");
        now += SPAN;
        assert!(headway.is_too_slow(0, 1, now));
    }
}
