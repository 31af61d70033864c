//! Copies from one iSCSI target to another: what they may reach, and as whom.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sanwire_core::{NexusId, Principal};
use sanwire_device::{CopyTargetResolver, CopyTargetUnit, LogicalUnit, LogicalUnits};
use sanwire_iscsi::{Credential, IscsiName, Isid, TargetId};
use sanwire_scsi::vpd::Designator;

use crate::front::iscsi::directory::TargetNodes;
use crate::front::iscsi::target_node::TargetNode;

/// Who has a session with a target.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) target: TargetId,
    pub(crate) initiator: IscsiName,
    pub(crate) isid: Isid,
    /// Whom it showed to be, by CHAP.
    pub(crate) credential: Option<Credential>,
    /// Where it is.
    pub(crate) peer: IpAddr,
    /// The portal group through which it came.
    pub(crate) group_tag: u16,
}

/// The initiators behind the nexuses of all shards. Told of begins and ends of sessions, asked by copies: never on the way of
/// other data.
#[derive(Default, Debug)]
pub(crate) struct Guests(Mutex<Tables>);

#[derive(Default, Debug)]
struct Tables {
    by_nexus: BTreeMap<NexusId, Guest>,
    /// Those that an initiator has with a target.
    of_initiator: BTreeMap<(TargetId, IscsiName), BTreeSet<NexusId>>,
    with_target: BTreeMap<TargetId, BTreeSet<NexusId>>,
}

impl Guests {
    pub(crate) fn came(&self, nexus: NexusId, guest: Guest) {
        self.left(nexus);
        let mut tables = self.lock();
        tables.of_initiator.entry((guest.target, guest.initiator.clone())).or_default().insert(nexus);
        tables.with_target.entry(guest.target).or_default().insert(nexus);
        tables.by_nexus.insert(nexus, guest);
    }

    pub(crate) fn left(&self, nexus: NexusId) {
        let mut tables = self.lock();
        let Some(guest) = tables.by_nexus.remove(&nexus) else { return };
        if let Entry::Occupied(mut all) = tables.with_target.entry(guest.target) {
            all.get_mut().remove(&nexus);
            if all.get().is_empty() {
                all.remove();
            }
        }
        if let Entry::Occupied(mut own) = tables.of_initiator.entry((guest.target, guest.initiator)) {
            own.get_mut().remove(&nexus);
            if own.get().is_empty() {
                own.remove();
            }
        }
    }

    fn find(&self, nexus: NexusId) -> Option<Guest> {
        self.lock().by_nexus.get(&nexus).cloned()
    }

    /// Those with a target.
    pub(crate) fn of_target(&self, target: TargetId) -> Vec<(NexusId, Guest)> {
        let tables = self.lock();
        let all = tables.with_target.get(&target).into_iter().flatten();
        all.filter_map(|nexus| Some((*nexus, tables.by_nexus.get(nexus)?.clone()))).collect()
    }

    /// The nexus that the same initiator has with a target, best that of the same port.
    fn nexus_with(&self, target: TargetId, guest: &Guest) -> Option<NexusId> {
        let tables = self.lock();
        let own = tables.of_initiator.get(&(target, guest.initiator.clone()))?;
        let with = own.iter().filter_map(|nexus| Some((*nexus, tables.by_nexus.get(nexus)?)));
        let same = with.filter(|(_, other)| other.credential == guest.credential);
        let is_same_port = |other: &Guest| other.isid == guest.isid && other.group_tag == guest.group_tag;
        same.min_by_key(|(_, other)| !is_same_port(other)).map(|(nexus, _)| nexus)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Nothing panics between two writes to the tables.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The targets among which copies find their units: those that the initiator could log in to from where it is, as they are
/// at that moment. They own the units whose copies ask, so they are not owned here.
#[derive(Clone, Debug)]
pub(crate) struct Neighbours(Weak<TargetNodes>);

impl Neighbours {
    pub(crate) fn new(exports: &Weak<TargetNodes>) -> Self {
        Neighbours(Weak::clone(exports))
    }

    /// The units of a target that is new, for copies from and to all of them.
    pub(crate) fn units(&self) -> Arc<LogicalUnits> {
        Arc::new(LogicalUnits::with_copy_targets(Box::new(self.clone())))
    }
}

impl CopyTargetResolver for Neighbours {
    fn find(&self, nexus: NexusId, designator: &Designator) -> Option<CopyTargetUnit> {
        let exports = self.0.upgrade()?;
        let guest = exports.guests().find(nexus)?;
        let table = exports.table();
        // A disk that the session has is used as that session; of the others, as the one that has it.
        let own = table.by_id(guest.target).into_iter();
        let others = exports.with_designated(&table, designator).into_iter().filter(|export| export.id != guest.target);
        let named = own.chain(others).filter_map(|export| Some((export, export.units.find(designator)?)));
        let named = named.filter(|(_, disk)| disk.admits(&guest.principal()));
        let mut found: Option<(&Arc<TargetNode>, Arc<LogicalUnit>)> = None;
        for (export, disk) in named.filter(|(export, _)| guest.may_use(export)) {
            match &found {
                None => found = Some((export, disk)),
                Some((_, first)) if Arc::ptr_eq(first, &disk) => {}
                // Two are called so.
                Some(_) => return None,
            }
        }
        let (export, unit) = found?;
        let there = if export.id == guest.target { None } else { exports.guests().nexus_with(export.id, &guest) };
        Some(CopyTargetUnit::new(Arc::clone(unit.state()), there.unwrap_or(nexus)))
    }
}

impl Guest {
    fn principal(&self) -> Principal {
        Principal {
            address: Some(self.peer.into()),
            initiator_name: Some(self.initiator.as_str().into()),
            chap_user: self.credential.as_ref().map(|credential| (*credential.name).into()),
            ..Principal::default()
        }
    }

    /// Whether the initiator may use the units of a target: its own, and those that it could log in to.
    fn may_use(&self, export: &TargetNode) -> bool {
        export.id == self.target
            || export.config.redirect.is_none()
                && export.has_portal(self.group_tag)
                && export.permits(&self.initiator, self.peer)
                && self.is_authentic(export)
    }

    /// Whether it may go on with its target when that is so. A user with another secret than before shows it at the next login.
    pub(crate) fn may_stay(&self, export: &TargetNode) -> bool {
        let users = &export.config.authentication.users;
        let name = self.credential.as_ref().map(|credential| &credential.name);
        let is_user = users.is_empty() || users.iter().any(|user| Some(&user.name) == name);
        export.has_portal(self.group_tag) && export.permits(&self.initiator, self.peer) && is_user
    }

    /// The name of its port, as others know it.
    pub(crate) fn port(&self, target: &IscsiName) -> String {
        format!("{},{},{target}", self.initiator, self.isid)
    }

    /// For people.
    pub(crate) fn shown(&self) -> String {
        format!("initiator {} at {}", self.initiator, self.peer)
    }

    /// Whether a login would have to show nothing, or what this initiator has shown. A user of the same name with another
    /// secret is somebody else.
    fn is_authentic(&self, export: &TargetNode) -> bool {
        let users = &export.config.authentication.users;
        users.is_empty() || self.credential.as_ref().is_some_and(|credential| users.contains(credential))
    }
}

#[cfg(test)]
mod tests;
