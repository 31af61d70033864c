//! What requests that are under way have taken for themselves: others are told, and do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::Lun;

use super::ManageError;

/// What is done to volumes that go, with all that is derived from them.
pub(super) const REMOVED: &str = "being removed";
pub(super) const DELETED: &str = "being deleted";
pub(super) const REVOKED: &str = "being revoked";

/// What is done to volumes whose snapshots come and go beside it: it changes nothing of what they hold.
const COMPARED: &str = "having its copies compared";

/// Who has taken what.
#[derive(Clone, Default)]
pub(super) struct Busy(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    /// Volumes that are just being changed, with what is being done to them.
    volumes: BTreeMap<String, &'static str>,
    /// Volumes whose copies are just being compared, which may take hours.
    compared: BTreeSet<String>,
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
    compared: Option<String>,
    luns: Vec<Lun>,
    slots: Vec<u16>,
    is_reload: bool,
}

impl Busy {
    /// Nothing is taken yet by a request that begins.
    pub(super) fn begin(&self) -> Hold {
        let (volumes, compared, luns, slots) = Default::default();
        Hold { busy: self.clone(), volumes, compared, luns, slots, is_reload: false }
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

    /// The same for one that compares the copies of this volume.
    ///
    /// # Errors
    /// [`ManageError::Busy`] when another one does, or changes it.
    pub(super) fn hold_compared(&self, volume: &str) -> Result<Hold, ManageError> {
        let mut hold = self.begin();
        let mut taken = self.lock();
        taken.check_free(volume, Beside::Nothing)?;
        taken.compared.insert(volume.to_owned());
        drop(taken);
        hold.compared = Some(volume.to_owned());
        Ok(hold)
    }

    /// The same for one that makes or deletes a snapshot of this volume: its copies may be compared meanwhile.
    ///
    /// # Errors
    /// [`ManageError::Busy`] when another one changes it.
    pub(super) fn hold_for_snapshot(&self, volume: &str, what: &'static str) -> Result<Hold, ManageError> {
        let mut hold = self.begin();
        hold.add_for_snapshot(volume, what)?;
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

/// What may go on beside something that is done to a volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Its copies are compared.
    Comparison,
}

impl Taken {
    fn check_free(&self, volume: &str, beside: Beside) -> Result<(), ManageError> {
        let compared = (beside == Beside::Nothing && self.compared.contains(volume)).then_some(COMPARED);
        match self.volumes.get(volume).copied().or(compared) {
            Some(what) => Err(ManageError::Busy { name: volume.to_owned(), what }),
            None => Ok(()),
        }
    }
}

impl Hold {
    /// Takes a volume too.
    ///
    /// # Errors
    /// [`ManageError::Busy`] when another request has it.
    pub(super) fn add(&mut self, volume: &str, what: &'static str) -> Result<(), ManageError> {
        self.add_beside(volume, what, Beside::Nothing)
    }

    /// The same to make or delete a snapshot of it: its copies may be compared meanwhile.
    ///
    /// # Errors
    /// [`ManageError::Busy`] when another request has it.
    pub(super) fn add_for_snapshot(&mut self, volume: &str, what: &'static str) -> Result<(), ManageError> {
        self.add_beside(volume, what, Beside::Comparison)
    }

    fn add_beside(&mut self, volume: &str, what: &'static str, beside: Beside) -> Result<(), ManageError> {
        let mut taken = self.busy.lock();
        taken.check_free(volume, beside)?;
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
        if let Some(volume) = &self.compared {
            taken.compared.remove(volume);
        }
        taken.is_reloading &= !self.is_reload;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_come_and_go_while_copies_are_compared_and_nothing_else_is_done_meanwhile() {
        let busy = Busy::default();
        let compared = busy.hold_compared("a").unwrap();
        let is_compared = |refused: Result<Hold, ManageError>| match refused {
            Err(ManageError::Busy { what, .. }) => what == COMPARED,
            _ => false,
        };
        assert!(is_compared(busy.hold("a", REMOVED)) && is_compared(busy.hold_compared("a")));
        let snapshot = busy.hold_for_snapshot("a", "getting a snapshot").unwrap();
        assert!(busy.hold_for_snapshot("a", "losing a snapshot").is_err(), "one after the other");
        drop(snapshot);
        assert!(is_compared(busy.hold("a", REMOVED)), "it is still compared");
        drop(compared);
        let removed = busy.hold("a", REMOVED).unwrap();
        assert!(busy.hold_compared("a").is_err() && busy.hold_for_snapshot("a", "getting a snapshot").is_err());
        drop(removed);
        assert!(busy.hold_compared("a").is_ok());
    }
}
