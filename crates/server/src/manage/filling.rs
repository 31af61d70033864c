//! Pools are looked at from time to time, also where nobody asks for them: that they fill up is told, and what could not be deleted is tried again.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::busy::Busy;
use super::handle::Desk;
use super::holding::within;
use super::pools::ask;
use crate::events::EventLog;
use crate::pools::{Pool, PoolStatus, Pools};

/// How long after one look the next one is.
const PAUSE: Duration = Duration::from_secs(30);

/// How long a deletion is waited for. It goes on, and as long as it does nothing else is done to its volume.
const DELETION_MAX: Duration = Duration::from_secs(3);

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
        let known = |desk: &Desk| {
            desk.peek(|manager| {
                let (target, busy) = (&manager.target, manager.busy.clone());
                (target.pools().clone(), target.events().clone(), busy)
            })
        };
        let Some((pools, events, busy)) = desk.upgrade().and_then(|desk| known(&desk)) else { return };
        // What somebody waits for is noted for who does, and a file system that hangs takes no more threads.
        for pool in pools.iter().filter(|pool| !pool.is_asked()) {
            match ask(&pools, pool, Pool::status) {
                Ok(status) => note(&events, pool, &status),
                Err(error) => tracing::debug!("how full a pool is cannot be told: {error}"),
            }
        }
        retry_deletions(&pools, &busy);
        // They are locked as long as somebody has them.
        drop(pools);
        thread::sleep(PAUSE);
    }
}

/// Tries once more to delete what is left of snapshots, but of volumes to which something else is done.
pub(super) fn retry_deletions(pools: &Pools, busy: &Busy) {
    for pool in pools.iter() {
        for volume in pool.with_begun_deletions() {
            let Ok(hold) = busy.hold_for_snapshot(&volume, "losing a snapshot") else { continue };
            let of_pool = Arc::clone(pool);
            let work = move || {
                let _hold = hold;
                let name = of_pool.name();
                match of_pool.end_deletions(&volume) {
                    Ok(()) => tracing::info!("pool {name}: what was left of snapshots of {volume} is deleted"),
                    Err(error) => tracing::debug!("{error}; it is tried again"),
                }
            };
            let _ = within(DELETION_MAX, work, drop);
        }
    }
}
