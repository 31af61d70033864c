//! Targets that do not put the commands of several connections into their order (RFC 7143 4.2.2.1): what overtakes others, or was
//! overtaken, they drop, or they end the session for it. They are used with one connection.

use std::time::Duration;

use sanwire_core::Instant;

use super::{Client, State};
use crate::serial::Serial;

/// A session with several connections that is ended sooner is short, ...
const SHORT: Duration = Duration::from_secs(60);

/// ... and so many of them in a row are no accident.
const SHORT_MAX: u8 = 3;

impl Client {
    /// Whether the target has dropped a command: it has answered a question that came behind it on this connection (number),
    /// and still expects it. Nothing but the order of several connections explains that, where damage is not recovered from.
    pub(super) fn has_dropped_command(&mut self, connection: u16, pinged_behind: Serial) -> bool {
        let State::Live(session) = &self.state else { return false };
        let expected = session.expected_command();
        if !session.was_wide || session.recovers_data() || expected >= pinged_behind {
            return false;
        }
        self.tasks.is_sent_as(connection, expected)
    }

    /// The target has ended a session with several connections while commands were under way.
    pub(super) fn note_end(&mut self, now: Instant) {
        let State::Live(session) = &self.state else { return };
        let is_orderly = session.leave_at.is_some() || session.recovers_connections();
        if !session.was_wide || is_orderly || self.tasks.in_transit() == 0 {
            return;
        }
        let is_short = now.saturating_since(session.begun_at) < SHORT;
        self.short_sessions = if is_short { self.short_sessions + 1 } else { 0 };
        if self.short_sessions >= SHORT_MAX {
            self.narrow();
        }
    }

    /// From the next session on there is one connection.
    pub(super) fn narrow(&mut self) {
        (self.config.wishes.connections, self.is_narrowed, self.short_sessions) = (1, true, 0);
    }
}
