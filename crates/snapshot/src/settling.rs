//! Putting the last layer of a volume into the one below it, when little was written to it.

use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::family::{Merging, State};
use crate::hold::Hold;
use crate::layer::{Perform, Top};
use crate::merge::{Merge, make_as_long};
use crate::opening::{Reading, renew};
use crate::store::SnapshotStore;
use crate::tree::Tree;
use crate::{LayerId, SnapshotError};

/// What is known before writes are held. Nothing else is merged as long as it is there.
#[derive(Debug)]
pub struct Settling<'a> {
    volume: String,
    upper: LayerId,
    /// No more than this is copied while writes are held.
    most_bytes: u64,
    /// What is below it, which takes it in.
    target: Arc<Top>,
    _merging: Merges<'a>,
    _reading: Reading,
}

/// Nobody else merges layers.
#[derive(Debug)]
struct Merges<'a>(&'a Tree);

impl Drop for Merges<'_> {
    fn drop(&mut self) {
        self.0.lock().merge = Merging::Nothing;
    }
}

impl Tree {
    /// Whether what is below the last layer of a volume is needed for that alone: then it takes in what is written so far, by
    /// [`Tree::settle`] if that is little, and else by [`Tree::tidy`], once a new layer has begun ([`Tree::take`] without a name).
    #[must_use]
    pub fn is_foldable(&self, volume: &str) -> bool {
        below(&self.lock().catalogue, volume).is_some()
    }

    /// Does all for [`Tree::settle`] that can be done while writes go on. `None`: what is below the last layer is needed for itself, or
    /// more than `most_bytes` were written, which would be copied while writes are held.
    ///
    /// # Errors
    /// When the volume is not open, or the layer cannot be read. [`SnapshotError::Unsettled`]: see [`Tree::is_unsettled`].
    pub fn prepare_settle(
        &self,
        volume: &str,
        most_bytes: u64,
        perform: Perform<'_>,
    ) -> Result<Option<Settling<'_>>, SnapshotError> {
        let (reading, (store, places)) = self.begin_reading(|state| {
            self.make_certain(state)?;
            let store = state.open(volume)?;
            let Some((lower, upper)) = below(&state.catalogue, volume) else { return Ok((store, None)) };
            if state.has_lost(volume)? {
                return Err(SnapshotError::Unsettled);
            }
            if is_much(&store.written(), most_bytes) {
                return Ok((store, None));
            }
            // One that was begun has read of layers that are to be written again.
            if let Merging::Busy = std::mem::replace(&mut state.merge, Merging::Busy) {
                return Err(SnapshotError::Busy);
            }
            Ok((store, Some((lower, upper, Merges(self)))))
        })?;
        let Some((lower, upper, merging)) = places else { return Ok(None) };
        let target = self.target(lower, &store.losses(), perform)?;
        // Writes do not wait for that.
        make_as_long(&target.source, self.source(upper, perform)?.length_bytes(), perform)?;
        let volume = volume.to_owned();
        Ok(Some(Settling { volume, upper, most_bytes, target, _merging: merging, _reading: reading }))
    }

    /// Puts the last layer of a volume, whose writes are held, into the one below it. What is left may be the base alone: the volume is
    /// then in its own store, as if there had been no layers. If the hold is given back while what is below takes its time, nothing has
    /// changed. Others of the family do not wait for that. What `admit` gives lives until the end; it is asked when all is copied, and refuses
    /// where something else is to be done first.
    ///
    /// # Errors
    /// When a layer fails, or much was written meanwhile: then nothing has changed.
    pub fn settle<T>(
        &self,
        settling: Settling<'_>,
        hold: &Hold,
        admit: impl FnOnce() -> Result<T, SnapshotError>,
        perform: Perform<'_>,
    ) -> Result<(), SnapshotError> {
        hold.wait();
        let Settling { volume, upper, target, .. } = &settling;
        let lower = target.source.id;
        let (from, block_bytes) = {
            let state = &mut *self.lock();
            let store = settling.check(state, hold)?;
            renew(&store, perform)?;
            if state.has_lost(volume)? {
                return Err(SnapshotError::Unsettled);
            }
            (state.source(*upper)?, state.catalogue.block_bytes)
        };
        // Nobody looks there for a block that the upper one has, and nobody else merges.
        let mut merge = Merge::begin(Arc::clone(target), Arc::clone(&from), block_bytes, perform)?;
        // What is below all layers is as stable as it was. It may be far away, and is asked only if it must be.
        if lower != LayerId::BASE || !merge.is_copied() {
            merge.copy(perform)?;
        }
        if !merge.is_copied() {
            return Err(merge.no_room());
        }
        let _admitted = admit()?;
        let state = &mut *self.lock();
        let store = settling.check(state, hold)?;
        let _length = store.0.resizing();
        if target.source.length_bytes() < from.length_bytes() {
            // It has grown meanwhile.
            return Err(SnapshotError::Busy);
        }
        if state.has_lost(volume)? {
            return Err(SnapshotError::Unsettled);
        }
        hold.decide()?;
        self.commit(state, |catalogue| catalogue.merged(lower, *upper))?;
        store.settle(target);
        self.remove_needless(state)
    }
}

impl Settling<'_> {
    /// The store, if all is as it was when this was prepared, and little was written.
    fn check(&self, state: &State, hold: &Hold) -> Result<SnapshotStore, SnapshotError> {
        let store = state.open(&self.volume)?;
        let held = hold.of(&store)?.clone();
        let is_other = below(&state.catalogue, &self.volume) != Some((self.target.source.id, self.upper));
        if is_other || is_much(&store.written(), self.most_bytes) { Err(SnapshotError::Busy) } else { Ok(held) }
    }
}

/// The last layer of a volume, and the one below it, if nobody needs that for itself: the lower, the upper.
fn below(catalogue: &Catalogue, volume: &str) -> Option<(LayerId, LayerId)> {
    let upper = *catalogue.volumes.get(volume)?;
    let lower = *catalogue.layers.get(&upper)?;
    (catalogue.sole_child(lower) == Some(upper)).then_some((lower, upper))
}

fn is_much(top: &Top, most_bytes: u64) -> bool {
    let block_bytes = top.source.layout.map_or(0, |layout| layout.block_bytes());
    top.map.as_ref().is_some_and(|map| map.has_more_than(most_bytes / u64::from(block_bytes.max(1))))
}
