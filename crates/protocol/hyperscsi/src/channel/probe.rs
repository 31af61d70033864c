//! The search for the largest packet that the path takes.
//!
//! A connection begins with packets that every path takes. Then probes of falling size are sent, each as a packet of
//! just that size; the first that is answered is the size from then on.

use std::time::Duration;

use sanwire_core::Instant;

/// How often a size is tried.
const TRIES: u8 = 3;

/// A probe waits for its answer at least this long: it is better to wait than to live with small packets.
const ANSWER_MIN: Duration = Duration::from_millis(20);

/// Sizes worth trying below the limit of the links: jumbo frames, their common smaller kinds, plain Ethernet, and the
/// same less the headers of IPv4 or IPv6 with UDP.
const SIZES_BYTES: [usize; 10] = [16_000, 8972, 8952, 4352, 4072, 2304, 1500, 1472, 1452, 1372];

/// The search's state.
#[derive(Debug)]
pub(super) struct Prober {
    packet_max_bytes: usize,
    /// Sizes still to try, the next one last.
    candidates: Vec<usize>,
    tries: u8,
    next_at: Option<Instant>,
}

impl Prober {
    pub(super) fn new(base_bytes: usize, limit_bytes: usize) -> Self {
        let mut candidates: Vec<usize> =
            SIZES_BYTES.into_iter().filter(|size| (base_bytes + 1..limit_bytes).contains(size)).collect();
        if limit_bytes > base_bytes {
            candidates.insert(0, limit_bytes);
        }
        candidates.reverse();
        Prober { packet_max_bytes: base_bytes.min(limit_bytes), candidates, tries: 0, next_at: None }
    }

    pub(super) fn packet_max_bytes(&self) -> usize {
        self.packet_max_bytes
    }

    /// Whether the search is over.
    pub(super) fn is_done(&self) -> bool {
        self.candidates.is_empty()
    }

    pub(super) fn start(&mut self, now: Instant) {
        if !self.candidates.is_empty() {
            self.next_at = Some(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.tries >= TRIES && self.next_at.is_some_and(|at| at <= now) {
            self.candidates.pop();
            self.tries = 0;
        }
        if self.candidates.is_empty() {
            self.next_at = None;
        }
    }

    /// The size of the probe to send now, if one is due. `answer_time`: how long an answer may take; it is asked for only then.
    pub(super) fn poll_probe(&mut self, now: Instant, answer_time: impl FnOnce() -> Duration) -> Option<usize> {
        if self.tries >= TRIES || self.next_at.is_none_or(|at| at > now) {
            return None;
        }
        self.tries += 1;
        self.next_at = Some(now + answer_time().max(ANSWER_MIN));
        self.candidates.last().copied()
    }

    pub(super) fn answered(&mut self, size_bytes: usize) {
        if size_bytes > self.packet_max_bytes && self.candidates.contains(&size_bytes) {
            self.packet_max_bytes = size_bytes;
            self.candidates.clear();
            self.next_at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search over a path that takes packets of at most `path_bytes`.
    fn search(base: usize, limit: usize, path_bytes: usize) -> usize {
        let mut prober = Prober::new(base, limit);
        let mut now = Instant::ZERO;
        prober.start(now);
        for _ in 0..200 {
            while let Some(size) = prober.poll_probe(now, || Duration::ZERO) {
                assert!(size <= limit);
                if size <= path_bytes {
                    prober.answered(size);
                }
            }
            let Some(next) = prober.poll_timeout() else { break };
            now = now.max(next);
            prober.handle_timeout(now);
        }
        assert_eq!(prober.poll_timeout(), None, "the search ends");
        prober.packet_max_bytes()
    }

    #[test]
    fn finds_the_widest_size_that_comes_through() {
        assert_eq!(search(1200, 9000, 9000), 9000);
        assert_eq!(search(1200, 9000, 8000), 4352);
        assert_eq!(search(1200, 9000, 1500), 1500);
        assert_eq!(search(1500, 1500, 1500), 1500);
        assert_eq!(search(1200, 65_507, 1300), 1200);
    }

    #[test]
    fn an_answer_that_was_not_asked_for_changes_nothing() {
        let mut prober = Prober::new(1200, 9000);
        prober.answered(60_000);
        prober.answered(1199);
        assert_eq!(prober.packet_max_bytes(), 1200);
    }
}
