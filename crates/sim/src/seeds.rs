//! Runs many seeds, and says how to run one of them again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::random::Random;
use crate::world::Outcome;

/// Runs `run` with so many seeds, on all processors; `SANWIRE_SEED` replaces them by one, `SANWIRE_SEEDS` sets their
/// number, `SANWIRE_TIMES` multiplies it: worlds that take long have fewer seeds.
///
/// # Panics
/// When a seed fails; the message says how to run it again.
pub fn run_seeds(test: &str, seeds: u64, run: impl Fn(u64) -> Outcome<()> + Sync) {
    if let Some(seed) = number("SANWIRE_SEED") {
        run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        return;
    }
    let seeds = count(seeds, number);
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let failure: Mutex<Option<(u64, String)>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
                    let what = match outcome {
                        Ok(Ok(())) => continue,
                        Ok(Err(what)) => what,
                        Err(_) => "panicked (see above)".to_owned(),
                    };
                    failed.store(true, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert((seed, what));
                    }
                }
            });
        }
    });
    if let Ok(Some((seed, what))) = failure.into_inner() {
        panic!("seed {seed}: {what}\nrun it again: SANWIRE_SEED={seed} cargo test -p sanwire-sim {test}");
    }
}

/// How many seeds are run of a test that runs so many of itself.
fn count(seeds: u64, number: impl Fn(&str) -> Option<u64>) -> u64 {
    number("SANWIRE_SEEDS").unwrap_or_else(|| seeds.saturating_mul(number("SANWIRE_TIMES").unwrap_or(1)))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A generator for drawing a plan, apart from the world's own.
#[must_use]
pub fn plan_random(theme: u64, seed: u64) -> Random {
    Random::new(seed.wrapping_mul(31).wrapping_add(theme << 48))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_more_seeds_of_each_test_by_what_one_of_them_takes() {
        let long = |variable: &str| (variable == "SANWIRE_TIMES").then_some(20);
        assert_eq!([12, 2500].map(|seeds| count(seeds, long)), [240, 50_000]);
        assert_eq!([12, 2500].map(|seeds| count(seeds, |_| None)), [12, 2500]);
        assert_eq!(count(12, |variable| (variable == "SANWIRE_SEEDS").then_some(7)), 7);
    }
}
