//! What snapshots are for: volumes that are made of them, and volumes that hold again what they held.

use std::io;
use std::path::Path;

use sanwire_store_file::{mark_records, records_mark};

use super::catalogue::{Catalogue, SnapshotId, SnapshotRecord};
use super::contents::is_there;
use super::family::mark;
use super::{Pool, PoolError};

impl Pool {
    /// Makes the content of a volume that is to be, from a snapshot; whole, or not at all.
    pub(crate) fn make_clone(&self, id: &SnapshotId, volume: &str) -> Result<(), PoolError> {
        let record = self.record(id)?;
        self.check_source(&record)?;
        self.place_snapshots()?;
        let path = self.path_of(volume);
        if is_there(&path) {
            return Err(PoolError::ContentExists { pool: self.name().to_owned(), volume: volume.to_owned() });
        }
        self.edit(|catalogue| {
            catalogue.making.insert(volume.to_owned());
            Ok(())
        })?;
        let copied = match record.layered {
            // What it holds is in layers, and the file stands for it.
            true => self.files().make(&path, record.size_bytes).and_then(|()| mark(&path)),
            false => self.files().copy(&self.path_of(&id.to_string()), &path),
        };
        let copied = copied.and_then(|()| self.files().sync(&path));
        let made = copied.map_err(|source| self.failed("make", volume, source)).and_then(|()| self.sync_directory());
        let made = made.and_then(|()| if record.layered { self.clone_layer(id, volume) } else { Ok(()) });
        // What is not noted as being made any more is never removed as half made.
        made.and_then(|()| self.end_clone(volume, true)).inspect_err(|error| {
            if !matches!(error, PoolError::Failed { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
                && let Err(error) = self.end_clone(volume, false)
            {
                tracing::warn!("{error}; what was made of volume {volume} is removed at the next start");
            }
        })
    }

    /// What is made for a volume is whole, or is not to be.
    pub(super) fn end_clone(&self, volume: &str, is_served: bool) -> Result<(), PoolError> {
        if !is_served {
            self.remove_layer(volume)?;
            let removed = self.files().remove(&self.path_of(volume)).and_then(|()| self.files().sync(self.directory()));
            removed.map_err(|source| self.failed("remove", volume, source))?;
            self.lengths().set(volume, None);
        }
        self.edit(|catalogue| {
            catalogue.making.remove(volume);
            if !is_served {
                catalogue.layered.remove(volume);
            }
            Ok(())
        })
    }

    /// Whether a volume's content can be replaced by a snapshot's.
    pub(crate) fn check_rollback(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let record = self.record(id)?;
        match record.layered == self.is_layered(&id.volume) {
            true => self.check_source(&record),
            false => Err(PoolError::OtherWay(id.to_string())),
        }
    }

    /// Whether what a snapshot holds can be had without a copy of all of it.
    fn check_source(&self, record: &SnapshotRecord) -> Result<(), PoolError> {
        match record.layered || self.can_share() {
            true => Ok(()),
            false => Err(PoolError::NoSharing(self.name().to_owned())),
        }
    }

    /// From now on the content of the volume is that of the snapshot, whatever happens before [`Pool::roll_back`] has ended. What it held becomes
    /// the snapshot `keep`, which was taken.
    pub(crate) fn begin_rollback(&self, id: &SnapshotId, keep: Option<&SnapshotId>) -> Result<(), PoolError> {
        let note = |catalogue: &mut Catalogue| {
            catalogue.rolling_back.insert(id.volume.clone(), id.name.clone());
        };
        self.commit_with(keep.map(std::slice::from_ref).unwrap_or_default(), false, note)
    }

    /// Replaces the content; nothing else writes there.
    pub(crate) fn roll_back(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.check_place()?;
        self.place_snapshots()?;
        let path = self.path_of(&id.volume);
        if !self.disown_records(&path) {
            let source = io::Error::other("what is remembered of its writes cannot be taken back");
            return Err(PoolError::HalfRolledBack { snapshot: id.to_string(), source });
        }
        let replaced = match self.is_layered(&id.volume) {
            true => self.roll_back_layer(id),
            false => {
                let replaced = self.files().replace(&self.path_of(&id.to_string()), &path);
                replaced.and_then(|()| self.files().sync(&path))
            }
        };
        replaced.map_err(|source| PoolError::HalfRolledBack { snapshot: id.to_string(), source })?;
        self.edit(|catalogue| {
            catalogue.rolling_back.remove(&id.volume);
            Ok(())
        })
    }

    /// What is remembered of writes is true of other content: when the volume is opened next, initiators hear that what they have not
    /// flushed is lost, and write none of it again.
    fn disown_records(&self, path: &Path) -> bool {
        records_mark(path).is_none() || mark_records(path, None)
    }

    /// What is noted of a volume that comes is not about what it holds from now on.
    pub(super) fn drop_notes(&self, volume: &str) -> Result<(), PoolError> {
        let is_noted = |catalogue: &Catalogue| catalogue.making.contains(volume) || catalogue.deleting.contains(volume);
        if !self.may_say(is_noted) {
            return Ok(());
        }
        self.edit(|catalogue| {
            catalogue.making.remove(volume);
            catalogue.deleting.remove(volume);
            Ok(())
        })
    }

    /// Brings a rollback to its end that has begun and was not ended: before its volume is opened.
    ///
    /// # Errors
    /// [`PoolError`]: what the volume holds is not to be served.
    pub(super) fn end_rollback(&self, volume: &str) -> Result<(), PoolError> {
        let name = self.catalogue().rolling_back.get(volume).cloned();
        name.map_or(Ok(()), |name| self.roll_back(&SnapshotId { volume: volume.to_owned(), name }))
    }
}
