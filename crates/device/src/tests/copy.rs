use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sanwire_core::NexusId;
use sanwire_scsi::vpd::{Designator, TargetPort};
use sanwire_scsi::{AdditionalSense, Cdb, DeviceIdentification, Identity, Reply, Sense, SenseKey, Status, Task, copy};
use sanwire_store::{ErrorKind, Geometry};
use sanwire_store_file::blocking;

use crate::testing::{NEXUS, OTHER, Op, SMALL, TestStore, UUID, World, lun, ports, sense, task};
use crate::{
    AbortScope, CopyTargetResolver, CopyTargetUnit, LogicalUnit, LogicalUnits, Progress, Tenure, TokenSeed,
    UnitOptions, Volatility,
};

use super::tenure::Slow;

pub(super) const A: u8 = 0;
pub(super) const B: u8 = 1;
pub(super) const SECOND: [u8; 16] = *b"the second unit.";

fn disk(uuid: [u8; 16], store: &Arc<TestStore>, write_cache: bool) -> LogicalUnit {
    let options = UnitOptions {
        write_cache,
        token_seed: Some(TokenSeed::new(*b"some secret of the unit of tests")),
        ..UnitOptions::default()
    };
    LogicalUnit::new(Identity::new("vol", uuid).unwrap(), store.clone(), options).unwrap()
}

/// A unit of a number of its own, beside the world's unit zero.
pub(super) fn with_second(geometry: Geometry, write_cache: bool) -> (World, Arc<TestStore>) {
    let world = World::small();
    let store = TestStore::new(geometry);
    world.units.add(lun(1), disk(SECOND, &store, write_cache)).unwrap();
    (world, store)
}

fn naa_of(uuid: [u8; 16]) -> Vec<u8> {
    let page = Identity::new("vol", uuid).unwrap().to_page(&TargetPort::default());
    DeviceIdentification::parse(&page).unwrap().naa().unwrap().to_be_bytes().to_vec()
}

fn target(naa: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xe4, 0, 0, 0, 1, 3, 0, 8];
    bytes.extend(naa);
    bytes.resize(32, 0);
    bytes
}

pub(super) fn segment(source: u8, destination: u8, blocks: u16, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0x18, 0, source, 0, destination, 0, 0];
    bytes.extend(blocks.to_be_bytes());
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes
}

/// A segment in bytes, with byte offsets.
fn bytes_segment(length: u32, (from, source_offset): (u64, u16), (to, destination_offset): (u64, u16)) -> Vec<u8> {
    let mut bytes = vec![0x0a, 0, 0, 0x1c, 0, A, 0, B];
    bytes.extend(length.to_be_bytes());
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes.extend(source_offset.to_be_bytes());
    bytes.extend(destination_offset.to_be_bytes());
    bytes
}

/// A list for the units A (the world's) and B (the second).
pub(super) fn list(list_id: u8, segments: &[Vec<u8>]) -> Vec<u8> {
    let targets = [target(&naa_of(UUID)), target(&naa_of(SECOND))].concat();
    let segments = segments.concat();
    let mut bytes = vec![list_id, 0, 0, targets.len() as u8, 0, 0, 0, 0];
    bytes.extend((segments.len() as u32).to_be_bytes());
    bytes.extend([0; 4]);
    [bytes, targets, segments].concat()
}

fn extended_copy(list: &[u8]) -> Cdb {
    let mut cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    cdb.into()
}

fn results(action: u8, list_id: u8) -> Cdb {
    [0x84, action, list_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0].into()
}

pub(super) fn run(world: &World, list: &[u8]) -> Result<(), Sense> {
    let reply = world.run(NEXUS, extended_copy(list), list);
    if reply.status == Status::Good { Ok(()) } else { Err(cause(sense(&reply))) }
}

/// Without the segment that it happened in.
fn cause(sense: Sense) -> Sense {
    Sense { segment: None, ..sense }
}

/// The segment that could not be copied, and the byte of its descriptor that is to blame.
fn place(world: &World, list: &[u8]) -> (u16, Option<u16>) {
    let segment = sense(&world.run(NEXUS, extended_copy(list), list)).segment.unwrap();
    (segment.number, segment.byte)
}

pub(super) fn aborted(additional: AdditionalSense) -> Result<(), Sense> {
    Err(Sense::new(SenseKey::CopyAborted, additional))
}

fn fill(store: &TestStore, length: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..length).map(|at| (at / 512 * 31 + at) as u8).collect();
    bytes.iter().enumerate().for_each(|(at, byte)| store.set_byte(at, *byte));
    bytes
}

#[test]
fn a_copy_keeps_out_of_what_others_have_reserved() {
    let (world, _) = with_second(SMALL, true);
    world.establish(OTHER);
    let on_second = |cdb: [u8; 6]| Task { lun: Some(lun(1)), ..task(cdb, &[]) };
    world.run_task(OTHER, on_second([0x00, 0, 0, 0, 0, 0]));
    assert_eq!(world.run_task(OTHER, on_second([0x16, 0, 0, 0, 0, 0])).status, Status::Good, "RESERVE");
    for (segment, field) in [(segment(A, B, 1, 0, 0), 6), (segment(B, A, 1, 0, 0), 4)] {
        let list = list(1, &[segment]);
        assert_eq!(run(&world, &list), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
        assert_eq!(place(&world, &list), (0, Some(field)));
    }
    assert_eq!(world.run_task(OTHER, on_second([0x17, 0, 0, 0, 0, 0])).status, Status::Good, "RELEASE");
    run(&world, &list(1, &[segment(A, B, 1, 0, 0)])).unwrap();
}

/// Finds units elsewhere, where the initiator has another nexus.
#[derive(Debug)]
struct Elsewhere(LogicalUnits);

impl CopyTargetResolver for Elsewhere {
    fn find(&self, _: NexusId, designator: &Designator) -> Option<CopyTargetUnit> {
        self.0.find(designator).map(|unit| CopyTargetUnit::new(Arc::clone(unit.state()), THERE))
    }
}

const THERE: NexusId = NexusId(77);

#[test]
fn at_another_target_a_copy_is_bound_by_what_its_initiator_has_reserved_there() {
    let elsewhere = LogicalUnits::new();
    let (first, second) = (TestStore::new(SMALL), TestStore::new(SMALL));
    let source = elsewhere.add(lun(0), disk(UUID, &first, true)).unwrap();
    let destination = elsewhere.add(lun(1), disk(SECOND, &second, true)).unwrap();
    elsewhere.nexus_established(THERE, ports(1, 1));
    elsewhere.nexus_established(OTHER, ports(2, 1));
    let mut world = World::small();
    let own = LogicalUnits::with_copy_targets(Box::new(Elsewhere(elsewhere)));
    own.add(lun(0), disk(*b"one without name", &TestStore::new(SMALL), true)).unwrap();
    world.units = own;
    let bytes = list(1, &[segment(A, B, 1, 0, 0)]);
    for disk in [&source, &destination] {
        disk.reservations.reserve(OTHER).unwrap();
        assert_eq!(run(&world, &bytes), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
        disk.reservations.release(OTHER).unwrap();
        disk.reservations.reserve(THERE).unwrap();
        run(&world, &bytes).unwrap();
    }
    second.take_log();

    // Who loses the unit while the copy reads writes nothing there, and PREEMPT AND ABORT finds his copy.
    let Progress::Store(copying, read) = begin(&world, NEXUS, &bytes) else { panic!("the copy reads first") };
    let scope = |nexus| AbortScope::new(destination.id(), BTreeSet::from([nexus]));
    assert!(copying.is_covered_by(&scope(THERE), NEXUS) && !copying.is_covered_by(&scope(OTHER), NEXUS));
    destination.reservations.release(THERE).unwrap();
    destination.reservations.reserve(OTHER).unwrap();
    let completion = blocking::run(&**copying.store(), read);
    let reply = done(world.units.resume(copying, completion, &world.memory));
    assert_eq!(Err(cause(sense(&reply))), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
    assert_eq!(second.take_log(), []);
}

#[test]
fn blocks_go_from_one_store_to_another_in_pieces() {
    let (world, second) = with_second(SMALL, true);
    let data = fill(&world.store, 1 << 20);
    run(&world, &list(1, &[segment(A, B, 1536, 0, 512), segment(A, B, 1, 3, 0), segment(B, B, 0, 9, 0)])).unwrap();
    assert_eq!(second.bytes(512 * 512, 1536 * 512), data[..1536 * 512]);
    assert_eq!(second.bytes(0, 512), data[3 * 512..4 * 512]);
    let piece = 256 << 10;
    let writes: Vec<_> = second.take_log().into_iter().map(|(op, _, length)| (op, length)).collect();
    assert_eq!(writes, [(Op::Write, piece), (Op::Write, piece), (Op::Write, piece), (Op::Write, 512)]);
    assert_eq!(world.good(results(0, 1), &[]), [0, 0, 0, 8, 1, 0, 3, 0, 0, 12, 2, 0], "the status");
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes(), "all frames are home");
}

/// libiscsi's ExtendedCopy.Large, of newer versions than Debian's.
#[test]
fn one_segment_copies_as_much_as_the_unit_says_that_it_may() {
    let large = Geometry { length_bytes: 2 * u64::from(copy::SEGMENT_MAX_BYTES), discards: false, ..SMALL };
    let world = World::new(large, true);
    let second = TestStore::new(large);
    world.units.add(lun(1), disk(SECOND, &second, true)).unwrap();
    let data = fill(&world.store, 4 << 20);
    let told = world.good(results(3, 0), &[]);
    let length = u32::from_be_bytes(told[16..20].try_into().unwrap());
    assert!(length == copy::SEGMENT_MAX_BYTES && told[44..].contains(&0x0a), "MAXIMUM SEGMENT LENGTH: {told:?}");
    let half = large.length_bytes / 2 / 512;
    run(&world, &list(1, &[bytes_segment(length, (half, 0), (half, 0))])).unwrap();
    assert_eq!(written(&second), (u64::from(length), u64::from(length)), "all of the second half");
    run(&world, &list(1, &[bytes_segment(length, (0, 0), (0, 0))])).unwrap();
    assert_eq!((written(&second), second.bytes(0, data.len()) == data), ((0, u64::from(length)), true));
}

/// Where writes in one piece after the other began, and how long they were.
fn written(store: &TestStore) -> (u64, u64) {
    let writes: Vec<_> = store.take_log().into_iter().filter(|(op, ..)| *op == Op::Write).collect();
    assert!(writes.windows(2).all(|pair| pair[0].1 + pair[0].2 == pair[1].1), "without a gap");
    (writes[0].1, writes.iter().map(|(_, _, length)| length).sum())
}

#[test]
fn overlapping_ranges_arrive_whole_in_both_directions() {
    for (from, to) in [(0, 3), (3, 0), (0, 700), (700, 0), (5, 5)] {
        let world = World::small();
        let data = fill(&world.store, 1 << 20);
        run(&world, &list(1, &[segment(A, A, 1300, from, to)])).unwrap();
        let [from, to] = [from, to].map(|lba| lba as usize * 512);
        assert_eq!(world.store.bytes(to, 1300 * 512), data[from..from + 1300 * 512], "{from} {to}");
    }
}

#[test]
fn blocks_of_different_sizes_are_copied_when_they_are_whole_on_both_sides() {
    let (world, second) = with_second(Geometry { block_bytes: 4096, ..SMALL }, true);
    let data = fill(&world.store, 64 << 10);
    run(&world, &list(1, &[segment(A, B, 16, 8, 3)])).unwrap();
    assert_eq!(second.bytes(3 * 4096, 8192), data[4096..4096 + 8192]);
    let mut by_destination = segment(A, B, 2, 1, 0);
    by_destination[1] = 2;
    run(&world, &list(1, &[by_destination])).unwrap();
    assert_eq!(second.bytes(0, 8192), data[512..512 + 8192], "DC: so many blocks of the destination");
    let inexact = aborted(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT);
    assert_eq!(run(&world, &list(1, &[segment(A, B, 7, 0, 0)])), inexact);
    run(&world, &list(1, &[bytes_segment(4096, (0, 1024), (0, 4096))])).unwrap();
    assert_eq!(second.bytes(4096, 4096), data[1024..1024 + 4096]);
    for odd in
        [bytes_segment(4096, (0, 1), (0, 0)), bytes_segment(512, (0, 0), (0, 0)), bytes_segment(4096, (0, 0), (0, 512))]
    {
        assert_eq!(run(&world, &list(1, &[odd])), inexact);
    }
}

#[test]
fn a_disks_block_length_may_be_left_out_but_not_wrong() {
    let (world, _) = with_second(SMALL, true);
    let mut bytes = list(1, &[segment(A, B, 1, 0, 0)]);
    (bytes[16 + 30], bytes[48 + 30]) = (2, 2);
    run(&world, &bytes).unwrap();
    bytes[48 + 30] = 16;
    assert_eq!(run(&world, &bytes), aborted(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST));
}

#[test]
fn ranges_beyond_a_unit_are_refused_without_overflow() {
    let (world, second) = with_second(SMALL, true);
    for (from, to) in [(2047, 0), (0, 2047), (u64::MAX, 0), (0, u64::MAX), (1 << 55, 0), (0, u64::MAX / 512)] {
        let good_and_bad = [segment(A, B, 2, 0, 0), segment(A, B, 2, from, to)];
        assert_eq!(run(&world, &list(1, &good_and_bad)), aborted(AdditionalSense::NONE), "{from} {to}");
    }
    assert_eq!(place(&world, &list(1, &[segment(A, B, 2, 2047, 0)])), (0, Some(12)));
    assert_eq!(place(&world, &list(1, &[segment(A, B, 2, 0, 2047)])), (0, Some(20)));
    let far = bytes_segment(512, (u64::MAX / 512, 65024), (0, 0));
    assert_eq!(run(&world, &list(1, &[far])), aborted(AdditionalSense::NONE));
    let too_long = bytes_segment(copy::SEGMENT_MAX_BYTES + 512, (0, 0), (0, 0));
    assert_eq!(run(&world, &list(1, &[too_long])), aborted(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST));
    assert_eq!(second.take_log(), [], "all segments are checked before the first is copied");
}

#[test]
fn units_that_cannot_be_used_are_told_apart() {
    let (world, second) = with_second(SMALL, true);
    let index = |source, destination| run(&world, &list(1, &[segment(source, destination, 1, 0, 0)]));
    assert_eq!(index(2, B), aborted(AdditionalSense::UNREACHABLE_COPY_TARGET));
    assert_eq!(index(A, 255), aborted(AdditionalSense::UNREACHABLE_COPY_TARGET));
    let bad_destination = [segment(A, B, 1, 0, 0), segment(A, 255, 1, 0, 0)];
    assert_eq!(place(&world, &list(1, &bad_destination)), (1, Some(6)));
    let mut tape = list(1, &[segment(A, B, 1, 0, 0)]);
    tape[17] = 1;
    assert_eq!(run(&world, &tape), aborted(AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE));
    world.units.remove(lun(1)).unwrap();
    assert_eq!(index(A, B), aborted(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE));
    assert_eq!(index(A, A), Ok(()), "a target that no segment uses need not be there");
    assert_eq!(second.take_log(), []);
    let store = TestStore::new(Geometry { read_only: true, ..SMALL });
    world.units.add(lun(1), disk(SECOND, &store, true)).unwrap();
    assert_eq!(index(A, B), aborted(AdditionalSense::WRITE_PROTECTED));
    assert_eq!(index(B, A), Ok(()));
}

/// Shows unit A to everybody, and unit B to one initiator.
#[derive(Debug)]
struct Masked(LogicalUnits);

impl CopyTargetResolver for Masked {
    fn find(&self, nexus: NexusId, designator: &Designator) -> Option<CopyTargetUnit> {
        let unit = self.0.find(designator).filter(|unit| nexus == NEXUS || unit.identity().uuid() == UUID)?;
        Some(CopyTargetUnit::new(Arc::clone(unit.state()), nexus))
    }
}

/// CVE-2020-28374 was this: a copy manager that looked its units up among all that the machine had.
#[test]
fn a_copy_to_a_unit_that_is_not_mapped_to_the_initiator_fails() {
    let hidden = LogicalUnits::new();
    let (first, second) = (TestStore::new(SMALL), TestStore::new(SMALL));
    fill(&first, 512);
    hidden.add(lun(0), disk(UUID, &first, true)).unwrap();
    hidden.add(lun(1), disk(SECOND, &second, true)).unwrap();
    let mut world = World::small();
    world.units = LogicalUnits::with_copy_targets(Box::new(Masked(hidden)));
    world.units.add(lun(0), disk(*b"one without name", &TestStore::new(SMALL), true)).unwrap();
    let bytes = list(1, &[segment(A, B, 1, 0, 0)]);
    let reply = world.run(OTHER, extended_copy(&bytes), &bytes);
    assert_eq!(Err(cause(sense(&reply))), aborted(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE));
    let from_hidden = list(1, &[segment(B, A, 1, 0, 0)]);
    let reply = world.run(OTHER, extended_copy(&from_hidden), &from_hidden);
    assert_eq!(Err(cause(sense(&reply))), aborted(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE));
    assert_eq!((first.take_log(), second.take_log()), (vec![], vec![]));
    run(&world, &bytes).unwrap();
    assert_eq!(second.take_log(), [(Op::Write, 0, 512)]);
}

#[test]
fn an_error_in_the_middle_is_told_with_its_details() {
    let (world, second) = with_second(SMALL, true);
    fill(&world.store, 512);
    let bytes = list(9, &[segment(A, A, 1, 0, 1), segment(A, B, 1, 0, 0), segment(A, A, 1, 0, 2)]);
    second.fail(Op::Write, ErrorKind::Unwritable);
    assert_eq!(run(&world, &bytes), aborted(AdditionalSense::WRITE_ERROR));
    assert_eq!(world.good(results(0, 9), &[]), [0, 0, 0, 8, 2, 0, 1, 0, 0, 0, 2, 0]);
    let details = world.good(results(4, 9), &[]);
    assert_eq!((&details[..4], &details[56..60]), (&[0, 0, 0, 74][..], &[2, 0, 0, 18][..]));
    assert_eq!(Err(cause(Sense::parse(&details[60..]).unwrap())), aborted(AdditionalSense::WRITE_ERROR));
    assert_eq!(world.bad(results(4, 9), &[]), Sense::invalid_field_in_cdb(2, None), "told once");
    second.heal();
    world.store.fail(Op::Read, ErrorKind::Gone);
    assert_eq!(run(&world, &bytes), aborted(AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED));
    assert!(world.units.get(lun(0)).unwrap().is_gone() && !world.units.get(lun(1)).unwrap().is_gone());
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

#[test]
fn results_are_kept_for_their_initiator_until_they_are_read() {
    let (world, _) = with_second(SMALL, true);
    let unknown = Sense::invalid_field_in_cdb(2, None);
    for action in [0, 1, 4] {
        assert_eq!(world.bad(results(action, 1), &[]), unknown);
    }
    run(&world, &list(1, &[segment(A, B, 1, 0, 0)])).unwrap();
    assert_eq!(world.good(results(1, 1), &[]), [0; 4], "no data is held");
    assert_eq!(world.good(results(4, 1), &[]), [0; 4], "nothing has failed");
    assert_eq!(sense(&world.run(OTHER, results(0, 1), &[])), unknown, "another initiator's");
    assert_eq!(world.good(results(0, 1), &[])[4], 1);
    assert_eq!(world.bad(results(0, 1), &[]), unknown, "read once");
    for is_reset in [false, true] {
        run(&world, &list(1, &[])).unwrap();
        if is_reset {
            assert!(world.units.logical_unit_reset(lun(0)));
        } else {
            world.units.nexus_lost(NEXUS);
        }
        assert_eq!(world.bad(results(0, 1), &[]), unknown);
    }
    let mut silent = list(0, &[]);
    silent[1] = 0x18;
    run(&world, &silent).unwrap();
    assert_eq!(world.bad(results(0, 0), &[]), unknown, "none wanted");
    assert_eq!(world.good(results(3, 0), &[]), copy::operating_parameters(512));
}

pub(super) fn begin(world: &World, nexus: NexusId, list: &[u8]) -> Progress {
    world.begin(nexus, task(extended_copy(list), list))
}

fn done(progress: Progress) -> Reply {
    let Progress::Done(reply) = progress else { panic!("it goes on") };
    reply
}

#[test]
fn a_list_identifier_in_use_is_refused_and_an_aborted_copy_frees_it() {
    let (world, _) = with_second(SMALL, true);
    let bytes = list(5, &[segment(A, B, 1, 0, 0)]);
    let running = begin(&world, NEXUS, &bytes);
    assert!(matches!(running, Progress::Store(..)));
    assert_eq!(world.good(results(0, 5), &[])[4], 0, "under way");
    let in_progress = Sense::new(SenseKey::IllegalRequest, AdditionalSense::OPERATION_IN_PROGRESS);
    assert_eq!(sense(&done(begin(&world, NEXUS, &bytes))), in_progress);
    assert!(matches!(begin(&world, OTHER, &bytes), Progress::Store(..)), "another initiator's identifiers are its own");
    drop(running);
    assert_eq!(world.good(results(4, 5), &[])[56], Status::TaskAborted as u8);
    assert_eq!(world.good(results(0, 5), &[])[4], 2);
    run(&world, &bytes).unwrap();
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

#[test]
fn what_is_remembered_is_bounded() {
    let (world, _) = with_second(SMALL, true);
    for id in 0..=copy::COPIES_OF_NEXUS_MAX {
        run(&world, &list(id, &[])).unwrap();
    }
    assert_eq!(world.bad(results(0, 0), &[]), Sense::invalid_field_in_cdb(2, None), "the oldest is forgotten");
    let running: Vec<_> =
        (0..copy::COPIES_OF_NEXUS_MAX).map(|id| begin(&world, NEXUS, &list(id, &[segment(A, B, 1, 0, 0)]))).collect();
    let full = sense(&done(begin(&world, NEXUS, &list(200, &[segment(A, B, 1, 0, 0)]))));
    assert_eq!(full, Sense::new(SenseKey::IllegalRequest, AdditionalSense::INSUFFICIENT_RESOURCES));
    drop(running);
    run(&world, &list(200, &[segment(A, B, 1, 0, 0)])).unwrap();
}

#[test]
fn without_memory_nothing_is_noted() {
    let (mut world, _) = with_second(SMALL, true);
    world.memory = sanwire_buffer::Region::new(4096).unwrap();
    let bytes = list(1, &[segment(A, B, 1, 0, 0)]);
    let held = world.memory.frame(4096).unwrap();
    let Progress::NoMemory(again) = begin(&world, NEXUS, &bytes) else { panic!("there is no memory") };
    assert_eq!(world.bad(results(0, 1), &[]), Sense::invalid_field_in_cdb(2, None));
    drop(held);
    assert_eq!(world.run_task(NEXUS, *again).status, Status::Good);
}

#[test]
fn a_unit_without_write_cache_is_flushed_before_a_segment_counts() {
    let (world, second) = with_second(SMALL, false);
    fill(&world.store, 512);
    run(&world, &list(1, &[segment(A, B, 1, 0, 0), segment(A, B, 0, 0, 0), segment(A, B, 1, 0, 5)])).unwrap();
    let log = [(Op::Write, 0, 512), (Op::Flush, 0, 0), (Op::Write, 2560, 512), (Op::Flush, 0, 0)];
    assert_eq!(second.take_log(), log);
    second.fail(Op::Flush, ErrorKind::Full);
    let failed = run(&world, &list(1, &[segment(A, B, 1, 0, 0)]));
    assert_eq!(failed, aborted(AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT));
    assert_eq!(world.good(results(0, 1), &[]), [0, 0, 0, 8, 2, 0, 0, 0, 0, 0, 2, 0]);
}

#[test]
fn lists_that_end_early_copy_nothing() {
    let (world, second) = with_second(SMALL, true);
    let bytes = list(1, &[segment(A, B, 1, 0, 0)]);
    let error = Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR));
    for length in 1..bytes.len() {
        assert_eq!(run(&world, &bytes[..length]), error, "{length}");
    }
    let reply = world.run(NEXUS, extended_copy(&bytes), &bytes[..40]);
    assert_eq!(Err(sense(&reply)), error, "less data than the CDB says");
    run(&world, &[]).unwrap();
    assert_eq!(second.take_log(), []);
}

/// A unit may change while a copy is under way: each segment meets it as it then is.
#[test]
fn each_segment_meets_the_units_as_they_are() {
    let (world, second) = with_second(SMALL, true);
    fill(&world.store, 512);
    let bytes = list(1, &[segment(A, B, 1, 0, 0), segment(A, B, 1, 0, 9)]);
    let mut progress = begin(&world, NEXUS, &bytes);
    second.set_length(4096);
    let reply = loop {
        match progress {
            Progress::Done(reply) => break reply,
            Progress::Store(execution, request) => {
                let completion = blocking::run(&**execution.store(), request);
                progress = world.units.resume(execution, completion, &world.memory);
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(Err(cause(sense(&reply))), aborted(AdditionalSense::NONE));
    assert_eq!(second.take_log(), [(Op::Write, 0, 512)]);
}

/// COMPARE AND WRITE is one action also for a copy that writes to the same blocks.
#[test]
fn a_copy_waits_for_a_swap_of_its_destination() {
    let (world, second) = with_second(SMALL, true);
    let swap = |blocks: [u8; 1024]| {
        let mut swap = task([0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], &blocks);
        swap.lun = Some(lun(1));
        world.begin(OTHER, swap)
    };
    fill(&world.store, 512);
    let Progress::Store(swapping, read) = swap([0; 1024]) else { panic!("the swap reads first") };
    let Progress::Store(copying, request) = begin(&world, NEXUS, &list(1, &[segment(A, B, 1, 0, 0)])) else {
        panic!("the copy asks first")
    };
    let start = |execution: &crate::Execution, request| blocking::run(&**execution.store(), request);
    let completion = start(&copying, request);
    let Progress::Store(copying, request) = world.units.resume(copying, completion, &world.memory) else {
        panic!("its source has data")
    };
    let completion = start(&copying, request);
    let Progress::Wait(waiting) = world.units.resume(copying, completion, &world.memory) else { panic!("it waits") };
    let completion = start(&swapping, read);
    let mut progress = world.units.resume(swapping, completion, &world.memory);
    while let Progress::Store(execution, request) = progress {
        let completion = start(&execution, request);
        progress = world.units.resume(execution, completion, &world.memory);
    }
    assert_eq!(done(progress).status, Status::Good);
    second.take_log();
    let Progress::Store(copying, write) = world.units.retry(waiting, &world.memory) else {
        panic!("nothing is in its way")
    };
    let completion = start(&copying, write);
    assert_eq!(done(world.units.resume(copying, completion, &world.memory)).status, Status::Good);
    assert_eq!(second.take_log(), [(Op::Write, 0, 512)]);
}

/// SBC-4 4.11.2: what was read before a sanitize of the destination begins is not written behind it.
#[test]
fn a_copy_under_way_ends_when_a_sanitize_begins() {
    let (world, second) = with_second(SMALL, true);
    let start = |execution: &crate::Execution, request| blocking::run(&**execution.store(), request);
    let Progress::Store(copying, request) = begin(&world, NEXUS, &list(1, &[segment(A, B, 1, 0, 0)])) else {
        panic!("the copy reads first")
    };
    let completion = start(&copying, request);
    let mut erase = task([0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
    erase.lun = Some(lun(1));
    let Progress::Store(erasing, discard) = world.begin(OTHER, erase) else { panic!("nothing is in its way") };
    let reply = done(world.units.resume(copying, completion, &world.memory));
    assert_eq!(Err(cause(sense(&reply))), aborted(AdditionalSense::NOT_READY_SANITIZE_IN_PROGRESS));
    assert_eq!(second.take_log(), []);
    assert_eq!(world.finish(Progress::Store(erasing, discard)).status, Status::Good);
}

/// Where a write by its initiator would be refused a copy writes nothing either.
#[test]
fn a_copy_ends_where_its_initiator_may_not_write() {
    let world = World::small();
    let (store, keeper) = (TestStore::new(SMALL), Arc::new(Slow::default()));
    let tenure = Some(Tenure { id: [7; 16], writer: [2; 16] });
    let volatility = Some(Volatility { verifier: [9; 16], has_failed: false, tenure, keeper: Some(keeper.clone()) });
    let options = UnitOptions { volatility, ..UnitOptions::default() };
    let disk = LogicalUnit::new(Identity::new("vol", SECOND).unwrap(), store.clone(), options).unwrap();
    world.units.add(lun(1), disk).unwrap();
    fill(&world.store, 4 * 512);
    keeper.is_failing.store(true, Ordering::SeqCst);
    let list = list(0, &[segment(A, B, 4, 0, 0)]);
    assert_eq!(run(&world, &list), aborted(AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED));
    assert_eq!(store.bytes(0, 4 * 512), [0; 4 * 512]);
}
