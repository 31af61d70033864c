//! Tests that the clock judges: shares of a link, processor time, memory in use, the longest operation while a link is cut.
//!
//! On a busy machine such a judgement says more about the machine than about the program, so these run only in `make test-long`,
//! one at a time, where nothing else runs beside them.

mod congestion;
mod idle;
mod links;
mod snapshots;
mod waiting;

use sanwire_testing::tell;

/// How often a measurement is made at the most.
const TRIES: usize = 5;

/// Measures until it is good, at most [`TRIES`] times. What each measurement gave stands in the panic, and where nothing captures it:
/// a judgement that is good once in five times is not hidden.
#[track_caller]
fn try_until(what: &str, mut measure: impl FnMut() -> (String, bool)) {
    let mut tries = Vec::new();
    while tries.len() < TRIES {
        let (verdict, is_good) = measure();
        let word = if is_good { "good" } else { "not good" };
        tell(&format!("{what}: {word}, try {} of {TRIES}: {verdict}", tries.len() + 1));
        if is_good {
            return;
        }
        tries.push(verdict);
    }
    panic!("{what}:\n{}", tries.join("\n"));
}
