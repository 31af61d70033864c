//! What the driver was told of the connection.

/// Whether it believes that there is a connection, and whether it knows that the server may be another one.
#[derive(Default)]
pub(super) struct Standing {
    was_connected: bool,
    is_up: bool,
    is_fresh: bool,
}

impl Standing {
    /// There is a connection, in the session of before or in a new one. Whether the driver has to be told first that the server was
    /// away: a new session may begin without an outage that anybody has noticed, and what was given belongs to the one before.
    pub(super) fn connected(&mut self, is_resumed: bool) -> bool {
        self.is_fresh |= !is_resumed || !self.was_connected;
        self.is_fresh && self.disconnected()
    }

    /// There is none any more. Whether the driver has to be told.
    pub(super) fn disconnected(&mut self) -> bool {
        std::mem::replace(&mut self.is_up, false)
    }

    /// The driver is told that there is a connection; the session is still the one that it knows, if this is `true`.
    pub(super) fn told(&mut self) -> bool {
        let is_resumed = !self.is_fresh;
        *self = Standing { was_connected: true, is_up: true, is_fresh: false };
        is_resumed
    }

    /// The server has begun a session of which the driver does not know yet: what is known of the disk is of the one before.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Whether the driver was told of a connection ever.
    pub(super) fn was_connected(&self) -> bool {
        self.was_connected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_session_is_told_as_one_whatever_connections_come_before_the_disk_has_answered() {
        let mut standing = Standing::default();
        assert!(!standing.connected(false) && standing.is_fresh(), "nobody was told of a connection before");
        assert!(!standing.connected(true) && !standing.told() && !standing.is_fresh());
        assert!(!standing.connected(true) && standing.told(), "by another connection, the session goes on");
        assert!(standing.connected(false), "a server that was restarted quickly was away all the same");
        assert!(!standing.connected(true) && standing.is_fresh(), "the disk has not answered yet");
        assert!(!standing.disconnected(), "that is known");
        assert!(!standing.connected(true) && !standing.told() && standing.was_connected());
        assert!(standing.disconnected() && !standing.connected(true) && standing.told());
    }
}
