use sanwire_scsi::{AdditionalSense, Cdb, Extent, Reply, Sense, SenseKey, Status, build};
use sanwire_store::{ErrorKind, Geometry};
use sanwire_store_file::blocking;

use crate::Progress;
use crate::testing::{NEXUS, OTHER, Op, SMALL, World, task};

fn compare_and_write(lba: u64, blocks: u8, flags: u8) -> Cdb {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1], bytes[13]) = (0x89, flags, blocks);
    bytes[2..10].copy_from_slice(&lba.to_be_bytes());
    Cdb::from(bytes)
}

fn or_write(lba: u64, blocks: u32) -> Cdb {
    let mut bytes = [0; 16];
    bytes[0] = 0x8b;
    bytes[2..10].copy_from_slice(&lba.to_be_bytes());
    bytes[10..14].copy_from_slice(&blocks.to_be_bytes());
    Cdb::from(bytes)
}

/// What must be there, and what comes instead.
fn pair(there: u8, instead: u8, blocks: usize) -> Vec<u8> {
    [vec![there; blocks * 512], vec![instead; blocks * 512]].concat()
}

#[test]
fn compare_and_write_changes_what_is_as_expected() {
    let world = World::small();
    world.good(compare_and_write(3, 2, 0), &pair(0, 7, 2));
    assert_eq!(world.store.bytes(1024, 2560), [&[0; 512][..], &[7; 1024], &[0; 1024]].concat());
    assert_eq!(world.store.take_log(), [(Op::Read, 1536, 1024), (Op::Write, 1536, 1024)]);
    world.good(compare_and_write(3, 2, 0x08), &pair(7, 8, 2));
    assert_eq!(world.store.take_log().last(), Some(&(Op::Flush, 0, 0)), "FUA");
    world.good(compare_and_write(3, 0, 0), &[]);
    assert_eq!(world.store.take_log(), [], "no blocks");
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

#[test]
fn a_miscompare_changes_nothing_and_tells_its_place() {
    let world = World::small();
    let mut data = pair(0, 7, 2);
    data[700] = 1;
    let expected = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION);
    assert_eq!(world.bad(compare_and_write(3, 2, 0), &data), expected.with_information(700));
    assert_eq!(world.store.take_log(), [(Op::Read, 1536, 1024)]);
}

#[test]
fn a_miscompare_tells_each_place_of_a_block() {
    let world = World::small();
    world.good(build::write_16(Extent { lba: 3, blocks: 1 }, false), &[0x42; 512]);
    let expected = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION);
    for place in 0..512 {
        let mut data = pair(0x42, 0x43, 1);
        data[place] = 0x5a;
        assert_eq!(world.bad(compare_and_write(3, 1, 0), &data), expected.with_information(place as u64));
    }
    assert_eq!(world.store.bytes(1536, 512), [0x42; 512]);
}

#[test]
fn compare_and_write_is_strict_about_its_lengths() {
    let world = World::small();
    let length = Sense::invalid_field_in_cdb(13, None);
    assert_eq!(world.bad(compare_and_write(0, 1, 0), &pair(0, 7, 2)), length, "too much data");
    assert_eq!(world.bad(compare_and_write(0, 3, 0), &pair(0, 7, 2)), length, "too little");
    assert_eq!(world.good(build::inquiry(Some(0xb0), 64), &[])[5], 255);
    world.good(compare_and_write(0, 255, 0), &pair(0, 7, 255));
    let large = World::new(Geometry { block_bytes: 4096, ..SMALL }, true);
    assert_eq!(large.good(build::inquiry(Some(0xb0), 64), &[])[5], 128, "twice as much is sent");
    assert_eq!(large.bad(compare_and_write(0, 129, 0), &vec![0; 2 * 129 * 4096]), length);
    large.good(compare_and_write(0, 128, 0), &vec![0; 2 * 128 * 4096]);
}

#[test]
fn or_write_sets_bits() {
    let world = World::small();
    world.good(build::write_16(Extent { lba: 1, blocks: 1 }, false), &[0x0f; 512]);
    world.good(or_write(1, 2), &[0xa5; 1024]);
    assert_eq!(world.store.bytes(512, 1024), [[0xaf; 512], [0xa5; 512]].concat());
    world.good(or_write(0, 0), &[]);
    world.store.fail(Op::Read, ErrorKind::Unreadable);
    let unreadable = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR).with_information(1);
    assert_eq!(world.bad(or_write(1, 1), &[0xa5; 512]), unreadable);
}

#[test]
fn swaps_near_the_end_of_all_numbers_are_refused() {
    let world = World::new(Geometry { length_bytes: u64::MAX / 512 * 512, ..SMALL }, true);
    let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    for lba in [u64::MAX, u64::MAX - 1, u64::MAX / 512, 1 << 63] {
        assert_eq!(world.bad(compare_and_write(lba, 2, 0), &pair(0, 7, 2)), out);
        assert_eq!(world.bad(or_write(lba, 2), &[0; 1024]), out);
    }
}

/// Begins a command and has the store do its first request only.
fn first_step(world: &World, nexus: sanwire_core::NexusId, cdb: Cdb, data: &[u8]) -> Progress {
    let Progress::Store(execution, request) = world.begin(nexus, task(cdb, data)) else { panic!("it must begin") };
    let completion = blocking::run(&**execution.store(), request);
    world.units.resume(execution, completion, &world.memory)
}

fn retry(world: &World, progress: Progress) -> Progress {
    let Progress::Wait(waiting) = progress else { panic!("it must wait") };
    world.units.retry(waiting, &world.memory)
}

#[test]
fn a_write_waits_for_a_swap_of_its_blocks() {
    let world = World::small();
    let swap = first_step(&world, NEXUS, compare_and_write(3, 2, 0), &pair(0, 7, 2));
    let write = |lba| world.begin(OTHER, task(build::write_16(Extent { lba, blocks: 1 }, false), &[9; 512]));
    assert!(matches!(write(2), Progress::Store(..)) && matches!(write(5), Progress::Store(..)), "beside it");
    let read = world.begin(OTHER, task(build::read_16(Extent { lba: 3, blocks: 1 }), &[]));
    assert!(matches!(read, Progress::Store(..)), "reading changes nothing");
    let waiting = retry(&world, write(4));
    let same = world.begin(OTHER, task(build::write_same_16(Extent { lba: 0, blocks: 9 }, false, true), &[]));
    let same = retry(&world, same);
    assert_eq!(world.finish(swap).status, Status::Good);
    assert_eq!(world.store.bytes(1536, 1024), [7; 1024], "nothing came between");
    assert_eq!(world.finish(retry(&world, waiting)).status, Status::Good);
    assert_eq!(world.finish(retry(&world, same)).status, Status::Good);
}

#[test]
fn a_swap_waits_for_the_writes_before_it() {
    let world = World::small();
    let write = world.begin(OTHER, task(build::write_16(Extent { lba: 3, blocks: 1 }, false), &[9; 512]));
    let swap = world.begin(NEXUS, task(compare_and_write(3, 1, 0), &pair(0, 7, 1)));
    let swap = retry(&world, swap);
    assert_eq!(world.finish(write).status, Status::Good);
    let reply: Reply = world.finish(retry(&world, swap));
    assert_eq!(reply.status, Status::CheckCondition, "the write came first: {reply:?}");
    assert_eq!(world.store.bytes(1536, 512), [9; 512]);
}

#[test]
fn who_gives_up_waiting_is_waited_for_no_more() {
    let world = World::small();
    let write = world.begin(OTHER, task(build::write_16(Extent { lba: 3, blocks: 1 }, false), &[9; 512]));
    let swap = world.begin(NEXUS, task(or_write(3, 1), &[1; 512]));
    let next = world.begin(OTHER, task(build::write_16(Extent { lba: 3, blocks: 1 }, false), &[8; 512]));
    assert!(matches!(swap, Progress::Wait(_)) && matches!(next, Progress::Wait(_)));
    drop((write, swap));
    assert_eq!(world.finish(retry(&world, next)).status, Status::Good);
}

#[test]
fn threads_that_count_by_swapping_lose_nothing() {
    let world = World::small();
    let count = |nexus: u64| {
        for _ in 0..200 {
            loop {
                let old = world.good(build::read_16(Extent { lba: 1, blocks: 1 }), &[]);
                let number = u64::from_le_bytes(*old.first_chunk().unwrap()) + 1;
                let new = [&number.to_le_bytes()[..], &old[8..]].concat();
                let cdb = compare_and_write(1, 1, 0);
                let mut progress = world.begin(sanwire_core::NexusId(nexus), task(cdb, &[old, new].concat()));
                while let Progress::Wait(waiting) = progress {
                    std::thread::yield_now();
                    progress = world.units.retry(waiting, &world.memory);
                }
                if world.finish(progress).status == Status::Good {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| (1..4).for_each(|nexus| drop(scope.spawn(move || count(nexus)))));
    assert_eq!(world.store.bytes(512, 8), 600_u64.to_le_bytes());
}

#[test]
fn pre_fetch_reads_what_fits() {
    let world = World::small();
    let fetch = |bytes: [u8; 10]| world.run(NEXUS, bytes, &[]).status;
    assert_eq!(fetch([0x34, 0, 0, 0, 0, 8, 0, 0, 4, 0]), Status::ConditionMet);
    assert_eq!(world.store.take_log(), [(Op::Read, 4096, 2048)]);
    assert_eq!(fetch([0x34, 2, 0, 0, 0, 8, 0, 0, 4, 0]), Status::Good, "at once");
    assert_eq!(world.store.take_log(), [(Op::Read, 4096, 2048)]);
    assert_eq!(fetch([0x34, 0, 0, 0, 4, 0, 0, 0, 0, 0]), Status::ConditionMet, "no blocks: up to the end");
    assert_eq!(world.store.take_log(), [(Op::Read, 0x400 * 512, (1 << 20) - 0x400 * 512)]);
    let large = World::new(Geometry { length_bytes: u64::MAX / 512 * 512, ..SMALL }, true);
    assert_eq!(large.run(NEXUS, [0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).status, Status::Good, "not all of it");
    let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    let far = [0x90, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1, 0, 0];
    assert_eq!((world.bad(far, &[]), large.bad(far, &[])), (out, out));
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

#[test]
fn an_immediate_flush_is_answered_before_it_is_done() {
    let world = World::small();
    let flush = world.begin(NEXUS, task([0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[]));
    assert!(matches!(flush, Progress::Answered(..)));
    assert_eq!(world.finish(flush).status, Status::Good);
    assert_eq!(world.store.take_log(), [(Op::Flush, 0, 0)]);
}
