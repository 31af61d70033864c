//! The content of a pool's volumes: snapshots, clones, rollback and deletion, each in steps between which a crash may come.

use crate::wall_time::written_millis;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::SystemTime;

use sanwire_store_file::{mark_records, records_mark};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::catalogue::{Catalogue, SnapshotId, SnapshotRecord};
use super::{Pool, PoolError};

/// A snapshot as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotStatus {
    /// The volume of which it is, served or not.
    pub volume: String,
    /// Its name, one of that volume's.
    pub name: String,
    /// The pool in which both are.
    pub pool: String,
    /// When it was taken, as in RFC 3339.
    pub made: String,
    /// How long the volume was then.
    pub size_bytes: u64,
    /// Whether it is not deleted.
    pub protected: bool,
}

impl Pool {
    /// Whether a snapshot can be taken under this name.
    ///
    /// # Errors
    /// [`PoolError`]: there is one, or the pool can take none.
    pub(crate) fn check_new_snapshot(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.check_sharing()?;
        self.check_whole(&id.volume)?;
        let content = id.to_string();
        let may_be = |catalogue: &Catalogue| catalogue.snapshot(id).is_some() || catalogue.deleting.contains(&content);
        if self.may_say(may_be) { Err(PoolError::SnapshotExists(content)) } else { Ok(()) }
    }

    /// Whether a rollback of this volume was begun, or may have been, and is not over.
    pub(crate) fn is_rolling_back(&self, volume: &str) -> bool {
        self.may_say(|catalogue| catalogue.rolling_back.contains_key(volume))
    }

    /// What a volume holds while a rollback of it is not over is nothing that it ever held.
    fn check_whole(&self, volume: &str) -> Result<(), PoolError> {
        match self.is_rolling_back(volume) {
            true => Err(PoolError::RollingBack { volume: volume.to_owned() }),
            false => Ok(()),
        }
    }

    /// Makes stable what was written to a volume, so that little is left of that when its writes are held.
    pub(crate) fn flush(&self, volume: &str) -> Result<(), PoolError> {
        self.files().sync(&self.path_of(volume)).map_err(|source| self.failed("flush", volume, source))
    }

    /// Takes what a volume holds now. It is no snapshot yet ([`Pool::commit`]).
    pub(crate) fn capture(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let content = id.to_string();
        if is_there(&self.path_of(&content)) {
            return Err(PoolError::SnapshotExists(content));
        }
        let new = self.new_path(id);
        // One that a crash has left there is nobody's.
        let copied = self.files().remove(&new).and_then(|()| self.files().copy(&self.path_of(&id.volume), &new));
        copied.map_err(|source| self.failed("take the snapshot", id, source))
    }

    /// What was taken becomes snapshots, all at once, also through a crash.
    pub(crate) fn commit(&self, ids: &[SnapshotId], protected: bool) -> Result<(), PoolError> {
        self.commit_with(ids, protected, |_| {})
    }

    /// The same together with another change of the catalogue.
    fn commit_with(
        &self,
        ids: &[SnapshotId],
        protected: bool,
        change: impl FnOnce(&mut Catalogue),
    ) -> Result<(), PoolError> {
        let made = written_millis(SystemTime::now());
        let mut records = Vec::new();
        for id in ids {
            let path = self.new_path(id);
            let length = self.files().sync(&path).and_then(|()| std::fs::metadata(&path));
            let size_bytes = length.map_err(|source| self.failed("keep the snapshot", id, source))?.len();
            records.push((id.clone(), SnapshotRecord { made: made.clone(), size_bytes, protected }));
        }
        self.sync_directory()?;
        self.edit(|catalogue| {
            records.into_iter().for_each(|(id, record)| catalogue.insert(id, record));
            change(catalogue);
            Ok(())
        })?;
        // From here on they are snapshots, whatever fails.
        self.unplaced().extend(ids.iter().cloned());
        if let Err(error) = self.place_snapshots() {
            tracing::warn!("{error}; it is tried again when a snapshot is needed, and at the next start");
        }
        Ok(())
    }

    /// Gives the files of snapshots their names, where that has failed before.
    pub(crate) fn place_snapshots(&self) -> Result<(), PoolError> {
        let unplaced = self.unplaced().clone();
        for id in &unplaced {
            let renamed = self.files().rename(&self.new_path(id), &self.path_of(&id.to_string()));
            renamed.map_err(|source| self.failed("give its name to the file of the snapshot", id, source))?;
            self.unplaced().remove(id);
        }
        if unplaced.is_empty() { Ok(()) } else { self.sync_directory() }
    }

    fn unplaced(&self) -> MutexGuard<'_, BTreeSet<SnapshotId>> {
        // It is whole between any two changes.
        self.unplaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was taken is not wanted after all: as far as it is no snapshot, and cannot be one at the next start.
    pub(crate) fn discard(&self, ids: &[SnapshotId]) {
        let ids = ids.iter().filter(|id| !self.may_say(|catalogue| catalogue.snapshot(id).is_some()));
        // What stays is removed when the pool is opened again.
        ids.for_each(|id| drop(self.files().remove(&self.new_path(id))));
    }

    /// The snapshots of a volume, or of all, by volumes and names.
    pub(crate) fn snapshots(&self, volume: Option<&str>) -> Vec<SnapshotStatus> {
        let catalogue = self.catalogue();
        let volumes = catalogue.snapshots.keys().filter(|name| volume.is_none_or(|volume| volume == *name));
        let ids = volumes.flat_map(|volume| catalogue.of_volume(volume));
        let status = ids.map(|(SnapshotId { volume, name }, record)| SnapshotStatus {
            volume,
            name,
            pool: self.name().to_owned(),
            made: record.made.clone(),
            size_bytes: record.size_bytes,
            protected: record.protected,
        });
        status.collect()
    }

    /// How long the volume of a snapshot was.
    ///
    /// # Errors
    /// [`PoolError::NoSnapshot`].
    pub(crate) fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, PoolError> {
        self.record(id).map(|record| record.size_bytes)
    }

    fn record(&self, id: &SnapshotId) -> Result<SnapshotRecord, PoolError> {
        self.catalogue().snapshot(id).cloned().ok_or_else(|| PoolError::NoSnapshot(id.to_string()))
    }

    /// A snapshot is not deleted from now on, or can be again. Whether it was not so.
    pub(crate) fn protect_snapshot(&self, id: &SnapshotId, protected: bool) -> Result<bool, PoolError> {
        let is_other = self.record(id)?.protected != protected;
        self.edit(|catalogue| {
            let record = catalogue.snapshots.get_mut(&id.volume).and_then(|named| named.get_mut(&id.name));
            record.ok_or_else(|| PoolError::NoSnapshot(id.to_string()))?.protected = protected;
            Ok(())
        })?;
        Ok(is_other)
    }

    pub(crate) fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let content = id.to_string();
        if self.record(id)?.protected {
            return Err(PoolError::Protected(format!("snapshot {content}")));
        }
        self.remove_snapshot(id)
    }

    /// The same of one that may be protected.
    pub(crate) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let content = id.to_string();
        if self.may_say(|catalogue| catalogue.rolling_back.get(&id.volume) == Some(&id.name)) {
            return Err(PoolError::RollingBack { volume: id.volume.clone() });
        }
        self.place_snapshots()?;
        self.edit(|catalogue| {
            catalogue.remove(id);
            catalogue.deleting.insert(content.clone());
            Ok(())
        })?;
        self.remove(&content)
    }

    /// Makes the content of a volume that is to be, from a snapshot; whole, or not at all.
    pub(crate) fn make_clone(&self, id: &SnapshotId, volume: &str) -> Result<(), PoolError> {
        self.check_sharing()?;
        self.record(id)?;
        self.place_snapshots()?;
        let path = self.path_of(volume);
        if is_there(&path) {
            return Err(PoolError::ContentExists { pool: self.name().to_owned(), volume: volume.to_owned() });
        }
        self.edit(|catalogue| {
            catalogue.making.insert(volume.to_owned());
            Ok(())
        })?;
        let copied = self.files().copy(&self.path_of(&id.to_string()), &path).and_then(|()| self.files().sync(&path));
        let made = copied.map_err(|source| self.failed("make", volume, source)).and_then(|()| self.sync_directory());
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
            let removed = self.files().remove(&self.path_of(volume)).and_then(|()| self.files().sync(self.directory()));
            removed.map_err(|source| self.failed("remove", volume, source))?;
            self.lengths().set(volume, None);
        }
        self.edit(|catalogue| {
            catalogue.making.remove(volume);
            Ok(())
        })
    }

    /// Whether a volume's content can be replaced by a snapshot's.
    pub(crate) fn check_rollback(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.check_sharing()?;
        self.record(id).map(drop)
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
        self.place_snapshots()?;
        let path = self.path_of(&id.volume);
        if !self.disown_records(&path) {
            let source = io::Error::other("what is remembered of its writes cannot be taken back");
            return Err(PoolError::HalfRolledBack { snapshot: id.to_string(), source });
        }
        let replaced = self.files().replace(&self.path_of(&id.to_string()), &path);
        let replaced = replaced.and_then(|()| self.files().sync(&path));
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

    /// Has nobody else open the file of a volume, as long as what this gives lives.
    ///
    /// # Errors
    /// [`PoolError::Locked`]: somebody has.
    pub(crate) fn lock(&self, volume: &str) -> Result<File, PoolError> {
        let file = File::open(self.path_of(volume)).map_err(|source| self.failed("open", volume, source))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => PoolError::Locked(volume.to_owned()),
            TryLockError::Error(source) => self.failed("lock", volume, source),
        })?;
        Ok(file)
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

    /// The content of a volume is neither deleted nor rolled back from now on, also when it is not served; or can be again.
    pub(crate) fn protect(&self, volume: &str, is_protected: bool) -> Result<(), PoolError> {
        if self.protects(volume) == is_protected {
            return Ok(());
        }
        self.edit(|catalogue| {
            match is_protected {
                true => catalogue.protected.insert(volume.to_owned()),
                false => catalogue.protected.remove(volume),
            };
            Ok(())
        })
    }

    pub(crate) fn protects(&self, volume: &str) -> bool {
        self.catalogue().protected.contains(volume)
    }

    /// Whether the content of a volume could be deleted.
    pub(crate) fn check_deletion(&self, volume: &str, with_snapshots: bool) -> Result<(), PoolError> {
        self.catalogue().check_deletion(volume, with_snapshots)
    }

    /// Notes that the content of a volume is to be deleted, and its snapshots if that is said. It is, when the volume is not served any more.
    pub(crate) fn begin_to_delete(&self, volume: &str, with_snapshots: bool) -> Result<(), PoolError> {
        self.edit(|catalogue| {
            catalogue.check_deletion(volume, with_snapshots)?;
            catalogue.deleting.insert(volume.to_owned());
            Ok(())
        })
    }

    /// It is served on.
    pub(super) fn keep_after_all(&self, volume: &str) -> Result<(), PoolError> {
        self.edit(|catalogue| {
            catalogue.deleting.remove(volume);
            Ok(())
        })
    }

    /// Deletes what was noted: the volume is not served any more.
    pub(crate) fn delete(&self, volume: &str) -> Result<(), PoolError> {
        self.place_snapshots()?;
        let snapshots: Vec<SnapshotId> = self.catalogue().of_volume(volume).map(|(id, _)| id).collect();
        self.edit(|catalogue| {
            snapshots.iter().for_each(|id| catalogue.remove(id));
            catalogue.deleting.extend(snapshots.iter().map(SnapshotId::to_string));
            catalogue.rolling_back.remove(volume);
            Ok(())
        })?;
        snapshots.iter().try_for_each(|id| self.remove(&id.to_string()))?;
        self.remove(volume)
    }

    /// Removes what is noted to be deleted.
    pub(super) fn remove(&self, content: &str) -> Result<(), PoolError> {
        let removed = self.files().remove(&self.path_of(content));
        removed.map_err(|source| self.failed("delete", content, source))?;
        self.sync_directory()?;
        self.lengths().set(content, None);
        self.edit(|catalogue| {
            catalogue.deleting.remove(content);
            catalogue.protected.remove(content);
            Ok(())
        })
    }

    /// Where a snapshot is before it is one.
    pub(super) fn new_path(&self, id: &SnapshotId) -> PathBuf {
        let mut path = self.path_of(&id.to_string()).into_os_string();
        path.push(".new");
        path.into()
    }

    fn sync_directory(&self) -> Result<(), PoolError> {
        self.files().sync(self.directory()).map_err(|source| self.failed("flush", "its directory", source))
    }
}

/// Whether anything has this name, as far as that can be said.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
}

#[cfg(test)]
mod tests;
