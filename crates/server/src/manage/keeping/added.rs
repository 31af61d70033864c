//! How it is kept that volumes come together.

use super::Manager;
use crate::config::VolumeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::kept::{self, Edit};
use crate::manage::ManageError;

impl Manager {
    /// Keeps volumes as they are about to be, all as one change, with the targets that have them then.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(in crate::manage) fn keep_all_added(
        &mut self,
        volumes: &[VolumeConfig],
        targets: &TargetChanges,
    ) -> Result<(), ManageError> {
        if self.kept.is_missing_in(targets) {
            let mut all = self.volumes.clone();
            all.extend(volumes.iter().map(|volume| (volume.spec.name.to_string(), volume.clone())));
            let exports = self.exports_with(targets);
            return self.kept.keep_all(self.kept.changes_to(all.values(), &exports));
        }
        let (mut edit, none) = (Edit::default(), TargetChanges::new());
        for volume in volumes {
            edit.join(self.kept.edit(&volume.spec.name, Some(volume), &none));
        }
        for target in targets.values().flatten() {
            edit.join(kept::edit_of_target(&self.kept.configured, target));
        }
        self.kept.keep_edit(edit)
    }
}
