//! Reads that a store answers with shares of its own memory, also of several places in it.

use std::sync::Arc;
use std::thread;

use sanwire_buffer::{Region, Slices};
use sanwire_core::Instant;
use sanwire_core::limits::{LONG_TRANSFER_MAX_BYTES, PIECE_BYTES};
use sanwire_scsi::{Extent, Identity, Piece, Reply, Status, Task, build};
use sanwire_store::{RamStore, Request};
use sanwire_store_file::blocking;

use crate::testing::{NEXUS, OTHER, UUID, World, lun, task};
use crate::{LogicalUnit, Progress, UnitOptions};

/// What the store in memory is made of.
const CHUNK_BYTES: usize = 256 << 10;
const LENGTH_BYTES: usize = 20 << 20;

fn pattern(from_bytes: usize, bytes: usize) -> Vec<u8> {
    (from_bytes..from_bytes + bytes).map(|at| (at / 512 * 31 + at) as u8).collect()
}

/// A world whose unit 0 is in memory, all of it written. There is memory for one frame of 4 KiB.
fn world() -> World {
    let mut world = World::small();
    let store = RamStore::new(LENGTH_BYTES as u64, 512);
    for offset_bytes in (0..LENGTH_BYTES).step_by(CHUNK_BYTES) {
        let data = pattern(offset_bytes, CHUNK_BYTES).into();
        let _ = blocking::run(&store, Request::Write { offset_bytes: offset_bytes as u64, data });
    }
    world.units.remove(lun(0)).unwrap();
    let disk = LogicalUnit::new(Identity::new("ram", UUID).unwrap(), Arc::new(store), UnitOptions::default()).unwrap();
    world.units.add(lun(0), disk).unwrap();
    world.memory = Region::new(4096).unwrap();
    world
}

fn read(from_bytes: usize, bytes: usize) -> Task {
    let extent = Extent { lba: (from_bytes / 512) as u64, blocks: (bytes / 512) as u32 };
    Task { data_in_max_bytes: bytes as u32, ..task(build::read_16(extent), &[]) }
}

fn data(reply: Reply) -> Vec<u8> {
    assert_eq!(reply.status, Status::Good);
    reply.data_in.map_or(Vec::new(), |data| data.to_vec())
}

#[test]
fn a_read_over_several_chunks_takes_no_memory() {
    let world = world();
    for (from, bytes) in [(0, 2 * CHUNK_BYTES), (CHUNK_BYTES - 512, 1024 + CHUNK_BYTES), (4096, 3 << 20)] {
        let reply = world.run_task(NEXUS, read(from, bytes));
        let shared = reply.data_in.as_ref().unwrap();
        let chunks = (from + bytes).div_ceil(CHUNK_BYTES) - from / CHUNK_BYTES;
        assert_eq!((shared.pieces().len(), shared.lent_bytes()), (chunks, chunks * CHUNK_BYTES));
        assert!(data(reply) == pattern(from, bytes), "{bytes} from {from}");
    }
}

#[test]
fn blocks_that_a_lost_write_may_still_change_are_not_shared() {
    let world = world();
    let extent = Extent { lba: 8, blocks: 8 };
    let write = Task { data_out: Some(vec![7; 4096].into()), ..task(build::write_16(extent, false), &[]) };
    let Progress::Store(mut lost, request) = world.begin(OTHER, write) else { panic!("it begins") };
    lost.keep_blocks();
    let Progress::Wait(waiting) = world.begin(NEXUS, read(4096, 4096)) else { panic!("shared with a lost write") };
    let completion = blocking::run(&**lost.store(), request);
    let _ = world.units.resume(lost, completion, &world.memory);
    let Progress::Store(read, request) = world.units.retry(waiting, &world.memory) else { panic!("it may go") };
    let completion = blocking::run(&**read.store(), request);
    let Progress::Done(reply) = world.units.resume(read, completion, &world.memory) else { panic!("it is over") };
    assert_eq!(data(reply), [7; 4096]);
}

#[test]
fn who_may_not_share_gets_copies_as_memory_comes() {
    let mut world = world();
    let task = Task { may_share: false, ..read(CHUNK_BYTES - 4096, 64 << 10) };
    world.memory = Region::new(64 << 10).unwrap();
    let taken = world.memory.frame(4096);
    let Progress::NoMemory(task) = world.begin(NEXUS, task) else { panic!("shared, or copied to nowhere") };
    drop(taken);
    let reply = world.run_task(NEXUS, *task);
    assert_eq!(reply.data_in.as_ref().map(|copy| (copy.pieces().len(), copy.lent_bytes())), Some((1, 0)));
    assert!(data(reply) == pattern(CHUNK_BYTES - 4096, 64 << 10));
}

#[test]
fn shares_of_several_chunks_are_cut_to_the_room_for_them() {
    let world = world();
    for room in [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, CHUNK_BYTES + 1000] {
        let reply = world.run_task(NEXUS, Task { data_in_max_bytes: room as u32, ..read(512, 3 * CHUNK_BYTES) });
        assert!(data(reply) == pattern(512, room), "{room}");
    }
}

#[test]
fn a_long_read_goes_in_pieces_of_shares() {
    let world = world();
    let (mut found, mut from_bytes) = (Vec::new(), 0);
    loop {
        let piece = Some(Piece { from_bytes, medium: 0, data_out_bytes: 0 });
        let reply = world.run_task(NEXUS, Task { piece, ..read(4096, LONG_TRANSFER_MAX_BYTES) });
        let rest = reply.rest;
        assert_eq!(reply.data_in.as_ref().map(|data| (data.len(), data.heap_bytes())), Some((PIECE_BYTES, 0)));
        found.extend(data(reply));
        let Some(rest) = rest else { break };
        from_bytes = rest.from_bytes;
    }
    assert!(found == pattern(4096, LONG_TRANSFER_MAX_BYTES));
}

/// SAM-5 says nothing of commands that are under way at once. This store keeps more than it must: what a READ shows of a WRITE is all
/// of it or nothing, whether it is copied or shared; what it has shown does not change any more.
#[test]
fn a_shared_read_shows_each_write_wholly_or_not_at_all() {
    let (world, from, bytes) = (world(), CHUNK_BYTES - 4096, CHUNK_BYTES + 8192);
    let write = |byte: u8| {
        let extent = Extent { lba: (from / 512) as u64, blocks: (bytes / 512) as u32 };
        Task { data_out: Some(vec![byte; bytes].into()), ..task(build::write_16(extent, false), &[]) }
    };
    // The units, but not the test's store, are for several threads.
    let units = &world.units;
    let reply = |nexus, task| {
        let memory = Region::new(1 << 20).unwrap();
        let mut progress = units.begin(nexus, task, &memory, Instant::ZERO);
        loop {
            match progress {
                Progress::Done(reply) => return reply,
                Progress::Store(execution, request) => {
                    let completion = blocking::run(&**execution.store(), request);
                    progress = units.resume(execution, completion, &memory);
                }
                Progress::Wait(waiting) => progress = units.retry(waiting, &memory),
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(reply(OTHER, write(0)).status, Status::Good);
    thread::scope(|scope| {
        let writer =
            scope.spawn(|| (1..=100).for_each(|byte| assert_eq!(reply(OTHER, write(byte)).status, Status::Good)));
        let mut kept = Vec::new();
        loop {
            let is_over = writer.is_finished();
            let shown = reply(NEXUS, read(from, bytes)).data_in.unwrap();
            kept.push((shown.pieces()[0][0], shown));
            if is_over || kept.len() == 64 {
                assert!(
                    kept.drain(..).all(|(byte, shown): (u8, Slices)| shown.to_vec().iter().all(|other| *other == byte))
                );
            }
            if is_over {
                return;
            }
        }
    });
    // The chunks that had to be copied are shared again after some reads.
    let shared = (0..=255).map(|_| reply(NEXUS, read(from, bytes)).data_in.unwrap()).find(|data| data.lent_bytes() > 0);
    assert!(shared.is_some_and(|data| data.pieces().len() == 3 && data.to_vec() == vec![100; bytes]));
}
