//! The deletion of snapshots and of what volumes hold, and what keeps from it.

use std::fs::{File, TryLockError};

use super::catalogue::SnapshotId;
use super::{Pool, PoolError};

impl Pool {
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
