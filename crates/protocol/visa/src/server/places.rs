//! Sessions that come, and for which there is a place or not ([`Places`](sanwire_exchange::places::Places)).

use sanwire_core::{ClientId, Instant, NexusId, Peer, SessionEnd};
use sanwire_exchange::places::{Applicant, Resident, Residents, Vacancy};

use super::Server;
use super::session::Session;

impl Resident for Session {
    fn counted_at(&self) -> Option<Peer> {
        self.counted_at
    }

    fn set_counted_at(&mut self, host: Option<Peer>) {
        self.counted_at = host;
    }

    fn away_since(&self) -> Option<Instant> {
        self.connection.is_none().then_some(self.orphaned_at)
    }

    fn executing(&self) -> usize {
        self.commands.executing()
    }

    fn slots(&self) -> usize {
        self.commands.slots()
    }
}

impl Server {
    /// A session is there from now on.
    pub(super) fn take_in(&mut self, nexus: NexusId, mut session: Session) {
        let is_listed = self.config.doorkeeper.is_listed(session.client);
        let host = (!is_listed).then_some(session.host);
        self.places.count(&mut session, host);
        self.by_client.insert((session.client, session.number), nexus);
        self.sessions.insert(nexus, session);
    }

    /// Other clients may be listed now ([`super::Doorkeeper::is_listed`]).
    pub fn note_listed(&mut self) {
        for session in self.sessions.values_mut() {
            let is_listed = self.config.doorkeeper.is_listed(session.client);
            let host = (!is_listed).then_some(session.host);
            self.places.count(session, host);
        }
    }

    /// Makes a place for a session, if need be by ending others of its client.
    pub(super) fn make_place(&mut self, (client, session): (ClientId, u64), host: Peer) -> bool {
        let applicant = Applicant { client, session, host, is_listed: self.config.doorkeeper.is_listed(client) };
        loop {
            let residents = Residents { sessions: &self.sessions, by_client: &self.by_client };
            match self.places.ask(&residents, applicant) {
                Vacancy::Place => return true,
                Vacancy::After(idle) => self.close_session(idle, SessionEnd::Lost),
                Vacancy::Full => return false,
            }
        }
    }

    /// What is remembered of commands for the sessions of a client that have no connection is bounded, however many there are.
    pub(super) fn bound_slots(&mut self, client: ClientId) {
        loop {
            let residents = Residents { sessions: &self.sessions, by_client: &self.by_client };
            let Some(idle) = self.places.beyond_slots(&residents, client) else { return };
            self.close_session(idle, SessionEnd::Lost);
        }
    }
}

#[cfg(test)]
mod tests;
