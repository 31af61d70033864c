//! How much of a shard's log its clients, and strangers, can fill.

use std::fmt;

use sanwire_core::Instant;
use sanwire_core::quota::{LOGGED_OFFENCES, LOGGED_SESSIONS, Limiter, Usage};

/// Lets some lines be logged, and says with the next one how many were not.
pub(crate) struct LogLines {
    limiter: Limiter,
    unlogged: u64,
}

/// Lines of the same sort that were not logged, for the end of the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unlogged(u64);

impl LogLines {
    /// About what was refused.
    pub(crate) fn of_offences() -> Self {
        LogLines { limiter: Limiter::new(&LOGGED_OFFENCES), unlogged: 0 }
    }

    /// About sessions that begin and end.
    pub(crate) fn of_sessions() -> Self {
        LogLines { limiter: Limiter::new(&LOGGED_SESSIONS), unlogged: 0 }
    }

    /// Whether a line may be logged now, and what is to be said of those that were not.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Unlogged> {
        if self.limiter.take(now) {
            return Some(Unlogged(std::mem::take(&mut self.unlogged)));
        }
        self.unlogged += 1;
        None
    }

    /// How the quota is used.
    pub(crate) fn usage(&self) -> Usage {
        self.limiter.usage()
    }
}

impl fmt::Display for Unlogged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, "; {count} lines like this are not logged, as they came too fast"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_lines_is_bounded_and_counted_in_the_next() {
        let (mut lines, mut now) = (LogLines::of_offences(), Instant::ZERO);
        let logged = (0..1000).filter_map(|_| lines.next(now)).count();
        assert_eq!(logged, 20);
        now += Duration::from_secs(1);
        let said = lines.next(now).unwrap().to_string();
        assert_eq!(said, "; 980 lines like this are not logged, as they came too fast");
        assert_eq!((lines.next(now), lines.usage().refused), (None, 981));
        let day = (0..86_400)
            .filter(|_| {
                now += Duration::from_secs(1);
                lines.next(now).is_some()
            })
            .count();
        assert_eq!(day, 86_400, "one in a second");
    }
}
