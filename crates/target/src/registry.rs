//! Which sessions there are, and which shard has each of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_iscsi::{Admission, Admitted, IscsiName, Isid, SessionKind};
use serde::{Deserialize, Serialize};

/// Sessions at the most; the identity of a session has 16 bits, and each costs memory.
const SESSIONS_MAX: usize = 16_384;

/// What tells the nexuses of iSCSI from those of HyperSCSI, which count from zero.
const NEXUS_BASE: u64 = 1 << 63;

/// An initiator port and the target that it is connected to; `None` for discovery. A target that is taken away and served
/// again is the same: it has another number then, not another name.
type Port = (IscsiName, Isid, Option<IscsiName>);

/// An iSCSI session, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Who.
    pub initiator: String,
    /// Its part of the session's identity.
    pub isid: String,
    /// Which target it uses.
    pub target: String,
    /// The target's part of the session's identity.
    pub tsih: u16,
    /// The shard that serves it.
    pub shard: usize,
}

/// The sessions of all shards. Asked at logins, told of ends: never on the way of data.
#[derive(Debug)]
pub(crate) struct Registry(Mutex<Sessions>);

#[derive(Debug)]
struct Sessions {
    by_tsih: BTreeMap<u16, Session>,
    by_port: BTreeMap<Port, Home>,
    /// Sessions of each shard.
    loads: Vec<usize>,
    last_tsih: u16,
    last_nexus: u64,
}

#[derive(Debug)]
struct Session {
    port: Port,
    shard: usize,
    nexus: NexusId,
}

/// Where a port has its sessions: one, and older ones that are being replaced.
#[derive(Debug)]
struct Home {
    shard: usize,
    sessions: usize,
}

impl Registry {
    pub(crate) fn new(shards: usize) -> Self {
        Registry(Mutex::new(Sessions {
            by_tsih: BTreeMap::new(),
            by_port: BTreeMap::new(),
            loads: vec![0; shards],
            last_tsih: 0,
            last_nexus: NEXUS_BASE,
        }))
    }

    /// Where a connection goes that has passed its login: to the shard that has a session of its port, else to the one with the
    /// fewest. `None` when there are too many sessions.
    pub(crate) fn place(&self, admitted: &Admitted) -> Option<(usize, Admission)> {
        let target = match &admitted.kind {
            SessionKind::Discovery => None,
            SessionKind::Normal { name, .. } => Some(name.clone()),
        };
        let port = (admitted.initiator.clone(), admitted.isid, target);
        self.lock().place(port, admitted.request.tsih)
    }

    /// The sessions with targets.
    pub(crate) fn list(&self) -> Vec<SessionStatus> {
        let sessions = self.lock();
        let status = |(tsih, session): (&u16, &Session)| {
            let (initiator, isid, target) = &session.port;
            Some(SessionStatus {
                initiator: initiator.to_string(),
                isid: isid.to_string(),
                target: target.as_ref()?.to_string(),
                tsih: *tsih,
                shard: session.shard,
            })
        };
        sessions.by_tsih.iter().filter_map(status).collect()
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

impl Sessions {
    /// `joined` is the session that the connection wants to be part of; zero for one of its own (RFC 7143 11.12.6).
    fn place(&mut self, port: Port, joined: u16) -> Option<(usize, Admission)> {
        if joined != 0 {
            // The shard refuses who asks for a session that is not there, or not his.
            let session = self.by_tsih.get(&joined);
            let (shard, nexus) = session.map_or((0, NexusId(NEXUS_BASE)), |session| (session.shard, session.nexus));
            return Some((shard, Admission { tsih: joined, nexus }));
        }
        if self.by_tsih.len() >= SESSIONS_MAX {
            return None;
        }
        let shard = match self.by_port.get(&port) {
            Some(home) => home.shard,
            None => self.loads.iter().enumerate().min_by_key(|(_, load)| **load)?.0,
        };
        self.last_tsih = self.free_tsih();
        self.last_nexus += 1;
        let admission = Admission { tsih: self.last_tsih, nexus: NexusId(self.last_nexus) };
        self.loads[shard] += 1;
        self.by_port.entry(port.clone()).or_insert(Home { shard, sessions: 0 }).sessions += 1;
        self.by_tsih.insert(admission.tsih, Session { port, shard, nexus: admission.nexus });
        Some((shard, admission))
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
            if let Entry::Occupied(mut home) = self.by_port.entry(session.port) {
                home.get_mut().sessions -= 1;
                if home.get().sessions == 0 {
                    home.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u8, target: u32) -> Port {
        let target = format!("iqn.2026-11.org.sanwire:{target}").parse().unwrap();
        ("iqn.2026-11.org.sanwire:test".parse().unwrap(), Isid([0, 0, 0, 0, 0, number]), Some(target))
    }

    fn registry(shards: usize) -> MutexGuard<'static, Sessions> {
        Box::leak(Box::new(Registry::new(shards))).lock()
    }

    #[test]
    fn new_sessions_go_where_the_fewest_are() {
        let mut sessions = registry(3);
        let places: Vec<(usize, Admission)> =
            (0..6).map(|number| sessions.place(port(number, 0), 0).unwrap()).collect();
        assert_eq!(places.iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        let (_, second) = places[1];
        sessions.closed(second.nexus, second.tsih);
        assert_eq!(sessions.place(port(9, 0), 0).unwrap().0, 1);
        assert!(places.iter().all(|(_, admission)| admission.tsih != 0 && admission.nexus.0 > NEXUS_BASE));
    }

    #[test]
    fn a_port_that_comes_again_finds_its_shard_and_has_a_new_session() {
        let mut sessions = registry(2);
        sessions.place(port(0, 0), 0).unwrap();
        let (shard, old) = sessions.place(port(1, 0), 0).unwrap();
        let (again, new) = sessions.place(port(1, 0), 0).unwrap();
        assert_eq!((shard, again), (1, 1), "though the other shard has fewer");
        assert_ne!((old.tsih, old.nexus), (new.tsih, new.nexus));
        sessions.closed(new.nexus, new.tsih);
        assert_eq!(sessions.place(port(1, 0), 0).unwrap().0, 1, "the older one is still there");
        assert_eq!(sessions.place(port(1, 1), 0).unwrap().0, 0, "another target is another session");
    }

    #[test]
    fn a_further_connection_goes_to_its_session() {
        let mut sessions = registry(2);
        sessions.place(port(0, 0), 0).unwrap();
        let (_, leading) = sessions.place(port(1, 0), 0).unwrap();
        assert_eq!(sessions.place(port(1, 0), leading.tsih), Some((1, leading)));
        let count = sessions.by_tsih.len();
        assert!(sessions.place(port(1, 0), 4711).is_some(), "the shard refuses it");
        assert_eq!(sessions.by_tsih.len(), count);
    }

    #[test]
    fn numbers_of_live_sessions_are_not_given_again() {
        let mut sessions = registry(1);
        let (_, first) = sessions.place(port(0, 0), 0).unwrap();
        sessions.last_tsih = u16::MAX;
        let (_, second) = sessions.place(port(1, 0), 0).unwrap();
        assert_eq!((first.tsih, second.tsih), (1, 2));
        sessions.closed(second.nexus, first.tsih);
        assert!(sessions.by_tsih.contains_key(&first.tsih), "not that session");
    }
}
