//! Snapshots that somebody needs for a while: they go when that is over, and when the pool is opened again.

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

    /// Nobody needs it any more, and it could not be deleted now: whoever wants may delete it, and it goes at the next start.
    pub(crate) fn release_temporary(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.edit(|catalogue| {
            let record = catalogue.snapshots.get_mut(&id.volume).and_then(|named| named.get_mut(&id.name));
            record.into_iter().for_each(|record| record.protected = false);
            Ok(())
        })
    }

    /// Those of another run are none any more, and are deleted next.
    pub(super) fn end_temporary(&self) -> Result<(), PoolError> {
        if self.catalogue().temporary.is_empty() {
            return Ok(());
        }
        self.edit(|catalogue| {
            for content in std::mem::take(&mut catalogue.temporary) {
                let Ok(id) = content.parse::<SnapshotId>() else { continue };
                // What a volume is being rolled back to is needed until that is done, and is one as any other.
                if catalogue.rolling_back.get(&id.volume) != Some(&id.name) {
                    catalogue.remove(&id);
                    catalogue.deleting.insert(content);
                }
            }
            Ok(())
        })
    }
}
