//! What a snapshot or a rollback does while nothing else is done to its volumes: without the manager.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sanwire_device::{LogicalUnit, WriteHold};

use super::busy::Hold;
use super::holding::{Served, hold_writes, within};
use crate::pools::{Pool, PoolError, SnapshotId};

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
}

/// Makes stable what was written to these volumes, as far as they are not written to meanwhile.
fn sync(contents: Vec<Content>, hold: &Arc<Hold>) -> Result<(), PoolError> {
    let silent = contents.first().map(|content| content.volume.clone()).unwrap_or_default();
    let hold = Arc::clone(hold);
    let work = move || {
        // As long as this hangs, nothing else is done to the volume.
        let _hold = hold;
        contents.iter().try_for_each(|Content { volume, pool, .. }| pool.flush(volume))
    };
    within(SYNC_TIMEOUT, work, drop).unwrap_or(Err(PoolError::Silent(silent)))
}

/// Takes what volumes hold. What has not ended in time is no snapshot, and goes when it ends.
fn capture(taken: &[(Content, SnapshotId)], hold: &Arc<Hold>) -> Result<(), PoolError> {
    let silent = taken.first().map(|(content, _)| content.volume.clone()).unwrap_or_default();
    let (work, late, hold) = (taken.to_vec(), taken.to_vec(), Arc::clone(hold));
    let work = move || work.iter().try_for_each(|(content, id)| content.pool.capture(id));
    let late = move |_| {
        let _hold = hold;
        discard(&late);
    };
    within(CAPTURE_TIMEOUT, work, late).unwrap_or(Err(PoolError::Silent(silent)))
}

fn discard(taken: &[(Content, SnapshotId)]) {
    taken.iter().for_each(|(content, id)| content.pool.discard(std::slice::from_ref(id)));
}

/// Takes snapshots: what volumes have answered for is in them, and when this has ended well, they are stable.
pub(super) fn take(taken: &[(Content, SnapshotId)], protected: bool, hold: &Arc<Hold>) -> Result<(), PoolError> {
    sync(taken.iter().map(|(content, _)| content.clone()).collect(), hold)?;
    let served: Vec<Served> = taken.iter().map(|(content, _)| content.served()).collect();
    let since = Instant::now();
    let held = hold_writes(&served, HOLD_TIMEOUT)?;
    let captured = capture(taken, hold);
    drop(held);
    tracing::debug!("for snapshots of {} volumes writes have waited for {:?}", taken.len(), since.elapsed());
    captured.and_then(|()| commit(taken, protected)).inspect_err(|_| discard(taken))
}

/// Those of a pool all at once.
fn commit(taken: &[(Content, SnapshotId)], protected: bool) -> Result<(), PoolError> {
    let mut left: Vec<&(Content, SnapshotId)> = taken.iter().collect();
    while let Some((first, _)) = left.first() {
        let pool = Arc::clone(&first.pool);
        let (own, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(content, _)| Arc::ptr_eq(&content.pool, &pool));
        pool.commit(&own.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>(), protected)?;
        left = others;
    }
    Ok(())
}

/// A volume that is to hold again what it held.
pub(super) struct Rollback {
    pub(super) content: Content,
    pub(super) id: SnapshotId,
    /// What it holds now becomes this snapshot.
    pub(super) keep: Option<SnapshotId>,
    pub(super) is_forced: bool,
}

impl Rollback {
    /// Does it; gives, when it has begun and could not be ended, what has writes wait.
    pub(super) fn run(
        &self,
        waiting: Option<Vec<WriteHold>>,
        hold: &Arc<Hold>,
    ) -> (Result<(), PoolError>, Option<Vec<WriteHold>>) {
        let held = match waiting {
            Some(waiting) => Ok(waiting),
            None => sync(vec![self.content.clone()], hold)
                .and_then(|()| hold_writes(&[self.content.served()], HOLD_TIMEOUT)),
        };
        let held = match held {
            Ok(held) => held,
            Err(error) => return (Err(error), None),
        };
        if let Err(error) = self.begin(hold) {
            // A rollback that may be noted is brought to its end at the next start: nothing is to be written before.
            let may_be_noted = self.content.pool.is_rolling_back(&self.id.volume);
            return (Err(error), may_be_noted.then_some(held));
        }
        if let Err(error) = self.content.pool.roll_back(&self.id) {
            return (Err(error), Some(held));
        }
        self.content.unit.iter().for_each(|unit| unit.content_replaced(self.is_forced));
        (Ok(()), None)
    }

    fn begin(&self, hold: &Arc<Hold>) -> Result<(), PoolError> {
        let Rollback { content, id, keep, .. } = self;
        let kept: Vec<_> = keep.iter().map(|keep| (content.clone(), keep.clone())).collect();
        if !kept.is_empty() {
            capture(&kept, hold)?;
        }
        content.pool.begin_rollback(id, keep.as_ref()).inspect_err(|_| discard(&kept))
    }
}
