//! Snapshots, and going back to them. What takes its time is done before writes are held.

use std::sync::Arc;

use sanwire_store::Store;

use crate::catalogue::Snapshot;
use crate::family::lengthen;
use crate::hold::Hold;
use crate::layer::{Perform, Source};
use crate::opening::{Reading, renew};
use crate::tree::Tree;
use crate::view::View;
use crate::{LayerId, SnapshotError};

/// A layer that was made, and belongs to nothing yet.
#[derive(Debug)]
pub struct Prepared {
    volume: String,
    source: Arc<Source>,
    parent: LayerId,
}

/// A volume as it was at a snapshot, with a layer for what is written from then on.
#[derive(Debug)]
pub struct Rollback {
    prepared: Prepared,
    view: View,
    _reading: Reading,
}

impl Rollback {
    /// It is not to come about: what is left is to be abandoned.
    #[must_use]
    pub fn into_prepared(self) -> Prepared {
        self.prepared
    }
}

impl Tree {
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

    /// Whether a flush of what a volume holds has failed: before it can have a snapshot a new layer begins, and [`Tree::tidy`] writes
    /// once more what may be lost.
    ///
    /// # Errors
    /// [`SnapshotError::Unsure`], when that is what is below all layers.
    pub fn is_unsettled(&self, volume: &str) -> Result<bool, SnapshotError> {
        self.lock().has_lost(volume)
    }

    /// Makes a snapshot of a volume whose writes are held: what it holds now stays, and a prepared layer takes what is written from now
    /// on. Without a name it is only the beginning of a layer.
    ///
    /// # Errors
    /// When it cannot be made: then nothing has changed. [`SnapshotError::Unsettled`]: see [`Tree::is_unsettled`].
    pub fn take(
        &self,
        prepared: Prepared,
        name: Option<&str>,
        made_ms: u64,
        hold: &Hold,
        perform: Perform<'_>,
    ) -> Result<(), SnapshotError> {
        hold.wait();
        let state = &mut *self.lock();
        let Prepared { volume, source, parent } = prepared;
        state.prepared.remove(&source.id);
        let store = state.open(&volume)?;
        let store = hold.of(&store)?;
        if state.catalogue.top(&volume)? != parent {
            return Err(SnapshotError::Busy);
        }
        if name.is_some_and(|name| state.catalogue.snapshot(&volume, name).is_some()) {
            return Err(SnapshotError::Exists);
        }
        // A volume that grew meanwhile would have an index that does not know of it.
        let _length = store.0.resizing();
        // Nothing is written to it any more: what it was before is another one.
        renew(store, perform)?;
        if state.has_lost(&volume)? && name.is_some() {
            return Err(SnapshotError::Unsettled);
        }
        let length_bytes = store.geometry().length_bytes;
        lengthen(&source, length_bytes)?;
        hold.decide()?;
        self.adopt(state, &source, parent, |catalogue| {
            if let Some(name) = name {
                let (volume, name) = (volume.clone(), name.to_owned());
                catalogue.snapshots.push(Snapshot { volume, name, made_ms, length_bytes, layer: parent });
            }
            catalogue.volumes.insert(volume, source.id);
        })?;
        state.remember_losses(store);
        store.begin_layer(source);
        Ok(())
    }

    /// Does all for a rollback that can be done while writes go on. Until it is done, or dropped, no space is given back.
    ///
    /// # Errors
    /// When there is no such snapshot, or the volume is not open, or layers cannot be read or made.
    pub fn prepare_rollback(
        &self,
        (volume, snapshot): (&str, &str),
        layer: LayerId,
        perform: Perform<'_>,
    ) -> Result<Rollback, SnapshotError> {
        let (reading, (losses, source, parent, mut chain)) = self.begin_reading(|state| {
            let parent = state.catalogue.snapshot(volume, snapshot).ok_or(SnapshotError::NoSnapshot)?.layer;
            let store = state.open(volume)?;
            let source = self.make(state, (layer, parent), store.geometry().length_bytes, perform)?;
            state.prepared.insert(layer);
            let chain = state.catalogue.chain(parent).ok_or(SnapshotError::TooMany)?;
            state.sources.insert(layer, Arc::clone(&source));
            Ok((store.losses(), source, parent, chain))
        })?;
        chain.push(layer);
        let view = self.read_view(&chain, &losses, perform);
        let state = &mut *self.lock();
        state.sources.remove(&layer);
        let view = view.inspect_err(|_| _ = state.prepared.remove(&layer))?;
        Ok(Rollback { prepared: Prepared { volume: volume.to_owned(), source, parent }, view, _reading: reading })
    }

    /// Makes a volume what it was at a snapshot, while its writes are held. Later snapshots of it stay.
    ///
    /// # Errors
    /// When it cannot be done: then nothing has changed.
    pub fn roll_back(&self, rollback: Rollback, hold: &Hold) -> Result<(), SnapshotError> {
        hold.wait();
        let Rollback { prepared: Prepared { volume, source, parent }, view, _reading } = rollback;
        let state = &mut *self.lock();
        state.prepared.remove(&source.id);
        let store = state.open(&volume)?;
        let store = hold.of(&store)?;
        let _length = store.0.resizing();
        if !state.catalogue.snapshots.iter().any(|snapshot| snapshot.volume == volume && snapshot.layer == parent) {
            return Err(SnapshotError::NoSnapshot);
        }
        // It may have grown meanwhile.
        lengthen(&source, store.geometry().length_bytes)?;
        view.grow(store.geometry().length_bytes);
        hold.decide()?;
        self.adopt(state, &source, parent, |catalogue| _ = catalogue.volumes.insert(volume, source.id))?;
        let before = store.0.view.swap(Arc::new(view));
        state.retire(&before);
        Ok(())
    }
}
