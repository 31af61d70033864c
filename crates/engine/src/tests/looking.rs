//! What there is to see of commands under way.

use std::time::Duration;

use super::*;
use crate::{Operation, Place, UnderWay, WaitsFor};

#[test]
fn commands_under_way_are_told_oldest_first_with_what_they_wait_for() {
    let mut world = World::new(Patience::default());
    let (mut elsewhere, mut shard) = (world.shard(), world.shard());
    world.begin(&mut elsewhere, Command(ONE, 9), write(7));
    let late = elsewhere.poll_work().unwrap();
    elsewhere.leave(&Selection { by: ONE, which: Which::Own }, None);
    let begun = world.now;
    world.begin(&mut shard, Command(TWO, 1), write(8));
    world.now = begun + Duration::from_millis(30);
    // It would read what is being written by somebody who is gone.
    world.begin(&mut shard, Command(TWO, 2), read(7));
    shard.pause(TWO, true, world.now);
    world.now = begun + Duration::from_millis(50);
    world.begin(&mut shard, Command(TWO, 3), world.test_unit_ready());
    let slot = world.units.slot(Lun::default()).unwrap();
    let now = begun + Duration::from_millis(100);
    let of = |number, operation, lba: Option<u64>, age, waits_for| UnderWay {
        handle: Command(TWO, number),
        operation,
        place: lba.map(|lba_blocks| Place { lba_blocks, blocks: 1 }),
        age: Duration::from_millis(age),
        waits_for,
    };
    let wanted = [
        of(1, Operation::Write, Some(8), 100, WaitsFor::Store),
        of(2, Operation::Read, Some(7), 70, WaitsFor::Others),
        of(3, Operation::Other, None, 50, WaitsFor::Resume),
    ];
    assert_eq!(shard.oldest_under_way(slot, now, 9), wanted);
    assert_eq!(shard.oldest_under_way(slot, now, 1), wanted[..1], "the oldest alone");
    assert!(shard.oldest_under_way(slot + 1, now, 9).is_empty(), "another volume");
    elsewhere.completed(late.id, Ok(Outcome::Done), now);
    shard.retry(now);
    assert_eq!(shard.oldest_under_way(slot, now, 9)[1].waits_for, WaitsFor::Store);
}

#[test]
fn a_command_whose_store_is_full_waits_for_space() {
    let world = World::new(Patience { full: Some(Duration::from_secs(60)), gone: None });
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let work = shard.poll_work().unwrap();
    shard.completed(work.id, Err(StoreError::new(ErrorKind::Full, 0)), world.now);
    let slot = world.units.slot(Lun::default()).unwrap();
    let told = shard.oldest_under_way(slot, world.now, 9);
    assert_eq!(told.iter().map(|command| command.waits_for).collect::<Vec<_>>(), [WaitsFor::Space]);
}
