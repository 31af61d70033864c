//! A client's connection: when its silence means that the server is gone.

use std::time::Duration;

use sanwire_core::Instant;

use super::ServerInfo;
use crate::channel::Channel;
use crate::option_exchange::OptionExchange;

/// A server that owes an answer for this long is sought anew.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// After a hint that the server does not know us, it has this long to prove that it does.
const HINT_GRACE: Duration = Duration::from_millis(50);

/// What a client has while it is connected.
pub(super) struct Connected {
    pub(super) channel: Channel,
    /// What the server was at first.
    pub(super) first_info: ServerInfo,
    pub(super) terms: OptionExchange,
    /// The server hinted that it does not know us.
    pub(super) hinted_at: Option<Instant>,
}

impl Connected {
    /// What the server is now.
    pub(super) fn info(&self) -> ServerInfo {
        ServerInfo {
            packet_max_bytes: self.channel.packet_max_bytes() as u32,
            transfer_max_bytes: self.terms.transfer_max_bytes(),
            transfer_limit_bytes: self.terms.transfer_limit_bytes(),
            options: self.terms.agreed().clone(),
            ..self.first_info.clone()
        }
    }

    /// When to ask for a sign of life, or to stop waiting for one.
    pub(super) fn silent_at(&self, idle: bool) -> Instant {
        if let Some(hinted_at) = self.hinted_at {
            return hinted_at + self.hint_grace();
        }
        if let Some(since) = self.channel.unanswered_since() {
            return since + SILENCE_MAX;
        }
        let silence = if idle { self.first_info.keep_alive * 3 } else { SILENCE_MAX };
        self.channel.last_heard() + silence
    }

    /// Anybody can hint; so the server has the time of some round trips to prove that it knows us.
    fn hint_grace(&self) -> Duration {
        HINT_GRACE.max(self.channel.round_trip().unwrap_or_default() * 3)
    }

    pub(super) fn is_dead(&mut self, now: Instant) -> bool {
        if let Some(hinted_at) = self.hinted_at
            && hinted_at + self.hint_grace() <= now
        {
            if self.channel.last_heard() <= hinted_at {
                return true;
            }
            self.hinted_at = None;
        }
        self.channel.is_stuck() || self.channel.unanswered_since().is_some_and(|since| since + SILENCE_MAX <= now)
    }
}
