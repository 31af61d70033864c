//! Nexuses that are paused.

use super::*;

fn ended(shard: &mut Engine<Command>) -> Vec<(u32, Option<Status>)> {
    std::iter::from_fn(|| shard.poll_ended())
        .map(|ended| (ended.handle.1, ended.reply.map(|reply| reply.status)))
        .collect()
}

#[test]
fn commands_of_a_paused_nexus_wait_also_those_that_need_nothing_until_it_goes_on() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    shard.pause(ONE, true, world.now);
    world.begin(&mut shard, Command(ONE, 2), world.test_unit_ready());
    world.begin(&mut shard, Command(ONE, 3), write(1));
    world.begin(&mut shard, Command(TWO, 4), world.test_unit_ready());
    assert_eq!(ended(&mut shard), [(4, Some(Status::Good))], "the other nexus goes on");
    let begun = shard.poll_work().expect("what has begun before");
    assert!(shard.poll_work().is_none() && !shard.is_starved() && shard.poll_timeout().is_none_or(|at| at > world.now));
    shard.completed(begun.id, Ok(Outcome::Done), world.now);
    assert_eq!(ended(&mut shard), [(1, Some(Status::Good))], "it ends");
    assert!(shard.is_idle(), "nobody waits for what has not begun");
    shard.pause(ONE, true, world.now);
    assert_eq!(ended(&mut shard), [], "it is paused still");

    shard.pause(ONE, false, world.now);
    assert_eq!(ended(&mut shard), [(2, Some(Status::Good))]);
    let work = shard.poll_work().expect("the write");
    shard.completed(work.id, Ok(Outcome::Done), world.now);
    assert_eq!(ended(&mut shard), [(3, Some(Status::Good))]);
    world.begin(&mut shard, Command(ONE, 5), world.test_unit_ready());
    assert_eq!(ended(&mut shard), [(5, Some(Status::Good))], "nothing is left");
}

#[test]
fn what_waits_in_a_paused_nexus_can_be_aborted_withdrawn_and_superseded() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    shard.pause(ONE, true, world.now);
    (1..=4).for_each(|number| world.begin(&mut shard, Command(ONE, number), write(0)));
    shard.abort(&Selection { by: ONE, which: Which::Command(Command(ONE, 2)) }, None);
    assert_eq!(ended(&mut shard), [(2, None)], "its own");
    let disk = world.units.get(Lun::default()).expect("the disk");
    let barrier = AbortBarrier::new(|| ());
    shard.abort(&Selection { by: TWO, which: Which::On(vec![disk.id()]) }, Some(&barrier));
    let aborted = Some(Status::TaskAborted);
    assert_eq!(ended(&mut shard), [(1, aborted), (3, aborted), (4, aborted)]);
    assert_eq!(Arc::strong_count(&barrier), 1, "there is nothing to wait for");

    world.begin(&mut shard, Command(ONE, 5), write(0));
    assert_eq!(shard.withdraw_starved(ONE), [Command(ONE, 5)]);
    world.begin(&mut shard, Command(ONE, 6), write(0));
    shard.keep_blocks(ONE, TWO);
    assert_eq!(ended(&mut shard), [(6, Some(Status::TaskSetFull))], "its initiator is there in another nexus");
    world.begin(&mut shard, Command(ONE, 7), write(0));
    assert!(shard.poll_work().is_none(), "it is paused still");
    shard.leave(&Selection { by: ONE, which: Which::Own }, None);
    shard.pause(ONE, false, world.now);
    assert!(shard.poll_work().is_none() && ended(&mut shard) == [(7, None)], "the session is over");
}

#[test]
fn what_waits_in_a_paused_nexus_is_asked_of_the_units_that_it_has_when_it_goes_on() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    shard.pause(ONE, true, world.now);
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let none = Arc::new(LogicalUnits::new());
    world.units.hand_over(&none, ONE);
    shard.turn_to(ONE, &none);
    shard.pause(ONE, false, world.now);
    assert!(shard.poll_work().is_none(), "it is no unit of these");
    assert_eq!(ended(&mut shard), [(1, Some(Status::CheckCondition))]);
}
