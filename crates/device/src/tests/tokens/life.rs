//! How copies with tokens begin, go on in the background, are asked about, and end.

use super::*;
use crate::testing::{Driver, OTHER, Op};
use crate::tests::copy::{A, B, begin as begin_copy, list, segment};

const UNKNOWN_ID: Sense = Sense {
    field: Some(sanwire_scsi::FieldPointer { in_cdb: true, byte: 2, bit: None }),
    ..Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB)
};

#[test]
fn results_are_kept_until_they_are_read_whole() {
    let (world, _) = world();
    world.tell(NEXUS, populate(1 << 24, 0, &[(0, 2)])).unwrap();
    let status = |id, room| world.tell(NEXUS, ask(STATUS, id, 0, room));
    assert_eq!(status(1, 64), Err(UNKNOWN_ID), "all four bytes count");
    assert_eq!(world.tell(OTHER, ask(STATUS, 1 << 24, 0, 64)), Err(UNKNOWN_ID), "another initiator's");
    let first = status(1 << 24, 64).unwrap();
    assert_eq!((first.len(), &first[..12]), (32, &[0, 0, 0, 28, 0x10, 1, 0, 1, 0xff, 0xff, 0xff, 0xfe][..]));
    assert_eq!(status(1 << 24, 64), Ok(first.clone()), "asked as often as wanted");
    let information = |room| world.tell(NEXUS, ask(INFORMATION, 1 << 24, 0, room));
    assert_eq!(information(64).unwrap().len(), 64);
    let whole = information(550).unwrap();
    assert_eq!((whole.len(), &whole[4..32]), (550, &first[4..]));
    assert_eq!(information(550), Err(UNKNOWN_ID), "it was told");
    world.tell(NEXUS, populate(1, 0, &[(0, 2)])).unwrap();
    assert_eq!(world.tell(NEXUS, ask(INFORMATION, 1, 0, 0)), Ok(vec![]), "it is not wanted");
    assert_eq!(status(1, 64), Err(UNKNOWN_ID));
}

/// SPC-4 5.17.4.2: identifiers of one byte and of four are the same.
#[test]
fn a_copy_with_an_identifier_of_one_byte_is_known_by_four_too() {
    let (world, _) = world();
    let running = begin_copy(&world, NEXUS, &list(5, &[segment(A, B, 1, 0, 0)]));
    let told = world.tell(NEXUS, ask(STATUS, 5, 0, 64)).unwrap();
    assert_eq!((told[4], told[5], told[15]), (0, 0x11, 0));
    let in_progress = Err(illegal(AdditionalSense::OPERATION_IN_PROGRESS));
    assert_eq!(world.tell(NEXUS, populate(5, 0, &[(0, 1)])), in_progress);
    world.tell(NEXUS, populate(5 + 256, 0, &[(0, 1)])).unwrap();
    assert_eq!(world.finish(running).status, Status::Good);
    let told = world.tell(NEXUS, ask(STATUS, 5, 0, 64)).unwrap();
    assert_eq!((told[5], &told[16..26]), (1, &[0, 0, 0, 0, 0, 0, 2, 0, 0, 1][..]), "512 bytes, one segment");
}

#[test]
fn a_copy_in_the_background_is_answered_when_it_begins() {
    let (world, second) = world();
    let token = world.token(NEXUS, 0, &[(0, 8)]);
    let begun = world.begin(NEXUS, write_using(&token, (IMMEDIATE | DELETE, 3), 1, (0, &[(0, 8)])));
    assert!(matches!(begun, Progress::Answered(..)), "{begun:?}");
    let told = world.tell(NEXUS, ask(STATUS, 3, 1, 64)).unwrap();
    assert_eq!((told[5], &told[8..12]), (0x12, &[0, 0, 0, 100][..]));
    let again = world.tell(NEXUS, write_using(&token, (0, 3), 1, (0, &[(0, 8)])));
    assert_eq!(again, Err(illegal(AdditionalSense::OPERATION_IN_PROGRESS)));
    let mut progress = begun;
    while !matches!(progress, Progress::Done(_)) {
        progress = step(&world, progress);
    }
    let told = world.tell(NEXUS, ask(INFORMATION, 3, 1, 1024)).unwrap();
    assert_eq!((told[5], told[23], held(&second, 0, 8)), (1, 8, (1..9).collect()));
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 8)), Err(illegal(AdditionalSense::TOKEN_DELETED)));
    // What is wrong with its list is told at once.
    let refused = world.begin(NEXUS, write_using(&token, (IMMEDIATE, 3), 1, (0, &[(0, 8)])));
    assert!(matches!(refused, Progress::Done(reply) if reply.status == Status::CheckCondition));
    world.tell(NEXUS, populate_with((IMMEDIATE, 0), 4, 0, &[(0, 8)])).unwrap();
    assert_eq!(world.tell(NEXUS, ask(INFORMATION, 4, 0, 1024)).unwrap().len(), 550);
}

#[test]
fn an_error_of_a_copy_in_the_background_is_told_to_who_asks() {
    let (world, second) = world();
    let token = world.token(NEXUS, 0, &[(0, 8)]);
    second.fail(Op::Write, sanwire_store::ErrorKind::Full);
    let task = write_using(&token, (IMMEDIATE, 3), 1, (0, &[(0, 8)]));
    assert_eq!(world.tell(NEXUS, task), Ok(vec![]));
    let told = world.tell(NEXUS, ask(INFORMATION, 3, 1, 1024)).unwrap();
    assert_eq!((told[5], told[12], told[23], told[32 + 2]), (0x02, 0x02, 0, SenseKey::CopyAborted as u8));
    assert_eq!(told[32 + 12..32 + 14], [0x27, 0x07]);
    second.heal();
    world.use_token(NEXUS, &token, 1, (0, 8)).unwrap();
}

#[test]
fn an_abort_is_answered_when_the_copy_has_ended() {
    let (world, second) = world();
    for flags in [0, IMMEDIATE] {
        let token = world.token(NEXUS, 0, &[(0, 8)]);
        let copying = world.begin(NEXUS, write_using(&token, (flags, 3), 1, (0, &[(0, 8)])));
        let driver = Driver::new();
        let aborting = driver.wait(&world, world.begin(NEXUS, abort(3, 1)));
        assert_eq!(world.tell(OTHER, abort(3, 1)), Err(UNKNOWN_ID), "another initiator's");
        let Progress::Done(reply) = step(&world, copying) else { panic!("it goes on") };
        let cleared = Sense::new(SenseKey::CopyAborted, AdditionalSense::COMMANDS_CLEARED_BY_DEVICE_SERVER);
        assert_eq!(told(reply), Err(cleared));
        assert!(driver.take_woken());
        assert_eq!(told(world.finish(world.units.retry(aborting, &world.memory))), Ok(vec![]));
        let told = world.tell(NEXUS, ask(INFORMATION, 3, 1, 1024)).unwrap();
        assert_eq!((told[5], told[12], told[14]), (0x60, Status::TaskAborted as u8, 0));
        assert_eq!(world.tell(NEXUS, abort(3, 1)), Err(UNKNOWN_ID), "there is none");
    }
    assert!(second.take_log().iter().all(|(op, ..)| *op == Op::Read));
}

/// A copy that waits for another command hears of its abort, too.
#[test]
fn a_copy_that_waits_is_aborted_at_once() {
    let (world, _) = world();
    let token = world.token(NEXUS, 0, &[(0, 8)]);
    let mut swap = task([0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[0; 1024]);
    swap.lun = Some(lun(1));
    let Progress::Store(swapping, _) = world.begin(OTHER, swap) else { panic!("it reads first") };
    let driver = Driver::new();
    let copying = step(&world, step(&world, world.begin(NEXUS, write_using(&token, (0, 3), 1, (0, &[(0, 8)])))));
    let waiting = driver.wait(&world, copying);
    let aborting = world.begin(NEXUS, abort(3, 1));
    assert!(driver.take_woken());
    let Progress::Done(_) = world.units.retry(waiting, &world.memory) else { panic!("it goes on waiting") };
    assert_eq!(world.finish(aborting).status, Status::Good);
    drop(swapping);
}

#[test]
fn a_reset_ends_copies_and_forgets_what_was_asked() {
    let (world, _) = world();
    let token = world.token(NEXUS, 0, &[(0, 8)]);
    let copying = world.begin(NEXUS, write_using(&token, (IMMEDIATE, 3), 1, (0, &[(0, 8)])));
    assert!(world.units.logical_unit_reset(lun(1)));
    world.run_task(NEXUS, Task { lun: Some(lun(1)), ..task(sanwire_scsi::build::test_unit_ready(), &[]) });
    assert!(matches!(step(&world, copying), Progress::Done(_)), "it does not go on");
    assert_eq!(world.tell(NEXUS, ask(STATUS, 3, 1, 64)), Err(UNKNOWN_ID));
}

/// What it would write might come after what the same initiator writes when it is there again.
#[test]
fn a_copy_in_the_background_ends_with_its_nexus() {
    let (world, second) = world();
    let token = world.token(NEXUS, 0, &[(0, 8)]);
    let copying = world.begin(NEXUS, write_using(&token, (IMMEDIATE, 3), 1, (0, &[(0, 8)])));
    assert!(matches!(copying, Progress::Answered(..)));
    world.units.nexus_lost(NEXUS);
    assert!(matches!(step(&world, copying), Progress::Done(_)), "it does not go on");
    assert!(second.take_log().iter().all(|(op, ..)| *op == Op::Read));
}

#[test]
fn without_memory_nothing_is_noted() {
    let (mut world, _) = world();
    world.memory = sanwire_buffer::Region::new(4096).unwrap();
    let held = world.memory.frame(4096).unwrap();
    let Progress::NoMemory(again) = world.begin(NEXUS, populate(1, 0, &[(0, 1)])) else { panic!("there is no memory") };
    assert_eq!(world.tell(NEXUS, ask(STATUS, 1, 0, 64)), Err(UNKNOWN_ID));
    drop(held);
    assert_eq!(world.run_task(NEXUS, *again).status, Status::Good);
    assert_eq!(world.tell(NEXUS, ask(INFORMATION, 1, 0, 1024)).unwrap().len(), 550);
}
