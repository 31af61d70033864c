//! Volumes whose stores are not in the pool that keeps their layers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use sanwire_snapshot::Kept;
use sanwire_store::kind::{Backing, BelowLayers, Place};
use sanwire_store::{Acceptance, Expectation, OpenError, StoreSpec, VolumeSpec};

use super::base::BASE;
use super::below::{KeptBelow, is_same_place};
use super::contents::is_there;
use super::family::{Family, FamilyError, NEITHER, SAY_IT, is_stand_in, mark};
use super::{Pool, PoolError, Pools};
use crate::config::VolumeConfig;

/// The blocks that layers can have.
const BLOCKS_BYTES: [u32; 2] = [512, 4096];

/// The stores below the layers of a pool that are not in it, by families.
#[derive(Default, Debug)]
pub(super) struct Belows {
    /// As each was opened last, in this run or before.
    opened: BTreeMap<String, OwnStore>,
    /// As the configuration says with which the server starts, with the volume, until the family is opened: disks may have got other letters
    /// since.
    written: BTreeMap<String, (String, BelowLayers)>,
    /// Families of which it is not known any more what is below them.
    lost: BTreeSet<String>,
}

/// A store below layers.
#[derive(Debug)]
struct OwnStore {
    /// The volume that is written there when there are no layers, if it is there still.
    owner: Option<String>,
    below: BelowLayers,
}

impl Belows {
    /// Where the store of a family is, as far as that is known.
    fn of(&self, family: &str) -> Option<&BelowLayers> {
        let written = self.written.get(family).map(|(_, below)| below);
        written.or_else(|| self.opened.get(family).map(|own| &own.below))
    }
}

impl Pool {
    fn belows(&self) -> MutexGuard<'_, Belows> {
        // It is whole between any two changes.
        self.belows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server starts with this volume.
    pub(super) fn note_written(&self, spec: &VolumeSpec) {
        if let Some((below, family)) = spec.below_layers().zip(self.owned_family(&spec.name)) {
            self.belows().written.insert(family, (spec.name.to_string(), below.clone()));
        }
    }

    /// The family of a volume which is written in a store outside the pool when there are no layers. Where that is not known any more, it is
    /// whose of it is said.
    pub(super) fn owned_family(&self, volume: &str) -> Option<String> {
        let family = self.catalogue().layered.get(volume).cloned()?;
        let is_owner = |own: &OwnStore| own.owner.as_deref() == Some(volume);
        let Belows { opened, lost, .. } = &*self.belows();
        (opened.get(&family).is_some_and(is_owner) || lost.contains(&family)).then_some(family)
    }

    /// Where the store of a family is, as the server was started.
    pub(super) fn written_below(&self, family: &str) -> Option<(String, BelowLayers)> {
        self.belows().written.get(family).cloned()
    }

    /// A family was opened over this store, or over that which is kept.
    pub(super) fn note_opened(&self, family: &Family, below: Option<BelowLayers>) {
        self.note_owner(family);
        let Belows { opened, written, lost } = &mut *self.belows();
        written.remove(&family.id);
        // Over something else it is a mixture.
        if let Some(below) = below.filter(|_| family.check_below().is_ok()) {
            match opened.get_mut(&family.id) {
                Some(own) => own.below = below,
                None if lost.remove(&family.id) => {
                    let owner = family.store_elsewhere().and_then(|elsewhere| elsewhere.owner().map(str::to_owned));
                    opened.insert(family.id.clone(), OwnStore { owner, below });
                }
                None => {}
            }
        }
    }

    /// It could not be opened. What is written may be wrong.
    pub(super) fn note_not_opened(&self, family: &str, error: &FamilyError) {
        if !matches!(error, FamilyError::Open(OpenError::Elsewhere { is_away: true, .. })) {
            self.belows().written.remove(family);
        }
    }

    /// Whose its store is now.
    pub(super) fn note_owner(&self, family: &Family) {
        let owner = family.store_elsewhere().and_then(|elsewhere| elsewhere.owner().map(str::to_owned));
        if let Some(own) = self.belows().opened.get_mut(&family.id) {
            own.owner = owner;
        }
    }

    /// Nothing is known any more of the store of a family that is gone.
    pub(super) fn forget_below(&self, family: &str) {
        let Belows { opened, written, lost } = &mut *self.belows();
        opened.remove(family);
        written.remove(family);
        lost.remove(family);
    }

    /// Makes a volume in this pool that has its store elsewhere, if there is none. What this gives keeps the store open.
    pub(super) fn begin_below(
        &self,
        volume: &str,
        below: &BelowLayers,
        expected: Option<&Expectation<'_>>,
    ) -> Result<Option<Arc<Family>>, FamilyError> {
        if self.owned_family(volume).is_some() {
            return Ok(None);
        }
        let path = self.path_of(volume);
        // Of its name may also be what was cloned of another one.
        if self.is_layered(volume) || is_there(&path) && !is_stand_in(&path) {
            return Err(io::Error::other(self.content_exists(volume)).into());
        }
        let acceptance = expected.map_or_else(Acceptance::default, |expected| expected.acceptance);
        // It is the same disk as without layers, unless it is to be another one.
        let known = expected.filter(|_| acceptance != Acceptance::Renewed);
        let known = known.and_then(|expected| expected.known_below.clone());
        let (store, kept) = KeptBelow::open(volume, below, known, acceptance)?;
        let geometry = store.geometry();
        if !BLOCKS_BYTES.contains(&geometry.block_bytes) || geometry.length_bytes == 0 {
            let (blocks, written) = (geometry.block_bytes, &below.written);
            let why = format!(
                "{written} has no blocks, or blocks of {blocks} bytes, and layers have 512 or 4096: give it block="
            );
            return Err(io::Error::other(why).into());
        }
        self.check_limit(volume, geometry.length_bytes).map_err(io::Error::other)?;
        let directory = self.families_directory();
        let family = Family::of_store(&kept, (store, below), &directory, self.files())?;
        let family = Arc::new(family);
        let made = self.adopt_below((volume, below), &family, geometry.length_bytes);
        if let Err(error) = made {
            let id = family.id.clone();
            drop(family);
            self.undo_begin(volume, &id, &error);
            return Err(io::Error::other(error).into());
        }
        Ok(Some(family))
    }

    /// It is as if a volume that could not be made had never been asked for. What stays can be added again, or deleted.
    fn undo_begin(&self, volume: &str, family: &str, error: &PoolError) {
        // What somebody else has put there meanwhile is not ours.
        let has_file =
            matches!(error, PoolError::Failed { source, .. } if source.kind() == io::ErrorKind::AlreadyExists);
        if !matches!(error, PoolError::ContentExists { .. }) {
            let undone = self.edit(|catalogue| Ok(catalogue.layered.remove(volume)));
            if undone.is_err() || !has_file && self.files().remove(&self.path_of(volume)).is_err() {
                return;
            }
            self.lengths().set(volume, None);
        }
        self.remove_family(family);
    }

    /// A family that was just made is that of a volume of the pool, for which a file stands.
    fn adopt_below(
        &self,
        (volume, below): (&str, &BelowLayers),
        family: &Arc<Family>,
        length_bytes: u64,
    ) -> Result<(), PoolError> {
        self.edit(|catalogue| match catalogue.layered.contains_key(volume) {
            true => Err(self.content_exists(volume)),
            false => {
                catalogue.layered.insert(volume.to_owned(), family.id.clone());
                Ok(())
            }
        })?;
        self.put_family(family);
        let own = OwnStore { owner: Some(volume.to_owned()), below: below.clone() };
        self.belows().opened.insert(family.id.clone(), own);
        self.make_stand_in(volume, length_bytes)
    }

    /// Makes the file that stands for a volume.
    fn make_stand_in(&self, volume: &str, length_bytes: u64) -> Result<(), PoolError> {
        let path = self.path_of(volume);
        // One may stand there from what is not known any more.
        let made = if is_stand_in(&path) { self.files().remove(&path) } else { Ok(()) };
        let made = made.and_then(|()| self.files().make(&path, length_bytes)).and_then(|()| mark(&path));
        let made = made.and_then(|()| self.files().sync(&path));
        made.map_err(|source| self.failed("make the file that stands for", volume, source))?;
        self.sync_directory()?;
        self.lengths().set(volume, Some(length_bytes));
        Ok(())
    }

    /// Looks for stores that are not in the pool. Volumes over them whose files a crash has left unmade are there all the same.
    pub(super) fn recover_belows(&self) {
        let layered = self.catalogue().layered.clone();
        for (volume, id) in layered {
            let directory = self.families_directory().join(&id);
            let kept = match KeptBelow::load(&directory) {
                Ok(Some(kept)) => kept,
                // What is below is in the pool.
                Ok(None) if directory.join(BASE).exists() || !directory.exists() => continue,
                gone => {
                    let neither = || format!("{} {NEITHER}", directory.display());
                    let (pool, why) = (self.name(), gone.err().map_or_else(neither, |error| error.to_string()));
                    tracing::error!("pool {pool}: volume {volume} cannot be served: {why}: {SAY_IT}");
                    self.belows().lost.insert(id);
                    continue;
                }
            };
            if kept.owner() == Some(&volume)
                && !is_there(&self.path_of(&volume))
                && let Err(error) = self.make_stand_in(&volume, kept.length_bytes)
            {
                tracing::error!("{error}; it cannot be served before the next start");
            }
            match kept.below() {
                Ok(below) => {
                    let own = OwnStore { owner: kept.owner().map(str::to_owned), below };
                    self.belows().opened.insert(id, own);
                }
                Err(error) => tracing::error!("pool {}: volume {volume}: {error}", self.name()),
            }
        }
    }

    pub(super) fn content_exists(&self, volume: &str) -> PoolError {
        PoolError::ContentExists { pool: self.name().to_owned(), volume: volume.to_owned() }
    }

    /// A volume of this pool that is made of layers over this store: one in which there are layers, or that is being served; but for `own`, if
    /// that is written there when there are no layers.
    fn volume_over(&self, is_meant: impl Fn(&BelowLayers) -> bool, own: Option<&str>) -> Option<String> {
        let own = own.and_then(|own| self.owned_family(own));
        let meant: Vec<(String, Option<String>)> = {
            let belows = self.belows();
            let known: BTreeSet<&String> = belows.opened.keys().chain(belows.written.keys()).collect();
            let meant = known.into_iter().filter(|id| Some(*id) != own.as_ref());
            let meant = meant.filter(|id| belows.of(id).is_some_and(&is_meant));
            meant.map(|id| (id.clone(), belows.opened.get(id).and_then(|own| own.owner.clone()))).collect()
        };
        let (id, owner) = meant.into_iter().find(|(id, _)| self.has_layers(id))?;
        let first = || self.catalogue().layered.iter().find(|(_, of)| **of == id).map(|(volume, _)| volume.clone());
        owner.or_else(first).or(Some(id))
    }

    fn is_over_elsewhere(&self, family: &str) -> bool {
        self.belows().of(family).is_some_and(|below| matches!(below.backing.place(), Place::Elsewhere(_)))
    }

    /// Whether a family is in use, or has layers as it was kept.
    fn has_layers(&self, id: &str) -> bool {
        if self.is_open(id) {
            return true;
        }
        let layers = self.files().layers(&self.families_directory().join(id), false);
        // What cannot be read may have some.
        layers.is_err() || !layers.is_ok_and(|layers| matches!(Kept::of(&*layers), Ok(Some(kept)) if !kept.has_layers))
    }
}

impl Pools {
    /// Whether a volume of a pool is made of layers over a store on another server.
    pub(crate) fn is_over_elsewhere(&self, spec: &VolumeSpec) -> bool {
        self.of(spec).is_some_and(|pool| {
            let place = spec.pool().and_then(|place| place.snapshot.as_deref());
            let volume = place.map_or(&*spec.name, |snapshot| snapshot.split('@').next().unwrap_or(snapshot));
            let family = pool.catalogue().layered.get(volume).cloned();
            family.is_some_and(|family| pool.is_over_elsewhere(&family))
        })
    }

    /// Refuses a store that is below the layers of another volume: what it holds is not what that volume holds, and who writes there damages
    /// it.
    ///
    /// # Errors
    /// [`PoolError::BelowLayers`].
    pub(crate) fn check_not_below(&self, spec: &VolumeSpec) -> Result<(), PoolError> {
        let own = self.of_own(spec).map(|pool| (pool, &*spec.name));
        self.check_free(spec.store_text(), &*self.own_backing(spec), own)
    }

    /// The same for a store that becomes a part of a volume.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_part(&self, store: &str) -> Result<(), PoolError> {
        // What cannot be read cannot be opened either.
        store.parse::<StoreSpec>().map_or(Ok(()), |spec| self.check_free(store, &*spec.backing, None))
    }

    fn check_free(&self, store: &str, backing: &dyn Backing, own: Option<(&Arc<Pool>, &str)>) -> Result<(), PoolError> {
        for pool in self.iter() {
            let own = own.filter(|(of, _)| Arc::ptr_eq(of, pool)).map(|(_, name)| name);
            if let Some(volume) = pool.volume_over(|below| is_same_store(&*below.backing, backing), own) {
                let (store, pool) = (store.to_owned(), pool.name().to_owned());
                return Err(PoolError::BelowLayers { store, pool, volume });
            }
        }
        Ok(())
    }

    /// Refuses a volume over a store that one of these has too: what is below layers is written by nobody else.
    ///
    /// # Errors
    /// [`PoolError::StoreServed`].
    pub(crate) fn check_alone<'a>(
        &self,
        spec: &VolumeSpec,
        mut others: impl Iterator<Item = &'a VolumeConfig>,
    ) -> Result<(), PoolError> {
        let (is_below, backing) = (self.store_below(spec).is_some(), self.own_backing(spec));
        if !backing.places().iter().any(|place| matches!(place, Place::File(_) | Place::Elsewhere(_))) {
            // No other one can be there: of many volumes none is looked at.
            return Ok(());
        }
        let has_it = |other: &&VolumeConfig| {
            other.spec.name != spec.name
                && (is_below || self.store_below(&other.spec).is_some())
                && is_same_store(&*self.own_backing(&other.spec), &*backing)
        };
        others.find(has_it).map_or(Ok(()), |other| {
            let store = self.store_below(spec).map_or_else(|| spec.store_text().to_owned(), |below| below.written);
            let volume = other.spec.name.to_string();
            Err(PoolError::StoreServed { store, volume })
        })
    }

    /// The store below the layers of a volume which is written there when there are none: as it says itself, or as its pool knows.
    pub(super) fn store_below(&self, spec: &VolumeSpec) -> Option<BelowLayers> {
        let known = || {
            let pool = self.of_own(spec)?;
            let family = pool.owned_family(&spec.name)?;
            pool.belows().of(&family).cloned()
        };
        spec.below_layers().cloned().or_else(known)
    }

    /// The store of a volume by itself, whatever lies over it.
    fn own_backing(&self, spec: &VolumeSpec) -> Arc<dyn Backing> {
        self.store_below(spec).map_or_else(|| Arc::clone(&spec.store.backing), |below| below.backing)
    }
}

/// Where the store of a volume is by itself, whatever lies over it.
pub(crate) fn own_place(spec: &VolumeSpec) -> Place<'_> {
    spec.below_layers().map_or_else(|| spec.store.backing.place(), |below| below.backing.place())
}

/// Whether something that is written to one of them is written to the other.
pub(super) fn is_same_store(one: &dyn Backing, other: &dyn Backing) -> bool {
    let others = other.places();
    one.places().into_iter().any(|place| others.iter().any(|other| is_same_place(place, *other)))
}

/// Why a store cannot be below layers, as opening it says that.
pub(super) fn not_begun(below: &BelowLayers, error: FamilyError) -> OpenError {
    match error {
        FamilyError::Open(error) => error,
        error => OpenError::Elsewhere { store: below.written.clone(), source: Box::new(error), is_away: false },
    }
}

#[cfg(test)]
mod tests;
