use sanwire_scsi::{AdditionalSense, Extent, Information, Sense, SenseKey, Status, build, unmap_parameters};
use sanwire_store::{ErrorKind, Geometry};
use sanwire_store_file::blocking;

use crate::Progress;
use crate::testing::{NEXUS, OTHER, Op, SMALL, World, sense, task};

const fn extent(lba: u64, blocks: u32) -> Extent {
    Extent { lba, blocks }
}

const LARGE: Geometry = Geometry { length_bytes: 1 << 40, ..SMALL };

fn unmap(world: &World, extents: &[Extent]) -> Result<(), Sense> {
    let list = unmap_parameters(extents).unwrap();
    let reply = world.run(NEXUS, build::unmap(list.len() as u16), &list);
    Sense::parse(&reply.sense).map_or(Ok(()), Err)
}

#[test]
fn unmapped_blocks_read_as_zeroes() {
    let world = World::small();
    world.good(build::write_16(extent(0, 16), false), &[7; 16 * 512]);
    world.store.take_log();
    assert_eq!(unmap(&world, &[extent(1, 2), extent(4, 1), extent(9, 0), extent(8, 4)]), Ok(()));
    let log = [(Op::Discard, 512, 1024), (Op::Discard, 2048, 512), (Op::Discard, 4096, 2048)];
    assert_eq!(world.store.take_log(), log);
    let bytes = world.good(build::read_16(extent(0, 16)), &[]);
    for (block, bytes) in bytes.chunks(512).enumerate() {
        let expected = if matches!(block, 1 | 2 | 4 | 8..=11) { 0 } else { 7 };
        assert!(bytes.iter().all(|&byte| byte == expected), "block {block}");
    }
}

#[test]
fn unmap_checks_all_before_it_does_any() {
    let world = World::new(LARGE, true);
    let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    assert_eq!(unmap(&world, &[extent(0, 8), extent(1 << 31, 1)]), Err(out));
    assert_eq!(unmap(&world, &[extent(0, 8), extent(u64::MAX, 2)]), Err(out));
    let too_many = Sense::invalid_field_in_parameters(2, None);
    assert_eq!(unmap(&world, &[extent(0, 1); 257]), Err(too_many));
    let too_long = Sense::invalid_field_in_parameters(8 + 16 + 8, None);
    assert_eq!(unmap(&world, &[extent(0, 1 << 20), extent(0, 1)]), Err(too_long));
    assert_eq!(world.store.take_log(), []);
    let cut = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(world.bad(build::unmap(24), &[0; 23]), cut);
    world.good(build::unmap(0), &[]);
}

/// CVE-2026-53021: an end that wraps around looks like one within the medium.
#[test]
fn ranges_that_wrap_around_are_refused_before_anything_is_done() {
    let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    for length_bytes in [SMALL.length_bytes, u64::MAX / 512 * 512] {
        let world = World::new(Geometry { length_bytes, ..SMALL }, true);
        for lba in [u64::MAX, u64::MAX - 7, u64::MAX / 512, u64::MAX / 512 + 1, 1 << 63] {
            for blocks in [1, 8, u32::MAX] {
                let at_the_end = extent(lba, blocks);
                assert_eq!(unmap(&world, &[extent(0, 8), at_the_end]), Err(out), "UNMAP of {at_the_end:?}");
                for (unmap, no_data) in [(false, false), (true, false), (true, true), (false, true)] {
                    let data: &[u8] = if no_data { &[] } else { &[0; 512] };
                    let cdb = build::write_same_16(at_the_end, unmap, no_data);
                    assert_eq!(world.bad(cdb, data), out, "WRITE SAME (16) of {at_the_end:?}");
                }
            }
        }
        assert_eq!(world.store.take_log(), []);
    }
    // Its LBA has 32 bits and its length 16: what wraps there is no wider.
    let world = World::new(Geometry { length_bytes: 512 << 32, ..SMALL }, true);
    for flags in [0, 0x08] {
        for lba in [u32::MAX, u32::MAX - 0xfffd] {
            let [a, b, c, d] = lba.to_be_bytes();
            assert_eq!(
                world.bad([0x41, flags, a, b, c, d, 0, 0xff, 0xff, 0], &[0; 512]),
                out,
                "WRITE SAME (10) at {lba}"
            );
        }
        world.good([0x41, flags, 0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0], &[0; 512]);
    }
}

#[test]
fn large_ranges_are_given_back_in_bounded_pieces() {
    let world = World::new(LARGE, false);
    assert_eq!(unmap(&world, &[extent(8, 1 << 20)]), Ok(()));
    let piece = 256 << 20;
    let log = [(Op::Discard, 4096, piece), (Op::Discard, 4096 + piece, piece), (Op::Flush, 0, 0)];
    assert_eq!(world.store.take_log(), log);
}

#[test]
fn unmap_is_a_request_not_an_order() {
    let world = World::small();
    world.store.fail(Op::Discard, ErrorKind::Unsupported);
    assert_eq!(unmap(&world, &[extent(1, 2)]), Ok(()));
    world.store.fail(Op::Discard, ErrorKind::Unwritable);
    let failed = unmap(&world, &[extent(1, 2)]).unwrap_err();
    assert_eq!((failed.key, failed.information), (SenseKey::MediumError, Some(Information::Place(1))));
}

#[test]
fn write_same_repeats_a_block() {
    let world = World::small();
    let block: Vec<u8> = (0..512).map(|at| at as u8).collect();
    world.good(build::write_same_16(extent(3, 1000), false, false), &block);
    assert_eq!(world.store.bytes(1536, 512_000), block.repeat(1000));
    assert_eq!(world.store.take_log(), [(Op::Write, 1536, 262_144), (Op::Write, 263_680, 249_856)]);
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
    world.good([0x41, 0, 0, 0, 0, 4, 0, 0, 2, 0], &[0; 512]);
    assert_eq!(world.store.take_log(), [(Op::Zero, 2048, 1024)], "zeroes");
    world.good([0x41, 0x08, 0, 0, 0, 4, 0, 0, 2, 0], &[0; 512]);
    assert_eq!(world.store.take_log(), [(Op::Discard, 2048, 1024)], "zeroes, unmapped");
    world.good([0x41, 0x08, 0, 0, 0, 4, 0, 0, 2, 0], &block);
    assert_eq!(world.store.take_log(), [(Op::Write, 2048, 1024)], "data cannot be unmapped");
    world.good(build::write_same_16(extent(0, 8), false, true), &[]);
    assert_eq!(world.store.take_log(), [(Op::Zero, 0, 4096)], "no data-out buffer");
}

#[test]
fn write_same_finds_a_way_when_the_store_cannot() {
    let world = World::small();
    world.good(build::write_16(extent(0, 8), false), &[7; 4096]);
    world.store.take_log();
    world.store.fail(Op::Discard, ErrorKind::Unsupported);
    world.good(build::write_same_16(extent(0, 4), true, true), &[]);
    assert_eq!(world.store.take_log(), [(Op::Discard, 0, 2048), (Op::Zero, 0, 2048)]);
    world.store.fail(Op::Zero, ErrorKind::Unsupported);
    world.good(build::write_same_16(extent(4, 4), false, true), &[]);
    assert_eq!(world.store.take_log(), [(Op::Zero, 2048, 2048), (Op::Write, 2048, 2048)]);
    assert_eq!(world.store.bytes(0, 4096), [0; 4096]);
    let _all = world.memory.frame(world.memory.free_bytes()).unwrap();
    world.good(build::write_same_16(extent(4, 4), false, true), &[]);
    assert_eq!(world.store.take_log(), [(Op::Zero, 2048, 2048), (Op::Write, 2048, 2048)], "also without frames");
}

#[test]
fn write_same_takes_one_block_and_any_number_of_places() {
    let world = World::new(LARGE, true);
    let length = Sense::invalid_field_in_cdb(10, None);
    assert_eq!(world.bad(build::write_same_16(extent(0, 1), false, false), &[0; 511]), length);
    world.good(build::write_same_16(extent(0, 65_535), false, false), &[1; 512]);
    assert_eq!(world.store.take_log().len(), 128);
    world.good(build::write_same_16(extent(0, 1 << 31), true, true), &[]);
    assert_eq!(world.store.take_log().len(), 4096);
}

/// SBC-4 5.52 and 6.6.4: WSNZ and MAXIMUM WRITE SAME LENGTH are zero.
#[test]
fn write_same_of_no_blocks_goes_to_the_end_of_the_medium() {
    let blocks = (1_u64 << 38) / 512;
    let world = World::new(Geometry { length_bytes: 1 << 38, ..SMALL }, true);
    world.good(build::write_same_16(extent(7, 0), true, true), &[]);
    let log = world.store.take_log();
    assert_eq!((log.len(), log[0]), (1024, (Op::Discard, 7 * 512, 256 << 20)));
    assert_eq!(log.iter().map(|(_, _, bytes)| bytes).sum::<u64>(), (1 << 38) - 7 * 512);
    world.good([0x41, 0, 0x1f, 0xff, 0xff, 0xff, 0, 0, 0, 0], &[0; 512]);
    world.good(build::write_same_16(extent(blocks - 1, 0), false, false), &[3; 512]);
    let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    for lba in [blocks, blocks + 1, 1 << 63, u64::MAX] {
        assert_eq!(world.bad(build::write_same_16(extent(lba, 0), false, true), &[]), out, "{lba}");
    }
}

/// It may take hours: neither commands that want their blocks undisturbed nor its own abort wait for its end.
#[test]
fn a_long_write_same_lets_others_come_between() {
    let world = World::small();
    let begin = |nexus, cdb: sanwire_scsi::Cdb, data: &[u8]| world.begin(nexus, task(cdb, data));
    let turn = |progress| match progress {
        Progress::Store(execution, request) => {
            let completion = blocking::run(&**execution.store(), request);
            world.units.resume(execution, completion, &world.memory)
        }
        over => panic!("{over:?}"),
    };
    let filling = begin(NEXUS, build::write_same_16(extent(0, 0), false, false), &[7; 512]);
    let Progress::Wait(waiting) = turn(filling) else { panic!("others have their turn after each piece") };
    let swap = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0].into();
    let Progress::Wait(swapping) = begin(OTHER, swap, &[[7; 512], [8; 512]].concat()) else { panic!("it waits") };
    let filling = turn(world.units.retry(waiting, &world.memory));
    assert_eq!(world.finish(world.units.retry(swapping, &world.memory)).status, Status::Good, "between two pieces");
    let Progress::Wait(waiting) = filling else { panic!("it is not over") };
    world.store.take_log();
    drop(waiting);
    assert_eq!(world.store.bytes(0, 512), [8; 512]);
    assert_eq!(world.store.bytes(512 << 10, 512), [0; 512], "it was aborted there");
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

/// SBC-4 4.11.2: nothing is written any more behind a sanitize that has begun.
#[test]
fn a_write_same_under_way_ends_when_a_sanitize_begins() {
    let world = World::small();
    let fill = task(build::write_same_16(extent(0, 0), false, false), &[7; 512]);
    let Progress::Store(execution, request) = world.begin(OTHER, fill) else { panic!("it writes") };
    let erase = task([0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    let Progress::Wait(erasing) = world.begin(NEXUS, erase) else { panic!("a piece is being written") };
    let completion = blocking::run(&**execution.store(), request);
    let Progress::Done(reply) = world.units.resume(execution, completion, &world.memory) else { panic!("it goes on") };
    assert_eq!(sense(&reply).additional, AdditionalSense::NOT_READY_SANITIZE_IN_PROGRESS);
    assert_eq!(world.finish(world.units.retry(erasing, &world.memory)).status, Status::Good);
    assert_eq!(world.store.bytes(0, 1 << 20), vec![0; 1 << 20]);
}

/// SBC-4 4.13: whoever asks is told that it is protected, not that there is no such command.
#[test]
fn a_thin_disk_that_is_read_only_refuses_to_unmap() {
    let world = World::new(Geometry { read_only: true, ..SMALL }, true);
    assert_eq!(world.good(build::inquiry(Some(0xb2), 255), &[])[5] & 0xe0, 0xe0, "LBPU, LBPWS, LBPWS10");
    let protected = Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
    assert_eq!(unmap(&world, &[extent(0, 1)]), Err(protected));
    assert_eq!(world.bad(build::write_same_16(extent(0, 1), true, true), &[]), protected);
}

#[test]
fn a_thick_disk_has_no_unmap() {
    let world = World::new(Geometry { discards: false, ..SMALL }, true);
    let unknown = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(world.bad(build::unmap(24), &[0; 24]), unknown);
    let unmapping = world.bad(build::write_same_16(extent(0, 1), true, true), &[]);
    assert_eq!(unmapping, Sense::invalid_field_in_cdb(1, Some(3)));
    assert_eq!(world.good(build::inquiry(Some(0xb2), 255), &[]), [0, 0xb2, 0, 4, 0, 0, 0, 0]);
    assert_eq!(world.good(build::read_capacity_16(32), &[])[14], 0);
}
