//! A flush that fails, of whomever: everybody whose writes may be lost with it hears of that, once.

use sanwire_core::NexusId;
use sanwire_scsi::vpd::WriteVerifier;
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Reply, Sense, SenseKey, Status, Task, build};
use sanwire_store::{Completion, ErrorKind, Outcome, ResizeError, StoreError};
use sanwire_store_file::blocking;

use crate::testing::{NEXUS, OTHER, Op, SMALL, World, lun, ports, sense, task};
use crate::{Progress, Volatility};

use super::media::{EJECT, removable};

mod before;

pub(super) const LOST: Sense = Sense::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR);
const LOOK: Sense = Sense::new(SenseKey::UnitAttention, AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
const THIRD: NexusId = NexusId(3);

pub(super) fn flush() -> Cdb {
    build::synchronize_cache_16(Extent { lba: 0, blocks: 0 })
}

fn write() -> Cdb {
    build::write_16(Extent { lba: 0, blocks: 1 }, false)
}

/// SYNCHRONIZE CACHE (10) with IMMED.
fn flush_later() -> Cdb {
    [0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0].into()
}

fn write_stable() -> Cdb {
    build::write_16(Extent { lba: 0, blocks: 1 }, true)
}

impl World {
    /// A world where these have come and heard of power on.
    fn of(nexuses: &[NexusId]) -> World {
        World::small().with(nexuses)
    }

    pub(super) fn with(self, nexuses: &[NexusId]) -> World {
        nexuses.iter().for_each(|nexus| self.come(*nexus));
        self
    }

    fn come(&self, nexus: NexusId) {
        self.establish(nexus);
        self.run(nexus, build::test_unit_ready(), &[]);
    }

    /// What becomes of the command while the store cannot flush: it says so once.
    fn failing(&self, nexus: NexusId, cdb: Cdb, data: &[u8]) -> Reply {
        self.store.fail(Op::Flush, ErrorKind::Unwritable);
        let reply = self.run(nexus, cdb, data);
        self.store.heal();
        reply
    }

    /// What the nexus hears when it flushes again and again.
    fn flushes(&self, nexus: NexusId) -> [Option<Sense>; 3] {
        [(); 3].map(|()| told(&self.run(nexus, flush(), &[])))
    }
}

pub(super) fn told(reply: &Reply) -> Option<Sense> {
    (reply.status != Status::Good).then(|| sense(reply))
}

#[test]
fn each_initiator_hears_once_of_a_flush_that_failed() {
    let world = World::of(&[NEXUS, OTHER, THIRD]);
    world.good(write(), &[1; 512]);
    assert_eq!(told(&world.failing(NEXUS, flush(), &[])), Some(LOST));
    assert_eq!(world.flushes(NEXUS), [None; 3], "it has heard of it");
    assert_eq!(world.flushes(OTHER), [Some(LOST), None, None]);
    assert_eq!(told(&world.run(THIRD, write(), &[2; 512])), None, "only what must be stable fails");
    assert_eq!(told(&world.run(THIRD, write_stable(), &[2; 512])), Some(LOST));
    assert_eq!(world.flushes(THIRD), [None; 3]);
}

/// Whatever command it was that flushed, and whatever its initiator was told.
#[test]
fn no_command_that_flushes_keeps_a_failure_to_itself() {
    let verify = Cdb::from([0x2e, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let stop = Cdb::from([0x1b, 0, 0, 0, 0, 0]);
    for (cdb, data, hears) in [
        (flush_later(), &[][..], false),
        (write_stable(), &[1; 512], true),
        (verify, &[1; 512], true),
        (stop, &[], true),
    ] {
        let world = World::of(&[NEXUS, OTHER]);
        let what = cdb.operation_code();
        assert_eq!(told(&world.failing(NEXUS, cdb, data)), hears.then_some(LOST), "{what:#x}");
        assert_eq!(world.flushes(NEXUS), [(!hears).then_some(LOST), None, None], "{what:#x}");
        assert_eq!(world.flushes(OTHER), [Some(LOST), None, None], "{what:#x}");
    }
    let world = World::new(SMALL, false).with(&[NEXUS, OTHER]);
    assert_eq!(told(&world.failing(NEXUS, write(), &[1; 512])), Some(LOST), "without a cache");
    assert_eq!(told(&world.run(OTHER, write(), &[1; 512])), Some(LOST));
    assert_eq!(world.flushes(OTHER), [None; 3]);
}

/// The whole medium is overwritten: what was lost before does not matter to it, and what it lost itself it tells.
#[test]
fn a_sanitize_tells_others_of_its_flush_and_hears_of_none() {
    let erase = || Cdb::from([0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    let world = World::of(&[NEXUS, OTHER]);
    let failed = Sense::new(SenseKey::MediumError, AdditionalSense::SANITIZE_COMMAND_FAILED);
    assert_eq!(told(&world.failing(NEXUS, erase(), &[])), Some(failed));
    assert_eq!(told(&world.run(OTHER, erase(), &[])), None);
    assert_eq!(world.flushes(OTHER), [Some(LOST), None, None]);
}

/// The medium stays, and its initiator may try again.
#[test]
fn a_medium_is_not_ejected_when_what_was_written_to_it_is_lost() {
    let world = removable().with(&[NEXUS, OTHER]);
    assert_eq!(told(&world.failing(NEXUS, EJECT.into(), &[])), Some(LOST));
    assert_eq!(told(&world.run(NEXUS, build::test_unit_ready(), &[])), None);
    assert_eq!(world.flushes(NEXUS), [None; 3], "it has heard of it");
    assert_eq!(world.flushes(OTHER), [Some(LOST), None, None]);
    assert_eq!(told(&world.run(NEXUS, EJECT, &[])), None);
}

/// Its initiator has given up, and may flush again.
#[test]
fn a_flush_that_fails_after_it_was_aborted_is_told_all_the_same() {
    let world = World::of(&[NEXUS, OTHER]);
    let Progress::Store(execution, request) = world.begin(NEXUS, task(flush(), &[])) else { panic!("it flushes") };
    world.store.fail(Op::Flush, ErrorKind::Unwritable);
    let completion = blocking::run(&**execution.store(), request);
    world.store.heal();
    execution.abandon(&completion);
    assert_eq!(world.flushes(NEXUS), [Some(LOST), None, None]);
    assert_eq!(world.flushes(OTHER), [Some(LOST), None, None]);
}

#[test]
fn who_is_away_when_a_flush_fails_hears_of_it_when_it_is_back() {
    let world = World::of(&[NEXUS, OTHER]);
    world.units.nexus_lost(OTHER);
    world.failing(NEXUS, flush(), &[]);
    world.come(THIRD);
    assert_eq!(world.flushes(THIRD), [None; 3], "it has written nothing before");
    let again = NexusId(4);
    world.units.nexus_established(again, ports(OTHER.0, 1));
    world.run(again, build::test_unit_ready(), &[]);
    assert_eq!(world.flushes(again), [Some(LOST), None, None]);
    world.units.nexus_lost(again);
    world.units.nexus_established(OTHER, ports(OTHER.0, 1));
    world.run(OTHER, build::test_unit_ready(), &[]);
    assert_eq!(world.flushes(OTHER), [None; 3], "it has heard of it in the session before");
}

/// Programs of one host, or its ways through several ports: which of them comes back cannot be told.
#[test]
fn each_nexus_that_a_port_had_is_told_when_it_is_back_what_any_of_them_has_missed() {
    let world = World::of(&[NEXUS]);
    let come = |number| {
        world.units.nexus_established(NexusId(number), ports(OTHER.0, 1));
        world.run(NexusId(number), build::test_unit_ready(), &[]);
    };
    [4, 5].into_iter().for_each(come);
    world.failing(NEXUS, flush(), &[]);
    assert_eq!(world.flushes(NexusId(5)), [Some(LOST), None, None]);
    // The one that has heard leaves last.
    [4, 5].into_iter().for_each(|number| world.units.nexus_lost(NexusId(number)));
    [6, 7].into_iter().for_each(come);
    for number in [6, 7] {
        assert_eq!(world.flushes(NexusId(number)), [Some(LOST), None, None], "nexus {number}");
    }
    [6, 7].into_iter().for_each(|number| world.units.nexus_lost(NexusId(number)));
    [8, 9, 10].into_iter().for_each(come);
    for number in [8, 9, 10] {
        assert_eq!(world.flushes(NexusId(number)), [None; 3], "both have heard of it: nexus {number}");
    }
}

/// Its connection is dead, and the server does not know it yet.
#[test]
fn who_comes_back_before_it_is_missed_hears_of_what_failed_meanwhile() {
    let world = World::of(&[NEXUS, OTHER]);
    world.failing(NEXUS, flush(), &[]);
    let again = NexusId(4);
    world.units.nexus_established(again, ports(OTHER.0, 1));
    world.units.nexus_lost(OTHER);
    world.run(again, build::test_unit_ready(), &[]);
    assert_eq!(world.flushes(again), [Some(LOST), None, None]);
}

#[test]
fn who_reads_the_write_verifier_finds_another_one_and_flushes_as_ever() {
    let world = World::small();
    world.replace(Volatility { verifier: [0xff; 16], has_failed: false, tenure: None, keeper: None });
    let world = world.with(&[NEXUS, OTHER, THIRD]);
    let ask = |nexus| {
        let page = world.run(nexus, build::write_verifier(255), &[]).data_in.unwrap().to_vec();
        WriteVerifier::parse(&page).unwrap().unwrap().verifier
    };
    let before = ask(NEXUS);
    assert_eq!((before, ask(OTHER)), ([0xff; 16], before));
    assert_eq!(told(&world.failing(NEXUS, flush(), &[])), Some(LOST));
    for nexus in [NEXUS, OTHER] {
        assert_eq!(told(&world.run(nexus, write(), &[1; 512])), Some(LOOK));
        assert_ne!(ask(nexus), before);
        assert_eq!(ask(nexus), ask(NEXUS));
        assert_eq!(world.flushes(nexus), [None; 3]);
    }
    assert_eq!(world.flushes(THIRD), [Some(LOST), None, None], "it does not read the page");
    let second = ask(OTHER);
    world.failing(THIRD, flush_later(), &[]);
    assert_eq!(world.flushes(OTHER), [Some(LOOK), Some(LOST), None], "it was told to look, and did not");
    assert!(![before, second].contains(&ask(NEXUS)));
}

/// A Linux host reads all pages when its administrator does, and its file system has to hear of the failure.
#[test]
fn a_look_at_the_page_by_who_does_not_heed_it_is_no_hearing() {
    let world = World::small();
    world.replace(Volatility { verifier: [9; 16], has_failed: false, tenure: None, keeper: None });
    let world = world.with(&[NEXUS, OTHER]);
    let look = || {
        let page = world.run(OTHER, build::inquiry(Some(0xc0), 255), &[]).data_in.unwrap().to_vec();
        WriteVerifier::parse(&page).unwrap().unwrap().verifier
    };
    assert_eq!(look(), [9; 16]);
    world.failing(NEXUS, flush(), &[]);
    assert_ne!(look(), [9; 16], "it is true all the same");
    assert_eq!(world.flushes(OTHER), [Some(LOST), None, None]);
}

/// The store makes its new length stable, and is told there of what others have written.
#[test]
fn a_new_length_that_cannot_be_made_stable_is_a_failed_flush() {
    let world = World::of(&[NEXUS, OTHER]);
    let disk = world.units.get(lun(0)).unwrap();
    assert!(matches!(disk.resize(2 << 20), Err(ResizeError::Fixed(_))));
    assert_eq!(world.flushes(NEXUS), [None; 3]);
    world.store.fail(Op::Flush, ErrorKind::Unwritable);
    let under_way = begun(&world, OTHER);
    assert!(matches!(disk.resize(2 << 20), Err(ResizeError::Unstable(_))));
    world.store.heal();
    assert_eq!(told(&world.finish(under_way)), Some(LOST), "its error was told there");
    assert_eq!(world.flushes(OTHER), [None; 3]);
    assert_eq!(world.flushes(NEXUS), [Some(LOST), None, None]);
}

/// A disk that loses nothing as a rule tells of no verifier: a look at the page says nothing of a failure.
#[test]
fn a_look_at_a_page_without_a_verifier_is_no_hearing() {
    let world = World::of(&[NEXUS, OTHER]);
    world.failing(NEXUS, flush(), &[]);
    world.run(OTHER, build::write_verifier(255), &[]);
    assert_eq!(world.flushes(OTHER), [Some(LOST), None, None]);
}

/// The error went to the one flush, and the other one, which began before, found nothing amiss at the store.
#[test]
fn a_flush_that_was_under_way_when_another_failed_fails_too() {
    let world = World::of(&[NEXUS, OTHER]);
    let Progress::Store(execution, request) = world.begin(OTHER, task(flush(), &[])) else { panic!("it flushes") };
    world.failing(NEXUS, flush(), &[]);
    assert_eq!(told(&world.finish(Progress::Store(execution, request))), Some(LOST));
    assert_eq!(world.flushes(OTHER), [None; 3]);
}

/// The flush that failed may have taken along what the store had done of this write already; its own finds nothing amiss.
#[test]
fn what_is_to_be_stable_fails_with_a_flush_that_failed_while_it_was_written() {
    let verify = Cdb::from([0x2e, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let same = Cdb::from([0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    for (cdb, has_cache) in [(write_stable(), true), (verify, true), (write(), false), (same, false)] {
        let world = World::new(SMALL, has_cache).with(&[NEXUS, OTHER]);
        let what = cdb.operation_code();
        let Progress::Store(execution, request) = world.begin(NEXUS, task(cdb, &[1; 512])) else { panic!("it writes") };
        assert_eq!(told(&world.failing(NEXUS, flush(), &[])), Some(LOST));
        assert_eq!(told(&world.finish(Progress::Store(execution, request))), Some(LOST), "{what:#x}");
        assert_eq!(world.flushes(NEXUS), [None; 3], "{what:#x}");
    }
}

/// It has no place among the flushes any more.
#[test]
fn a_write_that_fails_before_its_flush_is_no_failed_flush() {
    let world = World::of(&[NEXUS, OTHER]);
    let Progress::Store(execution, _) = world.begin(NEXUS, task(write_stable(), &[1; 512])) else {
        panic!("it writes")
    };
    let over = world.units.resume(execution, Err(StoreError::new(ErrorKind::Unwritable, 0)), &world.memory);
    assert!(matches!(over, Progress::Done(_)));
    let Progress::Store(execution, _) = world.begin(NEXUS, task(write_stable(), &[1; 512])) else {
        panic!("it writes")
    };
    execution.abandon(&Err(StoreError::new(ErrorKind::Unwritable, 0)));
    let Progress::Store(execution, _) = world.begin(NEXUS, task(write_stable(), &[1; 512])) else {
        panic!("it writes")
    };
    drop(execution);
    assert_eq!((world.flushes(NEXUS), world.flushes(OTHER)), ([None; 3], [None; 3]));
}

/// A flush that is at the store, and the request for it.
fn begun(world: &World, nexus: NexusId) -> Progress {
    let progress = world.begin(nexus, task(flush(), &[]));
    assert!(matches!(progress, Progress::Store(..)), "it flushes");
    progress
}

/// The store has done it so; what comes then.
fn ended(world: &World, flush: Progress, completion: Completion) -> Progress {
    let Progress::Store(execution, _) = flush else { panic!("it is not at the store") };
    world.units.resume(execution, completion, &world.memory)
}

fn retried(world: &World, progress: Progress) -> Progress {
    let Progress::Wait(waiting) = progress else { panic!("it is over: {progress:?}") };
    world.units.retry(waiting, &world.memory)
}

/// The kernel may give one of them the error of both, and its answer may come here last.
#[test]
fn a_flush_is_no_success_before_those_of_others_that_were_under_way_have_ended() {
    for fails in [false, true] {
        let world = World::of(&[NEXUS, OTHER, THIRD]);
        let (first, second) = (begun(&world, NEXUS), begun(&world, OTHER));
        let waiting = ended(&world, second, Ok(Outcome::Done));
        let later = begun(&world, THIRD);
        let waiting = retried(&world, waiting);
        assert!(matches!(waiting, Progress::Wait(_)));
        let completion = if fails { Err(StoreError::new(ErrorKind::Unwritable, 0)) } else { Ok(Outcome::Done) };
        let first = ended(&world, first, completion);
        // The one that began after its end is not waited for, and those that wait do not wait for each other.
        let (first, later) = if fails { (first, later) } else { (first, ended(&world, later, Ok(Outcome::Done))) };
        assert_eq!(told(&world.finish(retried(&world, waiting))), fails.then_some(LOST));
        assert_eq!(told(&world.finish(first)), fails.then_some(LOST));
        assert_eq!(told(&world.finish(later)), fails.then_some(LOST));
    }
}

/// Its initiator may flush for several file systems, and one with IMMED is heard by nobody.
#[test]
fn a_flush_waits_for_those_of_its_own_initiator_and_fails_with_them() {
    for earlier in [flush(), flush_later()] {
        let world = World::of(&[OTHER]);
        let first = match world.begin(OTHER, task(earlier, &[])) {
            Progress::Store(execution, _) | Progress::Answered(execution, _) => execution,
            other => panic!("{other:?}"),
        };
        let second = begun(&world, OTHER);
        let waiting = ended(&world, second, Ok(Outcome::Done));
        let over = world.units.resume(first, Err(StoreError::new(ErrorKind::Unwritable, 0)), &world.memory);
        assert!(matches!(over, Progress::Done(_)));
        assert_eq!(told(&world.finish(retried(&world, waiting))), Some(LOST));
        assert_eq!(world.flushes(OTHER), [None; 3]);
    }
}

/// Their answers may change places on the way, and each may be of another file system.
#[test]
fn all_flushes_fail_that_began_before_their_initiator_was_told() {
    let world = World::of(&[NEXUS, OTHER]);
    world.failing(NEXUS, flush(), &[]);
    let (first, second) = (begun(&world, OTHER), begun(&world, OTHER));
    let waiting = ended(&world, first, Ok(Outcome::Done));
    assert_eq!(told(&world.finish(second)), Some(LOST));
    assert_eq!(told(&world.finish(retried(&world, waiting))), Some(LOST));
    assert_eq!(world.flushes(OTHER), [None; 3]);
}

#[test]
fn a_flush_does_not_wait_for_one_that_was_aborted_and_has_ended() {
    let world = World::of(&[NEXUS, OTHER]);
    let own = begun(&world, OTHER);
    let Progress::Store(aborted, _) = begun(&world, NEXUS) else { unreachable!() };
    let waiting = ended(&world, own, Ok(Outcome::Done));
    aborted.abandon(&Ok(Outcome::Done));
    assert_eq!(told(&world.finish(retried(&world, waiting))), None);
}

/// As when the server stops before its store has answered.
#[test]
fn a_flush_whose_end_nobody_saw_has_failed() {
    let world = World::of(&[NEXUS, OTHER]);
    drop(begun(&world, NEXUS));
    assert_eq!(world.flushes(OTHER), [Some(LOST), None, None]);
}

/// The connection may have been dead when the answer was sent.
#[test]
fn who_comes_back_before_it_has_flushed_again_is_told_once_more() {
    let world = World::of(&[NEXUS, OTHER]);
    assert_eq!(told(&world.failing(OTHER, flush(), &[])), Some(LOST));
    world.units.nexus_lost(OTHER);
    let again = NexusId(4);
    world.units.nexus_established(again, ports(OTHER.0, 1));
    world.run(again, build::test_unit_ready(), &[]);
    assert_eq!(world.flushes(again), [Some(LOST), None, None]);
}

/// Two programs behind one initiator: the second flush was on its way when the first one failed.
#[test]
fn a_flush_given_before_the_answer_of_a_failed_one_has_arrived_fails_too() {
    let world = World::of(&[NEXUS]);
    let given = |receipts| Task { receipts, ..task(flush(), &[]) };
    assert_eq!(told(&world.failing(NEXUS, flush(), &[])), Some(LOST));
    assert_eq!(told(&world.run_task(NEXUS, given(0))), Some(LOST));
    assert_eq!(told(&world.run_task(NEXUS, given(1))), None);
    assert_eq!(told(&world.run_task(NEXUS, given(0))), Some(LOST), "it was given before that");
    assert_eq!(told(&world.run_task(NEXUS, given(2))), None);
}

/// The connection of the answer is gone; what was given meanwhile is given again in the next session.
#[test]
fn a_lost_answer_of_a_failed_flush_is_given_again_after_another_flush() {
    let world = World::of(&[OTHER]);
    assert_eq!(told(&world.failing(OTHER, flush(), &[])), Some(LOST));
    let under_way = world.begin(OTHER, Task { receipts: 0, ..task(flush(), &[]) });
    world.units.nexus_lost(OTHER);
    world.finish(under_way);
    let again = NexusId(4);
    world.units.nexus_established(again, ports(OTHER.0, 1));
    world.run(again, build::test_unit_ready(), &[]);
    assert_eq!(world.flushes(again), [Some(LOST), None, None]);
}

/// Its answer may have come later than the flush was given.
#[test]
fn a_flush_given_before_the_verifier_was_read_fails() {
    let world = World::small();
    world.replace(Volatility { verifier: [9; 16], has_failed: false, tenure: None, keeper: None });
    let world = world.with(&[NEXUS, OTHER]);
    let look = || world.run(OTHER, build::write_verifier(255), &[]);
    look();
    world.failing(NEXUS, flush(), &[]);
    assert_eq!(told(&world.run(OTHER, build::test_unit_ready(), &[])), Some(LOOK));
    let had = world.receipts.lock().unwrap().issued();
    look();
    assert_eq!(told(&world.run_task(OTHER, Task { receipts: had, ..task(flush(), &[]) })), Some(LOST));
    assert_eq!(world.flushes(OTHER), [None; 3]);
}
