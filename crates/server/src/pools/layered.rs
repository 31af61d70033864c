//! Which volumes of a pool are made of layers, and what is done with those.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use super::catalogue::{Catalogue, SnapshotId};
use super::config::SnapshotWay;
use super::descriptors::{self, check_layers};
use super::family::{Family, FamilyError, FamilyOptions, Use, is_marked, mark};
use super::{Pool, PoolError};

/// The families of a pool, below its directory. No volume has a file of this name.
pub(super) const DIRECTORY: &str = ".sanwire-layers";

/// How new snapshots of a volume are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By files that share their blocks.
    Reflink,
    Layers,
}

/// Families that are open, as long as somebody has them.
#[derive(Default, Debug)]
pub(super) struct OpenFamilies {
    kept: BTreeMap<String, Weak<Family>>,
    /// Of volumes that have no layers yet, by their names.
    new: BTreeMap<String, Weak<Family>>,
    /// Those that are being opened, by either: what is below layers may take its time, and others are not to wait for that.
    opening: BTreeSet<String>,
    /// Of snapshots that are being taken: it stays open until they are there.
    taking: BTreeMap<SnapshotId, Arc<Family>>,
}

/// As long as this lives, nobody else opens the file of a volume that is not served.
pub(crate) struct ContentLock {
    _file: Option<File>,
    _use: Option<Use>,
}

impl Pool {
    /// Whether what a volume holds is in layers.
    pub(super) fn is_layered(&self, volume: &str) -> bool {
        self.catalogue().layered.contains_key(volume)
    }

    /// How snapshots of volumes that have none are made.
    pub(super) fn way(&self) -> Option<Way> {
        match self.config().snapshots {
            SnapshotWay::Auto | SnapshotWay::Reflink if self.can_share() => Some(Way::Reflink),
            SnapshotWay::Layers if self.can_link() => Some(Way::Layers),
            SnapshotWay::Auto | SnapshotWay::Reflink | SnapshotWay::Layers | SnapshotWay::None => None,
        }
    }

    /// How a snapshot of a volume is made.
    ///
    /// # Errors
    /// [`PoolError::NoSharing`], [`PoolError::NoLinks`]: in no way.
    pub(super) fn way_of(&self, volume: &str) -> Result<Way, PoolError> {
        let own = self.is_layered(volume).then_some(Way::Layers);
        own.or(self.way()).ok_or_else(|| match self.config().snapshots {
            SnapshotWay::Layers => PoolError::NoLinks(self.name().to_owned()),
            _ => PoolError::NoSharing(self.name().to_owned()),
        })
    }

    /// Where families are.
    pub(super) fn families_directory(&self) -> PathBuf {
        self.directory().join(DIRECTORY)
    }

    fn open_families(&self) -> MutexGuard<'_, OpenFamilies> {
        // It is whole between any two changes.
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a file that does not hold its volume, where nothing is known of what does.
    pub(super) fn check_mark(&self, volume: &str) -> io::Result<()> {
        match is_marked(&self.path_of(volume)) {
            true => Err(io::Error::other(
                "what the volume holds is in layers, of which nothing is known: bring .sanwire-layers and .sanwire-pool.json back",
            )),
            false => Ok(()),
        }
    }

    /// The family of a volume that is to have layers from now on.
    fn settled_family(&self, volume: &str) -> Result<Arc<Family>, PoolError> {
        let failed = |source: io::Error| self.failed("open the layers of", volume, source);
        let family = self.family(volume, FamilyOptions::default()).map_err(|error| failed(error.into()))?;
        if !self.is_layered(volume) {
            let settled = family.settle(&self.path_of(volume), self.files());
            settled.map_err(|source| self.failed("begin layers of", volume, source))?;
            self.edit(|catalogue| {
                catalogue.layered.insert(volume.to_owned(), family.id.clone());
                Ok(())
            })?;
            let marked = mark(&self.path_of(volume));
            marked.map_err(|source| self.failed("begin layers of", volume, source))?;
            let mut open = self.open_families();
            open.new.remove(volume);
            open.kept.insert(family.id.clone(), Arc::downgrade(&family));
        }
        Ok(family)
    }

    /// Does all for a snapshot that can be done before writes are held.
    pub(super) fn prepare_layer(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.check_unknown(id)?;
        let family = self.settled_family(&id.volume)?;
        self.check_layers(id, &family)?;
        self.note_taking(id)?;
        self.open_families().taking.insert(id.clone(), Arc::clone(&family));
        let prepared = family.prepare(id);
        if prepared.is_err() {
            self.discard_layer(id);
        }
        prepared.map_err(|error| self.failed("prepare the snapshot", id, error.into()))
    }

    /// What is taken is of no name that a snapshot has, or may have.
    fn check_unknown(&self, id: &SnapshotId) -> Result<(), PoolError> {
        match self.may_say(|catalogue| catalogue.snapshot(id).is_some()) {
            true => Err(PoolError::SnapshotExists(id.to_string())),
            false => Ok(()),
        }
    }

    /// A crash from now on leaves no snapshot, unless it is one by then.
    fn note_taking(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let content = id.to_string();
        if self.says(|catalogue| catalogue.taking.contains(&content)) {
            return Ok(());
        }
        self.edit(|catalogue| {
            catalogue.taking.insert(content);
            Ok(())
        })
    }

    /// Each layer is a file that is open: not all that the process may have are taken by them.
    fn check_layers(&self, content: &dyn Display, family: &Arc<Family>) -> Result<(), PoolError> {
        let others: usize = {
            let open = self.open_families();
            let others = open.kept.values().filter_map(Weak::upgrade).filter(|other| !Arc::ptr_eq(other, family));
            others.map(|other| other.tree.layers_count()).sum()
        };
        let checked = check_layers(others + family.tree.layers_count(), descriptors::limit());
        checked.map_err(|most| PoolError::TooManyLayers { content: content.to_string(), most })
    }

    pub(super) fn capture_layer(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.check_unknown(id)?;
        let family = self.settled_family(&id.volume)?;
        self.note_taking(id)?;
        self.open_families().taking.insert(id.clone(), Arc::clone(&family));
        family.take(id).map_err(|error| self.failed("take the snapshot", id, error.into()))
    }

    /// What is taken takes too long: the writes of its volume go on.
    pub(crate) fn give_up(&self, id: &SnapshotId) {
        let family = self.open_families().taking.get(id).cloned();
        family.into_iter().for_each(|family| family.give_up(id));
    }

    /// Does all for a rollback that can be done before writes are held.
    pub(crate) fn prepare_rollback(&self, id: &SnapshotId) -> Result<(), PoolError> {
        if !self.record(id)?.layered {
            return Ok(());
        }
        let family = self.settled_family(&id.volume)?;
        family.prepare_rollback(id).map_err(|error| self.failed("prepare to roll back to", id, error.into()))
    }

    /// A rollback has come about, or is not to.
    pub(crate) fn forget_rollback(&self, id: &SnapshotId) {
        let Some(family) = self.catalogue().layered.get(&id.volume).cloned() else { return };
        let family = self.open_families().kept.get(&family).and_then(Weak::upgrade);
        family.into_iter().for_each(|family| family.end_rollback(id));
    }

    /// The snapshot is there, or is not to be.
    pub(super) fn end_taking(&self, id: &SnapshotId) {
        let family = self.open_families().taking.remove(id);
        // The first one is when the file below is not written any more.
        family.iter().for_each(|family| self.tidier().tidy(family));
    }

    /// How long a volume of layers is.
    pub(super) fn layer_bytes(&self, id: &SnapshotId) -> Result<u64, PoolError> {
        let family = self.settled_family(&id.volume)?;
        family.snapshot_bytes(id).map_err(|error| self.failed("keep the snapshot", id, error.into()))
    }

    /// Whether the catalogue says something, and nothing else at the next start.
    fn says(&self, says: impl Fn(&Catalogue) -> bool) -> bool {
        !self.may_say(|catalogue| !says(catalogue))
    }

    /// What was taken is not wanted after all. What stays goes when the family is opened again.
    pub(super) fn discard_layer(&self, id: &SnapshotId) {
        let Ok(family) = self.family(&id.volume, FamilyOptions::default()) else { return };
        let forgotten = family.discard(id).map_err(|error| self.failed("forget", id, error.into()));
        let unnoted = forgotten.and_then(|()| {
            self.edit(|catalogue| {
                catalogue.taking.remove(&id.to_string());
                Ok(())
            })
        });
        if let Err(error) = unnoted {
            tracing::warn!("{error}: it was begun, is no snapshot, and goes when the layers are opened again");
        }
        self.end_taking(id);
        self.tidier().tidy(&family);
    }

    pub(super) fn roll_back_layer(&self, id: &SnapshotId) -> io::Result<()> {
        let family = self.family(&id.volume, FamilyOptions::default())?;
        let done = family.roll_back(id);
        self.tidier().tidy(&family);
        Ok(done?)
    }

    /// What the layer of a snapshot takes, if it is open.
    pub(super) fn layer_used_bytes(&self, volume: &str, snapshot: &str) -> Option<u64> {
        let id = self.catalogue().layered.get(volume).cloned()?;
        // Nobody who only looks waits until another family is open.
        let family = self.families.try_lock().ok()?.kept.get(&id).and_then(Weak::upgrade)?;
        family.tree.used_bytes(volume, snapshot)
    }

    /// Makes what a new volume holds, but for its file.
    pub(super) fn clone_layer(&self, id: &SnapshotId, volume: &str) -> Result<(), PoolError> {
        let family = self.settled_family(&id.volume)?;
        self.check_layers(&volume, &family)?;
        self.edit(|catalogue| {
            catalogue.layered.insert(volume.to_owned(), family.id.clone());
            Ok(())
        })?;
        family.clone_volume(id, volume, self.files()).map_err(|error| self.failed("make", volume, error.into()))
    }

    /// Removes what a volume or snapshot has in layers; gives its family, if it has one.
    pub(super) fn remove_layer(&self, content: &str) -> Result<Option<Arc<Family>>, PoolError> {
        let id = content.parse::<SnapshotId>().ok();
        let volume = id.as_ref().map_or(content, |id| &id.volume);
        if !self.is_layered(volume) {
            return Ok(None);
        }
        let failed = |error: FamilyError| self.failed("delete", content, error.into());
        let family = match self.family(volume, FamilyOptions::default()) {
            // What cannot be opened goes as a whole, where nobody else needs it.
            Err(error) if self.goes_with_family(volume) => {
                tracing::warn!("pool {}: the layers of {volume} go unopened: {error}", self.name());
                return Ok(None);
            }
            family => family.map_err(failed)?,
        };
        let removed = id.as_ref().map_or_else(|| family.remove(volume, self.files()), |id| family.forget(id));
        self.note_owner(&family);
        self.tidier().tidy(&family);
        removed.map_err(failed)?;
        Ok(Some(family))
    }

    /// Whether a volume is being deleted, and so are all others of its family.
    fn goes_with_family(&self, volume: &str) -> bool {
        let Catalogue { layered, deleting, .. } = &*self.catalogue();
        let id = layered.get(volume);
        let mut family = layered.iter().filter(|(_, of)| Some(*of) == id);
        family.all(|(member, _)| deleting.contains(member))
    }

    /// Removes the directories of families that have no volume any more.
    pub(super) fn remove_family(&self, id: &str) {
        let is_needed = self.may_say(|catalogue| catalogue.layered.values().any(|of| of == id));
        if is_needed {
            return;
        }
        self.tidier().forget(id);
        self.open_families().kept.remove(id);
        self.forget_below(id);
        if let Err(error) = self.files().remove_directory(&self.families_directory().join(id)) {
            tracing::warn!("pool {}: the layers {id}, which nobody needs, cannot be removed: {error}", self.name());
        }
    }

    /// Has nobody else open the file of a volume, as long as what this gives lives.
    ///
    /// # Errors
    /// [`PoolError::Locked`]: somebody has.
    pub(crate) fn lock(&self, volume: &str) -> Result<ContentLock, PoolError> {
        if !self.is_layered(volume) && self.way() != Some(Way::Layers) {
            return Ok(ContentLock { _file: Some(self.lock_file(volume)?), _use: None });
        }
        let locked = || PoolError::Locked(volume.to_owned());
        let family = match self.family(volume, FamilyOptions::default()) {
            Err(FamilyError::Open(sanwire_store::OpenError::Locked { .. })) => return Err(locked()),
            // What cannot be opened can be deleted.
            Err(_) => return Ok(ContentLock { _file: Some(self.lock_file(volume)?), _use: None }),
            Ok(family) => family,
        };
        // A file that is below the layers is locked already.
        let file = (!family.has_base(&self.path_of(volume))).then(|| self.lock_file(volume)).transpose()?;
        let in_use = family.begin_use(volume).ok_or_else(locked)?;
        Ok(ContentLock { _file: file, _use: Some(in_use) })
    }
}

mod opening;
#[cfg(test)]
pub(super) mod tests;
