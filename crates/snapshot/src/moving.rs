//! Looking for blocks in a lower layer that an upper one has had, so that their place there can be given back.

use crate::SnapshotError;
use crate::family::State;
use crate::layer::Perform;
use crate::merge::Merge;
use crate::tree::Tree;

impl Tree {
    /// Does a part of a merge; `true`: all is in the lower layer, and stable.
    pub(crate) fn step(&self, merge: &mut Merge, perform: Perform<'_>) -> Result<bool, SnapshotError> {
        if merge.part.is_empty() && !merge.is_copied() {
            merge.copy(perform)?;
        }
        if merge.is_copied() {
            return Ok(true);
        }
        if merge.lower == merge.upper {
            merge.part.clear();
            return Ok(false);
        }
        if merge.readers.is_none() {
            self.move_part(merge, perform)?;
        }
        // A read that began before is waited for, between two parts.
        merge.give_back(perform)?;
        Ok(false)
    }

    /// From now on a part is looked for in the lower layer, and after a crash, too.
    fn move_part(&self, merge: &mut Merge, perform: Perform<'_>) -> Result<(), SnapshotError> {
        {
            let state = &mut *self.lock();
            if state.is_read() || !state.is_to_be(merge) {
                return Err(SnapshotError::Busy);
            }
            let State { volumes, epochs, is_moving, .. } = state;
            epochs.retain(|epoch| epoch.strong_count() > 0);
            for store in volumes.values() {
                let view = store.0.view.load();
                if view.has(merge.upper) {
                    let epoch = view.move_to((merge.upper, merge.lower), &merge.part);
                    // Also for a merge that comes in the place of this one.
                    epochs.push(epoch.ok_or(SnapshotError::Missing { layer: merge.lower })?);
                }
            }
            merge.readers = Some(epochs.clone());
            // Who opened a volume now would look for the part in the upper layer.
            *is_moving = true;
        }
        let cleared = merge.clear_maps(perform);
        self.lock().is_moving = false;
        self.changed.notify_all();
        cleared
    }
}
