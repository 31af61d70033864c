//! The deletion of snapshots and of what volumes hold, and what keeps from it.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};

use super::catalogue::SnapshotId;
use super::{Pool, PoolError};

impl Pool {
    pub(crate) fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.check_snapshot_deletion(id)?;
        self.remove_snapshot(id)
    }

    /// Whether a snapshot may be deleted.
    pub(crate) fn check_snapshot_deletion(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let is_protected = self.record(id)?.protected;
        self.catalogue().check_not_copied(id)?;
        match is_protected {
            true => Err(PoolError::Protected(format!("snapshot {id}"))),
            false => self.check_not_rolled_back_to(id),
        }
    }

    fn check_not_rolled_back_to(&self, id: &SnapshotId) -> Result<(), PoolError> {
        match self.may_say(|catalogue| catalogue.rolling_back.get(&id.volume) == Some(&id.name)) {
            true => Err(PoolError::RollingBack { volume: id.volume.clone() }),
            false => Ok(()),
        }
    }

    /// The same of one that may be protected.
    pub(crate) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let content = id.to_string();
        self.check_not_rolled_back_to(id)?;
        self.place_snapshots()?;
        self.retry_deletions(&id.volume);
        self.edit(|catalogue| {
            catalogue.remove(id);
            catalogue.deleting.insert(content.clone());
            Ok(())
        })?;
        self.remove(&content)
    }

    /// Snapshots of a volume whose deletion was begun and has failed are tried again. Nothing else is done to the volume meanwhile.
    pub(super) fn retry_deletions(&self, volume: &str) {
        if let Err(error) = self.end_deletions(volume) {
            tracing::warn!("{error}; it is tried again from time to time");
        }
    }

    /// Volumes of which the deletion of a snapshot was begun and has failed.
    pub(crate) fn with_begun_deletions(&self) -> BTreeSet<String> {
        let over: Vec<String> = self.over().iter().map(|id| id.volume.clone()).collect();
        let catalogue = self.catalogue();
        let snapshots = catalogue.deleting.iter().filter_map(|content| content.split_once('@'));
        snapshots.map(|(volume, _)| volume.to_owned()).chain(over).collect()
    }

    /// Brings the deletion of such snapshots to its end. Nothing else is done to the volume meanwhile.
    ///
    /// # Errors
    /// [`PoolError`]: one of them is there still.
    pub(crate) fn end_deletions(&self, volume: &str) -> Result<(), PoolError> {
        let mut ended = self.end_over(volume);
        let begun = self.catalogue().deleting.clone();
        let of_volume = |content: &&String| content.split_once('@').is_some_and(|(of, _)| of == volume);
        for content in begun.iter().filter(of_volume) {
            ended = ended.and(self.remove(content));
        }
        ended
    }

    /// Has nobody else open the file of a volume, as long as what this gives lives.
    ///
    /// # Errors
    /// [`PoolError::Locked`]: somebody has.
    pub(super) fn lock_file(&self, volume: &str) -> Result<File, PoolError> {
        let file = File::open(self.path_of(volume)).map_err(|source| self.failed("open", volume, source))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => PoolError::Locked(volume.to_owned()),
            TryLockError::Error(source) => self.failed("lock", volume, source),
        })?;
        Ok(file)
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
        // All at once, so that nothing is merged that goes anyway. It stays open until the end.
        let _family = self.remove_layer(volume)?;
        snapshots.iter().try_for_each(|id| self.remove(&id.to_string()))?;
        self.remove(volume)
    }

    /// Removes what is noted to be deleted.
    pub(super) fn remove(&self, content: &str) -> Result<(), PoolError> {
        self.remove_layer(content)?;
        let removed = self.files().remove(&self.path_of(content));
        removed.map_err(|source| self.failed("delete", content, source))?;
        self.sync_directory()?;
        self.lengths().set(content, None);
        let family = self.edit(|catalogue| {
            catalogue.deleting.remove(content);
            catalogue.protected.remove(content);
            Ok(catalogue.layered.remove(content))
        })?;
        family.into_iter().for_each(|family| self.remove_family(&family));
        Ok(())
    }
}
