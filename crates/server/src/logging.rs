//! How much of the log clients, and strangers, can fill.

use std::fmt;

use sanwire_core::Instant;
use sanwire_core::quota::{LOGGED_LOGINS, LOGGED_OFFENCES, LOGGED_REFUSALS, LOGGED_SESSIONS, Limiter, Quota, Usage};

/// What a shard may log of its sessions.
pub(crate) struct ShardLines {
    pub(crate) offences: LogLines,
    pub(crate) refusals: LogLines,
    pub(crate) sessions: LogLines,
}

impl Default for ShardLines {
    fn default() -> Self {
        let [offences, refusals] = [&LOGGED_OFFENCES, &LOGGED_REFUSALS].map(LogLines::new);
        ShardLines { offences, refusals, sessions: LogLines::of_sessions() }
    }
}

impl ShardLines {
    /// How their quotas are used.
    pub(crate) fn usages(&self) -> [Usage; 3] {
        [&self.offences, &self.refusals, &self.sessions].map(LogLines::usage)
    }

    /// Those about what was refused; whether it `is_proven` whose it was.
    pub(crate) fn about(&mut self, is_proven: bool) -> &mut LogLines {
        if is_proven { &mut self.refusals } else { &mut self.offences }
    }
}

/// Lets some lines be logged, and says with the next one how many were not.
#[derive(Debug)]
pub(crate) struct LogLines {
    limiter: Limiter,
    unlogged: u64,
}

/// Lines of the same sort that were not logged, for the end of the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unlogged(u64);

impl LogLines {
    /// About sessions that begin and end, over all wires.
    pub(crate) fn of_sessions() -> Self {
        LogLines::new(&LOGGED_SESSIONS)
    }

    /// About logins that are refused or sent elsewhere.
    pub(crate) fn of_logins() -> Self {
        LogLines::new(&LOGGED_LOGINS)
    }

    fn new(quota: &'static Quota) -> Self {
        LogLines { limiter: Limiter::new(quota), unlogged: 0 }
    }

    /// Whether a line may be logged now, and what is to be said of those that were not.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Unlogged> {
        if self.limiter.take(now) {
            return Some(Unlogged(std::mem::take(&mut self.unlogged)));
        }
        self.unlogged += 1;
        None
    }

    /// Logs a line that nobody need do anything about, if it may be logged now.
    pub(crate) fn info(&mut self, what: fmt::Arguments<'_>, now: Instant) {
        if let Some(unlogged) = self.next(now) {
            tracing::info!("{what}{unlogged}");
        }
    }

    /// The same of one that somebody should look after.
    pub(crate) fn warn(&mut self, what: fmt::Arguments<'_>, now: Instant) {
        if let Some(unlogged) = self.next(now) {
            tracing::warn!("{what}{unlogged}");
        }
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
    fn lines_about_sessions_are_bounded_too() {
        let mut lines = LogLines::of_sessions();
        assert_eq!((0..1000).filter(|_| lines.next(Instant::ZERO).is_some()).count(), 200);
        assert_eq!(lines.usage().refused, 800);
    }

    #[test]
    fn a_flood_of_lines_is_bounded_and_counted_in_the_next() {
        let (mut shard, mut now) = (ShardLines::default(), Instant::ZERO);
        let lines = shard.about(false);
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

    #[test]
    fn what_strangers_do_leaves_lines_for_what_clients_are_refused() {
        let mut shard = ShardLines::default();
        let mut logged = |is_proven| (0..1000).filter_map(|_| shard.about(is_proven).next(Instant::ZERO)).count();
        assert_eq!([logged(false), logged(true)], [20, 20]);
    }
}
