//! Volumes that have layers in common, and what is done with them: snapshots, clones, rollback, removal.

use std::sync::{Arc, Mutex};

use sanwire_store::Store;

use crate::catalogue::{Catalogue, Snapshot};
use crate::family::{State, empty, lengthen};
use crate::layer::{Perform, Source};
use crate::store::SnapshotStore;
use crate::view::View;
use crate::{LayerId, Shelf, SnapshotError};

/// A family of volumes: one, and what was cloned of it, over one base.
///
/// What is asked here may block, and is done one after the other; the volumes go on meanwhile. Each change is either made or not,
/// whatever happens to the power.
#[derive(Debug)]
pub struct Tree {
    pub(crate) shelf: Arc<dyn Shelf>,
    pub(crate) state: Mutex<State>,
}

/// What is below all layers of a family.
#[derive(Clone, Debug)]
pub struct Base {
    /// Where it is.
    pub store: Arc<dyn Store>,
    /// What tells it from all others, whatever they hold.
    pub identity: String,
}

/// With what a family begins.
#[derive(Debug)]
pub enum Origin {
    /// A store, whatever it holds.
    Base(Base),
    /// Zeroes, of which this layer has what is written.
    Empty {
        /// Bytes of the volume.
        length_bytes: u64,
        /// The logical block: 512 or 4096 bytes.
        block_bytes: u32,
        /// The layer.
        layer: LayerId,
    },
}

/// A layer that was made, and belongs to nothing yet.
#[derive(Debug)]
pub struct Prepared {
    volume: String,
    source: Arc<Source>,
    parent: LayerId,
}

/// The writes of a volume are held until this is dropped.
#[derive(Debug)]
#[must_use = "writes are held only as long as it is there"]
pub struct Hold(SnapshotStore);

impl Hold {
    /// Whether those that had begun have ended.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.0.0.gate.is_quiet()
    }

    /// The store of this volume, if it is its writes that are held.
    pub(crate) fn of(&self, store: &SnapshotStore) -> Result<&SnapshotStore, SnapshotError> {
        if self.0.is(store) { Ok(&self.0) } else { Err(SnapshotError::Busy) }
    }

    /// Waits until they have.
    pub fn wait(&self) {
        self.0.0.gate.wait_until_quiet();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.0.gate.release();
    }
}

impl Tree {
    /// A new family: `volume` is what `base` holds. Without a base it begins with zeroes, and a layer for what is written.
    ///
    /// # Errors
    /// [`SnapshotError::Exists`] where there is a family already; or when this one cannot be kept.
    pub fn create(
        shelf: Arc<dyn Shelf>,
        volume: &str,
        origin: Origin,
        perform: Perform<'_>,
    ) -> Result<Self, SnapshotError> {
        let (base, identity, first) = match origin {
            Origin::Base(Base { store, identity }) => (store, Some(identity), None),
            Origin::Empty { length_bytes, block_bytes, layer } => {
                (empty(length_bytes, block_bytes), None, Some((layer, length_bytes)))
            }
        };
        let mut catalogue = Catalogue::new(base.geometry().block_bytes, identity);
        if let Some(kept) = shelf.load().map_err(SnapshotError::Load)? {
            // One that was just being made has nothing yet.
            let kept = Catalogue::decode(&kept)?;
            if !kept.is_empty() {
                return Err(SnapshotError::Exists);
            }
            catalogue.doomed = kept.doomed;
        }
        let tree = Tree { shelf, state: Mutex::new(State::new(catalogue, base)) };
        let own = |layer| move |catalogue: &mut Catalogue| _ = catalogue.volumes.insert(volume.to_owned(), layer);
        match first {
            None => tree.commit(&mut tree.lock(), own(LayerId::BASE))?,
            // Without the layer there is no volume: what is below takes no writes.
            Some((layer, length_bytes)) => {
                let state = &mut *tree.lock();
                let source = tree.make(state, (layer, LayerId::BASE), length_bytes, perform)?;
                tree.adopt(state, &source, LayerId::BASE, own(layer))?;
            }
        }
        Ok(tree)
    }

    /// Opens a family that was kept. `base` is that with which it began; `None` where it began with zeroes.
    ///
    /// # Errors
    /// When a layer cannot be opened, or the catalogue is not there or damaged.
    pub fn open(shelf: Arc<dyn Shelf>, base: Option<Base>, perform: Perform<'_>) -> Result<Self, SnapshotError> {
        let kept = shelf.load().map_err(SnapshotError::Load)?.ok_or(SnapshotError::Nothing)?;
        let catalogue = Catalogue::decode(&kept)?;
        let block_bytes = catalogue.block_bytes;
        if base.as_ref().map(|base| &base.identity) != catalogue.base.as_ref() {
            return Err(SnapshotError::OtherBase);
        }
        let base = base.map_or_else(|| empty(u64::from(block_bytes), block_bytes), |base| base.store);
        let length_bytes = catalogue.seals.get(&LayerId::BASE).map_or(0, |seal| seal.length_bytes);
        if base.geometry().block_bytes != block_bytes || base.geometry().length_bytes < length_bytes {
            return Err(SnapshotError::OtherBase);
        }
        let mut state = State::new(catalogue, base);
        for layer in state.catalogue.layers.keys() {
            let seal = *state.catalogue.seals.get(layer).ok_or(SnapshotError::Missing { layer: *layer })?;
            let store = shelf.open(*layer).map_err(|source| SnapshotError::Open { layer: *layer, source })?;
            state.sources.insert(*layer, Source::open(store, *layer, (block_bytes, seal), perform)?);
        }
        // What was read may not be there for good, and layers that another catalogue needs would be removed.
        shelf.keep(&state.catalogue.encode()).map_err(SnapshotError::Keep)?;
        for layer in std::mem::take(&mut state.catalogue.doomed) {
            if shelf.remove(layer).is_err() {
                state.catalogue.doomed.insert(layer);
            }
        }
        Ok(Tree { shelf, state: Mutex::new(state) })
    }

    /// The store of a volume. All who ask are given the same, until it is closed.
    ///
    /// # Errors
    /// When there is no such volume, or its layers cannot be read.
    pub fn volume(&self, volume: &str, perform: Perform<'_>) -> Result<SnapshotStore, SnapshotError> {
        let state = &mut *self.lock();
        if let Some(store) = state.volumes.get(volume) {
            return Ok(store.clone());
        }
        let top = state.catalogue.top(volume)?;
        let chain = state.chain(top)?;
        let lost = state.lost.get(&top).cloned();
        let losses = lost.clone().unwrap_or_default();
        let view = View::open(Arc::clone(&state.base), &chain, state.catalogue.block_bytes, &losses, perform)?;
        let store = SnapshotStore::new(view);
        if lost.is_some() {
            store.written().doubt();
        }
        // What its last layer is now is told from what comes.
        let renewed = state.renew(top, &store, perform).and_then(|()| self.commit(state, |_| ()));
        if let Err(error) = renewed {
            state.remember_losses(&store);
            return Err(error);
        }
        // Now the store knows it.
        state.lost.remove(&top);
        state.volumes.insert(volume.to_owned(), store.clone());
        Ok(store)
    }

    /// A volume as it was at a snapshot, for reading only.
    ///
    /// # Errors
    /// When there is no such snapshot, or its layers cannot be read.
    pub fn view(&self, volume: &str, snapshot: &str, perform: Perform<'_>) -> Result<SnapshotStore, SnapshotError> {
        let state = &mut *self.lock();
        let Snapshot { layer, length_bytes, .. } =
            *state.catalogue.snapshot(volume, snapshot).ok_or(SnapshotError::NoSnapshot)?;
        let name = format!("{volume}@{snapshot}");
        if let Some(store) = state.volumes.get(&name) {
            return Ok(store.clone());
        }
        let (base, chain) = (Arc::clone(&state.base), state.chain(layer)?);
        let view = View::open(base, &chain, state.catalogue.block_bytes, &Arc::default(), perform)?;
        let store = SnapshotStore::of_snapshot(view, length_bytes);
        state.volumes.insert(name, store.clone());
        Ok(store)
    }

    /// Nobody uses a volume, or a snapshot as `VOLUME@SNAPSHOT`, for now: what is known of it leaves the memory, unless somebody has its
    /// store still.
    pub fn close(&self, name: &str) {
        let state = &mut *self.lock();
        if state.volumes.get(name).is_some_and(SnapshotStore::is_unused)
            && let Some(store) = state.volumes.remove(name)
        {
            state.remember_losses(&store);
        }
    }

    /// Keeps how long the stores of layers are, after a volume has grown: what is cut short again is noticed.
    ///
    /// # Errors
    /// When that cannot be kept.
    pub fn keep_lengths(&self) -> Result<(), SnapshotError> {
        self.commit(&mut self.lock(), |_| ())
    }

    /// Makes stable what a volume has written so far. Who uses it hears of a failure at the next flush.
    ///
    /// # Errors
    /// When it is not open, or its store fails.
    pub fn flush(&self, volume: &str, perform: Perform<'_>) -> Result<(), SnapshotError> {
        let (store, top) = {
            let state = self.lock();
            (state.open(volume)?, state.catalogue.top(volume)?)
        };
        store.flush(perform).map_err(|source| SnapshotError::at(top, source))
    }

    /// Holds the writes of a volume. For volumes that are to be consistent with each other all are held before any goes on.
    ///
    /// # Errors
    /// When it is not open, or somebody else holds them.
    pub fn hold(&self, volume: &str) -> Result<Hold, SnapshotError> {
        let store = self.lock().open(volume)?;
        if store.0.gate.hold() { Ok(Hold(store)) } else { Err(SnapshotError::Busy) }
    }

    /// Makes a layer for [`Tree::take`], while the volume goes on.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn prepare(&self, volume: &str, layer: LayerId, perform: Perform<'_>) -> Result<Prepared, SnapshotError> {
        let state = &mut *self.lock();
        let parent = state.catalogue.top(volume)?;
        let length_bytes = state.open(volume)?.geometry().length_bytes;
        let source = self.make(state, (layer, parent), length_bytes, perform)?;
        state.prepared.insert(layer);
        Ok(Prepared { volume: volume.to_owned(), source, parent })
    }

    /// A layer that was made is not wanted after all: it goes when the family is tidied, or opened again.
    pub fn abandon(&self, prepared: Prepared) {
        self.lock().prepared.remove(&prepared.source.id);
    }

    /// Makes a snapshot of a volume whose writes are held: what it holds now stays, and a prepared layer takes what is written from now
    /// on. Without a name it is only the beginning of a layer.
    ///
    /// # Errors
    /// When it cannot be made: then nothing has changed.
    pub fn take(
        &self,
        prepared: Prepared,
        name: Option<&str>,
        made_ms: u64,
        hold: &Hold,
        perform: Perform<'_>,
    ) -> Result<(), SnapshotError> {
        let state = &mut *self.lock();
        let Prepared { volume, source, parent } = prepared;
        state.prepared.remove(&source.id);
        let store = hold.of(&state.open(&volume)?)?;
        if state.catalogue.top(&volume)? != parent {
            return Err(SnapshotError::Busy);
        }
        if name.is_some_and(|name| state.catalogue.snapshot(&volume, name).is_some()) {
            return Err(SnapshotError::Exists);
        }
        hold.wait();
        // A volume that grew meanwhile would have an index that does not know of it.
        let _length = store.0.resizing();
        state.settle_losses(&volume, store, perform)?;
        let length_bytes = store.geometry().length_bytes;
        lengthen(&source, length_bytes)?;
        self.adopt(state, &source, parent, |catalogue| {
            if let Some(name) = name {
                let (volume, name) = (volume.clone(), name.to_owned());
                catalogue.snapshots.push(Snapshot { volume, name, made_ms, length_bytes, layer: parent });
            }
            catalogue.volumes.insert(volume, source.id);
        })?;
        store.begin_layer(source);
        Ok(())
    }

    /// Makes a volume what it was at a snapshot, while its writes are held. Later snapshots of it stay.
    ///
    /// # Errors
    /// When it cannot be done: then nothing has changed.
    pub fn roll_back(
        &self,
        (volume, snapshot): (&str, &str),
        layer: LayerId,
        hold: &Hold,
        perform: Perform<'_>,
    ) -> Result<(), SnapshotError> {
        let state = &mut *self.lock();
        let parent = state.catalogue.snapshot(volume, snapshot).ok_or(SnapshotError::NoSnapshot)?.layer;
        let store = state.open(volume)?;
        hold.of(&store)?;
        hold.wait();
        let _length = store.0.resizing();
        let source = self.make(state, (layer, parent), store.geometry().length_bytes, perform)?;
        // Before it is decided: what may fail then would leave the volume between the two.
        let mut chain = state.chain(parent)?;
        chain.push(Arc::clone(&source));
        let view = View::open(Arc::clone(&state.base), &chain, state.catalogue.block_bytes, &store.losses(), perform)?;
        self.adopt(state, &source, parent, |catalogue| _ = catalogue.volumes.insert(volume.to_owned(), layer))?;
        store.0.view.store(Arc::new(view));
        Ok(())
    }

    /// Makes another volume of a snapshot. They share what neither of them has written since.
    ///
    /// # Errors
    /// When there is such a volume already, or it cannot be made.
    pub fn clone_volume(
        &self,
        (volume, snapshot): (&str, &str),
        clone: &str,
        layer: LayerId,
        perform: Perform<'_>,
    ) -> Result<(), SnapshotError> {
        let state = &mut *self.lock();
        if state.catalogue.volumes.contains_key(clone) {
            return Err(SnapshotError::Exists);
        }
        let Snapshot { layer: parent, length_bytes, .. } =
            *state.catalogue.snapshot(volume, snapshot).ok_or(SnapshotError::NoSnapshot)?;
        let source = self.make(state, (layer, parent), length_bytes, perform)?;
        self.adopt(state, &source, parent, |catalogue| _ = catalogue.volumes.insert(clone.to_owned(), layer))
    }

    /// Forgets a snapshot. The space of what only it held comes back by [`Tree::tidy`].
    ///
    /// # Errors
    /// When there is none, or it is being read, or that cannot be kept.
    pub fn forget(&self, volume: &str, snapshot: &str) -> Result<(), SnapshotError> {
        let state = &mut *self.lock();
        self.make_certain(state)?;
        let view = format!("{volume}@{snapshot}");
        if state.is_in_use(&view) {
            return Err(SnapshotError::Busy);
        }
        state.catalogue.snapshot(volume, snapshot).ok_or(SnapshotError::NoSnapshot)?;
        self.commit(state, |catalogue| {
            catalogue.snapshots.retain(|kept| (&*kept.volume, &*kept.name) != (volume, snapshot));
        })?;
        // Another one of its name holds something else.
        state.volumes.remove(&view);
        Ok(())
    }

    /// Removes a volume, and its snapshots.
    ///
    /// # Errors
    /// When there is none, or somebody uses it or one of its snapshots, or that cannot be kept.
    pub fn remove(&self, volume: &str) -> Result<(), SnapshotError> {
        let state = &mut *self.lock();
        self.make_certain(state)?;
        let top = state.catalogue.top(volume)?;
        let snapshots = state.catalogue.snapshots.iter().filter(|kept| kept.volume == volume);
        let views: Vec<_> = snapshots.map(|kept| format!("{volume}@{}", kept.name)).collect();
        if state.is_in_use(volume) || views.iter().any(|view| state.is_in_use(view)) {
            return Err(SnapshotError::Busy);
        }
        self.commit(state, |catalogue| {
            catalogue.volumes.remove(volume);
            catalogue.snapshots.retain(|kept| kept.volume != volume);
        })?;
        state.volumes.retain(|name, _| name != volume && !views.contains(name));
        state.lost.remove(&top);
        Ok(())
    }
}
