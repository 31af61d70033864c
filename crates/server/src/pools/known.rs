//! Which pools a server has used: what their directories say who they are, and which of them it does not have now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::PoolError;
use crate::kept::StateFile;

/// Pools of before, and of now.
#[derive(Default, Debug)]
pub(super) struct Known {
    file: Option<StateFile>,
    state: Mutex<State>,
}

#[derive(Clone, Default, Debug)]
struct State {
    /// The identities that stand in their directories, by their names.
    ids: BTreeMap<String, String>,
    /// Those that are not configured: a volume that names no pool may be in one of these.
    absent: BTreeSet<String>,
}

impl Known {
    /// Those of this file. Without one, nothing is remembered.
    pub(super) fn open(file: Option<&StateFile>) -> Result<Known, PoolError> {
        let ids = file.map(StateFile::load).transpose()?.flatten().unwrap_or_default();
        Ok(Known { file: file.cloned(), state: Mutex::new(State { ids, absent: BTreeSet::new() }) })
    }

    /// Who a pool was.
    pub(super) fn id_of(&self, name: &str) -> Option<String> {
        self.lock().ids.get(name).cloned()
    }

    /// These are there, and no others.
    pub(super) fn note(&self, pools: impl Iterator<Item = (String, String)>) {
        let mut state = self.lock();
        let (before, pools) = (state.ids.clone(), pools.collect::<BTreeMap<_, _>>());
        state.absent = before.keys().filter(|name| !pools.contains_key(*name)).cloned().collect();
        state.ids.extend(pools);
        for name in &state.absent {
            tracing::warn!(
                "pool {name} was configured before and is not any more: volumes that name no pool may be there, so none of them is made anew. \
                 If it is gone for good: sanwire ctl forget-pool {name}"
            );
        }
        if let Some(file) = self.file.as_ref().filter(|_| state.ids != before)
            && let Err(error) = file.save(&state.ids)
        {
            tracing::warn!("{} cannot be written: {error}; pools are not known again", file.path().display());
        }
    }

    /// Refuses a new volume that may be in a pool which is not there.
    pub(super) fn check_all_there(&self, volume: &str) -> Result<(), PoolError> {
        let absent = &self.lock().absent;
        match absent.is_empty() {
            true => Ok(()),
            false => Err(PoolError::Absent { volume: volume.to_owned(), pools: absent.iter().cloned().collect() }),
        }
    }

    /// Nothing is known of one that is not there.
    pub(super) fn forget(&self, name: &str) -> Result<(), PoolError> {
        let mut state = self.lock();
        let mut left = state.clone();
        if !left.absent.remove(name) {
            return Err(PoolError::Unknown(name.to_owned()));
        }
        left.ids.remove(name);
        let kept = self.file.as_ref().map_or(Ok(()), |file| file.save(&left.ids));
        kept.map_err(|source| PoolError::NotForgotten { pool: name.to_owned(), source })?;
        *state = left;
        Ok(())
    }

    /// Whether one is known that is not there.
    pub(super) fn is_absent(&self, name: &str) -> bool {
        self.lock().absent.contains(name)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
