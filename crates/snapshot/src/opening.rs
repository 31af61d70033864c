//! Opening what a volume or a snapshot needs: outside the family's lock, as long as it takes.

use std::sync::{Arc, MutexGuard, PoisonError};

use crate::catalogue::{Catalogue, Seal, Snapshot};
use crate::family::State;
use crate::layer::{Perform, Source};
use crate::losses::Losses;
use crate::store::SnapshotStore;
use crate::tree::Tree;
use crate::view::View;
use crate::{LayerId, SnapshotError};

/// Layers stay as they are, and blocks where they are, as long as this is there: somebody reads which are there.
pub(crate) type Reading = Arc<()>;

/// A name is being opened by nobody else until this is dropped.
struct Opening<'a> {
    tree: &'a Tree,
    name: &'a str,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.tree.lock().opening.remove(self.name);
        self.tree.changed.notify_all();
    }
}

/// What is to be opened.
struct Plan {
    chain: Vec<LayerId>,
    length_bytes: u64,
    lost: Option<Arc<Losses>>,
}

impl Tree {
    /// The store of a volume. All who ask are given the same, until it is closed.
    ///
    /// # Errors
    /// When there is no such volume, or its layers cannot be read; those of others are not looked at.
    pub fn volume(&self, volume: &str, perform: Perform<'_>) -> Result<SnapshotStore, SnapshotError> {
        let _opening = match self.begin_opening(volume) {
            Ok(store) => return Ok(store),
            Err(opening) => opening,
        };
        let (_reading, plan) = self.begin_reading(|state| {
            let top = state.catalogue.top(volume)?;
            let (chain, lost) = (state.catalogue.chain(top), state.lost.get(&top).cloned());
            Ok(Plan { chain: chain.ok_or(SnapshotError::TooMany)?, length_bytes: 0, lost })
        })?;
        let losses = plan.lost.clone().unwrap_or_default();
        let store = SnapshotStore::new(self.read_view(&plan.chain, &losses, perform)?);
        let top = store.written();
        if plan.lost.is_some() {
            top.doubt();
        }
        // What its last layer is now is told from what comes.
        let renewed = renew(&store, perform);
        let state = &mut *self.lock();
        if let Err(error) = renewed.and_then(|()| self.commit(state, |_| ())) {
            state.remember_losses(&store);
            return Err(error);
        }
        // Now the store knows it.
        state.lost.remove(&top.source.id);
        state.volumes.insert(volume.to_owned(), store.clone());
        Ok(store)
    }

    /// A volume as it was at a snapshot, for reading only.
    ///
    /// # Errors
    /// When there is no such snapshot, or its layers cannot be read.
    pub fn view(&self, volume: &str, snapshot: &str, perform: Perform<'_>) -> Result<SnapshotStore, SnapshotError> {
        let name = format!("{volume}@{snapshot}");
        let _opening = match self.begin_opening(&name) {
            Ok(store) => return Ok(store),
            Err(opening) => opening,
        };
        let (_reading, plan) = self.begin_reading(|state| {
            let found = state.catalogue.snapshot(volume, snapshot).ok_or(SnapshotError::NoSnapshot)?;
            let Snapshot { layer, length_bytes, .. } = *found;
            let chain = state.catalogue.chain(layer).ok_or(SnapshotError::TooMany)?;
            Ok(Plan { chain, length_bytes, lost: None })
        })?;
        let view = self.read_view(&plan.chain, &Arc::default(), perform)?;
        let store = SnapshotStore::of_snapshot(view, plan.length_bytes);
        let state = &mut *self.lock();
        state.volumes.insert(name.clone(), store.clone());
        Ok(store)
    }

    /// The store, if it is open; else nobody else opens it.
    fn begin_opening<'a>(&'a self, name: &'a str) -> Result<SnapshotStore, Opening<'a>> {
        let mut state = self.lock();
        loop {
            if let Some(store) = state.volumes.get(name) {
                return Ok(store.clone());
            }
            if state.opening.insert(name.to_owned()) {
                return Err(Opening { tree: self, name });
            }
            state = self.wait(state);
        }
    }

    /// From now on no block is moved from layer to layer.
    pub(crate) fn begin_reading<T>(
        &self,
        plan: impl FnOnce(&mut State) -> Result<T, SnapshotError>,
    ) -> Result<(Reading, T), SnapshotError> {
        let mut state = self.lock();
        while state.is_moving {
            state = self.wait(state);
        }
        let planned = plan(&mut state)?;
        Ok((Arc::clone(&state.reading), planned))
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// What is made of these layers.
    pub(crate) fn read_view(
        &self,
        chain: &[LayerId],
        losses: &Arc<Losses>,
        perform: Perform<'_>,
    ) -> Result<View, SnapshotError> {
        let layers: Result<Vec<_>, _> = chain.iter().map(|layer| self.source(*layer, perform)).collect();
        let (base, block_bytes) = {
            let state = self.lock();
            self.tell(&state);
            (Arc::clone(&state.base), state.catalogue.block_bytes)
        };
        View::open(base, &layers?, block_bytes, losses, perform)
    }

    /// A layer, which is opened if it is not.
    pub(crate) fn source(&self, layer: LayerId, perform: Perform<'_>) -> Result<Arc<Source>, SnapshotError> {
        // A store may be opened only once.
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let (block_bytes, seal): (u32, Seal) = {
            let state = self.lock();
            if let Ok(source) = state.source(layer) {
                return Ok(source);
            }
            let Catalogue { block_bytes, seals, .. } = &*state.catalogue;
            (*block_bytes, *seals.get(&layer).ok_or(SnapshotError::Missing { layer })?)
        };
        let store = self.shelf.open(layer).map_err(|source| SnapshotError::Open { layer, source })?;
        let source = Source::open(store, layer, (block_bytes, seal), perform)?;
        self.lock().sources.insert(layer, Arc::clone(&source));
        Ok(source)
    }
}

/// Makes stable what was written to the last layer of a volume, as one that is told from what it was before.
pub(crate) fn renew(store: &SnapshotStore, perform: Perform<'_>) -> Result<(), SnapshotError> {
    let source = &store.written().source;
    let generation = source.write_generation(perform)?;
    store.flush(perform).map_err(|error| SnapshotError::at(source.id, error))?;
    source.has_generation(generation);
    Ok(())
}
