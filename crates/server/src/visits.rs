//! How often something was looked at, or somebody told, counted by this thread in tests: work that grows with the square of what there
//! is shows without a clock.

use std::cell::Cell;

thread_local!(static VISITS: Cell<usize> = const { Cell::new(0) });

/// So many were visited.
pub(crate) fn count(more: usize) {
    VISITS.with(|visits| visits.set(visits.get() + more));
}

/// How many are visited meanwhile.
pub(crate) fn during(work: impl FnOnce()) -> usize {
    let before = VISITS.get();
    work();
    VISITS.get() - before
}
