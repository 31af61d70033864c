//! Putting the last layer of a volume into the one below it, when little was written to it.

use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::family::Merging;
use crate::hold::Hold;
use crate::layer::{Perform, Top};
use crate::merge::{Merge, make_as_long};
use crate::opening::{Reading, renew};
use crate::tree::Tree;
use crate::{LayerId, SnapshotError};

/// No more than this is copied while writes are held.
const HELD_MAX_BYTES: u64 = 16 << 20;

/// What is known before writes are held. Nothing else is merged as long as it is there.
#[derive(Debug)]
pub struct Settling<'a> {
    volume: String,
    upper: LayerId,
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
    /// much was written.
    ///
    /// # Errors
    /// When the volume is not open, or the layer cannot be read. [`SnapshotError::Unsettled`]: see [`Tree::is_unsettled`].
    pub fn prepare_settle(&self, volume: &str, perform: Perform<'_>) -> Result<Option<Settling<'_>>, SnapshotError> {
        let (reading, (store, places)) = self.begin_reading(|state| {
            self.make_certain(state)?;
            let store = state.open(volume)?;
            let Some((lower, upper)) = below(&state.catalogue, volume) else { return Ok((store, None)) };
            if state.has_lost(volume)? {
                return Err(SnapshotError::Unsettled);
            }
            if is_much(&store.written()) {
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
        Ok(Some(Settling { volume: volume.to_owned(), upper, target, _merging: merging, _reading: reading }))
    }

    /// Puts the last layer of a volume, whose writes are held, into the one below it. What is left may be the base alone: the volume is
    /// then in its own store, as if there had been no layers.
    ///
    /// # Errors
    /// When a layer fails, or much was written meanwhile: then nothing has changed.
    pub fn settle(&self, settling: Settling<'_>, hold: &Hold, perform: Perform<'_>) -> Result<(), SnapshotError> {
        hold.wait();
        let Settling { volume, upper, target, .. } = &settling;
        let lower = target.source.id;
        let state = &mut *self.lock();
        let store = state.open(volume)?;
        let store = hold.of(&store)?;
        if below(&state.catalogue, volume) != Some((lower, *upper)) || is_much(&store.written()) {
            return Err(SnapshotError::Busy);
        }
        let _length = store.0.resizing();
        renew(store, perform)?;
        if state.has_lost(volume)? {
            return Err(SnapshotError::Unsettled);
        }
        let from = state.source(*upper)?;
        let mut merge = Merge::begin(Arc::clone(target), from, state.catalogue.block_bytes, perform)?;
        merge.copy(perform)?;
        if !merge.is_copied() {
            return Err(merge.no_room());
        }
        hold.decide()?;
        self.commit(state, |catalogue| catalogue.merged(lower, *upper))?;
        store.settle(target);
        self.remove_needless(state)
    }
}

/// The last layer of a volume, and the one below it, if nobody needs that for itself: the lower, the upper.
fn below(catalogue: &Catalogue, volume: &str) -> Option<(LayerId, LayerId)> {
    let upper = *catalogue.volumes.get(volume)?;
    let lower = *catalogue.layers.get(&upper)?;
    (catalogue.sole_child(lower) == Some(upper)).then_some((lower, upper))
}

fn is_much(top: &Top) -> bool {
    let block_bytes = top.source.layout.map_or(0, |layout| layout.block_bytes());
    top.map.as_ref().is_some_and(|map| map.has_more_than(HELD_MAX_BYTES / u64::from(block_bytes.max(1))))
}
