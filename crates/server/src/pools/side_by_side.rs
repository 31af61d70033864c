//! What several files need, none of which needs another one.

use std::panic::resume_unwind;
use std::thread;

use super::PoolError;

/// Things that are done at a time, at the most.
const SIDE_BY_SIDE_MAX: usize = 16;

/// Does something of each, several at a time: disks make what some of them need stable together. The first error, once all have ended.
pub(crate) fn side_by_side<T: Sync>(
    all: &[T],
    work: impl Fn(&T) -> Result<(), PoolError> + Sync,
) -> Result<(), PoolError> {
    let do_some = &|some: &[T]| some.iter().try_for_each(&work);
    let mut parts = all.chunks(all.len().div_ceil(SIDE_BY_SIDE_MAX).max(1));
    let own = parts.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = parts
            .map(|part| {
                (part, thread::Builder::new().name("content".into()).spawn_scoped(scope, move || do_some(part)))
            })
            .collect();
        let mut done = do_some(own);
        for (part, other) in others {
            // Without a thread it is done here.
            let ended =
                other.map_or_else(|_| do_some(part), |other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            done = done.and(ended);
        }
        done
    })
}
