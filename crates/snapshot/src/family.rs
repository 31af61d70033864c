//! What a family of volumes is at a time, and how a change of it is made to last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use sanwire_store::{NullStore, Store};

use crate::catalogue::{Catalogue, LAYERS_MAX, Seal};
use crate::format::{Header, Layout};
use crate::layer::{Perform, Source};
use crate::losses::Losses;
use crate::merge::Merge;
use crate::opening::Reading;
use crate::store::SnapshotStore;
use crate::telling::Told;
use crate::tree::Tree;
use crate::view::View;
use crate::{LayerId, SnapshotError};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) base: Arc<Source>,
    /// The layers that are open.
    pub(crate) sources: BTreeMap<LayerId, Arc<Source>>,
    /// The volumes, and snapshots as `VOLUME@SNAPSHOT`, that are open; and those that are being opened.
    pub(crate) volumes: BTreeMap<String, SnapshotStore>,
    pub(crate) opening: BTreeSet<String>,
    /// Others have it, too, who read which blocks layers have.
    pub(crate) reading: Reading,
    /// Blocks are being moved from one layer to another.
    pub(crate) is_moving: bool,
    /// Of what is not used any more: who is reading still.
    pub(crate) epochs: Vec<Weak<()>>,
    /// Layers of which something may be lost, and that are not the last one of a volume that is open: their stores say so only once.
    pub(crate) lost: BTreeMap<LayerId, Arc<Losses>>,
    /// Layers that were made, and belong to nothing yet.
    pub(crate) prepared: BTreeSet<LayerId>,
    pub(crate) merge: Merging,
    /// Layers that could not be opened to be merged.
    pub(crate) unusable: BTreeSet<LayerId>,
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
        let mut next = Catalogue::clone(&state.catalogue);
        change(&mut next);
        next.seals = next.sealed().map(|layer| state.seal(layer)).collect::<Result<_, _>>()?;
        if let Err(source) = self.shelf.keep(&next.encode()) {
            if self.shelf.keep(&state.catalogue.encode()).is_err() {
                state.is_doubtful = true;
                let is_other = |name: &String| next.volumes.get(name) != state.catalogue.volumes.get(name);
                state.volumes.iter().filter(|(name, _)| is_other(name)).for_each(|(_, store)| store.stop(true));
            }
            return Err(SnapshotError::Keep(source));
        }
        state.catalogue = Arc::new(next);
        self.tell(state);
        Ok(())
    }

    /// Has those who only look see what is now.
    pub(crate) fn tell(&self, state: &State) {
        let sources = state.sources.iter().map(|(layer, source)| (*layer, Arc::downgrade(source))).collect();
        let base = Arc::clone(&state.base);
        self.told.store(Arc::new(Told { catalogue: Arc::clone(&state.catalogue), base, sources }));
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
    /// Over so many bytes of this base.
    pub(crate) fn new(mut catalogue: Catalogue, base: Arc<dyn Store>, length_bytes: u64) -> Self {
        catalogue.is_base_fixed = catalogue.base.is_none() || base.geometry().read_only;
        State {
            catalogue: Arc::new(catalogue),
            base: Source::base(base, length_bytes),
            sources: BTreeMap::new(),
            volumes: BTreeMap::new(),
            opening: BTreeSet::new(),
            reading: Reading::default(),
            is_moving: false,
            epochs: Vec::new(),
            lost: BTreeMap::new(),
            prepared: BTreeSet::new(),
            merge: Merging::Nothing,
            unusable: BTreeSet::new(),
            is_doubtful: false,
        }
    }

    /// What a layer is at least: as it is, if it is open.
    fn seal(&self, layer: LayerId) -> Result<(LayerId, Seal), SnapshotError> {
        let kept = self.catalogue.seals.get(&layer).copied();
        let seal = self.source(layer).map(|source| source.seal()).or_else(|missing| kept.ok_or(missing))?;
        Ok((layer, seal))
    }

    pub(crate) fn open(&self, volume: &str) -> Result<SnapshotStore, SnapshotError> {
        self.volumes.get(volume).cloned().ok_or(SnapshotError::NoVolume)
    }

    /// Whether somebody has the store of a volume, or of a snapshot as `VOLUME@SNAPSHOT`.
    pub(crate) fn is_in_use(&self, name: &str) -> bool {
        self.opening.contains(name) || self.volumes.get(name).is_some_and(|store| !store.is_unused())
    }

    /// Nobody uses it any more: what is known of it leaves the memory, with the layers that only it has used.
    pub(crate) fn close(&mut self, name: &str) {
        if let Some(store) = self.volumes.remove(name) {
            self.remember_losses(&store);
            self.retire(&store.0.view.load());
        }
        self.sources.retain(|_, source| Arc::strong_count(source) > 1);
    }

    /// A view is not used by new requests any more.
    pub(crate) fn retire(&mut self, view: &View) {
        self.epochs.retain(|epoch| epoch.strong_count() > 0);
        self.epochs.push(view.epoch());
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

    /// Whether somebody reads which blocks layers have.
    pub(crate) fn is_read(&self) -> bool {
        Arc::strong_count(&self.reading) > 1
    }

    /// Whether something of what a volume holds may be lost.
    pub(crate) fn has_lost(&self, volume: &str) -> Result<bool, SnapshotError> {
        let top = self.catalogue.top(volume)?;
        let of_top = self.volumes.get(volume).is_some_and(|store| store.written().has_lost());
        let chain = self.catalogue.chain(top).ok_or(SnapshotError::TooMany)?;
        match of_top || self.lost.contains_key(&top) {
            // It is too much to be written once more.
            true if top == LayerId::BASE => Err(SnapshotError::Unsure),
            has_lost => Ok(has_lost || chain.iter().any(|layer| self.lost.contains_key(layer))),
        }
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
