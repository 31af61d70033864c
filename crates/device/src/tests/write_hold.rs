use sanwire_scsi::{AdditionalSense, Extent, Piece, Sense, SenseKey, Status, Task, build};
use sanwire_store_file::blocking;

use crate::testing::{Driver, NEXUS, OTHER, World, lun, sense, task};
use crate::{Progress, WriteHold};

fn write(lba: u64, byte: u8) -> sanwire_scsi::Task {
    task(build::write_16(Extent { lba, blocks: 1 }, false), &[byte; 512])
}

#[test]
fn a_hold_waits_for_what_is_at_the_store_and_keeps_writes_that_come_waiting_until_it_ends() {
    let (world, driver, holder) = (World::small(), Driver::new(), Driver::new());
    let unit = world.units.get(lun(0)).unwrap();
    let Progress::Store(begun, request) = world.begin(NEXUS, write(0, 1)) else { panic!("it is at the store") };
    let hold = WriteHold::begin(unit.state());
    hold.wake(&holder.queue);
    holder.take_woken();
    assert!(!hold.is_held(), "a write is under way");
    let waiting = driver.wait(&world, world.begin(OTHER, write(0, 2)));
    assert_eq!(world.good(build::read_16(Extent { lba: 0, blocks: 1 }), &[]), [0; 512], "reads go on");
    let completion = blocking::run(&**begun.store(), request);
    let Progress::Done(reply) = world.units.resume(begun, completion, &world.memory) else { panic!("it has ended") };
    assert_eq!(reply.status, Status::Good);
    assert!(holder.take_woken() && hold.is_held(), "all that began before has ended");
    let waiting = driver.wait(&world, Progress::Wait(waiting));
    assert_eq!(world.store.bytes(0, 512), [1; 512]);
    drop(hold);
    assert!(driver.take_woken(), "writes may go on");
    assert_eq!(world.finish(Progress::Wait(waiting)).status, Status::Good);
    assert_eq!(world.store.bytes(0, 512), [2; 512]);
}

#[test]
fn a_write_that_waited_while_the_content_was_replaced_ends_with_an_error_and_changes_nothing() {
    let (world, driver) = (World::small(), Driver::new());
    let unit = world.units.get(lun(0)).unwrap();
    let hold = WriteHold::begin(unit.state());
    assert!(hold.is_held());
    let waiting = driver.wait(&world, world.begin(OTHER, write(0, 2)));
    unit.content_replaced();
    drop(hold);
    let replaced = Sense::new(SenseKey::DataProtect, AdditionalSense::NOT_READY_TO_READY_CHANGE);
    assert_eq!(sense(&world.finish(Progress::Wait(waiting))), replaced);
    assert_eq!(world.store.bytes(0, 512), [0; 512]);
    while world.run(OTHER, build::test_unit_ready(), &[]).status != Status::Good {}
    assert_eq!(
        world.finish(world.begin(OTHER, write(0, 3))).status,
        Status::Good,
        "what comes now is about what is there"
    );
    assert_eq!(world.store.bytes(0, 512), [3; 512]);
}

/// Their first piece was on the other content: with the rest of it there would be what nobody has ever written.
#[test]
fn the_rest_of_a_long_write_is_not_written_on_content_that_has_replaced_that_of_its_beginning() {
    let world = World::small();
    let unit = world.units.get(lun(0)).unwrap();
    let piece = |from_bytes, medium| Some(Piece { from_bytes, medium, data_out_bytes: 1024 });
    let long = |piece| Task { piece, ..task(build::write_16(Extent { lba: 0, blocks: 2 }, false), &[7; 512]) };
    let first = world.begin(NEXUS, long(piece(0, 0)));
    let Progress::Store(begun, request) = first else { panic!("{first:?}") };
    let completion = blocking::run(&**begun.store(), request);
    let Progress::Piece(reply, _) = world.units.resume(begun, completion, &world.memory) else { panic!("a piece") };
    let medium = reply.rest.unwrap().medium;
    unit.content_replaced();
    let rest = world.begin(NEXUS, long(piece(512, medium)));
    let replaced = Sense::new(SenseKey::DataProtect, AdditionalSense::NOT_READY_TO_READY_CHANGE);
    let Progress::Done(reply) = rest else { panic!("{rest:?}") };
    assert_eq!(sense(&reply), replaced);
    assert_eq!(world.store.bytes(512, 512), [0; 512]);
}

#[test]
fn a_hold_that_is_given_up_lets_writes_go_on_that_came_after_it() {
    let (world, driver) = (World::small(), Driver::new());
    let unit = world.units.get(lun(0)).unwrap();
    let Progress::Store(hanging, _request) = world.begin(NEXUS, write(0, 1)) else { panic!("it is at the store") };
    let holds = [WriteHold::begin(unit.state()), WriteHold::begin(unit.state())];
    assert!(holds.iter().all(|hold| !hold.is_held()));
    let waiting = driver.wait(&world, world.begin(OTHER, write(4, 2)));
    drop(holds);
    assert!(driver.take_woken());
    assert_eq!(world.finish(Progress::Wait(waiting)).status, Status::Good);
    drop(hanging);
}

#[test]
fn initiators_are_told_that_the_medium_may_be_another_one() {
    let world = World::small();
    world.establish(NEXUS);
    world.establish(OTHER);
    let ready = build::test_unit_ready();
    for nexus in [NEXUS, OTHER] {
        while world.run(nexus, ready, &[]).status != Status::Good {}
    }
    world.units.get(lun(0)).unwrap().content_replaced();
    let expected = Sense::new(SenseKey::UnitAttention, AdditionalSense::NOT_READY_TO_READY_CHANGE);
    for nexus in [NEXUS, OTHER] {
        assert_eq!(sense(&world.run(nexus, ready, &[])), expected);
        assert_eq!(world.run(nexus, ready, &[]).status, Status::Good);
    }
}
