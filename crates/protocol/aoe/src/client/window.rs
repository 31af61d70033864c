//! How many commands are under way, and how long an answer may take.

use std::time::Duration;

use sanwire_core::Instant;

/// Before anything was measured.
const RTO_FIRST: Duration = Duration::from_millis(500);
/// A disk may take so long even where most answers come from memory.
const RTO_MIN: Duration = Duration::from_millis(30);
const RTO_MAX: Duration = Duration::from_secs(2);

/// Commands under way at first.
const FIRST: u32 = 8;

/// The window and the round trip, as RFC 6298 and the usual congestion control of TCP have them. Every message has a tag of its own, so
/// each answer measures.
#[derive(Clone, Debug)]
pub(super) struct Window {
    max: u32,
    size: u32,
    threshold: u32,
    /// Answers since the window was last opened.
    answers: u32,
    smoothed: Option<(Duration, Duration)>,
    /// Losses of what was sent before this are of the same congestion.
    recovered_at: Instant,
}

impl Window {
    pub(super) fn new(max: u16) -> Self {
        let max = u32::from(max.clamp(1, 256));
        let recovered_at = Instant::ZERO;
        Window { max, size: FIRST.min(max), threshold: max, answers: 0, smoothed: None, recovered_at }
    }

    /// Commands that may be under way.
    pub(super) fn size(&self) -> usize {
        self.size as usize
    }

    /// How long an answer may take.
    pub(super) fn timeout(&self) -> Duration {
        let told = self.smoothed.map(|(mean, deviation)| mean + 4 * deviation);
        told.map_or(RTO_FIRST, |told| told.clamp(RTO_MIN, RTO_MAX))
    }

    /// An answer came after so long.
    pub(super) fn answered(&mut self, took: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (took, took / 2),
            Some((mean, deviation)) => ((7 * mean + took) / 8, (3 * deviation + mean.abs_diff(took)) / 4),
        });
        self.answers += 1;
        if self.size < self.threshold || self.answers >= self.size {
            self.answers = 0;
            self.size = (self.size + 1).min(self.max);
        }
    }

    /// What was sent at this time was not answered in time.
    pub(super) fn lost(&mut self, sent_at: Instant, now: Instant) {
        if sent_at >= self.recovered_at {
            self.threshold = (self.size / 2).max(2).min(self.max);
            self.size = self.threshold;
            (self.answers, self.recovered_at) = (0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_opens_by_answers_and_halves_once_for_each_congestion() {
        let mut window = Window::new(64);
        assert_eq!((window.size(), window.timeout()), (8, RTO_FIRST));
        (0..100).for_each(|_| window.answered(Duration::from_micros(100)));
        assert_eq!((window.size(), window.timeout()), (64, RTO_MIN));
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        [1, 1, 2, 3].into_iter().for_each(|sent| window.lost(at(sent), at(10)));
        assert_eq!(window.size(), 32);
        window.lost(at(11), at(20));
        assert_eq!(window.size(), 16);
        (0..16).for_each(|_| window.answered(Duration::from_micros(100)));
        assert_eq!(window.size(), 17, "slowly, near to where it was lost");
        assert_eq!(Window::new(2).size(), 2, "no more than the target takes");
    }
}
