//! When something is due, and what is done then: only those are visited of which something is.

use sanwire_core::Instant;

use super::Server;

impl Server {
    /// When [`Server::handle_timeout`] is next due. It may come early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of_server = [self.next_deadline, self.kept_until];
        [self.deadlines.next_at(), self.orphans.next_at()].into_iter().chain(of_server).flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        self.next_deadline = None;
        self.keep_room_no_longer(now);
        for (id, at) in self.deadlines.take_due(now) {
            self.tend_connection(id, at, now);
        }
        self.settle_shares(now);
        self.half_opens.expire(now);
        self.half_opens.poll_timeout().inspect(|at| self.wake_at(*at));
        self.expire_sessions(now);
        self.tell_offences(now);
        self.tell_strangers(now);
    }

    /// Sees to what is due of a connection whose alarm was set for this moment.
    fn tend_connection(&mut self, id: u32, at: Instant, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.alarm.rings(at) {
            return;
        }
        #[cfg(test)]
        {
            self.visits += 1;
        }
        let due_at = connection.poll_timeout();
        if due_at > now {
            // It was put off meanwhile.
            self.deadlines.note(id, &mut connection.alarm, due_at);
            return;
        }
        connection.handle_timeout(now);
        if connection.wants_report(now) {
            connection.report(&self.config.addresses, now);
        }
        let is_dead = connection.is_dead(now);
        self.counters.unheeded += u64::from(connection.is_deaf(now));
        self.tell_news(id, now);
        if is_dead || !self.rekey(id, now) {
            return self.drop_connection(id, now);
        }
        // What it has to say may be unsent for long, if its owner cannot send.
        self.rouse(id);
    }

    /// Sees to a connection's keys; `false` when it cannot go on: its client may not connect any more, or the library refuses the
    /// keys.
    fn rekey(&mut self, id: u32, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.wants_rekey(now)) else {
            return true;
        };
        let client = self.sessions.get(&connection.nexus).map(|session| session.client);
        let is_permitted = self.config.admission.permits(connection.channel.path().peer, client);
        is_permitted && connection.rekey(|| self.random.bytes(), now).is_ok()
    }

    /// The connection may have something to send, and be due before it has sent it.
    pub(super) fn rouse(&mut self, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let due_at = connection.poll_timeout();
            self.deadlines.note(id, &mut connection.alarm, due_at);
        }
        self.touch(id);
    }

    /// Something of the server itself is due at this moment.
    pub(super) fn wake_at(&mut self, deadline: Instant) {
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
    }
}
