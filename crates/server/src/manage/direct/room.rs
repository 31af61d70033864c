//! The room that the snapshot of a copy takes in its pool: whatever is written to the volume meanwhile. Who only owns a volume fills no pool so
//! that belongs to others, too, however slow the copy is.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Stop;
use crate::manage::holding::within;
use crate::pools::Pool;

/// How much of the file system of a pool may be taken while a copy of an owner keeps a snapshot there: the last step that is told of pools
/// that fill up.
const TAKEN_MAX_PERCENT: u8 = 95;

/// How often it is looked, and how long that may take: the copy waits for it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Looks at the pool of a snapshot, from which a volume is copied for its owner.
pub(super) struct RoomWatch {
    pool: Arc<Pool>,
    volume: String,
    looked_at: Cell<Option<Instant>>,
}

impl RoomWatch {
    pub(super) fn new(pool: Arc<Pool>, volume: &str) -> Self {
        RoomWatch { pool, volume: volume.to_owned(), looked_at: Cell::new(None) }
    }

    /// # Errors
    /// [`Stop::NoRoom`] when the snapshot is to go.
    pub(super) fn check(&self) -> Result<(), Stop> {
        if self.looked_at.get().is_some_and(|at| at.elapsed() < LOOK_INTERVAL) {
            return Ok(());
        }
        let percent = self.percent_taken();
        self.looked_at.set(Some(Instant::now()));
        let Some(percent) = percent.filter(|percent| *percent >= TAKEN_MAX_PERCENT) else { return Ok(()) };
        let (pool, volume) = (self.pool.name(), &self.volume);
        tracing::warn!(
            "the copy of volume {volume} for its owner ends: {percent} % of the file system of pool {pool} are taken"
        );
        Err(Stop::NoRoom(format!(
            "{percent} % of the file system of its pool are taken, and an owner's copy keeps a snapshot there only below {TAKEN_MAX_PERCENT} %: \
             have room made there, or copy through another host (`cp --no-direct`)"
        )))
    }

    /// `None`: its file system does not tell. What does not answer takes nothing that is written, either.
    fn percent_taken(&self) -> Option<u8> {
        let (asking, pool) = (self.pool.begin_to_ask()?, Arc::clone(&self.pool));
        let look = move || {
            let _asking = asking;
            pool.percent_taken().inspect_err(|error| tracing::debug!("{error}")).ok()
        };
        within(LOOK_MAX, look, drop).flatten()
    }
}
