use sanwire_scsi::{AdditionalSense, Extent, Sense, SenseKey, Status, build};
use sanwire_store::{ErrorKind, Geometry};
use sanwire_store_file::blocking;

use crate::Progress;
use crate::testing::{NEXUS, OTHER, Op, SMALL, World, lun, task};

const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const EXIT_FAILURE_MODE: u8 = 0x1f;
const AUSE: u8 = 0x20;
const IMMED: u8 = 0x80;

fn sanitize(flags: u8, parameter_bytes: u16) -> [u8; 10] {
    let [high, low] = parameter_bytes.to_be_bytes();
    [0x48, flags, 0, 0, 0, 0, 0, high, low, 0]
}

fn pattern(flags: u8, pattern: &[u8]) -> Vec<u8> {
    let mut list = vec![flags, 0];
    list.extend((pattern.len() as u16).to_be_bytes());
    list.extend(pattern);
    list
}

/// Begins a sanitize and goes through so many turns of it.
fn begun(world: &World, cdb: [u8; 10], list: &[u8], turns: usize) -> Progress {
    let mut progress = world.begin(NEXUS, task(cdb, list));
    for _ in 0..turns {
        progress = match progress {
            Progress::Store(execution, request) | Progress::Answered(execution, request) => {
                let completion = blocking::run(&**execution.store(), request);
                world.units.resume(execution, completion, &world.memory)
            }
            Progress::Wait(waiting) => {
                assert!(waiting.execution().outlives_its_task());
                world.units.retry(waiting, &world.memory)
            }
            over => panic!("it is over: {over:?}"),
        };
    }
    progress
}

const FAILED: Sense = Sense::new(SenseKey::MediumError, AdditionalSense::SANITIZE_COMMAND_FAILED);

#[test]
fn an_overwrite_repeats_its_pattern_in_each_block() {
    let world = World::small();
    let list = pattern(1, &[1, 2, 3]);
    world.good(sanitize(OVERWRITE, list.len() as u16), &list);
    let block: Vec<u8> = [1, 2, 3].into_iter().cycle().take(512).collect();
    assert_eq!(world.store.bytes(0, 1 << 20), block.repeat(2048));
    let log = world.store.take_log();
    assert_eq!((log.len(), log[4]), (5, (Op::Flush, 0, 0)), "four writes and a flush: {log:?}");
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
    let list = pattern(0x83, &[0x0f; 512]);
    world.good(sanitize(OVERWRITE, list.len() as u16), &list);
    assert_eq!(world.store.take_log().len(), 13, "three passes");
    assert_eq!(world.store.bytes(0, 1 << 20), vec![0x0f; 1 << 20], "the second pass was inverted, the third not");
}

#[test]
fn an_overwrite_s_parameters_are_checked() {
    let world = World::small();
    for length in [0, 1, 4, 517, 600] {
        let bad = world.bad(sanitize(OVERWRITE, length), &vec![1; 600]);
        assert_eq!(bad, Sense::invalid_field_in_cdb(7, None), "{length}");
    }
    for (list, field) in [
        (pattern(0, &[1; 512]), Sense::invalid_field_in_parameters(0, Some(4))),
        (pattern(0x21, &[1; 512]), Sense::invalid_field_in_parameters(0, Some(6))),
        (vec![1, 0, 0, 0, 0], Sense::invalid_field_in_parameters(2, None)),
        (vec![1, 0, 2, 4, 0], Sense::invalid_field_in_parameters(2, None)),
        (vec![1, 0, 0, 2, 0], Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)),
    ] {
        assert_eq!(world.bad(sanitize(OVERWRITE, list.len() as u16), &list), field);
    }
    for action in [BLOCK_ERASE, EXIT_FAILURE_MODE] {
        assert_eq!(world.bad(sanitize(action, 8), &[0; 8]), Sense::invalid_field_in_cdb(7, None));
    }
    assert_eq!(world.store.take_log(), []);
    world.good(build::test_unit_ready(), &[]);
}

#[test]
fn a_block_erase_gives_all_space_back() {
    let world = World::small();
    world.good(build::write_16(Extent { lba: 9, blocks: 1 }, false), &[1; 512]);
    world.store.take_log();
    world.good(sanitize(BLOCK_ERASE, 0), &[]);
    assert_eq!(world.store.take_log(), [(Op::Discard, 0, 1 << 20), (Op::Flush, 0, 0)]);
    assert_eq!(world.good(build::inquiry(Some(0xb1), 64), &[])[7], 0x40, "WABEREQ");
    let thick = World::new(Geometry { discards: false, ..SMALL }, true);
    assert_eq!(thick.bad(sanitize(BLOCK_ERASE, 0), &[]), Sense::invalid_field_in_cdb(1, Some(4)));
    assert_eq!(thick.good(build::inquiry(Some(0xb1), 64), &[])[7], 0);
    let protected = World::new(Geometry { read_only: true, ..SMALL }, true);
    assert_eq!(protected.bad(sanitize(BLOCK_ERASE, 0), &[]).additional, AdditionalSense::WRITE_PROTECTED);
}

#[test]
fn meanwhile_the_disk_refuses_nearly_everything_and_tells_how_far_it_is() {
    let world = World::small();
    let list = pattern(1, &[7]);
    let progress = begun(&world, sanitize(OVERWRITE, 5), &list, 3);
    let running = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_SANITIZE_IN_PROGRESS);
    let running = running.with_progress(0x8000);
    for cdb in [build::test_unit_ready(), build::read_16(Extent { lba: 0, blocks: 1 }), build::start_stop_unit(true)] {
        assert_eq!(world.bad(cdb, &[]), running);
    }
    assert_eq!(world.bad(sanitize(BLOCK_ERASE, 0), &[]), running, "one at a time");
    assert_eq!(Sense::parse(&world.good(build::request_sense(18), &[])), Some(running));
    world.good(build::inquiry(None, 96), &[]);
    world.good(build::report_luns(256), &[]);
    world.units.logical_unit_reset(lun(0));
    assert_eq!(world.bad(build::test_unit_ready(), &[]), running, "a reset does not end it");
    assert_eq!(world.finish(progress).status, Status::Good);
    world.good(build::test_unit_ready(), &[]);
    assert_eq!(world.store.bytes(0, 1 << 20), vec![7; 1 << 20]);
}

#[test]
fn an_immediate_sanitize_is_answered_at_once() {
    let world = World::small();
    let progress = begun(&world, sanitize(IMMED | OVERWRITE, 5), &pattern(1, &[7]), 0);
    assert!(matches!(progress, Progress::Answered(..)));
    assert_eq!(world.finish(progress).status, Status::Good);
    assert_eq!(world.store.bytes(0, 1 << 20), vec![7; 1 << 20]);
}

#[test]
fn a_sanitize_waits_for_the_writes_before_it() {
    let world = World::small();
    let write = world.begin(OTHER, task(build::write_16(Extent { lba: 3, blocks: 1 }, false), &[9; 512]));
    let Progress::Wait(waiting) = begun(&world, sanitize(BLOCK_ERASE, 0), &[], 0) else { panic!("it must wait") };
    assert_eq!(world.finish(write).status, Status::Good);
    assert_eq!(world.finish(world.units.retry(waiting, &world.memory)).status, Status::Good);
    assert_eq!(world.store.bytes(1536, 512), [0; 512]);
}

#[test]
fn a_sanitize_that_fails_leaves_the_disk_failed_until_one_succeeds() {
    let world = World::small();
    world.store.fail(Op::Discard, ErrorKind::Unwritable);
    assert_eq!(world.bad(sanitize(BLOCK_ERASE, 0), &[]), FAILED);
    for cdb in [build::test_unit_ready(), build::read_16(Extent { lba: 0, blocks: 1 })] {
        assert_eq!(world.bad(cdb, &[]), FAILED);
    }
    let restricted = Sense::invalid_field_in_cdb(1, Some(4));
    assert_eq!(world.bad(sanitize(EXIT_FAILURE_MODE, 0), &[]), restricted, "AUSE was not set");
    world.units.logical_unit_reset(lun(0));
    assert_eq!(world.bad(build::test_unit_ready(), &[]), FAILED);
    world.store.heal();
    world.good(sanitize(BLOCK_ERASE, 0), &[]);
    world.good(build::test_unit_ready(), &[]);
}

#[test]
fn a_sanitize_that_is_cut_off_may_be_given_up_when_that_was_allowed() {
    let world = World::small();
    drop(begun(&world, sanitize(AUSE | OVERWRITE, 5), &pattern(1, &[7]), 3));
    assert_eq!(world.bad(build::test_unit_ready(), &[]), FAILED);
    world.good(sanitize(EXIT_FAILURE_MODE, 0), &[]);
    world.good(build::test_unit_ready(), &[]);
    world.good(sanitize(EXIT_FAILURE_MODE, 0), &[]);
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}
