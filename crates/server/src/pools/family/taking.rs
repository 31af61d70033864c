//! Snapshots and rollbacks of a family, and what has a volume begin another last layer.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sanwire_snapshot::{Hold, Release, Rollback, SnapshotError, SnapshotStore};
use sanwire_store_file::blocking::perform;

use super::{Begun, Family, FamilyError, new_layer};
use crate::pools::catalogue::SnapshotId;

/// So many parts of some 64 MiB are written once more for a snapshot that is asked for; if there are more, it is refused.
const PARTS_AT_ONCE: usize = 8;

/// How long writes may wait for those before them where nobody has asked for it.
const QUIET_MAX_MS: u32 = 500;

/// How long writes that are held for something else are waited for.
const HELD_MAX_MS: u32 = 3000;

impl Family {
    /// Does all for a snapshot that can be done before writes are held.
    pub(in crate::pools) fn prepare(&self, id: &SnapshotId) -> Result<(), FamilyError> {
        self.check_below()?;
        let mut changing = self.changing();
        self.holds().remove(id);
        changing.remove(id).into_iter().for_each(|begun| self.tree.abandon(begun.prepared));
        // One that a crash or a failure has left there is nobody's.
        self.forget(id)?;
        let store = self.tree.volume(&id.volume, &mut perform)?;
        if self.tree.is_unsettled(&id.volume)? {
            drop(changing);
            self.write_again(&id.volume, store)?;
            changing = self.changing();
        }
        let begun = self.begin(id)?;
        changing.insert(id.clone(), begun);
        drop(changing);
        Ok(self.tree.flush(&id.volume, &mut perform)?)
    }

    /// Has what a failed flush may have lost written once more. Much of it is left to the background.
    fn write_again(&self, volume: &str, store: SnapshotStore) -> Result<(), FamilyError> {
        let prepared = self.tree.prepare(volume, new_layer()?, &mut perform)?;
        self.begin_layer(volume, Begun { prepared, store: store.clone() }, None)?;
        for _ in 0..PARTS_AT_ONCE {
            if !self.tree.is_unsettled(volume)? {
                return Ok(());
            }
            self.tidy()?;
        }
        drop(store);
        Err(SnapshotError::Unsettled.into())
    }

    fn begin(&self, id: &SnapshotId) -> Result<Begun, FamilyError> {
        self.check_below()?;
        let store = self.tree.volume(&id.volume, &mut perform)?;
        let prepared = self.tree.prepare(&id.volume, new_layer()?, &mut perform)?;
        Ok(Begun { prepared, store })
    }

    /// Takes what a volume holds now, which nobody writes.
    pub(in crate::pools) fn take(&self, id: &SnapshotId) -> Result<(), FamilyError> {
        let mut changing = self.changing();
        let begun = changing.remove(id).map_or_else(|| self.begin(id), Ok)?;
        let taken = self.begin_layer(&id.volume, begun, Some(id));
        self.holds().remove(id);
        Ok(taken?)
    }

    pub(super) fn begin_layer(&self, volume: &str, begun: Begun, id: Option<&SnapshotId>) -> Result<(), SnapshotError> {
        let hold = id.map_or_else(|| self.hold_briefly(volume), |id| self.hold_for(id));
        let taken = hold.and_then(|hold| {
            let made_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
            self.tree.take(begun.prepared, id.map(|id| &*id.name), made_ms, &hold, &mut perform)
        });
        drop(begun.store);
        self.tree.close(volume);
        taken
    }

    /// Holds the writes of a volume, once what they may be held for just now is over: nobody has asked for that, and it takes not long.
    fn hold(&self, volume: &str) -> Result<Hold, SnapshotError> {
        for _ in 0..HELD_MAX_MS {
            match self.tree.hold(volume) {
                Err(SnapshotError::Busy) => thread::sleep(Duration::from_millis(1)),
                hold => return hold,
            }
        }
        Err(SnapshotError::Busy)
    }

    /// Holds writes for something that nobody waits for: those under way are waited for only if they end soon.
    pub(super) fn hold_briefly(&self, volume: &str) -> Result<Hold, SnapshotError> {
        let hold = self.hold(volume)?;
        for _ in 0..QUIET_MAX_MS {
            if hold.is_quiet() {
                return Ok(hold);
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(SnapshotError::Late)
    }

    /// Holds writes for a snapshot, until it is taken or given up.
    fn hold_for(&self, id: &SnapshotId) -> Result<Hold, SnapshotError> {
        let hold = self.hold(&id.volume)?;
        match self.holds().insert(id.clone(), Some(hold.release())) {
            Some(None) => Err(SnapshotError::Late),
            _ => Ok(hold),
        }
    }

    /// A snapshot takes too long: writes go on, unless it is about to be there. If it has not begun, it does not.
    pub(in crate::pools) fn give_up(&self, id: &SnapshotId) {
        self.holds().entry(id.clone()).or_default().iter().for_each(Release::give_back);
    }

    fn holds(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, Option<Release>>> {
        // It is whole between any two changes.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was taken, or is about to be, is not wanted any more.
    pub(in crate::pools) fn discard(&self, id: &SnapshotId) -> Result<(), FamilyError> {
        self.changing().remove(id).into_iter().for_each(|begun| self.tree.abandon(begun.prepared));
        self.holds().remove(id);
        self.forget(id)
    }

    /// Does all for a rollback that can be done before writes are held.
    pub(in crate::pools) fn prepare_rollback(&self, id: &SnapshotId) -> Result<(), FamilyError> {
        self.check_below()?;
        let store = self.tree.volume(&id.volume, &mut perform)?;
        let rollback = self.tree.prepare_rollback((&id.volume, &id.name), new_layer()?, &mut perform)?;
        let before = self.rollbacks().insert(id.clone(), (rollback, store));
        before.into_iter().for_each(|(rollback, _)| self.tree.abandon(rollback.into_prepared()));
        Ok(())
    }

    /// A rollback that was prepared has come about, or is not to.
    pub(in crate::pools) fn end_rollback(&self, id: &SnapshotId) {
        if let Some((rollback, store)) = self.rollbacks().remove(id) {
            self.tree.abandon(rollback.into_prepared());
            drop(store);
            self.tree.close(&id.volume);
        }
    }

    fn rollbacks(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, (Rollback, SnapshotStore)>> {
        // It is whole between any two changes.
        self.rollbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a volume what it was at a snapshot; nobody writes it.
    pub(in crate::pools) fn roll_back(&self, id: &SnapshotId) -> Result<(), FamilyError> {
        let _changing = self.changing();
        if !self.rollbacks().contains_key(id) {
            self.prepare_rollback(id)?;
        }
        let hold = match self.hold(&id.volume) {
            Ok(hold) => hold,
            Err(error) => {
                self.end_rollback(id);
                return Err(error.into());
            }
        };
        let prepared = self.rollbacks().remove(id);
        let (rollback, _store) = prepared.ok_or(SnapshotError::Busy)?;
        Ok(self.tree.roll_back(rollback, &hold)?)
    }
}
