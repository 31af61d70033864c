//! What there is to see of commands under way.

use std::time::Duration;

use super::*;
use crate::{Operation, Place, UnderWay, WaitsFor};

#[test]
fn commands_under_way_are_told_oldest_first_with_what_they_wait_for() {
    let mut world = World::new(Patience::default());
    let mut shard = world.shard();
    let begun = world.now;
    world.begin(&mut shard, Command(ONE, 1), write(7));
    world.now = begun + Duration::from_millis(30);
    // It would read what is being written.
    world.begin(&mut shard, Command(TWO, 2), read(7));
    shard.pause(ONE, true, world.now);
    world.now = begun + Duration::from_millis(50);
    world.begin(&mut shard, Command(ONE, 3), world.test_unit_ready());
    let slot = world.units.slot(Lun::default()).unwrap();
    let now = begun + Duration::from_millis(100);
    let told = |max| shard.oldest_under_way(slot, now, max);
    let place = Some(Place { lba_blocks: 7, blocks: 1 });
    let [first, second, third] = told(9)[..] else { panic!("{:?}", told(9)) };
    let of = |handle, operation, place, age, waits_for| UnderWay {
        handle,
        operation,
        place,
        age: Duration::from_millis(age),
        waits_for,
    };
    assert_eq!(first, of(Command(ONE, 1), Operation::Write, place, 100, WaitsFor::Store));
    assert_eq!(second, of(Command(TWO, 2), Operation::Read, place, 70, WaitsFor::Others));
    assert_eq!(third, of(Command(ONE, 3), Operation::Other, None, 50, WaitsFor::Resume));
    assert_eq!(told(1), [first], "the oldest alone");
    assert_eq!(shard.oldest_under_way(slot + 1, now, 9), [], "another volume");
    let work = shard.poll_work().expect("the write");
    shard.completed(work.id, Ok(Outcome::Done), now);
    shard.retry(now);
    let told = shard.oldest_under_way(slot, now, 9);
    assert_eq!((told[0].handle, told[0].waits_for, told.len()), (Command(TWO, 2), WaitsFor::Store, 2));
}
