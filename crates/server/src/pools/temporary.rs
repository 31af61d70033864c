//! Snapshots that somebody needs for a while: they go when that is over, and when the pool is opened again.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{MutexGuard, PoisonError};

use super::catalogue::SnapshotId;
use super::{Pool, PoolError};

impl Pool {
    /// Whether snapshots of a volume can be made.
    pub(crate) fn can_snapshot(&self, volume: &str) -> bool {
        self.way_of(volume).is_ok()
    }

    /// What was taken becomes a snapshot for a while: nobody deletes it by mistake, nor its volume, until [`Pool::remove_snapshot`].
    pub(crate) fn commit_for_now(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.commit_with(std::slice::from_ref(id), true, |catalogue| _ = catalogue.temporary.insert(id.to_string()))
    }

    /// Whether this is such a snapshot.
    pub(super) fn is_temporary(&self, content: &str) -> bool {
        self.may_say(|catalogue| catalogue.temporary.contains(content))
    }

    /// Nobody needs it any more, and it could not be deleted now: whoever wants may delete it, and it goes at the next start. Where that cannot be
    /// kept either, [`Pool::end_deletions`] deletes it.
    pub(crate) fn release_temporary(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let released = self.edit(|catalogue| {
            let record = catalogue.snapshots.get_mut(&id.volume).and_then(|named| named.get_mut(&id.name));
            record.into_iter().for_each(|record| record.protected = false);
            Ok(())
        });
        released.inspect_err(|_| _ = self.over().insert(id.clone()))
    }

    /// Temporary ones that nobody needs any more, and of which that could not be kept.
    pub(super) fn over(&self) -> MutexGuard<'_, BTreeSet<SnapshotId>> {
        // It is whole between any two changes.
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries again to delete those of a volume.
    pub(super) fn end_over(&self, volume: &str) -> Result<(), PoolError> {
        let all = mem::take(&mut *self.over());
        let (of_volume, others): (BTreeSet<_>, BTreeSet<_>) = all.into_iter().partition(|id| id.volume == volume);
        self.over().extend(others);
        let mut ended = Ok(());
        for id in of_volume.into_iter().filter(|id| self.is_temporary(&id.to_string())) {
            if let Err(error) = self.remove_snapshot(&id) {
                // What is noted by now is tried again by that.
                if self.is_temporary(&id.to_string()) {
                    self.over().insert(id);
                }
                ended = Err(error);
            }
        }
        ended
    }

    /// Those of another run are none any more, and are deleted next.
    pub(super) fn end_temporary(&self) -> Result<(), PoolError> {
        if self.catalogue().temporary.is_empty() {
            return Ok(());
        }
        self.edit_left(|catalogue| {
            for content in mem::take(&mut catalogue.temporary) {
                let Ok(id) = content.parse::<SnapshotId>() else { continue };
                // What a volume is being rolled back to is needed until that is done, and is one as any other.
                if catalogue.rolling_back.get(&id.volume) != Some(&id.name) {
                    catalogue.remove(&id);
                    catalogue.deleting.insert(content);
                }
            }
        })
    }
}
