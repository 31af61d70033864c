//! Volumes whose stores are not in the pool that keeps their layers.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use sanwire_snapshot::Kept;
use sanwire_store::kind::{BelowLayers, Place};
use sanwire_store::{Acceptance, OpenError, VolumeSpec};

use super::below::{KeptBelow, is_same_place};
use super::contents::is_there;
use super::family::{Family, FamilyError, mark};
use super::{Pool, PoolError, Pools};
use crate::config::VolumeConfig;

/// The blocks that layers can have.
const BLOCKS_BYTES: [u32; 2] = [512, 4096];

/// The stores below the layers of a pool that are not in it.
#[derive(Default, Debug)]
pub(super) struct Belows {
    /// By volumes, as they are written now.
    written: BTreeMap<String, BelowLayers>,
    /// By families: whose store it is, and as it was written last.
    kept: BTreeMap<String, (String, BelowLayers)>,
}

impl Pool {
    fn belows(&self) -> MutexGuard<'_, Belows> {
        // It is whole between any two changes.
        self.belows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is the store of a volume from now on, as it is written.
    pub(super) fn note_below(&self, volume: &str, below: &BelowLayers) {
        self.belows().written.insert(volume.to_owned(), below.clone());
    }

    /// Nothing is known any more of the store of a volume whose content is gone, or of a family that is.
    pub(super) fn forget_below(&self, name: &str) {
        let Belows { written, kept } = &mut *self.belows();
        written.remove(name);
        kept.remove(name);
    }

    /// The store of a family as it is written now, if that is said.
    pub(super) fn below_of(&self, family: &str) -> Option<BelowLayers> {
        let Belows { written, kept } = &*self.belows();
        let (owner, _) = kept.get(family)?;
        written.get(owner).cloned()
    }

    /// Makes a volume in this pool that has its store elsewhere, if there is none. What this gives keeps the store open.
    pub(super) fn begin_below(
        &self,
        volume: &str,
        below: &BelowLayers,
        acceptance: Acceptance,
    ) -> Result<Option<Arc<Family>>, FamilyError> {
        if self.is_layered(volume) {
            return Ok(None);
        }
        let path = self.path_of(volume);
        if is_there(&path) {
            return Err(io::Error::other(self.content_exists(volume)).into());
        }
        let (store, kept) = KeptBelow::open(volume, below, None, acceptance)?;
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
            // As if it had never been asked for. What stays is a volume that can be added again, or deleted.
            let id = family.id.clone();
            drop(family);
            let undone = self.edit(|catalogue| Ok(catalogue.layered.remove(volume)));
            if undone.is_ok() && self.files().remove(&path).is_ok() {
                self.lengths().set(volume, None);
                self.remove_family(&id);
            }
            return Err(io::Error::other(error).into());
        }
        Ok(Some(family))
    }

    /// A family that was just made is that of a volume of the pool, for which a file stands.
    fn adopt_below(
        &self,
        (volume, below): (&str, &BelowLayers),
        family: &Arc<Family>,
        length_bytes: u64,
    ) -> Result<(), PoolError> {
        self.edit(|catalogue| {
            catalogue.layered.insert(volume.to_owned(), family.id.clone());
            Ok(())
        })?;
        self.put_family(family);
        self.belows().kept.insert(family.id.clone(), (volume.to_owned(), below.clone()));
        self.make_stand_in(volume, length_bytes)
    }

    /// Makes the file that stands for a volume.
    fn make_stand_in(&self, volume: &str, length_bytes: u64) -> Result<(), PoolError> {
        let path = self.path_of(volume);
        let made = self.files().make(&path, length_bytes).and_then(|()| mark(&path));
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
            let kept = match KeptBelow::load(&self.families_directory().join(&id)) {
                Ok(Some(kept)) => kept,
                Ok(None) => continue,
                Err(error) => {
                    tracing::error!("pool {}: {error}; volume {volume} cannot be served", self.name());
                    continue;
                }
            };
            if kept.volume == volume
                && !is_there(&self.path_of(&volume))
                && let Err(error) = self.make_stand_in(&volume, kept.length_bytes)
            {
                tracing::error!("{error}; it cannot be served before the next start");
            }
            match kept.below() {
                Ok(below) => _ = self.belows().kept.insert(id, (kept.volume, below)),
                Err(error) => tracing::error!("pool {}: volume {volume}: {error}", self.name()),
            }
        }
    }

    pub(super) fn content_exists(&self, volume: &str) -> PoolError {
        PoolError::ContentExists { pool: self.name().to_owned(), volume: volume.to_owned() }
    }

    /// The volume of this pool whose layers are over this store, if there are layers, or it is being served with them.
    fn volume_over(&self, is_meant: impl Fn(&BelowLayers) -> bool) -> Option<String> {
        let (id, volume) = {
            let Belows { written, kept } = &*self.belows();
            let mut kept = kept.iter().map(|(id, (owner, below))| (id, owner, written.get(owner).unwrap_or(below)));
            let (id, owner, _) = kept.find(|(.., below)| is_meant(below))?;
            (id.clone(), owner.clone())
        };
        self.has_layers(&id).then_some(volume)
    }

    fn is_over_elsewhere(&self, family: &str) -> bool {
        let Belows { kept, .. } = &*self.belows();
        kept.get(family).is_some_and(|(_, below)| matches!(below.backing.place(), Place::Elsewhere(_)))
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
        let own = self.of(spec).filter(|_| spec.below_layers().is_some());
        let place = own_place(spec);
        for pool in self.iter() {
            let volume = pool.volume_over(|below| is_same_place(below.backing.place(), place));
            let is_own = |volume: &String| *volume == *spec.name && own.is_some_and(|own| Arc::ptr_eq(own, pool));
            if let Some(volume) = volume.filter(|volume| !is_own(volume)) {
                return Err(PoolError::BelowLayers {
                    store: spec.store_text().to_owned(),
                    pool: pool.name().to_owned(),
                    volume,
                });
            }
        }
        Ok(())
    }
}

/// Where the store of a volume is by itself, whatever lies over it.
pub(crate) fn own_place(spec: &VolumeSpec) -> Place<'_> {
    spec.below_layers().map_or_else(|| spec.store.backing.place(), |below| below.backing.place())
}

/// Refuses a volume over a store that one of these has too: what is below layers is written by nobody else.
///
/// # Errors
/// [`PoolError::StoreServed`].
pub(crate) fn check_alone<'a>(
    spec: &VolumeSpec,
    mut others: impl Iterator<Item = &'a VolumeConfig>,
) -> Result<(), PoolError> {
    let has_it = |other: &&VolumeConfig| {
        (spec.below_layers().is_some() || other.spec.below_layers().is_some())
            && other.spec.name != spec.name
            && is_same_place(own_place(&other.spec), own_place(spec))
    };
    others.find(has_it).map_or(Ok(()), |other| {
        let (store, volume) = (spec.store_text().to_owned(), other.spec.name.to_string());
        Err(PoolError::StoreServed { store, volume })
    })
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
