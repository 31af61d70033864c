//! Who is told that nobody else has written, and what becomes of those who write all the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sanwire_core::NexusId;
use sanwire_scsi::vpd::WriteVerifier;
use sanwire_scsi::{AdditionalSense, Extent, Reply, Sense, SenseKey, Status, Task, build};

use crate::testing::{Driver, NEXUS, OTHER, TestStore, World, lun, sense, task};
use crate::{Progress, RecordListener, Tenure, TenureKeeper, Volatility, Waiting, WriteHold};

/// A keeper that makes durable what it is told to when the test says so.
#[derive(Debug, Default)]
pub(super) struct Slow {
    drawn: AtomicU64,
    wishes: AtomicU64,
    kept: AtomicU64,
    pub(super) is_failing: AtomicBool,
    wanted: Mutex<Option<Tenure>>,
    listener: Mutex<Option<RecordListener>>,
}

impl Slow {
    pub(super) fn keep(&self) {
        self.kept.store(self.wishes.load(Ordering::SeqCst), Ordering::SeqCst);
        self.listener.lock().unwrap().iter().for_each(RecordListener::tell);
    }

    pub(super) fn wanted(&self) -> Option<Tenure> {
        *self.wanted.lock().unwrap()
    }
}

impl TenureKeeper for Slow {
    fn listen(&self, listener: RecordListener) {
        *self.listener.lock().unwrap() = Some(listener);
    }

    fn draw(&self) -> Option<[u8; 16]> {
        Some([self.drawn.fetch_add(1, Ordering::SeqCst) as u8 + 1; 16])
    }

    fn want(&self, tenure: Option<Tenure>) -> u64 {
        *self.wanted.lock().unwrap() = tenure;
        self.wishes.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn is_kept(&self, wish: u64) -> bool {
        self.kept.load(Ordering::SeqCst) >= wish
    }

    fn renew(&self, _verifier: [u8; 16]) {}

    fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::SeqCst)
    }
}

/// A target with one disk that may lose writes.
struct Volatile {
    world: World,
    store: Arc<TestStore>,
    keeper: Arc<Slow>,
}

const THIRD: NexusId = NexusId(3);

impl Volatile {
    /// Nobody has come yet; this tenure was kept.
    fn new(tenure: Option<Tenure>) -> Self {
        let (world, keeper) = (World::small(), Arc::new(Slow::default()));
        world.replace(Volatility { verifier: [9; 16], has_failed: false, tenure, keeper: Some(keeper.clone()) });
        let store = world.store.clone();
        Volatile { world, store, keeper }
    }

    /// An initiator that has heard of power on.
    fn come(&self, nexus: NexusId) {
        self.world.establish(nexus);
        self.world.units.name_writer(nexus, [nexus.0 as u8; 16]);
        self.world.run(nexus, build::test_unit_ready(), &[]);
    }

    /// The first initiator comes again, as this nexus.
    fn come_back(&self, nexus: NexusId) {
        self.come(nexus);
        self.world.units.name_writer(nexus, [1; 16]);
    }

    /// A disk whose holder has left while a write of somebody else waits for the end of its tenure; with both.
    fn with_a_holder_that_left() -> (Self, Option<u8>, Waiting) {
        let disk = Volatile::new(None);
        [NEXUS, OTHER].into_iter().for_each(|nexus| disk.come(nexus));
        let tenure = disk.ask(NEXUS);
        assert_eq!(disk.writes(NEXUS, 0, 1).status, Status::Good);
        let Progress::Wait(foreign) = disk.world.begin(OTHER, disk.write(5, 3)) else { panic!("nothing is durable") };
        disk.world.units.nexus_lost(NEXUS);
        (disk, tenure, foreign)
    }

    /// The tenure of which the page tells.
    fn ask(&self, nexus: NexusId) -> Option<u8> {
        let page = self.world.run(nexus, build::write_verifier(255), &[]).data_in.unwrap().to_vec();
        WriteVerifier::parse(&page).unwrap().unwrap().tenure.map(|tenure| tenure[0])
    }

    fn write(&self, lba: u64, byte: u8) -> Task {
        task(build::write_16(Extent { lba, blocks: 1 }, false), &[byte; 512])
    }

    fn writes(&self, nexus: NexusId, lba: u64, byte: u8) -> Reply {
        let mut progress = self.world.begin(nexus, self.write(lba, byte));
        while let Progress::Wait(waiting) = progress {
            self.keeper.keep();
            progress = self.world.units.retry(waiting, &self.world.memory);
        }
        self.world.finish(progress)
    }

    fn block(&self, lba: usize) -> u8 {
        self.store.bytes(lba * 512, 1)[0]
    }
}

fn overtaken() -> Sense {
    Sense::new(SenseKey::UnitAttention, AdditionalSense::INQUIRY_DATA_HAS_CHANGED)
}

#[test]
fn a_disk_that_loses_nothing_says_so() {
    let world = World::small();
    let page = world.good(build::inquiry(Some(0xc0), 255), &[]);
    assert!(WriteVerifier::parse(&page).unwrap().unwrap().is_stable);
}

#[test]
fn who_waits_for_a_tenure_to_be_durable_is_woken_when_it_is() {
    let disk = Volatile::new(None);
    disk.come(NEXUS);
    disk.ask(NEXUS);
    let driver = Driver::new();
    let progress = disk.world.begin(NEXUS, disk.write(0, 1));
    let waiting = driver.wait(&disk.world, progress);
    disk.keeper.keep();
    assert!(driver.take_woken());
    assert_eq!(disk.world.finish(disk.world.units.retry(waiting, &disk.world.memory)).status, Status::Good);
}

#[test]
fn a_tenure_is_durable_before_the_first_write_and_found_again() {
    let disk = Volatile::new(None);
    disk.come(NEXUS);
    let tenure = disk.ask(NEXUS);
    assert!(tenure.is_some() && disk.ask(NEXUS) == tenure && disk.keeper.wanted().is_none(), "it is only an offer");
    let Progress::Wait(waiting) = disk.world.begin(NEXUS, disk.write(0, 1)) else { panic!("it is not durable yet") };
    let Progress::Wait(waiting) = disk.world.units.retry(waiting, &disk.world.memory) else {
        panic!("it is not durable yet")
    };
    let kept = disk.keeper.wanted();
    assert_eq!(kept.map(|tenure| (tenure.id[0], tenure.writer[0])), tenure.map(|tenure| (tenure, 1)));
    disk.keeper.keep();
    assert_eq!(disk.world.finish(disk.world.units.retry(waiting, &disk.world.memory)).status, Status::Good);
    assert!(matches!(disk.world.begin(NEXUS, disk.write(1, 1)), Progress::Store(..)), "once");
    disk.world.units.nexus_lost(NEXUS);
    // The target is started again. Somebody who only looks takes nothing from who comes back later.
    let again = Volatile::new(kept);
    again.come(OTHER);
    assert!(again.ask(OTHER).is_some());
    again.come_back(THIRD);
    assert_eq!(again.ask(THIRD), tenure);
    assert_eq!(again.ask(OTHER), None);
    assert!(matches!(again.world.begin(THIRD, again.write(0, 2)), Progress::Store(..)));
}

#[test]
fn a_foreign_write_ends_the_tenure_and_comes_after_all_that_its_holder_has_begun() {
    let disk = Volatile::new(None);
    disk.come(NEXUS);
    disk.come(OTHER);
    disk.ask(NEXUS);
    assert_eq!(disk.writes(NEXUS, 0, 1).status, Status::Good);
    let Progress::Store(begun, request) = disk.world.begin(NEXUS, disk.write(5, 2)) else {
        panic!("it holds the tenure")
    };
    let Progress::Wait(foreign) = disk.world.begin(OTHER, disk.write(5, 3)) else { panic!("nothing is durable") };
    assert_eq!(disk.keeper.wanted(), None);
    disk.keeper.keep();
    let Progress::Wait(foreign) = disk.world.units.retry(foreign, &disk.world.memory) else {
        panic!("a write is under way")
    };
    let late = disk.world.begin(NEXUS, disk.write(5, 4));
    assert_eq!(sense(&disk.world.finish(late)), overtaken());
    assert_eq!(disk.world.finish(Progress::Store(begun, request)).status, Status::Good);
    assert_eq!(disk.world.finish(disk.world.units.retry(foreign, &disk.world.memory)).status, Status::Good);
    assert_eq!(disk.block(5), 3);
    assert_eq!((disk.ask(NEXUS), disk.ask(OTHER)), (None, None), "they write in turns");
    assert!(matches!(disk.world.begin(NEXUS, disk.write(5, 4)), Progress::Store(..)), "at full speed");
    disk.world.units.nexus_lost(OTHER);
    assert!(disk.ask(NEXUS).is_some(), "it is alone");
}

/// What its holder had not flushed is of other content.
#[test]
fn a_tenure_ends_durably_when_the_content_is_replaced() {
    let disk = Volatile::new(None);
    disk.come(NEXUS);
    let tenure = disk.ask(NEXUS);
    assert_eq!(disk.writes(NEXUS, 0, 1).status, Status::Good);
    let unit = disk.world.units.get(lun(0)).unwrap();
    let hold = WriteHold::begin(unit.state());
    assert!(hold.is_held());
    let verifier = unit.verifier();
    unit.content_replaced();
    drop(hold);
    assert_eq!(disk.keeper.wanted(), None);
    assert_ne!(unit.verifier(), verifier);
    while disk.world.run(NEXUS, build::test_unit_ready(), &[]).status != Status::Good {}
    assert!(disk.ask(NEXUS).is_some_and(|again| Some(again) != tenure));
    assert_eq!(disk.writes(NEXUS, 0, 2).status, Status::Good);
}

/// A write that was there before the tenure ended must not come after the one that ended it.
#[test]
fn a_holders_write_that_waited_while_its_tenure_ended_is_refused() {
    let disk = Volatile::new(None);
    disk.come(NEXUS);
    disk.come(OTHER);
    disk.ask(NEXUS);
    assert_eq!(disk.writes(NEXUS, 0, 1).status, Status::Good);
    // It claims its block for itself, so that the next one waits for it.
    let compare = [[1; 512], [2; 512]].concat();
    let mut swap = task([0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], &compare);
    swap.lun = Some(lun(0));
    let Progress::Store(swap, request) = disk.world.begin(NEXUS, swap) else { panic!("it reads") };
    let Progress::Wait(waiting) = disk.world.begin(NEXUS, disk.write(0, 9)) else { panic!("the block is claimed") };
    let Progress::Wait(foreign) = disk.world.begin(OTHER, disk.write(7, 3)) else { panic!("nothing is durable") };
    disk.keeper.keep();
    assert_eq!(disk.world.finish(Progress::Store(swap, request)).status, Status::Good, "it goes on as one action");
    assert_eq!(sense(&disk.world.finish(disk.world.units.retry(waiting, &disk.world.memory))), overtaken());
    assert_eq!(disk.world.finish(disk.world.units.retry(foreign, &disk.world.memory)).status, Status::Good);
    assert_eq!((disk.block(0), disk.block(7)), (2, 3));
}

#[test]
fn who_comes_after_a_holder_that_is_away_becomes_the_next_one_with_its_first_write() {
    let disk = Volatile::new(Some(Tenure { id: [77; 16], writer: [1; 16] }));
    disk.come(OTHER);
    let offered = disk.ask(OTHER).unwrap();
    assert_ne!(offered, 77);
    assert_eq!(disk.writes(OTHER, 0, 1).status, Status::Good);
    assert_eq!(disk.keeper.wanted().map(|tenure| tenure.id[0]), Some(offered));
    disk.come(NEXUS);
    assert_eq!(disk.ask(NEXUS), None, "somebody else has written");
}

/// Those that never ask are slowed down by nobody, and end what others were told.
#[test]
fn initiators_that_do_not_ask_write_as_ever() {
    let disk = Volatile::new(None);
    [NEXUS, OTHER].into_iter().for_each(|nexus| disk.come(nexus));
    assert!(matches!(disk.world.begin(OTHER, disk.write(0, 1)), Progress::Store(..)));
    disk.ask(NEXUS);
    assert!(matches!(disk.world.begin(OTHER, disk.write(0, 1)), Progress::Store(..)), "an offer is not used yet");
    assert!(matches!(disk.world.begin(NEXUS, disk.write(0, 1)), Progress::Store(..)), "and now it is void");
    assert_eq!((disk.keeper.wanted(), disk.ask(NEXUS)), (None, None));
}

/// Where nothing can be made durable: neither a hang, nor a write that a later start would let an older one come over.
#[test]
fn who_cannot_end_a_tenure_durably_is_told_so_and_its_holder_goes_on() {
    let refused = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);
    let disk = Volatile::new(None);
    disk.come(NEXUS);
    disk.come(OTHER);
    let tenure = disk.ask(NEXUS);
    assert_eq!(disk.writes(NEXUS, 0, 1).status, Status::Good);
    let held = disk.keeper.wanted();
    let Progress::Wait(foreign) = disk.world.begin(OTHER, disk.write(5, 3)) else { panic!("nothing is durable") };
    let Progress::Wait(foreign) = disk.world.units.retry(foreign, &disk.world.memory) else {
        panic!("it may still become so")
    };
    disk.keeper.is_failing.store(true, Ordering::SeqCst);
    assert_eq!(sense(&disk.world.finish(disk.world.units.retry(foreign, &disk.world.memory))), refused);
    assert_eq!(disk.keeper.wanted(), held, "it is the holder's again");
    assert_eq!(sense(&disk.world.finish(disk.world.begin(OTHER, disk.write(5, 3)))), refused, "at once");
    assert_eq!(sense(&disk.world.run(NEXUS, build::test_unit_ready(), &[])), overtaken(), "it was about to end");
    assert_eq!(disk.ask(NEXUS), tenure);
    assert_eq!(disk.world.finish(disk.world.begin(NEXUS, disk.write(1, 1))).status, Status::Good);
    disk.keeper.is_failing.store(false, Ordering::SeqCst);
    assert_eq!(disk.writes(OTHER, 5, 3).status, Status::Good);
    assert_eq!((disk.block(5), disk.keeper.wanted()), (3, None));
}

/// Who is away when that happens finds its tenure when it comes back, and so do others that may not write.
#[test]
fn a_holder_that_left_while_its_tenure_could_not_be_ended_has_it_when_it_comes_back() {
    let (disk, tenure, foreign) = Volatile::with_a_holder_that_left();
    disk.keeper.is_failing.store(true, Ordering::SeqCst);
    assert_eq!(disk.world.finish(disk.world.units.retry(foreign, &disk.world.memory)).status, Status::CheckCondition);
    disk.come_back(THIRD);
    assert_eq!(disk.ask(THIRD), tenure);
    assert_eq!(disk.world.finish(disk.world.begin(THIRD, disk.write(1, 1))).status, Status::Good);
}

/// The second of two that had begun may be an old one: the tenure is the first word on what comes after both.
#[test]
fn a_tenure_that_cannot_be_kept_begins_when_what_others_have_begun_has_ended() {
    let disk = Volatile::new(None);
    [NEXUS, OTHER].into_iter().for_each(|nexus| disk.come(nexus));
    let foreign = disk.world.begin(OTHER, disk.write(5, 1));
    assert!(matches!(foreign, Progress::Store(..)));
    disk.ask(NEXUS);
    let Progress::Wait(own) = disk.world.begin(NEXUS, disk.write(5, 2)) else { panic!("nothing is durable") };
    disk.keeper.is_failing.store(true, Ordering::SeqCst);
    let Progress::Wait(own) = disk.world.units.retry(own, &disk.world.memory) else {
        panic!("a write of another one is under way")
    };
    assert_eq!(disk.world.finish(foreign).status, Status::Good);
    assert_eq!(disk.world.finish(disk.world.units.retry(own, &disk.world.memory)).status, Status::Good);
    assert_eq!(disk.block(5), 2);
}

#[test]
fn a_holder_that_is_back_before_its_tenure_turns_out_to_stay_has_it_again() {
    let (disk, tenure, foreign) = Volatile::with_a_holder_that_left();
    disk.come_back(THIRD);
    assert_ne!(disk.ask(THIRD), tenure, "it is about to end");
    disk.keeper.is_failing.store(true, Ordering::SeqCst);
    assert_eq!(disk.world.finish(disk.world.units.retry(foreign, &disk.world.memory)).status, Status::CheckCondition);
    assert_eq!(sense(&disk.world.run(THIRD, build::test_unit_ready(), &[])), overtaken(), "it is to look again");
    assert_eq!(disk.world.finish(disk.world.begin(THIRD, disk.write(1, 1))).status, Status::Good);
    assert_eq!(disk.ask(THIRD), tenure);
}

/// A host on which somebody looks at all pages gives nothing again.
#[test]
fn who_only_looks_at_the_page_is_offered_no_tenure() {
    let disk = Volatile::new(None);
    [NEXUS, OTHER].into_iter().for_each(|nexus| disk.come(nexus));
    let page = disk.world.run(NEXUS, build::inquiry(Some(0xc0), 255), &[]).data_in.unwrap().to_vec();
    assert_eq!(WriteVerifier::parse(&page).unwrap().unwrap().tenure, None);
    assert!(matches!(disk.world.begin(NEXUS, disk.write(0, 1)), Progress::Store(..)));
    assert_eq!(disk.keeper.wanted(), None);
}
