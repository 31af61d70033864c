//! What a start would refuse about volumes over stores outside of pools, as far as it is seen without opening anything, and with a server
//! that uses the pools meanwhile. Nothing is made, changed or locked for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sanwire_snapshot::Kept;
use sanwire_store::VolumeSpec;
use sanwire_store::kind::{Backing, BelowLayers, Place};
use sanwire_store_file::LayerDirectory;

use super::below::KeptBelow;
use super::catalogue::Catalogue;
use super::config::default_of;
use super::contents::is_there;
use super::family::is_stand_in;
use super::layered::DIRECTORY;
use super::outside::is_same_store;
use super::pool::{CATALOGUE, SUFFIX};
use super::seal::other_than_sealed;
use super::{PoolConfig, PoolError};
use crate::kept::{Keeps, StateFile};

/// Why a server that is configured so could not serve volumes with `layers=`, or what is below the layers of others: a line for each reason.
#[must_use]
pub fn obstacles_of_layers(pools: &[PoolConfig], volumes: &[VolumeSpec]) -> Vec<String> {
    let (mut lines, mut seen) = (Vec::new(), BTreeMap::new());
    for pool in pools {
        match Seen::of(pool) {
            Ok(found) => _ = seen.insert(pool.name.as_str(), found),
            Err(reason) => lines.push(format!("pool {}: {reason}", pool.name)),
        }
    }
    let default = default_of(pools);
    let found: Vec<Found<'_>> = volumes.iter().map(|volume| Found::of(volume, &seen, default.as_deref())).collect();
    for (at, volume) in found.iter().enumerate() {
        let reasons = [volume.not_alone(&found[..at]), volume.below_others(&seen, &found), volume.not_begun()];
        let reasons = reasons.into_iter().flatten().chain(volume.other_store());
        lines.extend(reasons.map(|reason| format!("volume {}: {reason}", volume.spec.name)));
    }
    lines
}

/// What stands in a pool.
struct Seen {
    pool: String,
    directory: PathBuf,
    layered: BTreeMap<String, String>,
    families: BTreeMap<String, SeenFamily>,
}

/// Layers over a store outside of the pool.
struct SeenFamily {
    directory: PathBuf,
    kept: KeptBelow,
    /// What cannot be read may have some.
    has_layers: bool,
}

impl Seen {
    fn of(pool: &PoolConfig) -> Result<Seen, String> {
        let file = StateFile::new(pool.directory.join(CATALOGUE), Keeps::POOL);
        // What is wrong with the directory itself is told by who looks at that.
        let loaded = if pool.directory.is_dir() { file.load::<Catalogue>() } else { Ok(None) };
        let catalogue = loaded.map_err(|error| error.to_string())?.unwrap_or_default();
        let mut families = BTreeMap::new();
        for id in catalogue.layered.values() {
            let directory = pool.directory.join(DIRECTORY).join(id);
            // What is damaged is told by the start, and keeps only its own volumes from being served.
            let Ok(Some(kept)) = KeptBelow::load(&directory) else { continue };
            let layers = LayerDirectory::kept_in(&directory).ok().flatten();
            let has_layers = !layers.is_some_and(|layers| Kept::decode(&layers).is_ok_and(|kept| !kept.has_layers));
            families.insert(id.clone(), SeenFamily { directory, kept, has_layers });
        }
        let (pool, directory) = (pool.name.clone(), pool.directory.clone());
        Ok(Seen { pool, directory, layered: catalogue.layered, families })
    }

    /// The family of a volume that is written in a store outside when there are no layers.
    fn owned(&self, volume: &str) -> Option<(&String, &SeenFamily)> {
        let (id, family) = self.families.get_key_value(self.layered.get(volume)?)?;
        (family.kept.owner() == Some(volume)).then_some((id, family))
    }
}

/// A volume as it is configured, with what its pool knows of it.
struct Found<'a> {
    spec: &'a VolumeSpec,
    pool: Option<&'a Seen>,
    family: Option<(&'a String, &'a SeenFamily)>,
    /// The store below its layers, where that is not in the pool.
    below: Option<BelowLayers>,
}

impl<'a> Found<'a> {
    fn of(spec: &'a VolumeSpec, seen: &'a BTreeMap<&str, Seen>, default: Option<&str>) -> Found<'a> {
        let place = spec.pool().filter(|place| place.snapshot.is_none());
        let pool = place.and_then(|place| seen.get(place.pool.as_deref().or(default)?));
        let family = pool.and_then(|pool| pool.owned(&spec.name));
        let known = || family.and_then(|(_, family)| family.kept.below().ok());
        Found { spec, pool, family, below: spec.below_layers().cloned().or_else(known) }
    }

    fn backing(&self) -> Arc<dyn Backing> {
        self.below.as_ref().map_or_else(|| Arc::clone(&self.spec.store.backing), |below| Arc::clone(&below.backing))
    }

    fn store_text(&self) -> String {
        self.below.as_ref().map_or_else(|| self.spec.store_text().to_owned(), |below| below.written.clone())
    }

    /// What is below layers is one volume only.
    fn not_alone(&self, others: &[Found<'_>]) -> Option<String> {
        let backing = self.backing();
        let is_other = |other: &&Found<'_>| {
            (self.below.is_some() || other.below.is_some()) && is_same_store(&*other.backing(), &*backing)
        };
        let volume = others.iter().find(is_other)?.spec.name.to_string();
        Some(PoolError::StoreServed { store: self.store_text(), volume }.to_string())
    }

    /// What is below the layers of one volume is no other one.
    fn below_others(&self, seen: &BTreeMap<&str, Seen>, all: &[Found<'_>]) -> Option<String> {
        let backing = self.backing();
        for pool in seen.values() {
            let others = pool.families.iter().filter(|(id, family)| {
                let is_own = self.pool.is_some_and(|own| own.pool == pool.pool)
                    && self.family.is_some_and(|(own, _)| own == *id);
                family.has_layers && !is_own
            });
            for (id, family) in others {
                // Where it is now is what the configuration says of its volume.
                let is_its = |other: &&Found<'_>| {
                    other.pool.is_some_and(|of| of.pool == pool.pool) && other.family.is_some_and(|(own, _)| own == id)
                };
                let below = all.iter().find(is_its).and_then(|own| own.below.clone());
                let Some(below) = below.or_else(|| family.kept.below().ok()) else { continue };
                if is_same_store(&*below.backing, &*backing) {
                    let (store, volume) = (self.store_text(), family.kept.volume.clone());
                    return Some(PoolError::BelowLayers { store, pool: pool.pool.clone(), volume }.to_string());
                }
            }
        }
        None
    }

    /// Of its name may be content in the pool that is not over its store.
    fn not_begun(&self) -> Option<String> {
        let (pool, name) = (self.pool.filter(|_| self.spec.below_layers().is_some())?, self.spec.name.to_string());
        let path = pool.directory.join(format!("{name}{SUFFIX}"));
        let is_other = pool.layered.contains_key(&name) || is_there(&path) && !is_stand_in(&path);
        let exists = PoolError::ContentExists { pool: pool.pool.clone(), volume: name };
        (self.family.is_none() && is_other).then(|| exists.to_string())
    }

    /// Why its store is not what its layers were written over, as far as a file tells that.
    fn other_store(&self) -> Option<String> {
        let (_, family) = self.family.filter(|(_, family)| family.has_layers)?;
        let below = self.below.as_ref()?;
        let Place::File(path) = below.backing.place() else { return None };
        if !path.is_file() {
            return None;
        }
        other_than_sealed(&family.directory, path).ok().flatten()
    }
}
