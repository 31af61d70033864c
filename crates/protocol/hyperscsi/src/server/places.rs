//! Sessions that come, and for which there is a place or not ([`Places`](sanwire_exchange::places::Places)).

use sanwire_core::{ClientId, Instant, Peer, SessionEnd};
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
        Session::executing(self)
    }

    fn slots(&self) -> usize {
        Session::slots(self)
    }
}

impl Server {
    /// Who wants a session, from this host.
    pub(super) fn applicant(&self, (client, session): (ClientId, u64), host: Peer) -> Applicant {
        Applicant { client, session, host, is_listed: self.config.admission.is_listed(client) }
    }

    /// A session is there from now on.
    pub(super) fn take_in(&mut self, mut session: Session) {
        let is_listed = self.config.admission.is_listed(session.client);
        let host = (!is_listed).then_some(session.host);
        self.places.count(&mut session, host);
        self.by_client.insert((session.client, session.number), session.nexus);
        self.sessions.insert(session.nexus, session);
    }

    /// Other clients may be listed now.
    pub(super) fn note_listed(&mut self) {
        for session in self.sessions.values_mut() {
            let is_listed = self.config.admission.is_listed(session.client);
            let host = (!is_listed).then_some(session.host);
            self.places.count(session, host);
        }
    }

    /// Whether a session could begin now: asked before the costly part of a handshake, and ends nothing.
    pub(super) fn could_have_place(&self, applicant: Applicant) -> bool {
        let residents = Residents { sessions: &self.sessions, by_client: &self.by_client };
        self.places.could_begin(&residents, applicant)
    }

    /// Makes a place for a session, if need be by ending others of its client.
    pub(super) fn make_place(&mut self, applicant: Applicant) -> bool {
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
