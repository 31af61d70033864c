//! Pools are looked at from time to time, also where nobody asks for them: that they fill up is told.

use std::sync::Weak;
use std::thread;
use std::time::Duration;

use super::handle::Desk;
use super::pools::ask;
use crate::events::EventLog;
use crate::pools::{Pool, PoolStatus};

/// How long after one look the next one is.
const PAUSE: Duration = Duration::from_secs(30);

/// Tells whether a pool that was just asked how it is has filled up since it was asked before.
pub(super) fn note(events: &EventLog, pool: &Pool, status: &PoolStatus) {
    for filled in pool.filled(status) {
        tracing::warn!("{filled}");
        events.note(filled);
    }
}

/// Looks at all pools until the server ends.
pub(super) fn watch(desk: &Weak<Desk>) {
    loop {
        let known =
            |desk: &Desk| desk.peek(|manager| (manager.target.pools().clone(), manager.target.events().clone()));
        let Some((pools, events)) = desk.upgrade().and_then(|desk| known(&desk)) else { return };
        // What somebody waits for is noted for who does, and a file system that hangs takes no more threads.
        for pool in pools.iter().filter(|pool| !pool.is_asked()) {
            match ask(&pools, pool, Pool::status) {
                Ok(status) => note(&events, pool, &status),
                Err(error) => tracing::debug!("how full a pool is cannot be told: {error}"),
            }
        }
        // They are locked as long as somebody has them.
        drop(pools);
        thread::sleep(PAUSE);
    }
}
