//! The room that volumes have in a pool: how long they are, written or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Pool, PoolError};

/// How long the volumes of a pool are.
#[derive(Default, Debug)]
pub(super) struct Lengths {
    volumes: BTreeMap<String, u64>,
    total_bytes: u64,
}

impl Lengths {
    pub(super) fn of(&self, volume: &str) -> Option<u64> {
        self.volumes.get(volume).copied()
    }

    pub(super) fn count(&self) -> usize {
        self.volumes.len()
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether a volume can have this length.
    fn check(&self, pool: &Pool, volume: &str, size_bytes: u64) -> Result<(), PoolError> {
        let others_bytes = self.total_bytes - self.of(volume).unwrap_or(0);
        match pool.limit_bytes() {
            Some(limit_bytes) if others_bytes.saturating_add(size_bytes) > limit_bytes => Err(PoolError::Full {
                pool: pool.name().to_owned(),
                volume: volume.to_owned(),
                limit_bytes,
                others_bytes,
                largest_bytes: limit_bytes.saturating_sub(others_bytes),
            }),
            _ => Ok(()),
        }
    }

    /// A volume has this length, or is not there; gives what it had.
    pub(super) fn set(&mut self, volume: &str, length_bytes: Option<u64>) -> Option<u64> {
        let before = match length_bytes {
            Some(length_bytes) => self.volumes.insert(volume.to_owned(), length_bytes),
            None => self.volumes.remove(volume),
        };
        self.total_bytes =
            self.total_bytes.saturating_sub(before.unwrap_or(0)).saturating_add(length_bytes.unwrap_or(0));
        before
    }
}

/// The room of a volume that is about to be there, or longer; given back unless it is settled.
#[must_use]
pub(crate) struct Room {
    pool: Arc<Pool>,
    volume: String,
    before: Option<u64>,
    is_settled: bool,
}

impl Pool {
    /// Whether a volume that has no room yet can have so much.
    pub(super) fn check_limit(&self, volume: &str, size_bytes: u64) -> Result<(), PoolError> {
        self.lengths().check(self, volume, size_bytes)
    }
}

impl Room {
    /// Takes it, if there is so much. What a volume has already is not questioned.
    pub(super) fn take(pool: &Arc<Pool>, volume: &str, size_bytes: u64) -> Result<Room, PoolError> {
        let mut lengths = pool.lengths();
        let has_bytes = lengths.of(volume);
        if size_bytes > has_bytes.unwrap_or(0) {
            lengths.check(pool, volume, size_bytes)?;
        }
        let before = lengths.set(volume, Some(size_bytes.max(has_bytes.unwrap_or(0))));
        drop(lengths);
        Ok(Room { pool: Arc::clone(pool), volume: volume.to_owned(), before, is_settled: false })
    }

    /// The volume is there, and so long.
    pub(crate) fn settle(mut self, length_bytes: u64) {
        self.is_settled = true;
        self.pool.lengths().set(&self.volume, Some(length_bytes));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.is_settled {
            // What was made for it and stays is there.
            let made_bytes = || self.pool.path_of(&self.volume).metadata().ok().map(|file| file.len());
            let length_bytes = self.before.or_else(made_bytes);
            self.pool.lengths().set(&self.volume, length_bytes);
        }
    }
}
