//! What a reload does with volumes that are derived from others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sanwire_device::LogicalUnit;
use sanwire_store::VolumeSpec;

use crate::config::{Origin, VolumeConfig};
use crate::derived::opening_order;
use crate::events::Happening;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::manage::difference::Difference;
use crate::manage::volumes::{Attempt, ComingVolume};
use crate::manage::wanted::Configuration;
use crate::manage::{ManageError, Manager};
use crate::removal::Removal;
use crate::server::{MissingVolume, note_units};

/// Each volume after the one from which it is derived.
pub(super) fn in_order(coming: Vec<ComingVolume>) -> Vec<ComingVolume> {
    let order = opening_order(coming.iter().map(|coming| &coming.volume.spec));
    let mut coming: Vec<Option<ComingVolume>> = coming.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| coming[at].take()).collect()
}

/// That from which a volume is derived, among those that were opened just now.
pub(super) fn parent_among(attempts: &[Attempt], volume: &VolumeConfig) -> Option<Arc<LogicalUnit>> {
    let parent = volume.spec.parent()?;
    let found = attempts.iter().find(|(coming, _)| *coming.volume.spec.name == *parent);
    found.and_then(|(_, opened)| opened.as_ref().ok()).map(|opened| Arc::clone(&opened.unit))
}

impl Difference {
    /// Takes out the volumes that are derived from these, and so on: they come after them.
    pub(super) fn take_derived_from(&mut self, parents: &[VolumeConfig]) -> Vec<VolumeConfig> {
        let mut names: BTreeSet<String> = parents.iter().map(|volume| volume.spec.name.to_string()).collect();
        let mut taken = Vec::new();
        loop {
            let is_derived =
                |volume: &mut VolumeConfig| volume.spec.parent().is_some_and(|parent| names.contains(parent));
            let found: Vec<VolumeConfig> = self.added.extract_if(.., is_derived).collect();
            if found.is_empty() {
                return taken;
            }
            names.extend(found.iter().map(|volume| volume.spec.name.to_string()));
            taken.extend(found);
        }
    }
}

impl Manager {
    /// The volumes that are configured on, and are served as derived from one that goes: they go with it.
    pub(super) fn orphans(&self, difference: &Difference) -> BTreeSet<String> {
        let going: BTreeSet<String> = difference.going().into_iter().collect();
        let derived = going.iter().flat_map(|name| self.derivations.descendants(name));
        derived.filter(|name| !going.contains(&**name)).collect()
    }

    /// Volumes that would be revoked because that goes from which they are derived, though nobody has said that they are to go: a line for each.
    pub(in crate::manage) fn revoked_by(&self, difference: &Difference) -> Vec<String> {
        let removed: BTreeSet<&str> = difference.removed.iter().map(String::as_str).collect();
        let mut lines = BTreeSet::new();
        for parent in &removed {
            for derived in self.derivations.descendants(parent) {
                let is_of_ctl = self.volumes.get(&derived).is_some_and(|volume| volume.origin == Origin::Management);
                if is_of_ctl || !removed.contains(&*derived) {
                    lines.insert(format!("volume {derived} is derived from {parent}, which goes"));
                }
            }
        }
        lines.into_iter().collect()
    }

    /// # Errors
    /// [`ManageError::TakesAway`] when volumes would be revoked that have come since that was asked first.
    pub(super) fn check_revokes_none(&self, configured: &Configuration) -> Result<(), ManageError> {
        let wanted = self.wanted(configured.clone()).config;
        match self.revoked_by(&Difference::between(self.volumes.values(), &wanted.volumes)) {
            revoked if revoked.is_empty() => Ok(()),
            revoked => Err(ManageError::TakesAway(revoked.join(", "))),
        }
    }

    /// Of those that are missing only these are, from now on; and what derived volumes were is forgotten that are not wanted any more.
    pub(super) fn drop_missing(&mut self, still_missing: &[VolumeConfig], wanted: &[VolumeConfig]) {
        let still: BTreeMap<_, _> = still_missing.iter().map(|volume| (&volume.spec.name, &volume.spec)).collect();
        let is_gone = |missing: &mut MissingVolume| {
            let spec = &missing.volume.spec;
            still.get(&spec.name) != Some(&spec)
        };
        let gone: Vec<MissingVolume> = self.kept.missing.extract_if(.., is_gone).collect();
        let wanted: BTreeSet<&str> = wanted.iter().map(|volume| &*volume.spec.name).collect();
        let is_wanted = |name: &str| wanted.contains(name) || self.volumes.contains_key(name);
        let dropped = gone.iter().map(|missing| &missing.volume.spec).filter(|spec| !is_wanted(&spec.name));
        dropped.for_each(|spec| self.target.forget_derived(spec));
    }

    /// Begins to close volumes that go, and those that go with them; tells who watches of those that were derived.
    pub(super) fn begin_to_close_derived(
        &mut self,
        difference: &Difference,
        orphans: &BTreeSet<String>,
    ) -> Vec<(String, Removal)> {
        let names: Vec<String> = orphans.iter().cloned().chain(difference.going()).collect();
        let removed: BTreeSet<&str> = difference.removed.iter().map(String::as_str).collect();
        let derived = |name: &String| Some(self.volumes.get(name)?.spec.clone()).filter(|spec| spec.parent().is_some());
        let derived: Vec<VolumeSpec> = names.iter().filter_map(derived).collect();
        let removals = self.begin_to_close_all(names);
        for spec in derived {
            // Those that are configured on come again, as the volumes that they are.
            if removed.contains(&*spec.name) {
                self.target.forget_derived(&spec);
            }
            let (volume, parent) = (spec.name.to_string(), spec.parent().unwrap_or_default().to_owned());
            self.target.events().note(Happening::DvdRevoked { volume, parent });
        }
        removals
    }
}

/// Volumes that are not served until that is there again from which they are derived.
pub(super) fn missing_orphans(
    orphans: &BTreeSet<String>,
    wanted: &[VolumeConfig],
    exports: &[TargetNodeConfig],
) -> Vec<MissingVolume> {
    let missing = wanted.iter().filter(|volume| orphans.contains(&*volume.spec.name)).map(|volume| MissingVolume {
        volume: volume.clone(),
        units: Vec::new(),
        reason: "it was revoked with that from which it was derived: reload again when that is served".into(),
    });
    let mut missing: Vec<MissingVolume> = missing.collect();
    note_units(&mut missing, exports);
    missing
}
