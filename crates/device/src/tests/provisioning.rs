use sanwire_scsi::{AdditionalSense, Extent, Sense, SenseKey, build, unmap_parameters};
use sanwire_store::{ErrorKind, Geometry};

use crate::testing::{Op, SMALL, World};

const fn extent(lba: u64, blocks: u32) -> Extent {
    Extent { lba, blocks }
}

const LARGE: Geometry = Geometry { length_bytes: 1 << 40, ..SMALL };

fn unmap(world: &World, extents: &[Extent]) -> Result<(), Sense> {
    let list = unmap_parameters(extents).unwrap();
    let reply = world.run(crate::testing::NEXUS, build::unmap(list.len() as u16), &list);
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
    assert_eq!((failed.key, failed.information), (SenseKey::MediumError, Some(1)));
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
fn write_same_has_limits() {
    let world = World::new(LARGE, true);
    let length = Sense::invalid_field_in_cdb(10, None);
    assert_eq!(world.bad(build::write_same_16(extent(0, 0), false, true), &[]), length, "WSNZ");
    assert_eq!(world.bad(build::write_same_16(extent(0, 65_536), false, true), &[]), length);
    assert_eq!(world.bad(build::write_same_16(extent(0, 1), false, false), &[0; 511]), length);
    world.good(build::write_same_16(extent(0, 65_535), false, false), &[1; 512]);
    assert_eq!(world.store.take_log().len(), 128);
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
