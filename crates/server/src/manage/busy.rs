//! What requests that are under way have taken for themselves: others are told, and do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::Lun;

use super::ManageError;

/// What is done to volumes that go, with all that is derived from them.
pub(super) const REMOVED: &str = "being removed";
pub(super) const DELETED: &str = "being deleted";
pub(super) const REVOKED: &str = "being revoked";

/// Who has taken what.
#[derive(Clone, Default)]
pub(super) struct Busy(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    /// Volumes that are just being changed, with what is being done to them.
    volumes: BTreeMap<String, &'static str>,
    /// HyperSCSI numbers that volumes will have.
    luns: BTreeSet<Lun>,
    /// Places that volumes will have among what is counted.
    slots: BTreeSet<u16>,
    is_reloading: bool,
}

/// What one request has taken, as long as this lives.
#[must_use]
pub(super) struct Hold {
    busy: Busy,
    volumes: BTreeSet<String>,
    luns: Vec<Lun>,
    slots: Vec<u16>,
    is_reload: bool,
}

impl Busy {
    /// Nothing is taken yet by a request that begins.
    pub(super) fn begin(&self) -> Hold {
        Hold { busy: self.clone(), volumes: BTreeSet::new(), luns: Vec::new(), slots: Vec::new(), is_reload: false }
    }

    /// The same for one that changes this volume.
    ///
    /// # Errors
    /// [`ManageError::Busy`] when another one does.
    pub(super) fn hold(&self, volume: &str, what: &'static str) -> Result<Hold, ManageError> {
        let mut hold = self.begin();
        hold.add(volume, what)?;
        Ok(hold)
    }

    /// The same for one that reads the configuration again.
    ///
    /// # Errors
    /// [`ManageError::Reloading`] when another one does.
    pub(super) fn hold_reload(&self) -> Result<Hold, ManageError> {
        if std::mem::replace(&mut self.lock().is_reloading, true) {
            return Err(ManageError::Reloading);
        }
        let mut hold = self.begin();
        hold.is_reload = true;
        Ok(hold)
    }

    /// # Errors
    /// [`ManageError::Busy`] when a volume is about to go, so that nothing is begun with it.
    pub(super) fn check_stays(&self, volume: &str) -> Result<(), ManageError> {
        match self.lock().volumes.get(volume) {
            Some(what) if [REMOVED, DELETED, REVOKED].contains(what) => {
                Err(ManageError::Busy { name: volume.to_owned(), what })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn has_lun(&self, lun: Lun) -> bool {
        #[cfg(test)]
        crate::visits::count(1);
        self.lock().luns.contains(&lun)
    }

    pub(super) fn has_slot(&self, slot: u16) -> bool {
        #[cfg(test)]
        crate::visits::count(1);
        self.lock().slots.contains(&slot)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // It is whole between any two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// Takes a volume too.
    ///
    /// # Errors
    /// [`ManageError::Busy`] when another request has it.
    pub(super) fn add(&mut self, volume: &str, what: &'static str) -> Result<(), ManageError> {
        let mut taken = self.busy.lock();
        if let Some(what) = taken.volumes.get(volume) {
            return Err(ManageError::Busy { name: volume.to_owned(), what });
        }
        taken.volumes.insert(volume.to_owned(), what);
        drop(taken);
        self.volumes.insert(volume.to_owned());
        Ok(())
    }

    /// Takes the numbers of volumes that are to come.
    pub(super) fn add_places(&mut self, places: impl IntoIterator<Item = (Lun, u16)>) {
        let mut taken = self.busy.lock();
        for (lun, slot) in places {
            taken.luns.insert(lun);
            taken.slots.insert(slot);
            self.luns.push(lun);
            self.slots.push(slot);
        }
    }

    /// Whether this has taken the volume.
    pub(super) fn has(&self, volume: &str) -> bool {
        self.volumes.contains(volume)
    }

    /// Gives back the numbers of volumes that were to come, and keeps the volumes.
    pub(super) fn free_places(&mut self) {
        let mut taken = self.busy.lock();
        for lun in self.luns.drain(..) {
            taken.luns.remove(&lun);
        }
        for slot in self.slots.drain(..) {
            taken.slots.remove(&slot);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.free_places();
        let mut taken = self.busy.lock();
        for volume in &self.volumes {
            taken.volumes.remove(volume);
        }
        taken.is_reloading &= !self.is_reload;
    }
}
