//! Which sessions there are, and which shard has each of them.

mod shares;

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sanwire_core::NexusId;
use sanwire_core::quota::{DISCOVERIES_OF_STRANGERS, Usage};

pub(crate) use self::shares::{Full, Seat};
use self::shares::{Owner, Shares};
use crate::budget::Budget;
use crate::front::{Admission, Newcomer, SessionPort};

/// What tells the nexuses of these sessions from those of HyperSCSI, which count from zero.
const NEXUS_BASE: u64 = 1 << 63;

/// Where a connection goes on that has passed its login.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) shard: usize,
    pub(crate) admission: Admission,
    /// To be kept as long as the connection is there.
    pub(crate) seat: Arc<Seat>,
    /// A session that is to end for it, and its shard.
    pub(crate) loser: Option<(usize, NexusId)>,
}

/// The sessions of all shards. Asked at logins, told of ends: never on the way of data.
#[derive(Debug)]
pub(crate) struct Registry(Mutex<Sessions>);

#[derive(Debug)]
struct Sessions {
    by_tsih: BTreeMap<u16, Session>,
    by_port: BTreeMap<SessionPort, Home>,
    /// Those without a target, the oldest first.
    discoveries: BTreeSet<(NexusId, u16)>,
    /// Such that are over, and whose connections are not closed yet: their ends do not read what is left.
    leavers: Vec<Leaver>,
    shares: Arc<Shares>,
    /// Sessions of each shard.
    loads: Vec<usize>,
    last_tsih: u16,
    last_nexus: u64,
}

#[derive(Debug)]
struct Session {
    port: SessionPort,
    shard: usize,
    nexus: NexusId,
    /// The portal group through which it came.
    group_tag: u16,
    /// Shared with its first connection: it counts as one also without any.
    seat: Arc<Seat>,
    /// It was told to end for another.
    is_leaving: bool,
}

/// A session that is over and has a seat as long as its connection is there.
#[derive(Debug)]
struct Leaver {
    seat: Weak<Seat>,
    shard: usize,
    nexus: NexusId,
    /// Its shard was told to cut the connection.
    is_leaving: bool,
}

/// Where a port has its sessions: one, and older ones that are being replaced.
#[derive(Debug)]
struct Home {
    shard: usize,
    /// Their identities.
    sessions: Vec<u16>,
}

impl Registry {
    pub(crate) fn new(shards: usize, budget: &Budget) -> Self {
        Registry(Mutex::new(Sessions {
            by_tsih: BTreeMap::new(),
            by_port: BTreeMap::new(),
            discoveries: BTreeSet::new(),
            leavers: Vec::new(),
            shares: Arc::new(Shares::new(budget)),
            loads: vec![0; shards],
            last_tsih: 0,
            last_nexus: NEXUS_BASE,
        }))
    }

    /// Where a connection goes that has passed its login: to the shard that has a session of its port, else to the one with the
    /// fewest. Who has too many loses for it the session that the new one replaces, or a discovery session; strangers lose one of the
    /// address that has the most.
    ///
    /// # Errors
    /// [`Full`] when there is no room.
    pub(crate) fn place(&self, newcomer: &Newcomer) -> Result<Place, Full> {
        let Newcomer { port, peer, group_tag, joined, is_stranger, shard, .. } = newcomer;
        let owner = Owner::new(*peer, port.initiator.clone(), *is_stranger);
        self.lock().place((port.clone(), *shard), *group_tag, owner, *joined)
    }

    /// Whether a session has lost its place to another before it began.
    pub(crate) fn has_lost_place(&self, admission: &Admission) -> bool {
        let sessions = self.lock();
        let session = sessions.by_tsih.get(&admission.session).filter(|session| session.nexus == admission.nexus);
        session.is_some_and(|session| session.is_leaving)
    }

    /// How the quotas of connections are used.
    pub(crate) fn usages(&self) -> Vec<Usage> {
        let shares = Arc::clone(&self.lock().shares);
        shares.usages()
    }

    /// A session is gone.
    pub(crate) fn closed(&self, nexus: NexusId, tsih: u16) {
        self.lock().closed(nexus, tsih);
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        // Nothing panics between two writes to the tables.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Its seat, if it has lost all its connections and this owner comes with another.
    fn seat_left(&self, owner: &Owner) -> Option<Arc<Seat>> {
        let is_left = Arc::strong_count(&self.seat) == 1 && self.seat.owner() == owner;
        is_left.then(|| Arc::clone(&self.seat))
    }
}

impl Sessions {
    /// `joined` is the session that the connection wants to be part of; zero for one of its own (RFC 7143 11.12.6).
    fn place(
        &mut self,
        (port, shard): (SessionPort, Option<usize>),
        group_tag: u16,
        owner: Owner,
        joined: u16,
    ) -> Result<Place, Full> {
        if joined != 0 {
            let session = self.by_tsih.get(&joined);
            let seat = match session.and_then(|session| session.seat_left(&owner)) {
                Some(seat) => seat,
                None => {
                    self.shares.check(&owner)?;
                    Arc::new(self.shares.take(owner))
                }
            };
            // The shard refuses who asks for a session that is not there, or not his.
            let (shard, nexus) = session.map_or((0, NexusId(NEXUS_BASE)), |session| (session.shard, session.nexus));
            return Ok(Place { shard, admission: Admission { session: joined, nexus }, seat, loser: None });
        }
        let loser = match self.shares.check(&owner) {
            Ok(()) => None,
            Err(full) => {
                let predecessor = self.take_predecessor(&port, group_tag, &owner);
                Some(predecessor.or_else(|| self.take_discovery(&owner)).ok_or(full)?)
            }
        };
        let seat = Arc::new(self.shares.take(owner));
        let least = || self.loads.iter().enumerate().min_by_key(|(_, load)| **load).map_or(0, |(shard, _)| shard);
        let shard = shard.unwrap_or_else(|| self.by_port.get(&port).map_or_else(least, |home| home.shard));
        let admission = self.admission();
        self.loads[shard] += 1;
        self.by_port
            .entry(port.clone())
            .or_insert(Home { shard, sessions: Vec::new() })
            .sessions
            .push(admission.session);
        if port.target.is_none() {
            self.discoveries.insert((admission.nexus, admission.session));
        }
        let session =
            Session { port, shard, nexus: admission.nexus, group_tag, seat: Arc::clone(&seat), is_leaving: false };
        self.by_tsih.insert(admission.session, session);
        Ok(Place { shard, admission, seat, loser })
    }

    /// Finds the session that a new one of this port ends anyhow (RFC 7143 6.3.5): who lost his connections, and comes again, needs no
    /// more than he has. None while one of the port is ending already.
    fn take_predecessor(&mut self, port: &SessionPort, group_tag: u16, owner: &Owner) -> Option<(usize, NexusId)> {
        let tsihs = &self.by_port.get(port)?.sessions;
        let own = || tsihs.iter().filter_map(|tsih| Some((*tsih, self.by_tsih.get(tsih)?)));
        if port.target.is_none() || own().any(|(_, session)| session.is_leaving) {
            return None;
        }
        let (tsih, _) = own().find(|(_, session)| session.group_tag == group_tag && session.seat.owner() == owner)?;
        self.take(tsih)
    }

    /// Finds the discovery session that ends for one of this owner: one that is over and not gone, else his own oldest, of strangers the
    /// oldest of the network and address with the most. None while so many are ending that they do not seem to.
    fn take_discovery(&mut self, owner: &Owner) -> Option<(usize, NexusId)> {
        self.leavers.retain(|leaver| leaver.seat.strong_count() > 0);
        let is_own = |leaver: &Leaver| leaver.seat.upgrade().is_some_and(|seat| seat.owner().is_one_with(owner));
        let (mut going, mut over) = (0, None);
        for leaver in self.leavers.iter_mut().filter(|leaver| is_own(leaver)) {
            if leaver.is_leaving {
                going += 1;
            } else {
                over = over.or(Some(leaver));
            }
        }
        let sessions = self.discoveries.iter().filter_map(|(_, tsih)| Some((*tsih, self.by_tsih.get(tsih)?)));
        let own = sessions.filter(|(_, session)| session.seat.owner().is_one_with(owner));
        let (leaving, staying): (Vec<_>, Vec<_>) = own.partition(|(_, session)| session.is_leaving);
        if (leaving.len() + going) as u64 >= DISCOVERIES_OF_STRANGERS.limit {
            return None;
        }
        if let Some(leaver) = over {
            leaver.is_leaving = true;
            return Some((leaver.shard, leaver.nexus));
        }
        let mut counts = BTreeMap::<_, u64>::new();
        for owner in staying.iter().map(|(_, session)| session.seat.owner()) {
            *counts.entry((owner.network, None)).or_default() += 1;
            *counts.entry((owner.network, Some(owner.address))).or_default() += 1;
        }
        let greed = |session: &Session| {
            let owner = session.seat.owner();
            (counts.get(&(owner.network, None)), counts.get(&(owner.network, Some(owner.address))))
        };
        let (tsih, _) = staying.into_iter().max_by_key(|(_, session)| (greed(session), Reverse(session.nexus)))?;
        self.take(tsih)
    }

    /// A session loses its place.
    fn take(&mut self, tsih: u16) -> Option<(usize, NexusId)> {
        let session = self.by_tsih.get_mut(&tsih)?;
        session.is_leaving = true;
        Some((session.shard, session.nexus))
    }

    /// The identity of a session that begins.
    fn admission(&mut self) -> Admission {
        self.last_tsih = self.free_tsih();
        self.last_nexus += 1;
        Admission { session: self.last_tsih, nexus: NexusId(self.last_nexus) }
    }

    /// The next number that no session has; there are fewer sessions than numbers.
    fn free_tsih(&self) -> u16 {
        let mut tsih = self.last_tsih;
        loop {
            tsih = tsih.checked_add(1).unwrap_or(1);
            if !self.by_tsih.contains_key(&tsih) {
                return tsih;
            }
        }
    }

    fn closed(&mut self, nexus: NexusId, tsih: u16) {
        if self.by_tsih.get(&tsih).is_none_or(|session| session.nexus != nexus) {
            return;
        }
        if let Some(session) = self.by_tsih.remove(&tsih) {
            self.loads[session.shard] -= 1;
            self.discoveries.remove(&(nexus, tsih));
            if session.port.target.is_none() && Arc::strong_count(&session.seat) > 1 {
                let (seat, is_leaving) = (Arc::downgrade(&session.seat), session.is_leaving);
                self.leavers.retain(|leaver| leaver.seat.strong_count() > 0);
                self.leavers.push(Leaver { seat, shard: session.shard, nexus, is_leaving });
            }
            if let Entry::Occupied(mut home) = self.by_port.entry(session.port) {
                home.get_mut().sessions.retain(|of_port| *of_port != tsih);
                if home.get().sessions.is_empty() {
                    home.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
