//! Changes of single things, as they are kept.

use super::Keeping;
use super::file::{add, save};
use crate::config::VolumeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::kept::Edit;
use crate::manage::{ManageError, Manager};

impl Manager {
    /// Keeps a volume that is as it was, but for an end that is renewed. Who has looked at the server before need not look again for that:
    /// its revisions stay as they are.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(in crate::manage) fn keep_renewed(&mut self, volume: &VolumeConfig) -> Result<(), ManageError> {
        let edit = self.kept.edit(&volume.spec.name, Some(volume), &TargetChanges::new());
        self.kept.write_edit(edit).map(drop)
    }
}

impl Keeping {
    pub(super) fn keep_edit(&mut self, edit: Edit) -> Result<(), ManageError> {
        if self.write_edit(edit)? {
            self.revise();
        }
        Ok(())
    }

    /// Whether anything had to be written.
    fn write_edit(&mut self, edit: Edit) -> Result<bool, ManageError> {
        let undo = self.record.write().apply(edit.clone());
        if undo == edit && !self.is_behind {
            return Ok(false);
        }
        let saved = if self.is_behind {
            save(&mut self.file, &self.record.read())
        } else {
            let mut all = self.unwritten.clone();
            all.join(edit);
            add(&mut self.file, &all, &self.record.read())
        };
        match saved {
            Ok(()) => self.note_written(),
            Err(_) => {
                self.record.write().apply(undo);
                self.take_back();
            }
        }
        saved.map(|()| true)
    }
}
