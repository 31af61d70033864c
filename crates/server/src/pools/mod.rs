//! Pools: directories that the server knows by names, with a file for each volume that is in one.
//!
//! `data=pool:fast,size=10G` is in the file `data.img` of the pool `fast`; who adds a volume names no path. A pool may have a limit for
//! what its volumes have together, whatever of it is written. All that there is to know of a pool stands in its directory, so that this can
//! be moved to another host.

mod base;
mod below;
mod catalogue;
mod config;
mod contents;
mod deletion;
mod descriptors;
mod error;
mod family;
mod files;
mod filling;
mod foreseeing;
mod known;
mod layered;
mod outside;
mod overlay;
mod pool;
mod recovery;
mod replacing;
mod reserve;
mod room;
mod sample;
mod seal;
mod shelf;
mod side_by_side;
mod taken;
mod temporary;
mod tidying;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use sanwire_store::VolumeSpec;
use sanwire_store::kind::PoolPlace;

pub(crate) use self::catalogue::SnapshotId;
pub use self::config::{PoolConfig, PoolConfigError};
pub use self::contents::SnapshotStatus;
pub use self::error::PoolError;
pub use self::foreseeing::obstacles_of_layers;
use self::known::Known;
pub(crate) use self::layered::ContentLock;
pub(crate) use self::outside::own_place;
pub(crate) use self::pool::Pool;
pub use self::pool::PoolStatus;
pub(crate) use self::room::Room;
pub(crate) use self::side_by_side::side_by_side;
pub(crate) use self::taken::SnapshotsTaken;
use crate::config::VolumeConfig;
use crate::kept::StateFile;

/// The pools of a server, by their names; clones are the same ones.
#[derive(Clone, Default, Debug)]
pub(crate) struct Pools {
    pools: Arc<BTreeMap<String, Arc<Pool>>>,
    /// Where volumes are that name no pool.
    default: Option<String>,
    known: Arc<Known>,
}

impl Pools {
    /// Opens all of them; `known` remembers which they are, so that an empty directory, on which a file system is to be mounted, is not
    /// taken for one.
    ///
    /// # Errors
    /// [`PoolError`]: one cannot be used, or another server uses it.
    pub(crate) fn open(configs: &[PoolConfig], known: Option<&StateFile>) -> Result<Pools, PoolError> {
        let known = Known::open(known)?;
        let mut pools = BTreeMap::new();
        for config in configs {
            let pool = Pool::open(config, known.id_of(&config.name).as_deref())?;
            pools.insert(config.name.clone(), Arc::new(pool));
        }
        known.note(pools.iter().map(|(name, pool)| (name.clone(), pool.id().to_owned())));
        Ok(Pools { pools: Arc::new(pools), default: config::default_of(configs), known: Arc::new(known) })
    }

    /// Brings to its end, or undoes, what a crash has left of volumes that were just made or deleted: these are to be served. Nothing is
    /// remembered of those that are gone.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn settle(&self, volumes: &[VolumeConfig], state: Option<&Path>) -> Result<(), PoolError> {
        for VolumeConfig { spec, .. } in volumes {
            self.of_own(spec).into_iter().for_each(|pool| pool.note_written(spec));
        }
        for pool in self.iter() {
            let is_own = |spec: &VolumeSpec| {
                spec.pool().is_some_and(|place| place.pool.as_deref() == Some(pool.name()) && place.snapshot.is_none())
            };
            let served = volumes.iter().map(|volume| &volume.spec).filter(|spec| is_own(spec));
            let served: BTreeSet<&str> = served.map(|spec| &*spec.name).collect();
            for gone in pool.settle(|volume| served.contains(volume)) {
                pool.forget(&gone, state);
            }
        }
        Ok(())
    }

    /// The pool that has a volume, served or not, or a snapshot.
    ///
    /// # Errors
    /// [`PoolError::Ambiguous`] when several have it.
    pub(crate) fn having(&self, content: &str) -> Result<Option<&Arc<Pool>>, PoolError> {
        let having: Vec<&Arc<Pool>> = self.iter().filter(|pool| pool.has(content)).collect();
        match &*having {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            several => Err(PoolError::Ambiguous {
                content: content.to_owned(),
                pools: several.iter().map(|pool| pool.name().to_owned()).collect(),
            }),
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }

    /// Nothing is known any more of a pool that is not configured: from now on it is taken for one that never was.
    ///
    /// # Errors
    /// [`PoolError`]: it is there, was never known, or that cannot be kept.
    pub(crate) fn forget(&self, name: &str) -> Result<(), PoolError> {
        self.check_forget(name)?;
        self.known.forget(name)
    }

    /// Whether that can be done, but for keeping it.
    ///
    /// # Errors
    /// [`PoolError`]: it is there, or was never known.
    pub(crate) fn check_forget(&self, name: &str) -> Result<(), PoolError> {
        match name {
            _ if self.pools.contains_key(name) => Err(PoolError::InService(name.to_owned())),
            _ if !self.known.is_absent(name) => Err(PoolError::Unknown(name.to_owned())),
            _ => Ok(()),
        }
    }

    /// The pool in which a volume is.
    pub(crate) fn of(&self, spec: &VolumeSpec) -> Option<&Arc<Pool>> {
        self.pools.get(spec.pool()?.pool.as_ref()?)
    }

    /// Whether volumes that name no pool are in this one.
    pub(crate) fn is_default(&self, pool: &Pool) -> bool {
        self.default.as_deref() == Some(pool.name())
    }

    /// The volume, with the file that its pool has for it. One of a pool that is not there stays as it is, and cannot be opened.
    ///
    /// # Errors
    /// [`PoolError::Ambiguous`] when it names no pool and several have it, [`PoolError::Absent`] when one may have it that is not there,
    /// [`PoolError::Copied`] when it is of a snapshot that does not stay.
    pub(crate) fn place(&self, spec: VolumeSpec) -> Result<VolumeSpec, PoolError> {
        let Some(PoolPlace { pool, snapshot }) = spec.pool() else { return Ok(spec) };
        let content = snapshot.clone().unwrap_or_else(|| spec.name.to_string());
        let place_names_no_pool = pool.is_none();
        let pool = match pool {
            Some(pool) => self.pools.get(pool),
            None => self.with_content(&content)?,
        };
        if pool.is_some_and(|pool| pool.is_temporary(&content)) {
            return Err(PoolError::Copied(content));
        }
        let is_new = pool.is_some_and(|pool| !pool.has(&content));
        if place_names_no_pool && is_new {
            // It would be made anew, and empty, while what it holds is in one that is not there.
            self.known.check_all_there(&content)?;
        }
        Ok(match pool {
            Some(pool) => {
                let (name, file) = (pool.name().to_owned(), pool.file_of(&content, spec.below_layers()));
                spec.in_pool(&name, file)
            }
            None => spec,
        })
    }

    /// The same for all of these.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn place_all(&self, volumes: &mut [VolumeConfig]) -> Result<(), PoolError> {
        for volume in volumes.iter_mut().filter(|volume| volume.spec.pool().is_some()) {
            match self.place(volume.spec.clone()) {
                Ok(spec) => volume.spec = spec,
                // It cannot be opened, and the others are served.
                Err(error @ PoolError::Absent { .. }) => tracing::error!("{error}"),
                Err(error) => return Err(error),
            }
        }
        let mut over = volumes.iter().filter(|volume| self.store_below(&volume.spec).is_some());
        over.try_for_each(|volume| self.check_alone(&volume.spec, volumes.iter()))
    }

    /// Where a volume is that names no pool: in the one that has it, so that another default moves none, else in the default one.
    fn with_content(&self, content: &str) -> Result<Option<&Arc<Pool>>, PoolError> {
        let default = self.default.as_ref().and_then(|name| self.pools.get(name));
        match default {
            Some(default) if default.has(content) => Ok(Some(default)),
            default => Ok(self.having(content)?.or(default)),
        }
    }

    /// Takes the room that a volume is to have in its pool, before it is opened, and its file made or longer; ends a rollback of it. `None` of what is in no pool.
    ///
    /// # Errors
    /// [`PoolError::Full`].
    pub(crate) fn take_room(&self, spec: &VolumeSpec) -> Result<Option<Room>, PoolError> {
        if let Some(pool) = self.of(spec) {
            pool.check_place()?;
            pool.place_snapshots()?;
            if spec.pool().is_some_and(|place| place.snapshot.is_none()) {
                pool.drop_notes(&spec.name)?;
                pool.end_rollback(&spec.name)?;
                if let Err(error) = pool.protect(&spec.name, spec.protected) {
                    tracing::warn!(
                        "{error}: whether volume {} is protected is not known when it is not served",
                        spec.name
                    );
                }
            }
        }
        self.take_room_of(spec, spec.size_bytes().unwrap_or(0))
    }

    /// A volume that was opened is not served after all: where its file was made for that, and is gone again, it has no room.
    pub(crate) fn give_up_room(&self, spec: &VolumeSpec) {
        if let Some(pool) = self.of_own(spec)
            && matches!(pool.path_of(&spec.name).try_exists(), Ok(false))
        {
            pool.lengths().set(&spec.name, None);
        }
    }

    /// The content of a volume of a pool is neither deleted nor rolled back from now on, or can be again.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn protect(&self, spec: &VolumeSpec, is_protected: bool) -> Result<(), PoolError> {
        self.of_own(spec).map_or(Ok(()), |pool| pool.protect(&spec.name, is_protected))
    }

    /// Whether the content of a volume was protected when it was served last.
    pub(crate) fn protects(&self, spec: &VolumeSpec) -> bool {
        self.of_own(spec).is_some_and(|pool| pool.protects(&spec.name))
    }

    /// Whether a volume is made of layers.
    pub(crate) fn has_layers(&self, spec: &VolumeSpec) -> bool {
        self.of_own(spec).is_some_and(|pool| pool.is_layered(&spec.name))
    }

    /// The pool of a volume that is none of its snapshots.
    fn of_own(&self, spec: &VolumeSpec) -> Option<&Arc<Pool>> {
        self.of(spec).filter(|_| spec.pool().is_some_and(|place| place.snapshot.is_none()))
    }

    /// The same for another size.
    ///
    /// # Errors
    /// [`PoolError::Full`].
    pub(crate) fn take_room_of(&self, spec: &VolumeSpec, size_bytes: u64) -> Result<Option<Room>, PoolError> {
        self.of_own(spec).map(|pool| Room::take(pool, &spec.name, size_bytes)).transpose()
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
