//! Volumes that have layers in common, and what is done with them: snapshots, clones, rollback, removal.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use arc_swap::ArcSwap;
use sanwire_store::Store;

use crate::catalogue::{Catalogue, Seal, Snapshot};
use crate::family::{State, empty};
use crate::hold::Hold;
use crate::layer::Perform;
use crate::store::SnapshotStore;
use crate::telling::Told;
use crate::{LayerId, Shelf, SnapshotError};

/// A family of volumes: one, and what was cloned of it, over one base.
///
/// What is asked here may block, and is done one after the other; the volumes go on meanwhile. Each change is either made or not,
/// whatever happens to the power.
#[derive(Debug)]
pub struct Tree {
    pub(crate) shelf: Arc<dyn Shelf>,
    pub(crate) state: Mutex<State>,
    /// Nobody reads which blocks layers have, or moves any, or opens a volume, who has before.
    pub(crate) changed: Condvar,
    /// Held by who opens a layer.
    pub(crate) opening: Mutex<()>,
    pub(crate) told: ArcSwap<Told>,
}

/// What is below all layers of a family.
#[derive(Clone, Debug)]
pub struct Base {
    /// Where it is.
    pub store: Arc<dyn Store>,
    /// What tells it from all others, whatever they hold.
    pub identity: String,
    /// Whether somebody else may make it longer. What is behind its former end is then no part of it as long as there are layers: volumes
    /// that have grown above it read zeroes there.
    pub may_be_longer: bool,
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
            Origin::Base(Base { store, identity, .. }) => (store, Some(identity), None),
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
        let length_bytes = base.geometry().length_bytes;
        if catalogue.base.is_some() {
            // It is whole also if it is what stands there after the first change could not be kept.
            catalogue.seals.insert(LayerId::BASE, Seal { generation: 0, length_bytes });
        }
        let tree = Tree::of(shelf, State::new(catalogue, base, length_bytes));
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
    /// When the catalogue is not there or damaged, or the base is another one. Layers are opened when they are needed.
    pub fn open(shelf: Arc<dyn Shelf>, base: Option<Base>) -> Result<Self, SnapshotError> {
        let kept = shelf.load().map_err(SnapshotError::Load)?.ok_or(SnapshotError::Nothing)?;
        let catalogue = Catalogue::decode(&kept)?;
        let block_bytes = catalogue.block_bytes;
        if base.as_ref().map(|base| &base.identity) != catalogue.base.as_ref() {
            return Err(SnapshotError::OtherBase);
        }
        let may_be_longer = base.as_ref().is_some_and(|base| base.may_be_longer);
        let is_cut = may_be_longer && !catalogue.layers.is_empty();
        // Without layers any other one may have taken its place.
        let may_be_shorter = may_be_longer && catalogue.layers.is_empty();
        let base = base.map_or_else(|| empty(u64::from(block_bytes), block_bytes), |base| base.store);
        let known_bytes = catalogue.seals.get(&LayerId::BASE).map_or(0, |seal| seal.length_bytes);
        let has_bytes = base.geometry().length_bytes;
        if base.geometry().block_bytes != block_bytes || has_bytes < known_bytes && !may_be_shorter {
            return Err(SnapshotError::OtherBase);
        }
        let mut state = State::new(catalogue, base, if is_cut { known_bytes } else { has_bytes });
        // What was read may not be there for good, and layers that another catalogue needs would be removed.
        shelf.keep(&state.catalogue.encode()).map_err(SnapshotError::Keep)?;
        let catalogue = Arc::make_mut(&mut state.catalogue);
        catalogue.doomed.retain(|layer| shelf.remove(*layer).is_err());
        Ok(Tree::of(shelf, state))
    }

    fn of(shelf: Arc<dyn Shelf>, state: State) -> Tree {
        let (catalogue, base) = (Arc::clone(&state.catalogue), Arc::clone(&state.base));
        let told = ArcSwap::from_pointee(Told { catalogue, base, sources: BTreeMap::new() });
        let (changed, opening) = (Condvar::new(), Mutex::default());
        Tree { shelf, state: Mutex::new(state), changed, opening, told }
    }

    /// Nobody uses a volume, or a snapshot as `VOLUME@SNAPSHOT`, for now: what is known of it leaves the memory, unless somebody has its
    /// store still.
    pub fn close(&self, name: &str) {
        let state = &mut *self.lock();
        if state.volumes.get(name).is_some_and(SnapshotStore::is_unused) {
            state.close(name);
            self.tell(state);
        }
    }

    /// Keeps how long the stores of layers are, after a volume has grown: what is cut short again is noticed.
    ///
    /// # Errors
    /// When that cannot be kept.
    pub fn keep_lengths(&self) -> Result<(), SnapshotError> {
        self.commit(&mut self.lock(), |_| ())
    }

    /// Whether nothing is put into what is below all layers from now on, though only one layer lies on it, as if it were read-only.
    pub fn fix_base(&self, is_fixed: bool) {
        let state = &mut *self.lock();
        let is_fixed = is_fixed || state.catalogue.base.is_none() || state.base.store.geometry().read_only;
        Arc::make_mut(&mut state.catalogue).is_base_fixed = is_fixed;
        self.tell(state);
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
        Hold::new(store).ok_or(SnapshotError::Busy)
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
        state.close(&view);
        state.unusable.clear();
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
        views.iter().map(String::as_str).chain([volume]).for_each(|name| state.close(name));
        state.lost.remove(&top);
        state.unusable.clear();
        Ok(())
    }
}
