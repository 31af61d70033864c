//! What is to be forgotten of derived volumes that are revoked: it is kept that it is, until that is done.

use std::collections::BTreeSet;

use sanwire_store::VolumeSpec;

use super::Keeping;
use crate::config::{ServerConfig, VolumeConfig};
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::kept::{Changed, Changes, Edit, VolumeDefinition};
use crate::manage::{ManageError, Manager};
use crate::records::Record;
use crate::volumes::{forget_derived, is_remembered};

/// Forgets what derived volumes were that were revoked, as far as an earlier run has ended before it did: before volumes are opened, one of
/// which may have the name of such a one.
pub(super) fn forget_revoked(configured: &ServerConfig, changes: &Changes, wanted: &[VolumeConfig]) {
    let wanted: BTreeSet<&str> = wanted.iter().map(|volume| &*volume.spec.name).collect();
    let is_revoked = |name: &str, change: &Changed<VolumeDefinition>| match &change.configured {
        None => true,
        // One that is configured otherwise since is served again, and may have been before this start.
        Some(before) => before.volume.parent().is_some() && !wanted.contains(name),
    };
    let gone = changes.volumes.iter().filter(|(_, change)| change.now.is_none());
    let programs = configured.programs();
    for (name, _) in gone.filter(|(name, change)| is_revoked(name, change)) {
        forget_derived(name, configured.state_directory.as_deref(), &programs);
    }
}

impl Manager {
    /// Removes what a crash has left of programs whose volumes were not made after all.
    pub(super) fn remove_litter_of_programs(&self) {
        let Some(state) = self.target.state_directory() else { return };
        let identities = match Record::all_identities(state) {
            Ok(identities) => identities,
            Err(error) => {
                tracing::debug!("what programs have left stays, as not all records can be read: {error}");
                return;
            }
        };
        let changes = self.kept.changes();
        let is_wanted = |name: &str| changes.volumes.get(name).is_some_and(|change| change.now.is_some());
        let is_known = |name: &str| self.spec_of(name).is_some() || is_wanted(name) || is_remembered(name, state);
        self.target.programs().remove_litter(is_known, &identities);
    }

    /// Keeps that these volumes will not be there, all as one change, with their numbers in the targets that are about to change.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(in crate::manage) fn keep_all_removed(
        &mut self,
        names: &BTreeSet<&str>,
        targets: &TargetChanges,
    ) -> Result<(), ManageError> {
        let left = self.volumes.values().filter(|volume| !names.contains(&*volume.spec.name));
        let changes = self.kept.changes_to(left, &self.exports_with(targets));
        self.kept.keep_all(changes)
    }

    /// The targets as they are with these changes.
    pub(super) fn exports_with(&self, targets: &TargetChanges) -> Vec<TargetNodeConfig> {
        let exports = self.target.exports().into_iter().map(|export| (export.name.clone(), Some(export)));
        let mut exports: TargetChanges = exports.collect();
        exports.extend(targets.clone());
        exports.into_values().flatten().collect()
    }
}

impl Keeping {
    /// From now on it is kept with the end of this volume that something of it is to be forgotten, if it is derived.
    pub(in crate::manage) fn begin_to_forget(&mut self, spec: &VolumeSpec) {
        if spec.parent().is_some() {
            self.revoked.insert(spec.name.to_string());
        }
    }

    /// It was forgotten, or stays. The next change that is kept says so.
    pub(in crate::manage) fn end_forgetting(&mut self, name: &str) {
        if !self.revoked.remove(name) {
            return;
        }
        let mut record = self.record.write();
        if record.volumes.get(name) == Some(&Changed::FORGOTTEN) {
            record.volumes.remove(name);
            self.unwritten.volumes.insert(name.to_owned(), None);
        }
    }

    /// What is kept of one that is revoked: of one that is configured, that it was, says enough.
    pub(super) fn note_revoked(&self, name: &str, changes: &mut Changes) {
        if self.configured.volume(name).is_none() && !changes.volumes.contains_key(name) {
            changes.volumes.insert(name.to_owned(), Changed::FORGOTTEN);
        }
    }

    /// The same of one that is about to go.
    pub(super) fn with_revoked(&self, name: &str, mut edit: Edit) -> Edit {
        if self.revoked.contains(name) && self.configured.volume(name).is_none() {
            edit.volumes.insert(name.to_owned(), Some(Changed::FORGOTTEN));
        }
        edit
    }
}
