use sanwire_buffer::Slices;
use sanwire_core::limits::{HYPERSCSI_TRANSFER_MAX_BYTES, LONG_TRANSFER_MAX_BYTES, PIECE_BYTES};
use sanwire_scsi::{
    AdditionalSense, Cdb, Extent, Information, Piece, Reply, Rest, Sense, SenseKey, Status, Task, build,
    vpd::BlockLimits,
};
use sanwire_store::{ErrorKind, Geometry};

use crate::testing::{NEXUS, OTHER, Op, SMALL, World, lun, sense, task};

const LARGE: Geometry = Geometry { length_bytes: 64 << 20, ..SMALL };

fn extent(lba: u64, bytes: usize) -> Extent {
    Extent { lba, blocks: (bytes / 512) as u32 }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 512 * 31 + at) as u8).collect()
}

/// The task of a command over a wire that can carry its data in pieces.
fn long(cdb: Cdb, from_bytes: u32, data: &[u8], data_out_bytes: usize) -> Task {
    let piece = Some(Piece { from_bytes, medium: 0, data_out_bytes: data_out_bytes as u32 });
    Task { data_in_max_bytes: LONG_TRANSFER_MAX_BYTES as u32, tells_residual: true, piece, ..task(cdb, data) }
}

/// Gives a command piece by piece; gives the data that it answers with, and its end.
fn run(world: &World, cdb: Cdb, data_out: &[u8]) -> (Vec<u8>, Reply) {
    let (mut data_in, mut from) = (Vec::new(), 0);
    loop {
        let to = (from + PIECE_BYTES).min(data_out.len());
        let reply =
            world.run_task(NEXUS, long(cdb, from as u32, data_out.get(from..to).unwrap_or(&[]), data_out.len()));
        data_in.extend(reply.data_in.iter().flat_map(Slices::to_vec));
        match reply.rest {
            Some(rest) => from = rest.from_bytes as usize,
            None => return (data_in, reply),
        }
    }
}

#[test]
fn the_longest_transfer_is_written_and_read_with_less_memory_than_it_has_bytes() {
    let world = World::new(LARGE, true);
    assert!(world.memory.length_bytes() < LONG_TRANSFER_MAX_BYTES);
    let data = pattern(LONG_TRANSFER_MAX_BYTES);
    let (_, written) = run(&world, build::write_16(extent(8, data.len()), false), &data);
    assert_eq!((written.status, written.data_out_bytes), (Status::Good, None));
    let pieces = LONG_TRANSFER_MAX_BYTES / PIECE_BYTES;
    let log = world.store.take_log();
    assert_eq!((log.len(), log[1]), (pieces, (Op::Write, 4096 + PIECE_BYTES as u64, PIECE_BYTES as u64)));
    // The store keeps the first 4 MiB.
    let (found, read) = run(&world, build::read_16(extent(8, data.len())), &[]);
    assert_eq!((read.status, found.len()), (Status::Good, data.len()));
    assert!(found[..4 << 20 >> 1] == data[..4 << 20 >> 1]);
    assert_eq!(world.store.take_log().len(), pieces);
    drop(read);
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes(), "all frames are home");
}

#[test]
fn a_block_more_than_the_longest_transfer_is_refused_before_anything_is_done() {
    let world = World::new(LARGE, true);
    let too_long = extent(0, LONG_TRANSFER_MAX_BYTES + 512);
    for cdb in [build::read_16(too_long), build::write_16(too_long, false)] {
        let reply = world.run_task(NEXUS, long(cdb, 0, &[1; 512], LONG_TRANSFER_MAX_BYTES + 512));
        assert_eq!(sense(&reply), Sense::invalid_field_in_cdb(10, None));
    }
    let past_the_end = extent(LARGE.length_bytes / 512 - 4096, (4096 + 1) * 512);
    for cdb in [build::read_16(past_the_end), build::write_16(past_the_end, false)] {
        let reply = world.run_task(NEXUS, long(cdb, 0, &[1; 512], 4097 * 512));
        let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
        assert_eq!(sense(&reply), out);
    }
    assert_eq!(world.store.take_log(), []);
}

#[test]
fn what_fits_goes_as_a_whole_and_without_pieces_more_is_refused() {
    let world = World::new(LARGE, true);
    let (found, _) = run(&world, build::read_16(extent(0, 1 << 20)), &[]);
    assert_eq!((found.len(), world.store.take_log()), (1 << 20, vec![(Op::Read, 0, 1 << 20)]));
    let too_long = extent(0, HYPERSCSI_TRANSFER_MAX_BYTES + 512);
    assert_eq!(world.bad(build::read_16(too_long), &[]), Sense::invalid_field_in_cdb(10, None));
    assert_eq!(world.bad(build::write_16(too_long, false), &[1; 512]), Sense::invalid_field_in_cdb(10, None));
}

#[test]
fn what_has_all_its_data_in_memory_is_done_at_once_however_long_it_may_be() {
    let world = World::new(LARGE, true);
    let (data, all) = (pattern(HYPERSCSI_TRANSFER_MAX_BYTES), extent(8, HYPERSCSI_TRANSFER_MAX_BYTES));
    assert_eq!(world.run(NEXUS, build::write_16(all, false), &data).status, Status::Good);
    let read = world.run_task(NEXUS, Task { data_in_max_bytes: data.len() as u32, ..task(build::read_16(all), &[]) });
    assert!(read.data_in.is_some_and(|found| found.to_vec() == data));
    let log = world.store.take_log();
    assert_eq!(log, [(Op::Write, 4096, data.len() as u64), (Op::Read, 4096, data.len() as u64)]);
}

#[test]
fn each_way_is_told_its_own_longest_transfer() {
    let world = World::new(LARGE, true);
    let limits = |task| {
        let page = world.run_task(NEXUS, task).data_in.unwrap().to_vec();
        let limits = BlockLimits::parse(&page).unwrap();
        (limits.maximum_transfer as usize * 512, limits.optimal_transfer as usize * 512)
    };
    let page = build::inquiry(Some(0xb0), 255);
    assert_eq!(limits(task(page, &[])), (HYPERSCSI_TRANSFER_MAX_BYTES, 1 << 20));
    assert_eq!(limits(long(page, 0, &[], 0)), (LONG_TRANSFER_MAX_BYTES, 1 << 20));
}

#[test]
fn only_the_last_piece_is_flushed() {
    for (world, force) in [(World::new(LARGE, true), true), (World::new(LARGE, false), false)] {
        let data = pattern(3 * PIECE_BYTES / 2 + (1 << 20));
        let (_, reply) = run(&world, build::write_16(extent(0, data.len()), force), &data);
        assert_eq!(reply.status, Status::Good);
        let flushes: Vec<bool> = world.store.take_log().iter().map(|entry| entry.0 == Op::Flush).collect();
        assert_eq!(flushes.iter().position(|is_flush| *is_flush), Some(flushes.len() - 1));
    }
}

#[test]
fn a_further_piece_is_of_a_command_that_has_begun() {
    let world = World::new(LARGE, true);
    world.establish(NEXUS);
    world.establish(OTHER);
    let data = pattern(2 << 20);
    let write = build::write_16(extent(0, data.len()), false);
    for _ in 0..3 {
        world.run(NEXUS, [0; 6], &[]);
    }
    let begun = world.run_task(NEXUS, long(write, 0, &data[..PIECE_BYTES], data.len()));
    assert_eq!(begun.rest, Some(Rest { from_bytes: PIECE_BYTES as u32, end_bytes: 2 << 20, medium: 0 }));
    // Others may have reserved the unit and changed its modes meanwhile: that is for commands that come after.
    assert_eq!(world.run(OTHER, [0x16, 0, 0, 0, 0, 0], &[]).status, Status::CheckCondition, "an attention");
    while world.run(OTHER, [0x16, 0, 0, 0, 0, 0], &[]).status != Status::Good {}
    world.units.get(lun(0)).unwrap().capacity_changed();
    let next = world.run_task(NEXUS, long(write, PIECE_BYTES as u32, &data[PIECE_BYTES..2 * PIECE_BYTES], data.len()));
    assert_eq!((next.status, next.rest.unwrap().from_bytes), (Status::Good, 2 * PIECE_BYTES as u32));
    assert_ne!(world.run(NEXUS, build::write_16(extent(0, 512), false), &[1; 512]).status, Status::Good);
}

#[test]
fn an_error_in_the_middle_ends_the_command() {
    let world = World::new(LARGE, true);
    let read = build::read_16(extent(0, 4 << 20));
    assert!(world.run_task(NEXUS, long(read, 0, &[], 0)).rest.is_some());
    world.store.fail(Op::Read, ErrorKind::Unreadable);
    let reply = world.run_task(NEXUS, long(read, PIECE_BYTES as u32, &[], 0));
    assert_eq!((sense(&reply).key, reply.rest), (SenseKey::MediumError, None));
}

#[test]
fn verification_goes_in_pieces_too() {
    let world = World::new(LARGE, true);
    let data = pattern(3 << 20);
    let blocks = (data.len() as u32 / 512).to_be_bytes();
    let of = |code: u8, check: u8| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (code, check);
        cdb[10..14].copy_from_slice(&blocks);
        Cdb::from(cdb)
    };
    let (write_and_verify, verify) = (of(0x8e, 2), of(0x8f, 2));
    assert_eq!(run(&world, write_and_verify, &data).1.status, Status::Good);
    assert_eq!(run(&world, verify, &data).1.status, Status::Good);
    assert_eq!(run(&world, of(0x8f, 0), &[]).1.status, Status::Good, "the medium alone");
    let place = (2 << 20) + 77;
    world.store.set_byte(place, data[place] ^ 1);
    let differs = sense(&run(&world, verify, &data).1);
    assert_eq!((differs.key, differs.information), (SenseKey::Miscompare, Some(Information::Place(place as u64))));
    // What is short of data is not verified.
    assert_eq!(run(&world, verify, &data[..data.len() - 512]).1.status, Status::CheckCondition);
}

#[test]
fn a_write_that_brings_less_than_it_says_ends_with_what_came() {
    let world = World::new(LARGE, true);
    let data = pattern((2 << 20) + 512);
    let write = build::write_16(extent(0, 4 << 20), false);
    let (_, reply) = run(&world, write, &data);
    assert_eq!((reply.status, reply.data_out_bytes), (Status::Good, Some(4 << 20)));
    assert!(world.store.bytes(0, data.len()) == data);
    assert!(world.store.bytes(data.len(), 512).iter().all(|byte| *byte == 0));
}

#[test]
fn a_piece_that_cannot_be_is_refused() {
    let world = World::new(LARGE, true);
    for from in [512 * 8192, u32::MAX, 511, 1] {
        let read = long(build::read_16(extent(0, 4 << 20)), from, &[], 0);
        assert_eq!(world.run_task(NEXUS, read).status, Status::CheckCondition, "{from}");
        let write = long(build::write_16(extent(0, 4 << 20), false), from, &[1; 512], 4 << 20);
        assert_eq!(world.run_task(NEXUS, write).status, Status::CheckCondition, "{from}");
    }
    assert_eq!(world.store.take_log(), []);
}
