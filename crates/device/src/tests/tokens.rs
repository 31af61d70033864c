//! Tokens that stand for data.

mod changes;
mod holes;
mod life;
mod who;

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::rod::TOKEN_BYTES;
use sanwire_scsi::{AdditionalSense, Reply, Sense, SenseKey, Status, Task};
use sanwire_store_file::blocking;

use super::copy::with_second;
use crate::testing::{NEXUS, SMALL, TestStore, World, lun, sense, task};
use crate::{Execution, Progress};

const BLOCK: usize = 512;

pub(super) type Bytes = [u8; TOKEN_BYTES];

fn ranges(runs: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (lba, blocks) in runs {
        bytes.extend(lba.to_be_bytes());
        bytes.extend(blocks.to_be_bytes());
        bytes.extend([0; 4]);
    }
    bytes
}

fn command(action: u8, list_id: u32, unit: u16, list: &[u8]) -> Task {
    let mut cdb = [0x83, action, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[6..10].copy_from_slice(&list_id.to_be_bytes());
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    Task { lun: Some(lun(unit)), ..task(cdb, list) }
}

/// POPULATE TOKEN at a unit.
fn populate(list_id: u32, unit: u16, runs: &[(u64, u32)]) -> Task {
    populate_with((0, 0), list_id, unit, runs)
}

/// The same for a token that ends when it is not used for so many seconds.
pub(super) fn populate_for(inactivity_s: u32, list_id: u32, unit: u16, runs: &[(u64, u32)]) -> Task {
    populate_with((0, inactivity_s), list_id, unit, runs)
}

fn populate_with((flags, inactivity_s): (u8, u32), list_id: u32, unit: u16, runs: &[(u64, u32)]) -> Task {
    let ranges = ranges(runs);
    let mut list = (14 + ranges.len() as u16).to_be_bytes().to_vec();
    list.extend([flags, 0]);
    list.extend(inactivity_s.to_be_bytes());
    list.extend([0; 6]);
    list.extend((ranges.len() as u16).to_be_bytes());
    list.extend(ranges);
    command(0x10, list_id, unit, &list)
}

const IMMEDIATE: u8 = 1;
const DELETE: u8 = 2;

/// WRITE USING TOKEN at a unit, from a block of the token on.
pub(super) fn write_using(
    token: &Bytes,
    (flags, list_id): (u8, u32),
    unit: u16,
    (offset, runs): (u64, &[(u64, u32)]),
) -> Task {
    let ranges = ranges(runs);
    let mut list = (534 + ranges.len() as u16).to_be_bytes().to_vec();
    list.extend([flags, 0, 0, 0, 0, 0]);
    list.extend(offset.to_be_bytes());
    list.extend(token);
    list.extend([0; 6]);
    list.extend((ranges.len() as u16).to_be_bytes());
    list.extend(ranges);
    command(0x11, list_id, unit, &list)
}

/// 84h with a list identifier of four bytes.
pub(super) fn ask(action: u8, list_id: u32, unit: u16, room: u32) -> Task {
    let mut cdb = [0x84, action, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[2..6].copy_from_slice(&list_id.to_be_bytes());
    cdb[10..14].copy_from_slice(&room.to_be_bytes());
    Task { lun: Some(lun(unit)), ..task(cdb, &[]) }
}

fn abort(list_id: u32, unit: u16) -> Task {
    let mut cdb = [0x83, 0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[2..6].copy_from_slice(&list_id.to_be_bytes());
    Task { lun: Some(lun(unit)), ..task(cdb, &[]) }
}

const STATUS: u8 = 0x05;
pub(super) const INFORMATION: u8 = 0x07;

/// The answer to a command, or why it failed.
fn told(reply: Reply) -> Result<Vec<u8>, Sense> {
    match reply.status {
        Status::Good => Ok(reply.data_in.map_or(Vec::new(), |data| data.to_vec())),
        // Of no list, there is no segment.
        _ => Err(Sense { segment: None, ..sense(&reply) }),
    }
}

impl World {
    fn tell(&self, nexus: NexusId, task: Task) -> Result<Vec<u8>, Sense> {
        told(self.run_task(nexus, task))
    }

    /// A token of these blocks of a unit.
    fn token(&self, nexus: NexusId, unit: u16, runs: &[(u64, u32)]) -> Bytes {
        self.tell(nexus, populate(0xfeed, unit, runs)).unwrap();
        let told = self.tell(nexus, ask(INFORMATION, 0xfeed, unit, 1024)).unwrap();
        told[38..].try_into().unwrap()
    }

    /// Writes all of a token to a unit, from there on.
    fn use_token(&self, nexus: NexusId, token: &Bytes, unit: u16, (lba, blocks): (u64, u32)) -> Result<(), Sense> {
        self.tell(nexus, write_using(token, (0, 0xbeef), unit, (0, &[(lba, blocks)]))).map(drop)
    }
}

/// The world's disk, each block of which has a byte of its own, and a second one.
fn world() -> (World, Arc<TestStore>) {
    let (world, second) = with_second(SMALL, true);
    for block in 0..64 {
        set(&world.store, block, content(block));
    }
    (world, second)
}

fn content(block: usize) -> u8 {
    block as u8 + 1
}

fn set(store: &TestStore, block: usize, byte: u8) {
    (0..BLOCK).for_each(|at| store.set_byte(block * BLOCK + at, byte));
}

/// What the blocks hold, each of which holds one byte everywhere.
fn held(store: &TestStore, lba: usize, blocks: usize) -> Vec<u8> {
    let bytes = store.bytes(lba * BLOCK, blocks * BLOCK);
    let blocks = bytes.as_chunks::<BLOCK>().0.iter();
    blocks.inspect(|block| assert!(block.iter().all(|byte| *byte == block[0]))).map(|block| block[0]).collect()
}

fn illegal(additional: AdditionalSense) -> Sense {
    Sense::new(SenseKey::IllegalRequest, additional)
}

pub(super) const CANCELLED: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::TOKEN_CANCELLED);
pub(super) const UNKNOWN: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::TOKEN_UNKNOWN);

/// Lets the store do one request of a command.
fn step(world: &World, progress: Progress) -> Progress {
    let (Progress::Store(execution, request) | Progress::Answered(execution, request)) = progress else {
        panic!("{progress:?} has no work for a store")
    };
    let completion = blocking::run(&**execution.store(), request);
    resume(world, execution, completion)
}

fn resume(world: &World, execution: Execution, completion: sanwire_store::Completion) -> Progress {
    world.units.resume(execution, completion, &world.memory)
}

#[test]
fn a_token_stands_for_blocks_in_the_order_of_its_ranges() {
    let (world, second) = world();
    world.tell(NEXUS, populate(7, 0, &[(8, 4), (100, 0), (2, 2)])).unwrap();
    let told = world.tell(NEXUS, ask(INFORMATION, 7, 0, 1024)).unwrap();
    assert_eq!(
        (told.len(), &told[4..6], &told[12..24]),
        (550, &[0x10, 1][..], &[0, 0, 0, 0xf1, 0, 0, 0, 0, 0, 0, 0, 6][..])
    );
    assert_eq!(u32::from_be_bytes(told[32..36].try_into().unwrap()), 514);
    let token: Bytes = told[38..].try_into().unwrap();
    assert_eq!(token[48..64], (6 * 512_u128).to_be_bytes());
    assert_eq!(second.take_log(), [], "nothing was copied for that");
    let task = write_using(&token, (0, 9), 1, (1, &[(20, 2), (40, 3)]));
    world.tell(NEXUS, task).unwrap();
    let all = [9, 10, 11, 12, 3, 4];
    assert_eq!((held(&second, 20, 2), held(&second, 40, 3)), (all[1..3].to_vec(), all[3..].to_vec()));
    assert_eq!((held(&second, 19, 1), held(&second, 22, 1), held(&second, 43, 1)), (vec![0], vec![0], vec![0]));
    let told = world.tell(NEXUS, ask(INFORMATION, 9, 1, 1024)).unwrap();
    assert_eq!((told.len(), &told[4..6], told[23], &told[32..]), (36, &[0x11, 1][..], 5, &[0; 4][..]));
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes(), "all frames are home");
}

#[test]
fn what_no_token_has_data_for_is_not_written() {
    let (world, second) = world();
    let token = world.token(NEXUS, 0, &[(0, 4)]);
    world.tell(NEXUS, write_using(&token, (0, 1), 1, (3, &[(0, 1), (8, 4)]))).unwrap();
    assert_eq!((held(&second, 0, 1), held(&second, 8, 4)), (vec![4], vec![0; 4]));
    let told = world.tell(NEXUS, ask(STATUS, 1, 1, 1024)).unwrap();
    assert_eq!((told[5], told[23]), (0x03, 1), "less than was asked for");
    let beyond = Err(Sense::invalid_field_in_parameters(8, None));
    for offset in [4, u64::MAX] {
        assert_eq!(world.tell(NEXUS, write_using(&token, (0, 1), 1, (offset, &[(0, 1)]))), beyond, "{offset}");
    }
    world.tell(NEXUS, write_using(&token, (0, 1), 1, (0, &[(0, 0)]))).unwrap();
    world.tell(NEXUS, command(0x11, 1, 1, &[])).unwrap();
    world.tell(NEXUS, command(0x10, 1, 1, &[])).unwrap();
    world.tell(NEXUS, populate(2, 0, &[(5, 0)])).unwrap();
    let told = world.tell(NEXUS, ask(INFORMATION, 2, 0, 1024)).unwrap();
    assert_eq!((told[5], told.len()), (1, 36), "no data, no token");
}

#[test]
fn a_token_of_another_block_size_serves_where_its_ranges_are_whole_blocks() {
    let (world, second) = with_second(sanwire_store::Geometry { block_bytes: 4096, ..SMALL }, true);
    (0..64).for_each(|block| set(&world.store, block, content(block)));
    let token = world.token(NEXUS, 0, &[(8, 8), (32, 16), (0, 4)]);
    world.tell(NEXUS, write_using(&token, (0, 1), 1, (1, &[(2, 2)]))).unwrap();
    assert_eq!(second.bytes(2 * 4096, 8192), world.store.bytes(32 * BLOCK, 8192));
    world.tell(NEXUS, write_using(&token, (0, 1), 1, (0, &[(0, 4)]))).unwrap();
    let told = world.tell(NEXUS, ask(STATUS, 1, 1, 1024)).unwrap();
    assert_eq!((told[5], told[23]), (0x03, 3), "the last half block is left out");
    let odd = world.token(NEXUS, 0, &[(0, 4), (8, 4)]);
    let granularity = Err(illegal(AdditionalSense::COPY_SEGMENT_GRANULARITY_VIOLATION));
    assert_eq!(world.tell(NEXUS, write_using(&odd, (0, 1), 1, (0, &[(0, 1)]))), granularity);
}

#[test]
fn a_token_is_not_written_over_its_own_blocks() {
    let (world, _) = world();
    let token = world.token(NEXUS, 0, &[(0, 8)]);
    let refused = Err(illegal(AdditionalSense::INVALID_OPERATION_FOR_COPY_SOURCE_OR_DESTINATION));
    assert_eq!(world.use_token(NEXUS, &token, 0, (7, 8)), refused);
    world.use_token(NEXUS, &token, 0, (8, 8)).unwrap();
    assert_eq!(held(&world.store, 8, 8), (0..8).map(content).collect::<Vec<_>>());
}

#[test]
fn lists_for_blocks_that_there_are_not_are_refused_whole() {
    let (world, second) = world();
    let out = Err(illegal(AdditionalSense::LBA_OUT_OF_RANGE));
    let token = world.token(NEXUS, 0, &[(0, 8)]);
    for run in [(2047, 2), (u64::MAX, 1), (1 << 55, 1)] {
        assert_eq!(world.tell(NEXUS, populate(1, 0, &[(0, 1), run])), out);
        assert_eq!(world.tell(NEXUS, write_using(&token, (0, 1), 1, (0, &[(0, 1), run]))), out);
    }
    assert_eq!(second.take_log(), []);
    let short = Task { data_out: None, ..populate(1, 0, &[(0, 1)]) };
    assert_eq!(world.tell(NEXUS, short), Err(illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)));
    assert_eq!(world.tell(NEXUS, ask(STATUS, 1, 0, 64)), Err(Sense::invalid_field_in_cdb(2, None)), "not begun");
}
