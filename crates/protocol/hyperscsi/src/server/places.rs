//! Who may have another session: a client and an address have so many places at the most, and who has none left makes room among
//! his own. Nobody's session ends for another's: whoever is away for a while finds his commands where he left them.

use sanwire_core::quota::{Account, SESSIONS, SESSIONS_OF_ADDRESS, SESSIONS_OF_CLIENT, SLOTS_OF_CLIENT, Usage};
use sanwire_core::{ClientId, NexusId, Peer};

use super::Server;
use super::session::Session;
use crate::succession;

/// The places for sessions, and who has wanted more.
pub(super) struct Places {
    of_client: Account,
    of_address: Account,
    of_shard: Account,
    slots: Account,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            of_client: Account::new(&SESSIONS_OF_CLIENT),
            of_address: Account::new(&SESSIONS_OF_ADDRESS),
            of_shard: Account::new(&SESSIONS),
            slots: Account::new(&SLOTS_OF_CLIENT),
        }
    }
}

/// A session that wants to begin, or to go on.
#[derive(Clone, Copy)]
pub(super) struct Applicant {
    pub(super) client: ClientId,
    pub(super) session: u64,
    pub(super) source: Peer,
}

impl Places {
    /// How its quotas are used.
    pub(super) fn usages(&self) -> [Usage; 4] {
        [&self.of_client, &self.of_address, &self.of_shard, &self.slots].map(Account::usage)
    }
}

impl Server {
    /// Whether a session could begin now: asked before the costly part of a handshake, and ends nothing.
    pub(super) fn could_have_place(&self, applicant: Applicant) -> bool {
        let is_known = self.by_client.contains_key(&(applicant.client, applicant.session));
        is_known || self.has_place(applicant) || self.own_idle(applicant.client).next().is_some()
    }

    fn has_place(&self, applicant: Applicant) -> bool {
        let (client, address, shard) = self.held(applicant);
        let Places { of_client, of_address, of_shard, .. } = &self.places;
        of_client.has_room(client, 1) && of_address.has_room(address, 1) && of_shard.has_room(shard, 1)
    }

    /// Makes a place for a session, if need be by ending one of the same client that has been without a connection for longest, and
    /// executes nothing. One that goes on has its place.
    pub(super) fn make_place(&mut self, applicant: Applicant) -> bool {
        if self.by_client.contains_key(&(applicant.client, applicant.session)) {
            return true;
        }
        while !self.has_place(applicant) {
            let Some(idle) = self.longest_idle(applicant.client) else { break };
            self.close_session(idle);
        }
        let (client, address, shard) = self.held(applicant);
        let Places { of_client, of_address, of_shard, .. } = &mut self.places;
        of_client.admits(client, 1) && of_address.admits(address, 1) && of_shard.admits(shard, 1)
    }

    /// Sessions that count when another one wants to begin: of its client, of its address, and of all. Those that end when it begins
    /// do not.
    fn held(&self, Applicant { client, session, source }: Applicant) -> (u64, u64, u64) {
        let ending = succession::predecessors(session);
        let stays = |other: &&Session| other.client != client || !ending.contains(&other.number);
        let of_address = self.sessions.values().filter(|session| session.source == source).filter(stays).count();
        let ends = self.by_client.range((client, ending.start)..(client, ending.end)).count();
        let of_client = self.by_client.range((client, 0)..=(client, u64::MAX)).count() - ends;
        (of_client as u64, of_address as u64, (self.sessions.len() - ends) as u64)
    }

    /// What is remembered of commands for the sessions of a client that have no connection is bounded, however many there are.
    pub(super) fn bound_slots(&mut self, client: ClientId) {
        loop {
            let slots = self.own_orphans(client).map(|session| session.slots() as u64).sum();
            if self.places.slots.admits(slots, 0) {
                return;
            }
            let Some(idle) = self.longest_idle(client) else { return };
            self.close_session(idle);
        }
    }

    fn longest_idle(&self, client: ClientId) -> Option<NexusId> {
        self.own_idle(client).min_by_key(|session| session.orphaned_at).map(|session| session.nexus)
    }

    /// The sessions of a client that can end without anything's being called back.
    fn own_idle(&self, client: ClientId) -> impl Iterator<Item = &Session> {
        self.own_orphans(client).filter(|session| session.executing() == 0)
    }

    fn own_orphans(&self, client: ClientId) -> impl Iterator<Item = &Session> {
        let own = self.by_client.range((client, 0)..=(client, u64::MAX));
        own.filter_map(|(_, nexus)| self.sessions.get(nexus)).filter(|session| session.connection.is_none())
    }
}
