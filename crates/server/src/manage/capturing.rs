//! What a snapshot or a rollback does while nothing else is done to its volumes: without the manager.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sanwire_device::LogicalUnit;

use super::ManageError;
use super::busy::Hold;
use super::holding::{Served, Stuck, hold_writes, within};
use crate::pools::{ContentLock, Pool, PoolError, SnapshotId, side_by_side};
use crate::volumes::flush_volume;

/// How long what was written may take to become stable before writes are held.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);

/// How long writes wait at the most for those before them, and then for what is taken.
const HOLD_TIMEOUT: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(3) };
const CAPTURE_TIMEOUT: Duration = Duration::from_secs(5);

/// The content of a volume in a pool.
#[derive(Clone)]
pub(super) struct Content {
    pub(super) volume: String,
    pub(super) pool: Arc<Pool>,
    /// If it is served.
    pub(super) unit: Option<Arc<LogicalUnit>>,
}

impl Content {
    fn served(&self) -> Served {
        (self.volume.clone(), self.unit.clone())
    }

    /// Makes stable what was written, by the store that is served: what is lost is told to those who have written it, and to nobody in their
    /// place.
    fn flush(&self) -> Result<(), PoolError> {
        let Some(unit) = self.unit.as_ref().filter(|unit| unit.is_volatile()) else { return Ok(()) };
        flush_volume(unit, None, false).map_err(|source| self.pool.failed("flush", &self.volume, source))
    }

    fn prepare(&self, id: &SnapshotId) -> Result<(), PoolError> {
        self.flush().and_then(|()| self.pool.prepare(id))
    }

    /// Has nobody else open the file of a volume that is not served, as long as this lives.
    pub(super) fn lock(&self) -> Result<Option<ContentLock>, PoolError> {
        if self.unit.is_some() { Ok(None) } else { self.pool.lock(&self.volume).map(Some) }
    }
}

/// Makes stable what was written to these volumes, as far as they are not written to meanwhile, and begins what is to be taken of them.
fn prepare(taken: &[(Content, SnapshotId)], hold: &Arc<Hold>) -> Result<(), PoolError> {
    let silent = taken.first().map(|(content, _)| content.volume.clone()).unwrap_or_default();
    let (work, late, hold) = (taken.to_vec(), taken.to_vec(), Arc::clone(hold));
    let work = move || side_by_side(&work, |(content, id)| content.prepare(id)).inspect_err(|_| discard(&work));
    // As long as this hangs, nothing else is done to the volumes.
    let late = move |_| {
        let _hold = hold;
        discard(&late);
    };
    within(SYNC_TIMEOUT, work, late).unwrap_or(Err(PoolError::Silent(silent)))
}

/// The same of one that is to be rolled back: what is to be read for that is read, while it is written.
fn prepare_rollback(content: &Content, id: &SnapshotId, hold: &Arc<Hold>) -> Result<(), PoolError> {
    let (work, late, hold) = ((content.clone(), id.clone()), (content.clone(), id.clone()), Arc::clone(hold));
    let work = move || {
        let (content, id) = &work;
        content.flush()?;
        content.pool.flush(&content.volume)?;
        if content.unit.is_some() { content.pool.prepare_rollback(id) } else { Ok(()) }
    };
    let late = move |_| {
        let _hold = hold;
        late.0.pool.forget_rollback(&late.1);
    };
    within(SYNC_TIMEOUT, work, late).unwrap_or_else(|| Err(PoolError::Silent(content.volume.clone())))
}

/// Takes what volumes hold, or nothing. What has not ended in time is no snapshot, and goes when it ends.
fn capture(taken: &[(Content, SnapshotId)], hold: &Arc<Hold>) -> Result<(), PoolError> {
    let silent = taken.first().map(|(content, _)| content.volume.clone()).unwrap_or_default();
    let (work, late, hold) = (taken.to_vec(), taken.to_vec(), Arc::clone(hold));
    let work = move || side_by_side(&work, |(content, id)| content.pool.capture(id)).inspect_err(|_| discard(&work));
    let late = move |_| {
        let _hold = hold;
        discard(&late);
    };
    within(CAPTURE_TIMEOUT, work, late).unwrap_or_else(|| {
        taken.iter().for_each(|(content, id)| content.pool.give_up(id));
        Err(PoolError::Silent(silent))
    })
}

fn discard(taken: &[(Content, SnapshotId)]) {
    taken.iter().for_each(|(content, id)| content.pool.discard(std::slice::from_ref(id)));
}

/// Takes snapshots: what volumes have answered for is in them, and when this has ended well, they are stable.
pub(super) fn take(taken: &[(Content, SnapshotId)], protected: bool, hold: &Arc<Hold>) -> Result<(), PoolError> {
    take_and(taken, hold, || commit(taken, protected))
}

/// The same of one that is needed for a while.
pub(super) fn take_for_now(taken: &(Content, SnapshotId), hold: &Arc<Hold>) -> Result<(), PoolError> {
    let (content, id) = taken;
    take_and(std::slice::from_ref(taken), hold, || content.pool.commit_for_now(id))
}

/// Takes what volumes hold, and has that become what it is to be.
fn take_and(
    taken: &[(Content, SnapshotId)],
    hold: &Arc<Hold>,
    commit: impl FnOnce() -> Result<(), PoolError>,
) -> Result<(), PoolError> {
    let _locks = taken.iter().map(|(content, _)| content.lock()).collect::<Result<Vec<_>, _>>()?;
    prepare(taken, hold)?;
    let served: Vec<Served> = taken.iter().map(|(content, _)| content.served()).collect();
    let since = Instant::now();
    let held = hold_writes(&served, HOLD_TIMEOUT).inspect_err(|_| discard(taken))?;
    let captured = capture(taken, hold);
    drop(held);
    tracing::debug!("for snapshots of {} volumes writes have waited for {:?}", taken.len(), since.elapsed());
    captured?;
    commit().inspect_err(|_| discard(taken))
}

/// All of them, or none: those of a pool at once, and what was done in other pools is undone when one fails.
fn commit(taken: &[(Content, SnapshotId)], protected: bool) -> Result<(), PoolError> {
    let mut left: Vec<&(Content, SnapshotId)> = taken.iter().collect();
    let mut done = Vec::new();
    while let Some((first, _)) = left.first() {
        let pool = Arc::clone(&first.pool);
        let (own, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(content, _)| Arc::ptr_eq(&content.pool, &pool));
        let ids: Vec<SnapshotId> = own.iter().map(|(_, id)| id.clone()).collect();
        if let Err(error) = pool.commit(&ids, protected) {
            return Err(take_back(&done, error));
        }
        done.push((pool, ids));
        left = others;
    }
    Ok(())
}

/// The error, with the snapshots that could not be taken back.
fn take_back(done: &[(Arc<Pool>, Vec<SnapshotId>)], error: PoolError) -> PoolError {
    let mut left = Vec::new();
    for (pool, id) in done.iter().flat_map(|(pool, ids)| ids.iter().map(move |id| (pool, id))) {
        if let Err(error) = pool.remove_snapshot(id) {
            tracing::error!("{error}");
            left.push(id.to_string());
        }
    }
    if left.is_empty() { error } else { PoolError::HalfTaken { snapshots: left, source: Box::new(error) } }
}

/// Asks whether anybody uses a volume, and refuses then.
pub(super) type UnusedCheck = Box<dyn Fn() -> Result<(), ManageError> + Send>;

/// A volume that is to hold again what it held.
pub(super) struct Rollback {
    pub(super) content: Content,
    pub(super) id: SnapshotId,
    /// What it holds now becomes this snapshot.
    pub(super) keep: Option<SnapshotId>,
    /// Asked again when nobody can write any more: a client that connected meanwhile would lose what was made stable for it.
    pub(super) check_unused: Option<UnusedCheck>,
}

impl Rollback {
    /// Does it; gives, when it has begun and could not be ended, what has writes wait.
    pub(super) fn run(&self, waiting: Option<Stuck>, hold: &Arc<Hold>) -> (Result<(), ManageError>, Option<Stuck>) {
        let done = self.try_to_run(waiting, hold);
        self.content.pool.forget_rollback(&self.id);
        done
    }

    fn try_to_run(&self, waiting: Option<Stuck>, hold: &Arc<Hold>) -> (Result<(), ManageError>, Option<Stuck>) {
        let held = match waiting.map_or_else(|| self.hold(hold), Ok) {
            Ok(held) => held,
            Err(error) => return (Err(error.into()), None),
        };
        let Err(error) = self.replace(hold) else {
            self.content.unit.iter().for_each(|unit| unit.content_replaced());
            held.release();
            return (Ok(()), None);
        };
        // A rollback that may be noted is brought to its end at the next start: nothing is to be written before.
        if self.content.pool.is_rolling_back(&self.id.volume) && !held.is_empty() {
            return (Err(error), Some(held));
        }
        held.release();
        (Err(error), None)
    }

    fn hold(&self, hold: &Arc<Hold>) -> Result<Stuck, PoolError> {
        let kept = self.kept();
        if !kept.is_empty() {
            prepare(&kept, hold)?;
        }
        prepare_rollback(&self.content, &self.id, hold).inspect_err(|_| discard(&kept))?;
        hold_writes(&[self.content.served()], HOLD_TIMEOUT).map(Stuck::new).inspect_err(|_| discard(&kept))
    }

    /// What it holds now, if that becomes a snapshot.
    fn kept(&self) -> Vec<(Content, SnapshotId)> {
        self.keep.iter().map(|keep| (self.content.clone(), keep.clone())).collect()
    }

    fn replace(&self, hold: &Arc<Hold>) -> Result<(), ManageError> {
        let _lock = self.content.lock().inspect_err(|_| discard(&self.kept()))?;
        self.check_unused.as_ref().map_or(Ok(()), |check| check()).inspect_err(|_| discard(&self.kept()))?;
        self.begin(hold)?;
        Ok(self.content.pool.roll_back(&self.id)?)
    }

    fn begin(&self, hold: &Arc<Hold>) -> Result<(), PoolError> {
        let Rollback { content, id, keep, .. } = self;
        let kept = self.kept();
        if !kept.is_empty() {
            capture(&kept, hold)?;
        }
        content.pool.begin_rollback(id, keep.as_ref()).inspect_err(|_| discard(&kept))
    }
}

#[cfg(test)]
mod tests;
