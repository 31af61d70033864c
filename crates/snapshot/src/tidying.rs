//! Giving back what nobody needs any more: layers without a name are merged, or removed.

use std::sync::Arc;

use crate::family::{Merging, State};
use crate::layer::{Perform, Top};
use crate::losses::Losses;
use crate::map::Map;
use crate::merge::{Merge, Progress};
use crate::tree::{Hold, Tree};
use crate::{LayerId, SnapshotError};

impl Tree {
    /// Does a part of what is to be done after snapshots were forgotten, volumes rolled back or removed: some 64 MiB are copied at the
    /// most. Gives how far the merge is; `None`: nothing is left to do. What was broken off, by a crash too, goes on when it is asked again.
    ///
    /// # Errors
    /// When a layer fails; or [`SnapshotError::Busy`], while somebody else is at it.
    pub fn tidy(&self, perform: Perform<'_>) -> Result<Option<Progress>, SnapshotError> {
        let mut merge = {
            let state = &mut *self.lock();
            self.make_certain(state)?;
            self.remove_needless(state)?;
            match std::mem::replace(&mut state.merge, Merging::Busy) {
                Merging::Busy => return Err(SnapshotError::Busy),
                Merging::Begun(merge) if state.is_to_be(&merge) => merge,
                _ => {
                    state.merge = Merging::Nothing;
                    let Some((lower, upper)) = state.catalogue.mergeable() else { return Ok(None) };
                    let merge = state.begin_merge(lower, upper, &Arc::default(), perform)?;
                    state.merge = Merging::Busy;
                    merge
                }
            }
        };
        // The volumes go on, and so may all else that is asked of the family.
        let stepped = merge.step(perform);
        let state = &mut *self.lock();
        state.merge = Merging::Nothing;
        let progress = merge.progress();
        match stepped {
            Ok(true) if state.is_to_be(&merge) => {
                let (lower, upper) = (merge.lower, merge.upper);
                self.commit(state, |catalogue| catalogue.merged(lower, upper))?;
                let source = state.source(lower)?;
                state.volumes.values().for_each(|store| store.redirect(upper, &source));
                self.remove_needless(state)?;
            }
            Ok(true) => {}
            Ok(false) => state.merge = Merging::Begun(merge),
            // What was copied may be lost: it begins anew.
            Err(error) => return Err(error),
        }
        Ok(Some(progress))
    }

    /// Whether [`Tree::tidy`] has something to do.
    #[must_use]
    pub fn is_untidy(&self) -> bool {
        let state = self.lock();
        let catalogue = &state.catalogue;
        state.is_doubtful
            || !catalogue.doomed.is_empty()
            || catalogue.mergeable().is_some()
            || !catalogue.needless().is_empty()
    }

    /// Whether nobody knows what stands on the shelf: volumes may take no writes before [`Tree::tidy`] has ended well.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.lock().is_doubtful
    }

    /// Whether what is below the last layer of a volume is needed for that alone: then it takes in what is written so far, once a new
    /// layer has begun ([`Tree::take`] without a name) and [`Tree::tidy`] is asked.
    #[must_use]
    pub fn is_foldable(&self, volume: &str) -> bool {
        let state = self.lock();
        let top = state.catalogue.volumes.get(volume).copied();
        let below = top.and_then(|top| state.catalogue.layers.get(&top).copied());
        below.is_some_and(|below| state.catalogue.sole_child(below) == top)
    }

    /// Puts the last layer of a volume, whose writes are held, into the one below it, if nobody needs that for itself; gives whether that
    /// was so. It takes as long as what was written to the last layer. What is left may be the base alone: the volume is then in its own
    /// store, as if there had been no layers.
    ///
    /// # Errors
    /// When a layer fails: then nothing has changed.
    pub fn settle(&self, volume: &str, hold: &Hold, perform: Perform<'_>) -> Result<bool, SnapshotError> {
        let state = &mut *self.lock();
        self.make_certain(state)?;
        let upper = state.catalogue.top(volume)?;
        let Some(lower) = state.catalogue.layers.get(&upper).copied() else { return Ok(false) };
        if state.catalogue.sole_child(lower) != Some(upper) {
            return Ok(false);
        }
        let store = hold.of(&state.open(volume)?)?;
        // A merge that was begun has read of layers that are now written again.
        match std::mem::take(&mut state.merge) {
            Merging::Busy => {
                state.merge = Merging::Busy;
                return Err(SnapshotError::Busy);
            }
            _ => hold.wait(),
        }
        let _length = store.0.resizing();
        state.settle_losses(volume, store, perform)?;
        let mut merge = state.begin_merge(lower, upper, &store.losses(), perform)?;
        while !merge.step(perform)? {}
        self.commit(state, |catalogue| catalogue.merged(lower, upper))?;
        store.settle(&merge.target);
        self.remove_needless(state)?;
        Ok(true)
    }

    /// Removes layers that nobody needs. One that cannot be removed is tried again later.
    fn remove_needless(&self, state: &mut State) -> Result<(), SnapshotError> {
        if !state.catalogue.needless().is_empty() {
            self.commit(state, |catalogue| catalogue.doom())?;
        }
        let State { catalogue, sources, prepared, .. } = state;
        let removed = |layer: &LayerId| {
            prepared.contains(layer) || {
                sources.remove(layer);
                self.shelf.remove(*layer).is_err()
            }
        };
        // The catalogue that is kept still has them, until it is kept again: they are looked for once more then.
        catalogue.doomed.retain(removed);
        Ok(())
    }
}

impl State {
    /// Whether the two layers of a merge are still to become one.
    fn is_to_be(&self, merge: &Merge) -> bool {
        self.catalogue.sole_child(merge.lower) == Some(merge.upper) && !self.catalogue.is_top(merge.upper)
    }

    /// Begins to put a layer into another one; into itself, what it has is written once more.
    pub(crate) fn begin_merge(
        &self,
        lower: LayerId,
        upper: LayerId,
        losses: &Arc<Losses>,
        perform: Perform<'_>,
    ) -> Result<Merge, SnapshotError> {
        let (lower, upper) = (self.source(lower)?, self.source(upper)?);
        let mut groups = Vec::new();
        lower.read_maps(perform, |group, bits| groups.push((group, bits)))?;
        let map = lower.layout.is_some().then(|| Map::new(groups));
        Merge::begin(Top::new(Arc::clone(&lower), map, losses), upper, self.catalogue.block_bytes, perform)
    }
}
