//! What an administrator reads of a server that is away: why, once, and when it is back.

use std::time::Duration;

use sanwire_core::Instant;
use sanwire_nbd::Event;

use super::Address;

/// The same reason is not told again before so long has passed.
const SILENCE: Duration = Duration::from_secs(60);

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Outage {
    told: String,
    told_at: Option<Instant>,
}

impl Outage {
    pub(super) fn tell(&mut self, address: &Address, event: &Event, now: Instant) {
        match event {
            Event::Lost { reason } if self.is_news(reason, now) => {
                tracing::warn!("NBD server {address}: {reason}; reconnecting");
            }
            Event::AttemptFailed { reason, .. } if self.is_news(reason, now) => {
                tracing::warn!("NBD server {address} cannot be used: {reason}; it is tried again");
            }
            Event::Restored { given_again } => {
                tracing::info!("NBD server {address}: reconnected; {given_again} answered writes are given again");
            }
            _ => {}
        }
    }

    fn is_news(&mut self, reason: &str, now: Instant) -> bool {
        let is_news = self.told != reason || self.told_at.is_none_or(|at| at + SILENCE <= now);
        if is_news {
            (self.told, self.told_at) = (reason.to_owned(), Some(now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_when_it_is_another_one_or_after_a_while() {
        let (mut outage, mut now) = (Outage::default(), Instant::ZERO);
        assert!(outage.is_news("refused", now) && !outage.is_news("refused", now));
        assert!(outage.is_news("another size", now) && !outage.is_news("another size", now));
        now += SILENCE;
        assert!(outage.is_news("another size", now));
    }
}
