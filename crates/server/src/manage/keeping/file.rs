//! The file in which it is kept what differs from the configuration.

use std::io;

use super::Keeping;
use crate::kept::{Changes, ChangesFile, Edit};
use crate::manage::ManageError;

impl Keeping {
    /// Keeps these changes in place of those that are kept.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(super) fn keep_all(&mut self, changes: Changes) -> Result<(), ManageError> {
        if self.is_behind || changes != *self.changes() {
            save(&mut self.file, &changes).inspect_err(|_| self.take_back())?;
            self.hold(changes);
            self.note_written();
        }
        Ok(())
    }

    /// The same of what was brought about already, and is written down later.
    pub(super) fn note(&mut self, changes: Changes) {
        if changes != *self.changes() {
            self.hold(changes);
            self.is_behind = true;
        }
    }

    /// Writes down what was noted.
    ///
    /// # Errors
    /// [`ManageError::Keep`].
    pub(super) fn catch_up(&mut self) -> Result<(), ManageError> {
        if self.is_behind {
            save(&mut self.file, &self.record.read())?;
            self.note_written();
        }
        Ok(())
    }

    /// Leaves the file as earlier programs know it, as far as they understand what it keeps.
    pub(in crate::manage) fn finish(&mut self) {
        let written = self.catch_up();
        let Some(file) = &mut self.file else { return };
        if written.is_err() {
            tracing::error!("{} does not have all changes that hold now", file.path().display());
        }
        if let Err(error) = file.finish(&self.record.read()) {
            tracing::warn!("{} is as only this version, and later ones, read it: {error}", file.path().display());
        }
    }

    /// A change is refused that was about to be kept: it does not come by a restart, where the file may have it all the same.
    pub(super) fn take_back(&mut self) {
        let Some(file) = &mut self.file else { return };
        let taken_back = file.take_back(&self.record.read());
        if let Err(error) = taken_back {
            self.is_behind = true;
            tracing::error!(
                "{} may have a change that was refused, until the next one is kept: {error}",
                file.path().display()
            );
        }
    }

    /// The file says what the record does.
    pub(super) fn note_written(&mut self) {
        (self.is_behind, self.unwritten) = (false, Edit::default());
    }

    /// From now on these are the changes.
    fn hold(&self, changes: Changes) {
        *self.record.write() = changes;
        self.revise();
    }
}

/// Keeps these in place of what was kept.
pub(super) fn save(file: &mut Option<ChangesFile>, changes: &Changes) -> Result<(), ManageError> {
    let Some(file) = file else { return Ok(()) };
    file.replace(changes).map_err(|source| not_kept(file, source))
}

/// Keeps one change more, which has led to these.
pub(super) fn add(file: &mut Option<ChangesFile>, edit: &Edit, changes: &Changes) -> Result<(), ManageError> {
    let Some(file) = file else { return Ok(()) };
    file.add(edit, changes).map_err(|source| not_kept(file, source))
}

pub(in crate::manage) fn not_kept(file: &ChangesFile, source: io::Error) -> ManageError {
    ManageError::Keep { path: file.path().to_owned(), source }
}
