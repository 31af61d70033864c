//! Flushes of several sessions on several shards: who hears of one that fails, and which of them count as successes.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};

use sanwire_core::Lun;
use sanwire_device::{LogicalUnit, UnitOptions, Volatility};
use sanwire_scsi::{AdditionalSense, Cdb, Identity, Sense, SenseKey, Status, build};
use sanwire_store::{
    CompletionQueue, ErrorKind, Geometry, KernelOp, Outcome, RamStore, Request, Started, Store, StoreError,
};

use super::hyperscsi::connect;
use super::initiator::{BLOCK_BYTES, GOOD, Initiator, Said};
use super::store::full_socket;
use super::{FLUSHED, TIMEOUT, World, wait_until};

const CHECK_CONDITION: u8 = 0x02;
const LOST: (Status, Option<Sense>) =
    (Status::CheckCondition, Some(Sense::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR)));
const DONE: (Status, Option<Sense>) = (Status::Good, None);

/// SYNCHRONIZE CACHE (10).
const FLUSH: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Memory that says of flushes what the test wants.
#[derive(Debug)]
struct FlushStore {
    memory: RamStore,
    next: Mutex<Next>,
    changed: Condvar,
}

/// What becomes of the next flush; of those after it nothing but good.
#[derive(Debug)]
enum Next {
    Succeeds,
    Fails,
    IsHeld,
    /// It was given to the kernel, and ends when this is read so far or closed.
    Held(UnixStream, usize),
}

impl FlushStore {
    fn fail(&self) {
        *self.next.lock().unwrap() = Next::Fails;
    }

    /// Holds the flush that `give` gives.
    fn hold<T>(&self, give: impl FnOnce() -> T) -> T {
        *self.next.lock().unwrap() = Next::IsHeld;
        let given = give();
        let is_held = |next: &mut Next| matches!(next, Next::Held(..));
        let (next, _) =
            self.changed.wait_timeout_while(self.next.lock().unwrap(), TIMEOUT, |next| !is_held(next)).unwrap();
        assert!(matches!(*next, Next::Held(..)), "it is at the store");
        given
    }

    fn end(&self, fails: bool) {
        let Next::Held(mut end, filling) = std::mem::replace(&mut *self.next.lock().unwrap(), Next::Succeeds) else {
            panic!("no flush is held")
        };
        if !fails {
            end.read_exact(&mut vec![0; filling + 1]).unwrap();
        }
    }
}

impl Store for FlushStore {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if !matches!(request, Request::Flush) {
            return self.memory.start(request, completions);
        }
        let mut next = self.next.lock().unwrap();
        match std::mem::replace(&mut *next, Next::Succeeds) {
            Next::Fails => Started::Done(Err(StoreError::new(ErrorKind::Unwritable, 0))),
            Next::IsHeld => {
                let (file, end, filling) = full_socket();
                *next = Next::Held(end, filling);
                self.changed.notify_all();
                let request = Request::Write { offset_bytes: 0, data: vec![0].into() };
                Started::Kernel(KernelOp { file, is_block_device: false, request })
            }
            before => {
                *next = before;
                Started::Done(Ok(Outcome::Done))
            }
        }
    }
}

/// Two sessions on two shards, that use one unit.
struct Two {
    here: Initiator,
    there: Initiator,
    store: Arc<FlushStore>,
    disk: Arc<LogicalUnit>,
    world: World,
}

impl Two {
    fn new() -> Two {
        let world = World::new();
        let memory = RamStore::new(1 << 20, BLOCK_BYTES as u32);
        let store = Arc::new(FlushStore { memory, next: Mutex::new(Next::Succeeds), changed: Condvar::new() });
        let volatility = Some(Volatility { verifier: [9; 16], has_failed: false, tenure: None, keeper: None });
        let options = UnitOptions { volatility, ..UnitOptions::default() };
        let disk =
            LogicalUnit::new(Identity::new("flushed", [4; 16]).unwrap(), Arc::clone(&store) as _, options).unwrap();
        let lun = Lun::new(FLUSHED).unwrap();
        let disk = world.target.units().add(lun, disk).unwrap();
        let mut exports = world.target.exports();
        let all = exports.iter_mut().find(|export| export.units.len() > 1).unwrap();
        all.units.insert(lun, "flushed".into());
        world.target.set_exports(exports).unwrap();
        let [here, there] = [1, 2].map(|port| {
            let mut initiator = world.login(port);
            initiator.settle(FLUSHED);
            initiator
        });
        assert_ne!(world.shard_of(1), world.shard_of(2));
        Two { here, there, store, disk, world }
    }

    fn flushes(&mut self) -> [(Status, Option<Sense>); 2] {
        [&mut self.here, &mut self.there].map(flush)
    }
}

fn flush(initiator: &mut Initiator) -> (Status, Option<Sense>) {
    initiator.ask(FLUSHED, FLUSH.into(), &[])
}

fn written(initiator: &mut Initiator) {
    let tag = initiator.write(FLUSHED, 0, 1);
    assert_eq!(initiator.hear(), Said::Status(tag, GOOD));
}

#[test]
fn a_flush_that_fails_is_told_once_to_those_of_all_shards_and_wires() {
    let mut two = Two::new();
    let key = || sanwire_hyperscsi::random().unwrap();
    let address = two.world.hyperscsi_address();
    let [mut heeding, mut other] = [connect(address, key()), connect(address, key())];
    let page: Cdb = build::write_verifier(255);
    let attention = Sense::new(SenseKey::UnitAttention, AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
    for client in [&mut heeding, &mut other] {
        client.ask(FLUSHED, [0; 6].into(), &[]);
    }
    assert_eq!(heeding.ask(FLUSHED, page, &[]), DONE);
    let before = two.disk.verifier();
    written(&mut two.here);
    two.store.fail();
    assert_eq!(flush(&mut two.there), LOST);
    assert_ne!(two.disk.verifier(), before);
    assert_eq!(two.flushes(), [LOST, DONE]);
    assert_eq!(two.flushes(), [DONE; 2]);
    let flush = || Cdb::from(FLUSH);
    assert_eq!([(); 2].map(|()| other.ask(FLUSHED, flush(), &[])), [LOST, DONE]);
    assert_eq!(heeding.ask(FLUSHED, flush(), &[]), (Status::CheckCondition, Some(attention)));
    assert_eq!(heeding.ask(FLUSHED, page, &[]), DONE);
    assert_eq!(heeding.ask(FLUSHED, flush(), &[]), DONE, "it has heard of it by the page");
}

/// The kernel may tell one of them of what was lost of both.
#[test]
fn a_flush_on_one_shard_counts_when_those_on_others_that_began_before_its_end_have_ended() {
    for fails in [false, true] {
        let mut two = Two::new();
        written(&mut two.here);
        let first = two.store.hold(|| two.there.command(FLUSHED, &FLUSH, &[], 0));
        let second = two.here.command(FLUSHED, &FLUSH, &[], 0);
        two.here.hears_nothing_else();
        two.store.end(fails);
        let status = if fails { CHECK_CONDITION } else { GOOD };
        assert_eq!(two.here.hear(), Said::Status(second, status));
        assert_eq!(two.there.hear(), Said::Status(first, status));
        assert_eq!(two.flushes(), [DONE; 2], "each has heard of it");
    }
}

#[test]
fn a_flush_that_fails_when_its_session_is_lost_is_told_on_the_other_shard() {
    let Two { world, disk, store, mut there, mut here } = Two::new();
    written(&mut here);
    let before = disk.verifier();
    store.hold(|| there.command(FLUSHED, &FLUSH, &[], 0));
    drop(there);
    world.wait_for_sessions(1);
    store.end(true);
    wait_until("it has failed", || disk.verifier() != before);
    assert_eq!([(); 2].map(|()| flush(&mut here)), [LOST, DONE]);
}
