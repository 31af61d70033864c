//! Who may have another session: a client, an address and a network have so many places at the most, and a client that has none left
//! makes room among its own sessions. Nobody's session ends for another's: a client that was away for a while finds its commands where
//! it left them.

use std::collections::BTreeMap;

use sanwire_core::quota::{
    Account, SESSIONS, SESSIONS_OF_ADDRESS, SESSIONS_OF_CLIENT, SESSIONS_OF_NETWORK, SLOTS_OF_CLIENT, Usage,
};
use sanwire_core::{ClientId, Instant, NexusId, Peer, Tally};

use crate::succession;

/// A session, as far as it takes a place.
pub trait Resident {
    /// Where it counts among the sessions of clients that are not listed: what [`Places::count`] has set.
    fn counted_at(&self) -> Option<Peer>;

    /// Sets that.
    fn set_counted_at(&mut self, host: Option<Peer>);

    /// Since when it has no connection; `None` while it has one.
    fn away_since(&self) -> Option<Instant>;

    /// Commands that the device works on: it does not end for another one before they have ended.
    fn executing(&self) -> usize;

    /// Commands that something is remembered of, or that lie between such.
    fn slots(&self) -> usize;
}

/// The sessions of a shard, and whose they are: each by its client and number.
pub struct Residents<'a, S> {
    /// The sessions.
    pub sessions: &'a BTreeMap<NexusId, S>,
    /// Their names.
    pub by_client: &'a BTreeMap<(ClientId, u64), NexusId>,
}

/// A session that wants to begin, or to go on.
#[derive(Clone, Copy, Debug)]
pub struct Applicant {
    /// Its client.
    pub client: ClientId,
    /// Its number.
    pub session: u64,
    /// Where the client is.
    pub host: Peer,
    /// Whether the server lists this very client: it does not wait for others of its address, who may be anybody.
    pub is_listed: bool,
}

/// Whether there is a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vacancy {
    /// There is one.
    Place,
    /// There may be one when this session of the same client has ended: it has been without a connection for longest, of those for which
    /// nothing is executed.
    After(NexusId),
    /// There is none.
    Full,
}

/// The places for sessions, and who has wanted more.
#[derive(Debug)]
pub struct Places {
    of_client: Account,
    of_address: Account,
    of_network: Account,
    of_shard: Account,
    slots: Account,
    /// How many sessions of clients that are not listed come from each network, and from each address.
    from_network: Tally<Peer>,
    from_address: Tally<Peer>,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            of_client: Account::new(&SESSIONS_OF_CLIENT),
            of_address: Account::new(&SESSIONS_OF_ADDRESS),
            of_network: Account::new(&SESSIONS_OF_NETWORK),
            of_shard: Account::new(&SESSIONS),
            slots: Account::new(&SLOTS_OF_CLIENT),
            from_network: Tally::default(),
            from_address: Tally::default(),
        }
    }
}

/// Sessions that count when another one wants to begin. None from its address or network count for one of a client that is listed.
#[derive(Clone, Copy, Default)]
struct Held {
    of_client: u64,
    of_address: u64,
    of_network: u64,
    of_shard: u64,
}

impl Places {
    /// How its quotas are used.
    #[must_use]
    pub fn usages(&self) -> [Usage; 5] {
        [&self.of_client, &self.of_address, &self.of_network, &self.of_shard, &self.slots].map(Account::usage)
    }

    /// A session begins, goes on from another host, or is over (`None`); or its client is listed now, or is not. It counts there from now
    /// on, or not at all.
    pub fn count(&mut self, session: &mut impl Resident, host: Option<Peer>) {
        let before = session.counted_at();
        session.set_counted_at(host);
        if let Some(before) = before {
            self.from_network.take_off(&before.source());
            self.from_address.take_off(&before);
        }
        if let Some(host) = host {
            self.from_network.add(host.source());
            self.from_address.add(host);
        }
    }

    /// Whether a session could begin now, perhaps for another one of its client: asked before the costly part of a handshake.
    pub fn could_begin<S: Resident>(&self, residents: &Residents<'_, S>, applicant: Applicant) -> bool {
        let is_known = residents.by_client.contains_key(&(applicant.client, applicant.session));
        let has_room = || self.has_room(self.held(residents, applicant));
        is_known || has_room() || residents.longest_away(applicant.client, |_| true).is_some()
    }

    /// Whether there is a place for a session. One that goes on has its place. What is refused counts, and what would be after another
    /// session has ended does not yet.
    pub fn ask<S: Resident>(&mut self, residents: &Residents<'_, S>, applicant: Applicant) -> Vacancy {
        if residents.by_client.contains_key(&(applicant.client, applicant.session)) {
            return Vacancy::Place;
        }
        let held = self.held(residents, applicant);
        if !self.has_room(held)
            && let Some(idle) = residents.longest_away(applicant.client, |_| true)
        {
            return Vacancy::After(idle);
        }
        if self.admits(held) { Vacancy::Place } else { Vacancy::Full }
    }

    /// The session of a client that is to end since more is remembered for those that have no connection than may be: the one that was
    /// away for longest, of those that something is remembered for.
    pub fn beyond_slots<S: Resident>(&mut self, residents: &Residents<'_, S>, client: ClientId) -> Option<NexusId> {
        let away = residents.of(client).filter(|(_, session)| session.away_since().is_some());
        let slots = away.map(|(_, session)| session.slots() as u64).sum();
        if self.slots.admits(slots, 0) {
            return None;
        }
        // One of which nothing is remembered would free nothing.
        residents.longest_away(client, |session| session.slots() > 0)
    }

    /// Those that end when it begins do not count.
    fn held<S: Resident>(&self, residents: &Residents<'_, S>, applicant: Applicant) -> Held {
        let Applicant { client, session, host, is_listed } = applicant;
        let ending = succession::predecessors(session);
        let ends = || residents.by_client.range((client, ending.start)..(client, ending.end));
        let count = ends().count();
        let of_client = residents.of(client).count() - count;
        let of_shard = residents.sessions.len() - count;
        let mut held = Held { of_client: of_client as u64, of_shard: of_shard as u64, ..Held::default() };
        if is_listed {
            return held;
        }
        (held.of_network, held.of_address) = (self.from_network.count(&host.source()), self.from_address.count(&host));
        for at in ends().filter_map(|(_, nexus)| residents.sessions.get(nexus)?.counted_at()) {
            held.of_network -= u64::from(at.source() == host.source());
            held.of_address -= u64::from(at == host);
        }
        held
    }

    fn has_room(&self, held: Held) -> bool {
        let Places { of_client, of_address, of_network, of_shard, .. } = self;
        let of_where = of_address.has_room(held.of_address, 1) && of_network.has_room(held.of_network, 1);
        of_where && of_client.has_room(held.of_client, 1) && of_shard.has_room(held.of_shard, 1)
    }

    fn admits(&mut self, held: Held) -> bool {
        let Places { of_client, of_address, of_network, of_shard, .. } = self;
        let of_where = of_address.admits(held.of_address, 1) && of_network.admits(held.of_network, 1);
        of_where && of_client.admits(held.of_client, 1) && of_shard.admits(held.of_shard, 1)
    }
}

impl<'a, S: Resident> Residents<'a, S> {
    fn of(&self, client: ClientId) -> impl Iterator<Item = (NexusId, &'a S)> + use<'a, S> {
        let (sessions, own) = (self.sessions, self.by_client.range((client, 0)..=(client, u64::MAX)));
        own.filter_map(|(_, nexus)| Some((*nexus, sessions.get(nexus)?)))
    }

    /// Of a client's sessions that can end without anything's being called back, the one that was without a connection for longest.
    fn longest_away(&self, client: ClientId, may_go: impl Fn(&S) -> bool) -> Option<NexusId> {
        let idle = self.of(client).filter(|(_, session)| session.executing() == 0 && may_go(session));
        let away = idle.filter_map(|(nexus, session)| Some((session.away_since()?, nexus)));
        away.min_by_key(|(since, _)| *since).map(|(_, nexus)| nexus)
    }
}
