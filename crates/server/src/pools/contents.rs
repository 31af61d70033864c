//! The content of a pool's volumes: snapshots, clones, rollback and deletion, each in steps between which a crash may come.

use crate::wall_time::written_millis;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::catalogue::{Catalogue, SnapshotId, SnapshotRecord};
use super::layered::Way;
use super::side_by_side::side_by_side;
use super::{Pool, PoolError};
use crate::revisions::of_content;

/// A snapshot as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotStatus {
    /// Another one when it was taken anew under its name, or is protected or not any more.
    #[serde(default)]
    pub revision: u64,
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
        self.way_of(&id.volume)?;
        self.check_whole(&id.volume)?;
        let content = id.to_string();
        if self.may_say(|catalogue| catalogue.snapshot(id).is_some()) {
            Err(PoolError::SnapshotExists(content))
        } else {
            Ok(())
        }
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

    /// The same for a snapshot, with all else that can be done before.
    pub(crate) fn prepare(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.check_place()?;
        self.retry_deletions(&id.volume);
        match self.way_of(&id.volume)? {
            Way::Reflink => self.flush(&id.volume),
            Way::Layers => self.prepare_layer(id),
        }
    }

    /// Takes what a volume holds now. It is no snapshot yet ([`Pool::commit`]).
    pub(crate) fn capture(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let content = id.to_string();
        self.check_place()?;
        // One that is to be deleted would take this one with it.
        let is_deleted = self.may_say(|catalogue| catalogue.deleting.contains(&content));
        if is_deleted || is_there(&self.path_of(&content)) {
            return Err(PoolError::SnapshotExists(content));
        }
        if self.way_of(&id.volume)? == Way::Layers {
            return self.capture_layer(id);
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
    pub(super) fn commit_with(
        &self,
        ids: &[SnapshotId],
        protected: bool,
        change: impl FnOnce(&mut Catalogue),
    ) -> Result<(), PoolError> {
        let made = written_millis(SystemTime::now());
        let mut records = Vec::new();
        let (layered, files): (Vec<_>, Vec<_>) = ids.iter().partition(|id| self.is_layered(&id.volume));
        if !files.is_empty() || layered.is_empty() {
            self.sync_new(&files)?;
        }
        for id in &files {
            let length = std::fs::metadata(self.new_path(id));
            let size_bytes = length.map_err(|source| self.failed("keep the snapshot", id, source))?.len();
            let record = SnapshotRecord { made: made.clone(), size_bytes, protected, layered: false };
            records.push(((*id).clone(), record));
        }
        for id in &layered {
            let size_bytes = self.layer_bytes(id)?;
            let record = SnapshotRecord { made: made.clone(), size_bytes, protected, layered: true };
            records.push(((*id).clone(), record));
        }
        self.edit(|catalogue| {
            for (id, record) in records {
                catalogue.taking.remove(&id.to_string());
                catalogue.insert(id, record);
            }
            change(catalogue);
            Ok(())
        })?;
        // From here on they are snapshots, whatever fails.
        layered.iter().for_each(|id| self.end_taking(id));
        self.unplaced().extend(files.into_iter().cloned());
        if let Err(error) = self.place_snapshots() {
            tracing::warn!("{error}; it is tried again when a snapshot is needed, and at the next start");
        }
        Ok(())
    }

    /// Makes what was taken stable, with its names, before the catalogue says that it is there.
    fn sync_new(&self, ids: &[&SnapshotId]) -> Result<(), PoolError> {
        let all: Vec<Option<&SnapshotId>> = ids.iter().map(|id| Some(*id)).chain([None]).collect();
        side_by_side(&all, |id| match id {
            Some(id) => {
                let synced = self.files().sync(&self.new_path(id));
                synced.map_err(|source| self.failed("keep the snapshot", id, source))
            }
            None => self.sync_directory(),
        })
    }

    /// Gives the files of snapshots their names, where that has failed before. Whether that is stable does not matter: the next change of the
    /// catalogue, which is in the same directory, makes it so, and after a crash before that they are given their names again (`recovery.rs`).
    pub(crate) fn place_snapshots(&self) -> Result<(), PoolError> {
        let unplaced = self.unplaced().clone();
        for id in &unplaced {
            let renamed = self.files().rename(&self.new_path(id), &self.path_of(&id.to_string()));
            renamed.map_err(|source| self.failed("give its name to the file of the snapshot", id, source))?;
            self.unplaced().remove(id);
        }
        Ok(())
    }

    fn unplaced(&self) -> MutexGuard<'_, BTreeSet<SnapshotId>> {
        // It is whole between any two changes.
        self.unplaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was taken is not wanted after all: as far as it is no snapshot, and cannot be one at the next start.
    pub(crate) fn discard(&self, ids: &[SnapshotId]) {
        for id in ids.iter().filter(|id| !self.may_say(|catalogue| catalogue.snapshot(id).is_some())) {
            match self.way_of(&id.volume) {
                Ok(Way::Layers) => self.discard_layer(id),
                // What stays is removed when the pool is opened again.
                _ => drop(self.files().remove(&self.new_path(id))),
            }
        }
    }

    /// The snapshots of a volume, or of all, by volumes and names.
    pub(crate) fn snapshots(&self, volume: Option<&str>) -> Vec<SnapshotStatus> {
        let catalogue = self.catalogue();
        let volumes = catalogue.snapshots.keys().filter(|name| volume.is_none_or(|volume| volume == *name));
        let ids = volumes.flat_map(|volume| catalogue.of_volume(volume));
        let status = ids.map(|(id, record)| SnapshotStatus {
            revision: self.revision_of(&id, record),
            volume: id.volume,
            name: id.name,
            pool: self.name().to_owned(),
            made: record.made.clone(),
            size_bytes: record.size_bytes,
            protected: record.protected,
        });
        status.collect()
    }

    /// That of a snapshot, as it is told; `None` when there is none.
    pub(crate) fn snapshot_revision(&self, id: &SnapshotId) -> Option<u64> {
        self.catalogue().snapshot(id).map(|record| self.revision_of(id, record))
    }

    fn revision_of(&self, id: &SnapshotId, record: &SnapshotRecord) -> u64 {
        let SnapshotRecord { made, size_bytes, protected, .. } = record;
        let (id, size) = (id.to_string(), size_bytes.to_string());
        of_content([self.name(), &id, made, &size, if *protected { "protected" } else { "" }])
    }

    /// How long the volume of a snapshot was.
    ///
    /// # Errors
    /// [`PoolError::NoSnapshot`].
    pub(crate) fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, PoolError> {
        self.record(id).map(|record| record.size_bytes)
    }

    pub(super) fn record(&self, id: &SnapshotId) -> Result<SnapshotRecord, PoolError> {
        self.catalogue().snapshot(id).cloned().ok_or_else(|| PoolError::NoSnapshot(id.to_string()))
    }

    /// Whether a snapshot can be protected, or not be any more.
    ///
    /// # Errors
    /// [`PoolError`]: there is none, or it is not for who asks to say so.
    pub(crate) fn check_protection(&self, id: &SnapshotId, protected: bool) -> Result<(), PoolError> {
        self.record(id)?;
        if protected { Ok(()) } else { self.catalogue().check_not_copied(id) }
    }

    /// A snapshot is not deleted from now on, or can be again. Whether it was not so.
    pub(crate) fn protect_snapshot(&self, id: &SnapshotId, protected: bool) -> Result<bool, PoolError> {
        self.check_protection(id, protected)?;
        let is_other = self.record(id)?.protected != protected;
        self.edit(|catalogue| {
            let record = catalogue.snapshots.get_mut(&id.volume).and_then(|named| named.get_mut(&id.name));
            record.ok_or_else(|| PoolError::NoSnapshot(id.to_string()))?.protected = protected;
            if is_other && protected {
                // Whoever protects what a copy has left wants to keep it.
                catalogue.temporary.remove(&id.to_string());
            }
            Ok(())
        })?;
        Ok(is_other)
    }

    /// Where a snapshot is before it is one.
    pub(super) fn new_path(&self, id: &SnapshotId) -> PathBuf {
        let mut path = self.path_of(&id.to_string()).into_os_string();
        path.push(".new");
        path.into()
    }

    pub(super) fn sync_directory(&self) -> Result<(), PoolError> {
        self.files().sync(self.directory()).map_err(|source| self.failed("flush", "its directory", source))
    }
}

/// Whether anything has this name, as far as that can be said.
pub(super) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
}

#[cfg(test)]
mod tests;
