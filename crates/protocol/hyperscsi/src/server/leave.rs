//! Sessions that end without their clients having said so.

use std::time::Duration;

use sanwire_core::{ClientId, Instant};

use super::Server;

impl Server {
    /// Ends the sessions of a client, with their connections. It learns of it when it asks for something.
    pub fn drop_client(&mut self, client: ClientId, now: Instant) {
        let of_client = self.sessions.values().filter(|session| session.client == client);
        let dropped: Vec<_> = of_client.map(|session| (session.nexus, session.connection)).collect();
        for (nexus, connection) in dropped {
            if let Some(id) = connection {
                self.drop_connection(id, now);
            }
            self.close_session(nexus);
        }
        self.half_opens.forget(client);
        self.share_windows(now);
    }

    pub(super) fn expire_sessions(&mut self, now: Instant) {
        let idle_max = self.config.session_idle_max;
        let mut expired = Vec::new();
        for session in self.sessions.values().filter(|session| session.connection.is_none()) {
            let at = session.orphaned_at + idle_max;
            if at <= now && session.executing() == 0 {
                expired.push(session.nexus);
            } else {
                let at = at.max(now + Duration::from_secs(1));
                self.next_deadline = Some(self.next_deadline.map_or(at, |next| next.min(at)));
            }
        }
        expired.into_iter().for_each(|nexus| self.close_session(nexus));
    }
}
