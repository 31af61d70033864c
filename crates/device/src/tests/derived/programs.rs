//! Programs that judge the commands of derived units.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::Instant;
use sanwire_scsi::{
    AdditionalSense, Cdb, Extent, OperationClasses, Piece, Sense, SenseKey, Status, Task, build, unmap_parameters,
};
use sanwire_store_file::blocking;

use super::super::copy::{A, B, SECOND, aborted, list, run, segment};
use super::{DENIED, NOT_THERE, OUT_OF_RANGE, blocks, good, of, on, read, swap, write};
use crate::testing::{Driver, NEXUS, OTHER, World, lun, sense};
use crate::{
    AllowedOperations, BlockRange, CommandProgram, Derivation, JudgedCommand, Judgement, Keeping, LogicalUnit,
    Progress, RecordListener, UnitOptions, Verdict,
};

/// What a program was asked.
#[derive(Clone, PartialEq, Debug)]
struct Asked {
    code: u8,
    ranges: Vec<(u64, u64)>,
    waited_ms: u32,
    head: Vec<u8>,
}

/// Says what it was told to say, one after the other, and then allows everything.
#[derive(Default, Debug)]
struct Script {
    lines: Mutex<VecDeque<Judgement>>,
    asked: Mutex<Vec<Asked>>,
    ended: Mutex<Vec<(u64, bool)>>,
    /// What becomes of wishes.
    keeping: Mutex<Option<Keeping>>,
    /// The wish with which it answers the end of a command.
    at_end: Mutex<Option<u64>>,
    listeners: Mutex<Vec<RecordListener>>,
    head_bytes: usize,
    classes: Option<OperationClasses>,
}

impl Script {
    fn says(&self, judgement: impl Into<Judgement>) {
        self.lines.lock().unwrap().push_back(judgement.into());
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn places(&self) -> Vec<Vec<(u64, u64)>> {
        self.asked().into_iter().map(|asked| asked.ranges).collect()
    }

    fn ended(&self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.ended.lock().unwrap())
    }

    fn keeps(&self, keeping: Keeping) {
        *self.keeping.lock().unwrap() = Some(keeping);
        self.listeners.lock().unwrap().iter().for_each(RecordListener::tell);
    }
}

impl CommandProgram for Script {
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement {
        self.asked.lock().unwrap().push(Asked {
            code: command.cdb.operation_code(),
            ranges: command.ranges.iter().map(|BlockRange { lba, blocks }| (*lba, *blocks)).collect(),
            waited_ms: command.waited_ms,
            head: command.data_out.to_vec(),
        });
        self.lines.lock().unwrap().pop_front().unwrap_or(Verdict::Allow.into())
    }

    fn classes(&self) -> OperationClasses {
        self.classes.unwrap_or(OperationClasses::ALL)
    }

    fn data_head_bytes(&self) -> usize {
        self.head_bytes
    }

    fn listen(&self, listener: RecordListener) {
        self.listeners.lock().unwrap().push(listener);
    }

    fn keeping(&self, _wish: u64) -> Keeping {
        self.keeping.lock().unwrap().unwrap_or(Keeping::Kept)
    }

    fn ended(&self, token: u64, is_good: bool) -> Option<u64> {
        self.ended.lock().unwrap().push((token, is_good));
        *self.at_end.lock().unwrap()
    }
}

const REFUSED: Sense = Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
const NOT_ACCESSIBLE: Sense = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);

fn with(script: &Arc<Script>, extents: &[(u64, u64)]) -> Derivation {
    Derivation { program: Some(script.clone()), ..of(extents) }
}

/// A world whose unit 1 has these blocks and asks the program.
fn world(extents: &[(u64, u64)]) -> (World, Arc<Script>) {
    let (world, script) = (World::small(), Arc::new(Script::default()));
    world.derive(1, with(&script, extents));
    (world, script)
}

#[test]
fn a_program_is_asked_about_each_command_but_those_by_which_a_unit_is_found() {
    let (world, script) = world(&[(8, 16)]);
    for cdb in [build::inquiry(None, 255), build::request_sense(252), build::report_luns(64), build::test_unit_ready()]
    {
        good(world.on(1, cdb, &[]));
    }
    assert_eq!(script.asked(), []);
    good(world.run_task(NEXUS, read(1, 3, 2)));
    good(world.on(1, build::read_capacity_16(32), &[]));
    good(world.on(1, build::synchronize_cache_16(Extent { lba: 4, blocks: 0 }), &[]));
    let unmapped = unmap_parameters(&[Extent { lba: 1, blocks: 2 }, Extent { lba: 9, blocks: 1 }]).unwrap();
    good(world.on(1, build::unmap(unmapped.len() as u16), &unmapped));
    let places = script.places();
    assert_eq!(places, [vec![(3, 2)], vec![], vec![(4, 12)], vec![(1, 2), (9, 1)]]);
    assert_eq!(sense(&world.run_task(NEXUS, read(1, 15, 2))), OUT_OF_RANGE);
    assert_eq!(script.asked(), [], "there are no such blocks");
    good(world.run_task(NEXUS, read(0, 3, 2)));
    assert_eq!(script.asked(), [], "another unit");
}

#[test]
fn a_program_is_asked_for_the_classes_that_it_wants_and_sees_the_beginning_of_the_data() {
    let world = World::small();
    let classes = Some(OperationClasses::WRITE);
    let script = Arc::new(Script { head_bytes: 600, classes, ..Script::default() });
    world.derive(1, with(&script, &[(8, 16)]));
    good(world.run_task(NEXUS, read(1, 3, 2)));
    good(world.run_task(NEXUS, write(1, 0, &blocks(&[1, 2]))));
    let asked = script.asked();
    assert_eq!((asked.len(), asked[0].head.clone()), (1, blocks(&[1, 2])[..600].to_vec()));
    good(world.run_task(NEXUS, write(1, 0, &blocks(&[3]))));
    assert_eq!(script.asked()[0].head, blocks(&[3]));
}

#[test]
fn what_a_program_refuses_is_not_done_and_is_answered_with_its_words() {
    let (world, script) = world(&[(8, 16)]);
    script.says(Verdict::Refuse(REFUSED));
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[1])))), REFUSED);
    assert_eq!(world.store.bytes(8 * 512, 512), blocks(&[0]));
    let statistics = world.units.get(lun(1)).unwrap().derived().unwrap().statistics();
    assert_eq!(statistics.principals[0].usage.refused_program, 1);
}

#[test]
fn a_program_has_a_command_done_elsewhere_in_its_unit_and_nowhere_else() {
    let (world, script) = world(&[(8, 4), (100, 4)]);
    script.says(Verdict::Redirect { lba: 5 });
    good(world.run_task(NEXUS, write(1, 0, &blocks(&[1, 2]))));
    assert_eq!((world.store.bytes(8 * 512, 512), world.store.bytes(101 * 512, 1024)), (blocks(&[0]), blocks(&[1, 2])));
    script.says(Verdict::Redirect { lba: 5 });
    assert_eq!(good(world.run_task(NEXUS, read(1, 0, 2))), blocks(&[1, 2]));
    let unmapped = unmap_parameters(&[Extent { lba: 1, blocks: 2 }]).unwrap();
    for (cdb, data, lba) in [
        (build::write_16(Extent { lba: 0, blocks: 2 }, false), blocks(&[9, 9]), 7),
        (build::write_16(Extent { lba: 0, blocks: 2 }, false), blocks(&[9, 9]), u64::MAX),
        (Cdb::from([0x0a, 0, 0, 0, 1, 0]), blocks(&[9]), 0x20_0000),
        (build::unmap(unmapped.len() as u16), unmapped, 4),
        (build::read_capacity_16(32), Vec::new(), 4),
    ] {
        script.says(Verdict::Redirect { lba });
        assert_eq!(sense(&world.on(1, cdb, &data)), DENIED, "{cdb:?} to {lba}");
    }
    assert_eq!(world.store.bytes(0, 1 << 17).iter().filter(|byte| **byte == 9).count(), 0);
}

#[test]
fn what_a_program_puts_in_the_place_of_a_command_must_be_allowed_itself() {
    let world = World::small();
    let script = Arc::new(Script::default());
    let operations = AllowedOperations::of(OperationClasses::READ | OperationClasses::WRITE).with_operation(0x5f, None);
    world.derive(1, Derivation { operations, ..with(&script, &[(8, 8)]) });
    let rewritten = |lba, blocks| Verdict::Rewrite(build::write_16(Extent { lba, blocks }, false));
    script.says(rewritten(3, 1));
    good(world.run_task(NEXUS, write(1, 0, &blocks(&[1, 2]))));
    assert_eq!(world.store.bytes(8 * 512, 5 * 512), blocks(&[0, 0, 0, 1, 0]));
    let unknown = Verdict::Rewrite(Cdb::from([0xff, 0, 0, 0, 0, 0]));
    let reserve = Verdict::Rewrite(Cdb::from([0x16, 0, 0, 0, 0, 0]));
    for verdict in [rewritten(7, 2), rewritten(u64::MAX, 2), unknown, reserve] {
        script.says(verdict);
        assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[9, 9])))), DENIED, "{verdict:?}");
    }
    // Write exclusive, by another one (PERSISTENT RESERVE OUT: REGISTER, then RESERVE).
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        world.run_task(nexus, on(1, build::test_unit_ready(), &[]));
    }
    for (action, kind, place) in [(0, 0, 15), (1, 1, 7)] {
        let mut list = [0; 24];
        list[place] = 1;
        good(world.run_task(OTHER, on(1, [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list)));
    }
    good(world.run_task(NEXUS, read(1, 0, 1)));
    script.says(rewritten(0, 1));
    let becomes_write = on(1, build::read_16(Extent { lba: 0, blocks: 1 }), &blocks(&[9]));
    assert_eq!(world.run_task(NEXUS, becomes_write).status, Status::ReservationConflict);
}

#[test]
fn a_command_that_is_deferred_is_asked_about_again_and_not_for_ever() {
    let (world, script) = world(&[(8, 8)]);
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    for milliseconds in [0, 300, 60_000] {
        script.says(Verdict::Defer { milliseconds });
    }
    let mut progress = world.begin_at(NEXUS, write(1, 0, &blocks(&[1])), at(1000));
    let mut delays = Vec::new();
    let mut now = 1000;
    while let Progress::Deferred(submission, delay) = progress {
        delays.push(delay.as_millis() as u64);
        now += delay.as_millis() as u64;
        progress = world.units.begin(NEXUS, *submission, &world.memory, at(now));
    }
    good(world.finish(progress));
    assert_eq!(delays, [1, 300, 1000], "never at once, and never for long");
    let waited: Vec<u32> = script.asked().into_iter().map(|asked| asked.waited_ms).collect();
    assert_eq!(waited, [0, 1, 301, 1301]);
    script.says(Verdict::Defer { milliseconds: 10 });
    let Progress::Deferred(submission, _) = world.begin_at(NEXUS, read(1, 0, 1), at(0)) else { panic!("it waits") };
    script.says(Verdict::Defer { milliseconds: 10 });
    let Progress::Done(reply) = world.units.begin(NEXUS, *submission, &world.memory, at(10_000)) else { panic!() };
    assert_eq!(reply.status, Status::Busy);
    // A unit that is revoked meanwhile is not there any more.
    script.says(Verdict::Defer { milliseconds: 10 });
    let Progress::Deferred(submission, _) = world.begin_at(NEXUS, read(1, 0, 1), at(0)) else { panic!("it waits") };
    world.units.get(lun(1)).unwrap().revoke();
    assert_eq!(sense(&world.run_task(NEXUS, *submission)), NOT_THERE);
}

#[test]
fn a_command_begins_when_what_its_program_keeps_is_durable() {
    let (world, script) = world(&[(8, 8)]);
    let driver = Driver::new();
    let keeping = || Judgement { keep: Some(7), ..Verdict::Allow.into() };
    script.keeps(Keeping::Pending);
    script.says(keeping());
    let waiting = driver.wait(&world, world.begin(NEXUS, write(1, 0, &blocks(&[1]))));
    assert_eq!(world.store.bytes(8 * 512, 512), blocks(&[0]));
    script.keeps(Keeping::Kept);
    assert!(driver.take_woken(), "it is told");
    good(world.finish(Progress::Wait(waiting)));
    assert_eq!(world.store.bytes(8 * 512, 512), blocks(&[1]));
    script.keeps(Keeping::Failed);
    script.says(keeping());
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[2])))), NOT_ACCESSIBLE);
    assert_eq!(world.store.bytes(8 * 512, 512), blocks(&[1]));
    // A read that takes no store's time waits as well.
    script.keeps(Keeping::Pending);
    script.says(keeping());
    let waiting = driver.wait(&world, world.begin(NEXUS, on(1, build::read_capacity_16(32), &[])));
    world.units.get(lun(1)).unwrap().revoke();
    assert!(driver.take_woken());
    assert_eq!(sense(&world.finish(Progress::Wait(waiting))), NOT_THERE);
}

#[test]
fn a_program_hears_once_how_each_command_ends_that_it_wants_to_hear_of() {
    let (world, script) = world(&[(8, 8)]);
    let heard = |token, verdict: Verdict| script.says(Judgement { end: Some(token), ..verdict.into() });
    heard(1, Verdict::Allow);
    good(world.run_task(NEXUS, write(1, 0, &blocks(&[1]))));
    heard(2, Verdict::Allow);
    assert_eq!(sense(&world.on(1, swap(0), &blocks(&[9, 9]))).key, SenseKey::Miscompare);
    heard(3, Verdict::Allow);
    let aborted = world.begin(NEXUS, write(1, 0, &blocks(&[1])));
    assert_eq!(script.ended(), [(1, true), (2, false)]);
    drop(aborted);
    heard(4, Verdict::Refuse(REFUSED));
    world.run_task(NEXUS, read(1, 0, 1));
    heard(5, Verdict::Allow);
    good(world.on(1, build::read_capacity_16(32), &[]));
    assert_eq!(script.ended(), [(3, false), (4, false), (5, true)]);
    // The answer waits for what it wants kept of that.
    let driver = Driver::new();
    *script.at_end.lock().unwrap() = Some(9);
    script.keeps(Keeping::Pending);
    heard(6, Verdict::Allow);
    let Progress::Store(execution, request) = world.begin(NEXUS, write(1, 0, &blocks(&[2]))) else {
        panic!("it begins")
    };
    let completion = blocking::run(&**execution.store(), request);
    let waiting = driver.wait(&world, world.units.resume(execution, completion, &world.memory));
    assert_eq!((script.ended(), world.store.bytes(8 * 512, 512)), (vec![(6, true)], blocks(&[2])));
    script.keeps(Keeping::Kept);
    assert!(driver.take_woken());
    good(world.finish(Progress::Wait(waiting)));
    script.keeps(Keeping::Failed);
    heard(7, Verdict::Allow);
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[3])))), NOT_ACCESSIBLE);
}

#[test]
fn a_command_that_goes_in_pieces_or_waits_for_memory_is_asked_about_once() {
    let (mut world, script) = world(&[(8, 8)]);
    let piece = |from_bytes, medium| Some(Piece { from_bytes, medium, data_out_bytes: 2048 });
    let task = |piece| Task { piece, ..on(1, build::write_16(Extent { lba: 0, blocks: 4 }, false), &blocks(&[1, 2])) };
    script.says(Judgement { end: Some(1), ..Verdict::Redirect { lba: 4 }.into() });
    let Progress::Store(begun, request) = world.begin(NEXUS, task(piece(0, 0))) else { panic!("it is at the store") };
    let completion = blocking::run(&**begun.store(), request);
    let Progress::Piece(reply, continuation) = world.units.resume(begun, completion, &world.memory) else { panic!() };
    assert_eq!(script.ended(), [], "it goes on");
    let medium = reply.rest.unwrap().medium;
    good(world.run_task(NEXUS, continuation.with_piece(task(piece(1024, medium)))));
    assert_eq!((script.places(), script.ended()), (vec![vec![(0, 4)]], vec![(1, true)]));
    assert_eq!(world.store.bytes(8 * 512, 4096), blocks(&[0, 0, 0, 0, 1, 2, 1, 2]));
    world.memory = Region::new(64 << 10).unwrap();
    let taken = world.memory.frame(64 << 10);
    script.says(Judgement { end: Some(2), ..Verdict::Redirect { lba: 5 }.into() });
    let copying = Task { may_share: false, ..read(1, 0, 1) };
    let Progress::NoMemory(again) = world.begin(NEXUS, copying) else { panic!("there is none") };
    drop(taken);
    assert_eq!(good(world.run_task(NEXUS, *again)), blocks(&[2]));
    assert_eq!((script.places(), script.ended()), (vec![vec![(0, 1)]], vec![(2, true)]));
}

#[test]
fn programs_of_those_that_a_unit_is_derived_from_are_asked_by_their_own_numbers() {
    let (world, below) = world(&[(32, 32)]);
    let (first, above) = (world.units.get(lun(1)).unwrap(), Arc::new(Script { head_bytes: 16, ..Script::default() }));
    world.derive_from(&first, 2, with(&above, &[(16, 4), (0, 4)]));
    good(world.run_task(NEXUS, write(2, 1, &blocks(&[1, 2]))));
    assert_eq!((above.places(), below.places()), (vec![vec![(1, 2)]], vec![vec![(17, 2)]]));
    good(world.run_task(NEXUS, write(2, 3, &blocks(&[3, 4]))));
    assert_eq!((above.places(), below.places()), (vec![vec![(3, 2)]], vec![vec![(19, 1)], vec![(0, 1)]]));
    // What it says is about its own numbers, and must be in the unit above.
    below.says(Verdict::Redirect { lba: 2 });
    good(world.run_task(NEXUS, write(2, 0, &blocks(&[5, 6]))));
    assert_eq!(world.store.bytes(34 * 512, 1024), blocks(&[5, 6]));
    for lba in [8, 3, 15, 31, u64::MAX] {
        below.says(Verdict::Redirect { lba });
        assert_eq!(sense(&world.run_task(NEXUS, write(2, 0, &blocks(&[9, 9])))), DENIED, "{lba}");
    }
    below.says(Verdict::Rewrite(build::write_16(Extent { lba: 18, blocks: 1 }, false)));
    good(world.run_task(NEXUS, write(2, 0, &blocks(&[7, 9]))));
    assert_eq!(world.store.bytes(50 * 512, 1024), blocks(&[7, 3]));
    for verdict in [Verdict::Redirect { lba: 16 }, Verdict::Rewrite(build::test_unit_ready())] {
        below.says(verdict);
        assert_eq!(sense(&world.run_task(NEXUS, write(2, 3, &blocks(&[9, 9])))), DENIED, "it lies in two pieces");
    }
    above.asked();
    below.asked();
    above.says(Verdict::Redirect { lba: 6 });
    good(world.run_task(NEXUS, write(2, 0, &blocks(&[8]))));
    assert_eq!((above.places(), below.places()), (vec![vec![(0, 1)]], vec![vec![(2, 1)]]), "one after the other");
    above.says(Verdict::Refuse(REFUSED));
    assert_eq!(sense(&world.run_task(NEXUS, write(2, 0, &blocks(&[9])))), REFUSED);
    assert_eq!((above.asked().len(), below.asked().len()), (1, 0));
    let unmapped = unmap_parameters(&[Extent { lba: 3, blocks: 2 }, Extent { lba: 0, blocks: 1 }]).unwrap();
    good(world.on(2, build::unmap(unmapped.len() as u16), &unmapped));
    assert_eq!(below.places(), [vec![(19, 1), (0, 1), (16, 1)]]);
}

#[test]
fn copies_are_judged_where_they_read_and_where_they_write_before_anything_is_copied() {
    let (world, script) = (World::small(), Arc::new(Script::default()));
    let name = sanwire_scsi::Identity::new("vol", SECOND).unwrap();
    let part = LogicalUnit::derive(name, &world.root(), with(&script, &[(64, 32)]), UnitOptions::default()).unwrap();
    world.units.add(lun(1), part).unwrap();
    good(world.run_task(NEXUS, write(0, 0, &blocks(&[1, 2, 3, 4]))));
    let both = [segment(A, B, 2, 0, 4), segment(B, A, 2, 4, 32)];
    run(&world, &list(1, &both)).unwrap();
    let asked: Vec<_> = script.asked().into_iter().map(|asked| (asked.code, asked.ranges)).collect();
    assert_eq!(asked, [(0x8a, vec![(4, 2)]), (0x88, vec![(4, 2)])], "a write there, a read from there");
    assert_eq!(world.store.bytes(32 * 512, 1024), blocks(&[1, 2]));
    script.says(Verdict::Redirect { lba: 10 });
    run(&world, &list(2, &[segment(A, B, 2, 2, 4)])).unwrap();
    assert_eq!(world.store.bytes(74 * 512, 1024), blocks(&[3, 4]));
    assert_eq!(world.store.bytes(68 * 512, 1024), blocks(&[1, 2]));
    script.says(Verdict::Allow);
    script.says(Verdict::Refuse(REFUSED));
    let refused = [segment(A, B, 2, 0, 20), segment(A, B, 2, 0, 22)];
    assert_eq!(run(&world, &list(3, &refused)), aborted(REFUSED.additional));
    assert_eq!(world.store.bytes(84 * 512, 1024), blocks(&[0, 0]), "not the first one either");
    script.says(Verdict::Redirect { lba: 31 });
    let outside = aborted(AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS);
    assert_eq!(run(&world, &list(4, &[segment(A, B, 2, 0, 20)])), outside);
    // A copy that is given to the unit itself is a command too.
    script.asked();
    let own = list(5, &[segment(B, B, 1, 4, 20)]);
    let mut cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[10..14].copy_from_slice(&(own.len() as u32).to_be_bytes());
    good(world.on(1, cdb, &own));
    let codes: Vec<_> = script.asked().into_iter().map(|asked| asked.code).collect();
    assert_eq!(codes, [0x83, 0x88, 0x8a]);
}
