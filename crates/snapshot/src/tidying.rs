//! Giving back what nobody needs any more: layers without a name are merged, or removed.

use std::sync::Arc;

use crate::family::{Merging, State};
use crate::layer::{Perform, Top};
use crate::losses::Losses;
use crate::map::Map;
use crate::merge::{Merge, Progress};
use crate::tree::Tree;
use crate::{LayerId, SnapshotError};

impl Tree {
    /// Does a part of what is to be done after snapshots were forgotten, volumes rolled back or removed, or a flush has failed: some 64 MiB
    /// are copied at the most. Gives how far the merge is; `None`: nothing is left to do. What was broken off, by a crash too, goes on when
    /// it is asked again.
    ///
    /// # Errors
    /// When a layer fails: one that cannot be opened or read is left alone from then on, until something else is forgotten.
    /// [`SnapshotError::NoRoom`]: there is no space, for now. [`SnapshotError::Busy`]: somebody else is at it, or reads layers.
    pub fn tidy(&self, perform: Perform<'_>) -> Result<Option<Progress>, SnapshotError> {
        let Some(mut merge) = self.next_merge(perform)? else { return Ok(None) };
        let stepped = self.step(&mut merge, perform);
        let state = &mut *self.lock();
        state.merge = Merging::Nothing;
        let progress = merge.progress();
        match stepped {
            Ok(true) if state.is_to_be(&merge) && state.is_read() => {
                state.merge = Merging::Begun(merge);
                return Err(SnapshotError::Busy);
            }
            Ok(true) if state.is_to_be(&merge) => self.end_merge(state, &merge)?,
            Ok(true) => {}
            Ok(false) => state.merge = Merging::Begun(merge),
            Err(error @ (SnapshotError::NoRoom { .. } | SnapshotError::Busy)) => {
                state.merge = Merging::Begun(merge);
                return Err(error);
            }
            // What was copied may be lost: it begins anew.
            Err(error) => {
                state.leave_alone(&error);
                return Err(error);
            }
        }
        Ok(Some(progress))
    }

    /// The merge that goes on, or is to begin.
    fn next_merge(&self, perform: Perform<'_>) -> Result<Option<Merge>, SnapshotError> {
        let (lower, upper) = {
            let state = &mut *self.lock();
            self.make_certain(state)?;
            self.remove_needless(state)?;
            match std::mem::replace(&mut state.merge, Merging::Busy) {
                Merging::Busy => return Err(SnapshotError::Busy),
                Merging::Begun(merge) if state.is_to_be(&merge) => return Ok(Some(merge)),
                _ => {}
            }
            let Some(next) = state.next_to_merge() else {
                state.merge = Merging::Nothing;
                return Ok(None);
            };
            next
        };
        let begun = self.begin_merge((lower, upper), perform);
        if let Err(error) = &begun {
            let state = &mut *self.lock();
            state.merge = Merging::Nothing;
            state.leave_alone(error);
        }
        begun.map(Some)
    }

    fn begin_merge(&self, (lower, upper): (LayerId, LayerId), perform: Perform<'_>) -> Result<Merge, SnapshotError> {
        let from = self.source(upper, perform)?;
        let target = self.target(lower, &Arc::default(), perform)?;
        let block_bytes = self.lock().catalogue.block_bytes;
        let merge = Merge::begin(target, from, block_bytes, perform)?;
        if lower == LayerId::BASE {
            self.keep_base_length()?;
        }
        Ok(merge)
    }

    /// What is moved to the base is found there also after a crash: it is known to be so long before anything is.
    fn keep_base_length(&self) -> Result<(), SnapshotError> {
        let state = &mut *self.lock();
        let (has, known) = (state.base.seal(), state.catalogue.seals.get(&LayerId::BASE).copied());
        if known.is_some_and(|known| known != has) { self.commit(state, |_| ()) } else { Ok(()) }
    }

    /// A layer into which another one is put.
    pub(crate) fn target(
        &self,
        layer: LayerId,
        losses: &Arc<Losses>,
        perform: Perform<'_>,
    ) -> Result<Arc<Top>, SnapshotError> {
        let source = self.source(layer, perform)?;
        let mut groups = Vec::new();
        source.read_maps(perform, |group, bits| groups.push((group, bits)))?;
        let map = source.layout.is_some().then(|| Map::new(groups));
        Ok(Top::new(source, map, losses))
    }

    fn end_merge(&self, state: &mut State, merge: &Merge) -> Result<(), SnapshotError> {
        let (lower, upper) = (merge.lower, merge.upper);
        if lower == upper {
            state.lost.remove(&upper);
            return Ok(());
        }
        self.commit(state, |catalogue| catalogue.merged(lower, upper))?;
        state.volumes.values().for_each(|store| store.redirect(upper, &merge.target.source));
        self.remove_needless(state)
    }

    /// Whether [`Tree::tidy`] has something to do.
    #[must_use]
    pub fn is_untidy(&self) -> bool {
        let state = self.lock();
        let catalogue = &state.catalogue;
        let is_clean = catalogue.doomed.is_empty() && catalogue.needless().is_empty();
        state.is_doubtful || !is_clean || state.next_to_merge().is_some()
    }

    /// Whether nobody knows what stands on the shelf: volumes may take no writes before [`Tree::tidy`] has ended well.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.lock().is_doubtful
    }

    /// Removes layers that nobody needs. One that cannot be removed is tried again later.
    pub(crate) fn remove_needless(&self, state: &mut State) -> Result<(), SnapshotError> {
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
        Arc::make_mut(catalogue).doomed.retain(removed);
        self.tell(state);
        Ok(())
    }
}

impl State {
    /// Whether the two layers of a merge are still to become one.
    pub(crate) fn is_to_be(&self, merge: &Merge) -> bool {
        match merge.lower == merge.upper {
            true => self.is_to_be_settled(merge.upper),
            false => self.catalogue.sole_child(merge.lower) == Some(merge.upper) && !self.catalogue.is_top(merge.upper),
        }
    }

    /// Whether something of a layer that is not written any more may be lost.
    fn is_to_be_settled(&self, layer: LayerId) -> bool {
        let is_written = self.catalogue.is_top(layer) || !self.catalogue.layers.contains_key(&layer);
        !is_written && self.lost.contains_key(&layer)
    }

    /// First what may be lost is written once more. Then what gives back space soonest: the smallest upper layer.
    fn next_to_merge(&self) -> Option<(LayerId, LayerId)> {
        let is_usable = |layer: &LayerId| !self.unusable.contains(layer);
        let lost = self.lost.keys().filter(|layer| is_usable(layer) && self.is_to_be_settled(**layer));
        let used_bytes = |upper: &LayerId| self.sources.get(upper).and_then(|source| source.used_bytes());
        let usable =
            self.catalogue.mergeable().into_iter().filter(|(lower, upper)| is_usable(lower) && is_usable(upper));
        let smallest = || usable.min_by_key(|(_, upper)| used_bytes(upper).unwrap_or(u64::MAX));
        lost.map(|layer| (*layer, *layer)).next().or_else(smallest)
    }

    /// A layer that cannot be used keeps none but those from merging that have to do with it.
    fn leave_alone(&mut self, error: &SnapshotError) {
        match error {
            SnapshotError::Open { layer, .. }
            | SnapshotError::Damaged { layer, .. }
            | SnapshotError::Missing { layer } => _ = self.unusable.insert(*layer),
            SnapshotError::Store { layer, source } if source.kind == sanwire_store::ErrorKind::Unreadable => {
                self.unusable.insert(*layer);
            }
            _ => {}
        }
    }
}
