//! A thousand snapshots of one volume: the last ones take hardly longer than the first ones, and their list is quick.

use std::time::Duration;

use sanwire_testing::tell;

use crate::many_snapshots::{by_layers, by_reflink};

const MANY: usize = 1000;

/// A list of all of them, page by page.
const LISTED_WITHIN: Duration = Duration::from_secs(1);

/// How many times longer the last tenth of a run may take than its first one: what is kept of all is written with each.
const LONGER_MAX: u32 = 5;

/// The durations of the tenths of both runs, and of the list.
fn judge((times, listing): (Vec<Duration>, Duration)) {
    tell(&format!("{MANY} snapshots: {times:.2?}, their list {listing:.2?}"));
    let [first, last] = [times.first(), times.last()].map(|time| *time.expect("a time"));
    assert!(last < LONGER_MAX * first, "the first ones took {first:?}, the last ones {last:?}");
    assert!(listing < LISTED_WITHIN, "a list of all took {listing:?}");
}

#[test]
#[ignore = "judged by the clock"]
fn a_thousand_snapshots_by_layers_take_no_longer_each_than_the_first() {
    by_layers("a_thousand_snapshots_by_layers_take_no_longer_each_than_the_first", MANY).into_iter().for_each(judge);
}

#[test]
#[ignore = "judged by the clock"]
fn a_thousand_snapshots_by_reflink_take_no_longer_each_than_the_first() {
    by_reflink("a_thousand_snapshots_by_reflink_take_no_longer_each_than_the_first", MANY).into_iter().for_each(judge);
}
