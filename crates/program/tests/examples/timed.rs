//! What a call costs. The clock judges it, so it runs by itself only: `cargo test -p sanwire-program --test examples -- --ignored timed::`.

use std::sync::Arc;
use std::time::Instant;

use crate::commands::{Answer, Asked, judgement, load, write};
use crate::compilers::module;

const CALLS: u32 = 200_000;

/// The least of several rounds: what others do on this machine is none of the program's costs.
fn ns_per_call(source: &str, asked: impl Fn(u32) -> Asked) -> u128 {
    let program = load(&module(source).unwrap(), &Arc::default());
    let round = |_| {
        let asked: Vec<Asked> = (0..16).map(&asked).collect();
        let started = Instant::now();
        (0..CALLS)
            .for_each(|number| assert_ne!(judgement(&program, &asked[number as usize % 16]).0, Answer::Deferred(0)));
        started.elapsed().as_nanos() / u128::from(CALLS)
    };
    (0..20).map(round).min().unwrap_or(u128::MAX)
}

#[test]
#[ignore = "the clock judges it"]
fn a_filter_of_a_dozen_instructions_costs_little() {
    let hour = ns_per_call("read_only_by_hour.wat", |number| write(number.into(), 8));
    let writer = ns_per_call("one_writer.wat", |_| write(0, 8));
    sanwire_testing::tell(&format!("read_only_by_hour: {hour} ns, one_writer: {writer} ns for each command"));
    // A third of that is usual where nothing else runs.
    assert!(hour.max(writer) < 330, "{hour} ns, {writer} ns");
}
