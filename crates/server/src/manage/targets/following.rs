//! Targets that derived volumes have for themselves: their CHAP users are those of the targets of their parents, and follow these.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_scsi::IscsiName;

use crate::derived::chap_users_of;
use crate::front::iscsi::own_target::OwnTarget;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::kept::{self, Edit};
use crate::manage::Manager;

impl Manager {
    /// What becomes of targets when one is to be so.
    pub(super) fn changes_when_set(&self, target: &TargetNodeConfig) -> TargetChanges {
        let mut changes = self.followers(target, || kept::edit_of_target(&self.kept.configured, target));
        changes.insert(target.name.clone(), Some(target.clone()));
        changes
    }

    /// The same when one goes.
    pub(super) fn changes_when_gone(&self, target: &TargetNodeConfig) -> TargetChanges {
        let mut changes = self.followers(target, || kept::edit_of_removal(&self.kept.configured, target));
        changes.insert(target.name.clone(), None);
        changes
    }

    /// The target of this name that a derived volume has for itself, without its unit, if there is such a volume with users.
    pub(super) fn own_target_called(&self, name: &IscsiName) -> Option<TargetNodeConfig> {
        let is_own = |volume: &&String| self.guarded_target_of(volume).as_ref() == Some(name);
        let spec = &self.volumes.get(self.volumes.keys().find(is_own)?)?.spec;
        let others = spec.parent().map(|parent| self.target.targets_with(parent)).unwrap_or_default();
        let own = match OwnTarget::of(spec, self.allow.clone(), &others).ok()? {
            OwnTarget::Guarded(own) => own,
            OwnTarget::UsersUnknown(_) => OwnTarget::closed(spec)?,
            OwnTarget::Open(_) => return None,
        };
        Some(TargetNodeConfig { units: BTreeMap::new(), ..own })
    }

    /// Those that are otherwise, as a restart would make them, when a target with a parent's users is what this edit makes of it.
    fn followers(&self, target: &TargetNodeConfig, edit: impl FnOnce() -> Edit) -> TargetChanges {
        let derived = target.units.values().flat_map(|volume| self.derivations.descendants(volume));
        let own: BTreeSet<IscsiName> = derived.filter_map(|volume| self.guarded_target_of(&volume)).collect();
        if own.is_empty() {
            return TargetChanges::new();
        }
        let mut changes = self.kept.changes().clone();
        changes.apply(edit());
        let (merged, _) = kept::merge(&self.kept.configured, &changes);
        let followers =
            merged.exports.into_iter().filter(|export| own.contains(&export.name) && export.name != target.name);
        let followers = followers.filter_map(|export| {
            let now = self.target.target_node(&export.name)?;
            let then = TargetNodeConfig { units: now.units.clone(), ..export };
            (then != now).then(|| (then.name.clone(), Some(then)))
        });
        followers.collect()
    }

    /// The target that a derived volume has for itself, where users of CHAP are its principals and it is not configured otherwise.
    fn guarded_target_of(&self, volume: &str) -> Option<IscsiName> {
        let spec = &self.volumes.get(volume)?.spec;
        let name = TargetNodeConfig::of_volume(volume, self.allow.clone()).ok()?.name;
        let is_guarded = !chap_users_of(spec).is_empty() && self.kept.configured.target(&name).is_none();
        is_guarded.then_some(name)
    }
}
