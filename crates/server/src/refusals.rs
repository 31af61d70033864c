//! Logins that were refused: told a burst at a time, so that a flood of them costs neither memory nor lines.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use sanwire_core::Instant;

/// What comes within this after the first of its kind is told with it.
const BURST: Duration = Duration::from_secs(1);

/// Bursts that are told with their reasons; of what others do meanwhile only the number is.
const KNOWN_MAX: usize = 16;

const OTHERS: &str = "logins of many kinds";

/// Logins from one address that were refused for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Burst {
    /// Of logins of many kinds: that of the first.
    pub(crate) from: IpAddr,
    /// What the login is called.
    pub(crate) login: &'static str,
    pub(crate) reason: String,
    pub(crate) count: u64,
    ends_at: Instant,
}

/// The bursts that are not told yet, oldest first.
#[derive(Default)]
pub(crate) struct Refusals(VecDeque<Burst>);

impl Refusals {
    /// Counts a refusal; tells whether it is the first of its burst.
    pub(crate) fn note(&mut self, from: IpAddr, login: &'static str, reason: &str, now: Instant) -> bool {
        let is_known = |burst: &&mut Burst| (burst.from, burst.login, &*burst.reason) == (from, login, reason);
        let known = self.0.iter_mut().find(is_known);
        if let Some(burst) = known {
            burst.count += 1;
            return false;
        }
        let reason = if self.0.len() < KNOWN_MAX { reason } else { OTHERS };
        match self.0.iter_mut().find(|burst| reason == OTHERS && burst.reason == OTHERS) {
            Some(burst) => {
                burst.count += 1;
                false
            }
            None => {
                self.0.push_back(Burst { from, login, reason: reason.to_owned(), count: 1, ends_at: now + BURST });
                true
            }
        }
    }

    /// When [`Refusals::poll`] next has one.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|burst| burst.ends_at)
    }

    /// A burst that is over.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Burst> {
        self.0.pop_front_if(|burst| burst.ends_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_bounded_and_wholly_counted() {
        let (mut refusals, now) = (Refusals::default(), Instant::ZERO);
        let hosts = |host: u8| IpAddr::from([10, 0, 0, host]);
        let mut firsts = 0;
        let mut note = |host, reason: &str, at| firsts += usize::from(refusals.note(host, "a login", reason, at));
        (0..100).for_each(|_| note(hosts(1), "wrong secret", now));
        note(hosts(2), "wrong secret", now + BURST / 2);
        (0..10_000).for_each(|number| note(hosts(3), &format!("no target {number}"), now + BURST / 2));
        assert_eq!(firsts, KNOWN_MAX + 1, "no more lines than bursts");
        assert_eq!((refusals.poll_timeout(), refusals.poll(now)), (Some(now + BURST), None));
        let first = refusals.poll(now + BURST).unwrap();
        assert_eq!((first.from, &*first.reason, first.count), (hosts(1), "wrong secret", 100));
        assert_eq!(refusals.poll(now + BURST), None, "the others are not over");
        let rest: Vec<Burst> = std::iter::from_fn(|| refusals.poll(now + 2 * BURST)).collect();
        assert_eq!((rest.len(), rest.iter().map(|burst| burst.count).sum::<u64>()), (KNOWN_MAX, 10_001));
        assert_eq!(refusals.poll_timeout(), None);
    }
}
