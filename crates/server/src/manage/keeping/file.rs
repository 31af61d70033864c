//! The file in which it is kept what differs from the configuration.

use std::io;

use super::Keeping;
use crate::kept::{Changes, ChangesFile, Edit};
use crate::manage::ManageError;

impl Keeping {
    /// Leaves the file as earlier programs know it, as far as they understand what it keeps.
    pub(in crate::manage) fn finish(&mut self) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.finish(&self.record.read()) {
            tracing::warn!("{} is as only this version, and later ones, read it: {error}", file.path().display());
        }
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
