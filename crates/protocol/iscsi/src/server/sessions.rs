//! The sessions of a shard, found by what packets and by what logins name them by.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use rustc_hash::FxHashMap;
use sanwire_core::NexusId;

use super::session::{Owner, Session};
use crate::login::TargetId;
use crate::name::{IscsiName, Isid};

/// What a session with a target is known by to both ends (RFC 7143 4.4.1): no two have the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) target: TargetId,
    pub(super) group_tag: u16,
    pub(super) isid: Isid,
    pub(super) initiator: IscsiName,
}

impl Port {
    fn of(session: &Session) -> Option<Port> {
        let target = session.target()?;
        let initiator = session.initiator.clone();
        Some(Port { target, group_tag: session.portal.group_tag, isid: session.isid, initiator })
    }
}

/// All of them. A login finds its session, and those of its owner, however many others there are.
#[derive(Default)]
pub(super) struct Sessions {
    by_nexus: FxHashMap<NexusId, Session>,
    by_tsih: BTreeMap<u16, NexusId>,
    by_port: BTreeMap<Port, NexusId>,
    by_owner: BTreeMap<Owner, BTreeSet<NexusId>>,
}

impl Deref for Sessions {
    type Target = FxHashMap<NexusId, Session>;

    fn deref(&self) -> &Self::Target {
        &self.by_nexus
    }
}

impl Sessions {
    pub(super) fn insert(&mut self, session: Session) {
        let nexus = session.nexus;
        self.by_tsih.insert(session.tsih, nexus);
        if let Some(port) = Port::of(&session) {
            self.by_port.insert(port, nexus);
        }
        self.by_owner.entry(session.owner.clone()).or_default().insert(nexus);
        self.by_nexus.insert(nexus, session);
    }

    pub(super) fn remove(&mut self, nexus: NexusId) {
        let Some(session) = self.by_nexus.remove(&nexus) else { return };
        self.by_tsih.remove(&session.tsih);
        if let Some(port) = Port::of(&session) {
            self.by_port.remove(&port);
        }
        if let Some(own) = self.by_owner.get_mut(&session.owner) {
            own.remove(&nexus);
            if own.is_empty() {
                self.by_owner.remove(&session.owner);
            }
        }
    }

    /// Forgets those that are over.
    pub(super) fn remove_ended(&mut self) {
        let ended = self.by_nexus.values().filter(|session| session.is_over).map(|session| session.nexus);
        ended.collect::<Vec<_>>().into_iter().for_each(|nexus| self.remove(nexus));
    }

    pub(super) fn get_mut(&mut self, nexus: NexusId) -> Option<&mut Session> {
        self.by_nexus.get_mut(&nexus)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.by_nexus.values_mut()
    }

    /// The session with this identity (TSIH).
    pub(super) fn with_identity(&mut self, tsih: u16) -> Option<&mut Session> {
        self.by_nexus.get_mut(self.by_tsih.get(&tsih)?)
    }

    /// The session of this port.
    pub(super) fn of_port(&mut self, port: &Port) -> Option<&mut Session> {
        self.by_nexus.get_mut(self.by_port.get(port)?)
    }

    /// A session of this owner, if it has any.
    pub(super) fn of_owner(&self, owner: &Owner) -> Option<&Session> {
        self.by_nexus.get(self.by_owner.get(owner)?.first()?)
    }
}
