//! What a family of volumes is at a time, and how a change of it is made to last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use sanwire_store::{NullStore, Store};

use crate::catalogue::{Catalogue, LAYERS_MAX};
use crate::format::{Header, Layout};
use crate::layer::{Perform, Source};
use crate::losses::Losses;
use crate::merge::Merge;
use crate::store::SnapshotStore;
use crate::tree::Tree;
use crate::view::View;
use crate::{LayerId, SnapshotError};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) catalogue: Catalogue,
    pub(crate) base: Arc<Source>,
    /// The layers, all of them open.
    pub(crate) sources: BTreeMap<LayerId, Arc<Source>>,
    /// The volumes, and snapshots as `VOLUME@SNAPSHOT`, that are open.
    pub(crate) volumes: BTreeMap<String, SnapshotStore>,
    /// Last layers of volumes that are not open, of which something may be lost: their stores say so only once.
    pub(crate) lost: BTreeMap<LayerId, Arc<Losses>>,
    /// Layers that were made, and belong to nothing yet.
    pub(crate) prepared: BTreeSet<LayerId>,
    pub(crate) merge: Merging,
    /// Another catalogue may stand on the shelf: nothing is changed before this one stands there again.
    pub(crate) is_doubtful: bool,
}

/// The merge of a family: one at a time.
#[derive(Debug, Default)]
pub(crate) enum Merging {
    #[default]
    Nothing,
    /// Between two steps.
    Begun(Merge),
    /// Somebody is at it.
    Busy,
}

impl Tree {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A change is made in one go, after all that can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change that lasts, or none. Where it cannot be known which, who has another last layer in the two takes no writes until
    /// [`Tree::make_certain`].
    pub(crate) fn commit(&self, state: &mut State, change: impl FnOnce(&mut Catalogue)) -> Result<(), SnapshotError> {
        self.make_certain(state)?;
        let mut next = state.catalogue.clone();
        change(&mut next);
        next.seals = next
            .sealed()
            .map(|layer| Ok((layer, state.source(layer)?.seal())))
            .collect::<Result<_, SnapshotError>>()?;
        if let Err(source) = self.shelf.keep(&next.encode()) {
            if self.shelf.keep(&state.catalogue.encode()).is_err() {
                state.is_doubtful = true;
                let is_other = |name: &String| next.volumes.get(name) != state.catalogue.volumes.get(name);
                state.volumes.iter().filter(|(name, _)| is_other(name)).for_each(|(_, store)| store.stop(true));
            }
            return Err(SnapshotError::Keep(source));
        }
        state.catalogue = next;
        Ok(())
    }

    /// Has what is known here stand on the shelf, if something else may. Before that nothing is copied or removed either: what was not
    /// made may need it.
    pub(crate) fn make_certain(&self, state: &mut State) -> Result<(), SnapshotError> {
        if state.is_doubtful {
            self.shelf.keep(&state.catalogue.encode()).map_err(SnapshotError::Keep)?;
            state.is_doubtful = false;
            state.volumes.values().for_each(|store| store.stop(false));
        }
        Ok(())
    }

    /// Makes a layer of its own, which belongs to nothing yet: after a crash it is removed.
    pub(crate) fn make(
        &self,
        state: &mut State,
        (layer, parent): (LayerId, LayerId),
        length_bytes: u64,
        perform: Perform<'_>,
    ) -> Result<Arc<Source>, SnapshotError> {
        if state.catalogue.layers.len() >= LAYERS_MAX {
            return Err(SnapshotError::TooMany);
        }
        let is_known = layer == LayerId::BASE || state.catalogue.layers.contains_key(&layer);
        if is_known || state.catalogue.doomed.contains(&layer) {
            return Err(SnapshotError::Exists);
        }
        let block_bytes = state.catalogue.block_bytes;
        self.commit(state, |catalogue| _ = catalogue.doomed.insert(layer))?;
        let store_bytes = Layout::new(block_bytes).store_bytes(length_bytes);
        let store = self.shelf.create(layer, store_bytes).map_err(|source| SnapshotError::Make { layer, source })?;
        Source::create(store, Header { id: layer, parent, block_bytes, generation: 1 }, perform)
    }

    /// A layer that was made belongs to the family from now on.
    pub(crate) fn adopt(
        &self,
        state: &mut State,
        source: &Arc<Source>,
        parent: LayerId,
        change: impl FnOnce(&mut Catalogue),
    ) -> Result<(), SnapshotError> {
        state.sources.insert(source.id, Arc::clone(source));
        let adopted = self.commit(state, |catalogue| {
            catalogue.doomed.remove(&source.id);
            catalogue.layers.insert(source.id, parent);
            change(catalogue);
        });
        adopted.inspect_err(|_| drop(state.sources.remove(&source.id)))
    }
}

impl State {
    pub(crate) fn new(mut catalogue: Catalogue, base: Arc<dyn Store>) -> Self {
        catalogue.is_base_fixed = catalogue.base.is_none() || base.geometry().read_only;
        let (sources, volumes) = (BTreeMap::new(), BTreeMap::new());
        let (base, prepared) = (Source::base(base), BTreeSet::new());
        let lost = BTreeMap::new();
        State { catalogue, base, sources, volumes, lost, prepared, merge: Merging::Nothing, is_doubtful: false }
    }

    pub(crate) fn open(&self, volume: &str) -> Result<SnapshotStore, SnapshotError> {
        self.volumes.get(volume).cloned().ok_or(SnapshotError::NoVolume)
    }

    /// Whether somebody has the store of a volume, or of a snapshot as `VOLUME@SNAPSHOT`.
    pub(crate) fn is_in_use(&self, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|store| !store.is_unused())
    }

    /// A volume is not open any more: what may be lost of it is known all the same.
    pub(crate) fn remember_losses(&mut self, store: &SnapshotStore) {
        let top = store.written();
        if top.has_lost() {
            self.lost.insert(top.source.id, Arc::clone(&top.losses));
        }
    }

    pub(crate) fn source(&self, layer: LayerId) -> Result<Arc<Source>, SnapshotError> {
        match layer {
            LayerId::BASE => Ok(Arc::clone(&self.base)),
            layer => self.sources.get(&layer).cloned().ok_or(SnapshotError::Missing { layer }),
        }
    }

    /// Makes stable what a volume, whose writes are held, has written. If a flush has failed since its last layer began, its store may
    /// show what the medium does not hold: all that the map says is there is written once more. Other blocks may be seen there that
    /// nobody counts on: from now on they hold what is below.
    pub(crate) fn settle_losses(
        &self,
        volume: &str,
        store: &SnapshotStore,
        perform: Perform<'_>,
    ) -> Result<(), SnapshotError> {
        let top = self.catalogue.top(volume)?;
        // Nothing is written to it any more: what it was before is another one.
        self.renew(top, store, perform)?;
        if !store.written().has_lost() {
            return Ok(());
        }
        let losses = store.losses();
        if top == LayerId::BASE {
            return Err(SnapshotError::Unsure);
        }
        let mut again = self.begin_merge(top, top, &losses, perform)?;
        while !again.step(perform)? {}
        let (base, chain) = (Arc::clone(&self.base), self.chain(top)?);
        let view = View::open(base, &chain, self.catalogue.block_bytes, &losses, perform)?;
        store.0.view.store(Arc::new(view));
        Ok(())
    }

    /// Makes stable what was written to the last layer of a volume, as one that is told from what it was before.
    pub(crate) fn renew(&self, top: LayerId, store: &SnapshotStore, perform: Perform<'_>) -> Result<(), SnapshotError> {
        let source = self.source(top)?;
        let generation = source.write_generation(perform)?;
        store.flush(perform).map_err(|source| SnapshotError::at(top, source))?;
        source.has_generation(generation);
        Ok(())
    }

    /// The layers up to this one, without the base.
    pub(crate) fn chain(&self, last: LayerId) -> Result<Vec<Arc<Source>>, SnapshotError> {
        let chain = self.catalogue.chain(last).ok_or(SnapshotError::TooMany)?;
        chain.into_iter().map(|layer| self.source(layer)).collect()
    }
}

/// Zeroes below all layers.
pub(crate) fn empty(length_bytes: u64, block_bytes: u32) -> Arc<dyn Store> {
    Arc::new(NullStore::new(length_bytes, block_bytes))
}

/// A layer that was made before its volume grew.
pub(crate) fn lengthen(source: &Source, length_bytes: u64) -> Result<(), SnapshotError> {
    let Some(layout) = source.layout.filter(|_| source.length_bytes() < length_bytes) else { return Ok(()) };
    let failed = |error| SnapshotError::Resize { layer: source.id, source: error };
    source.store.resize(layout.store_bytes(length_bytes)).map_err(failed)
}
