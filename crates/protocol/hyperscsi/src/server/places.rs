//! Who may have another session: a client and an address have so many places at the most, and one that has none left makes room
//! among its own. Nobody's session ends for another's: a client that was away for a while finds its commands where it left them.

use sanwire_core::quota::{
    Account, SESSIONS, SESSIONS_OF_ADDRESS, SESSIONS_OF_CLIENT, SESSIONS_OF_NETWORK, SLOTS_OF_CLIENT, Usage,
};
use sanwire_core::{ClientId, NexusId, Peer, SessionEnd, Tally};

use super::Server;
use super::session::Session;
use crate::succession;

/// The places for sessions, and who has wanted more.
pub(super) struct Places {
    of_client: Account,
    of_address: Account,
    of_network: Account,
    of_shard: Account,
    slots: Account,
    nearby: Nearby,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            of_client: Account::new(&SESSIONS_OF_CLIENT),
            of_address: Account::new(&SESSIONS_OF_ADDRESS),
            of_network: Account::new(&SESSIONS_OF_NETWORK),
            of_shard: Account::new(&SESSIONS),
            slots: Account::new(&SLOTS_OF_CLIENT),
            nearby: Nearby::default(),
        }
    }
}

/// How many sessions of clients that are not listed come from each network, and from each address.
#[derive(Default)]
struct Nearby {
    of_network: Tally<Peer>,
    of_address: Tally<Peer>,
}

/// A session that wants to begin, or to go on.
#[derive(Clone, Copy)]
pub(super) struct Applicant {
    pub(super) client: ClientId,
    pub(super) session: u64,
    pub(super) host: Peer,
}

/// Sessions that count when another one wants to begin.
#[derive(Default)]
struct Held {
    of_client: u64,
    /// None count for a client that is listed: it does not wait for others of its address, who may be anybody.
    of_address: u64,
    of_network: u64,
    of_shard: u64,
}

impl Places {
    /// How its quotas are used.
    pub(super) fn usages(&self) -> [Usage; 5] {
        [&self.of_client, &self.of_address, &self.of_network, &self.of_shard, &self.slots].map(Account::usage)
    }

    /// A session is over.
    pub(super) fn leave(&mut self, session: &Session) {
        session.counted_at.into_iter().for_each(|host| self.nearby.take_off(host));
    }

    /// A session goes on from another host.
    pub(super) fn moved(&mut self, session: &mut Session, host: Peer) {
        session.host = host;
        self.count(session, session.counted_at.is_some());
    }

    /// Counts a session where it is, or not at all.
    fn count(&mut self, session: &mut Session, is_counted: bool) {
        self.leave(session);
        session.counted_at = is_counted.then_some(session.host);
        session.counted_at.into_iter().for_each(|host| self.nearby.add(host));
    }

    fn has_room(&self, held: &Held) -> bool {
        let Places { of_client, of_address, of_network, of_shard, .. } = self;
        let of_where = of_address.has_room(held.of_address, 1) && of_network.has_room(held.of_network, 1);
        of_where && of_client.has_room(held.of_client, 1) && of_shard.has_room(held.of_shard, 1)
    }

    fn admits(&mut self, held: &Held) -> bool {
        let Places { of_client, of_address, of_network, of_shard, .. } = self;
        let of_where = of_address.admits(held.of_address, 1) && of_network.admits(held.of_network, 1);
        of_where && of_client.admits(held.of_client, 1) && of_shard.admits(held.of_shard, 1)
    }
}

impl Nearby {
    fn add(&mut self, host: Peer) {
        self.of_network.add(host.source());
        self.of_address.add(host);
    }

    fn take_off(&mut self, host: Peer) {
        self.of_network.take_off(&host.source());
        self.of_address.take_off(&host);
    }
}

impl Server {
    /// A session is there from now on.
    pub(super) fn take_in(&mut self, mut session: Session) {
        let is_listed = self.config.admission.is_listed(session.client);
        self.places.count(&mut session, !is_listed);
        self.by_client.insert((session.client, session.number), session.nexus);
        self.sessions.insert(session.nexus, session);
    }

    /// Other clients may be listed now.
    pub(super) fn note_listed(&mut self) {
        for session in self.sessions.values_mut() {
            let is_listed = self.config.admission.is_listed(session.client);
            self.places.count(session, !is_listed);
        }
    }

    /// Whether a session could begin now: asked before the costly part of a handshake, and ends nothing.
    pub(super) fn could_have_place(&self, applicant: Applicant) -> bool {
        let is_known = self.by_client.contains_key(&(applicant.client, applicant.session));
        is_known || self.places.has_room(&self.held(applicant)) || self.own_idle(applicant.client).next().is_some()
    }

    /// Makes a place for a session, if need be by ending one of the same client that has been without a connection for longest, and
    /// executes nothing. One that goes on has its place.
    pub(super) fn make_place(&mut self, applicant: Applicant) -> bool {
        if self.by_client.contains_key(&(applicant.client, applicant.session)) {
            return true;
        }
        while !self.places.has_room(&self.held(applicant)) {
            let Some(idle) = longest_away(self.own_idle(applicant.client)) else { break };
            self.close_session(idle, SessionEnd::Lost);
        }
        let held = self.held(applicant);
        self.places.admits(&held)
    }

    /// Those that end when it begins do not count.
    fn held(&self, Applicant { client, session, host }: Applicant) -> Held {
        let ending = succession::predecessors(session);
        let ends = || self.by_client.range((client, ending.start)..(client, ending.end));
        let count = ends().count();
        let of_client = self.by_client.range((client, 0)..=(client, u64::MAX)).count() - count;
        let mut held =
            Held { of_client: of_client as u64, of_shard: (self.sessions.len() - count) as u64, ..Held::default() };
        if self.config.admission.is_listed(client) {
            return held;
        }
        let Nearby { of_network, of_address } = &self.places.nearby;
        held.of_network = of_network.count(&host.source());
        held.of_address = of_address.count(&host);
        for at in ends().filter_map(|(_, nexus)| self.sessions.get(nexus)?.counted_at) {
            held.of_network -= u64::from(at.source() == host.source());
            held.of_address -= u64::from(at == host);
        }
        held
    }

    /// What is remembered of commands for the sessions of a client that have no connection is bounded, however many there are.
    pub(super) fn bound_slots(&mut self, client: ClientId) {
        loop {
            let slots = self.own_orphans(client).map(|session| session.slots() as u64).sum();
            if self.places.slots.admits(slots, 0) {
                return;
            }
            // One of which nothing is remembered would free nothing.
            let remembered = self.own_idle(client).filter(|session| session.slots() > 0);
            let Some(idle) = longest_away(remembered) else { return };
            self.close_session(idle, SessionEnd::Lost);
        }
    }

    /// The sessions of a client that can end without anything's being called back.
    fn own_idle(&self, client: ClientId) -> impl Iterator<Item = &Session> {
        self.own_orphans(client).filter(|session| session.executing() == 0)
    }

    fn own_orphans(&self, client: ClientId) -> impl Iterator<Item = &Session> {
        self.sessions_of(client).filter(|session| session.connection.is_none())
    }
}

fn longest_away<'a>(sessions: impl Iterator<Item = &'a Session>) -> Option<NexusId> {
    sessions.min_by_key(|session| session.orphaned_at).map(|session| session.nexus)
}
