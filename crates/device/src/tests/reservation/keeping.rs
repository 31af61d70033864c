use super::*;
use crate::testing::{Driver, SMALL, TestStore, UUID, lun, ports};
use crate::{
    KeptError, LogicalUnit, NotCleared, Progress, RecordError, ReservationKeeper, Saved, UnitError, UnitOptions,
};
use sanwire_scsi::Identity;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A record in memory that outlives the disks of a test.
#[derive(Default, Debug)]
struct Keeper {
    record: Mutex<Option<Vec<u8>>>,
    saves: AtomicUsize,
    fails: AtomicBool,
    is_slow: AtomicBool,
    waiting: Mutex<Vec<(Vec<u8>, Saved)>>,
}

impl Keeper {
    fn keep(&self, record: Vec<u8>, saved: Saved) {
        self.saves.fetch_add(1, Ordering::Relaxed);
        *self.record.lock().unwrap() = Some(record);
        saved.tell(true);
    }

    /// What a slow medium was given to keep.
    fn next(&self) -> (Vec<u8>, Saved) {
        let mut waiting = self.waiting.lock().unwrap();
        assert_eq!(waiting.len(), 1, "one at a time");
        waiting.remove(0)
    }
}

impl ReservationKeeper for Keeper {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(self.record.lock().unwrap().clone())
    }

    fn save(&self, record: Vec<u8>, saved: Saved) {
        if self.is_slow.load(Ordering::Relaxed) {
            return self.waiting.lock().unwrap().push((record, saved));
        }
        // Whoever does not tell has not kept it.
        if !self.fails.load(Ordering::Relaxed) {
            self.keep(record, saved);
        }
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

fn open(keeper: &Arc<Keeper>) -> Result<LogicalUnit, UnitError> {
    let keeper: Arc<dyn ReservationKeeper> = keeper.clone();
    let options = UnitOptions { reservations: Some(keeper), ..UnitOptions::default() };
    LogicalUnit::new(Identity::new("vol", UUID).unwrap(), TestStore::new(SMALL), options)
}

/// The disk as it is after a restart; the nexuses come anew.
fn restart(keeper: &Arc<Keeper>) -> World {
    let world = World::small();
    world.units.remove(lun(0)).unwrap();
    world.units.add(lun(0), open(keeper).unwrap()).unwrap();
    for nexus in [ONE, TWO, THREE] {
        world.establish(nexus);
        while told(&world, nexus).is_some() {}
    }
    world
}

fn kept(world: &World, nexus: NexusId, key: u64) -> Reply {
    send(world, nexus, REGISTER_AND_IGNORE, 0, &list(0, key, KEEP))
}

#[test]
fn what_is_kept_survives_a_restart() {
    let keeper = Arc::default();
    let world = restart(&keeper);
    assert_eq!(world.good([0x5e, 2, 0, 0, 0, 0, 0, 0, 8, 0], &[])[2..4], [0x1d, 0xb0]);
    assert_eq!(kept(&world, ONE, 1).status, Status::Good);
    assert_eq!(kept(&world, TWO, 2).status, Status::Good);
    assert_eq!(out(&world, TWO, RESERVE, 3, (2, 0)), Status::Good);
    let world = restart(&keeper);
    assert_eq!((keys(&world), held(&world), ask(&world, 0).0), (vec![1, 2], Some((2, 3)), 0));
    assert_eq!(world.good([0x5e, 2, 0, 0, 0, 0, 0, 0, 8, 0], &[])[3], 0xb1, "PTPL_A");
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(world.run(ONE, read, &[]).status, Status::ReservationConflict);
    assert_eq!(world.run(TWO, read, &[]).status, Status::Good);
    assert_eq!(out(&world, ONE, PREEMPT, 8, (1, 2)), Status::Good);
    let world = restart(&keeper);
    assert_eq!((keys(&world), held(&world)), (vec![1], Some((0, 8))));
}

#[test]
fn what_is_not_kept_is_gone_after_a_restart() {
    let keeper = Arc::default();
    let world = restart(&keeper);
    register(&world, ONE, 1);
    assert_eq!(keeper.saves.load(Ordering::Relaxed), 0);
    assert_eq!(keys(&restart(&keeper)), [0; 0]);
    assert_eq!(kept(&world, ONE, 1).status, Status::Good);
    assert_eq!(keys(&restart(&keeper)), [1]);
    register(&world, TWO, 2);
    assert_eq!(keys(&restart(&keeper)), [0; 0], "the last APTPL counts");
    assert_eq!(kept(&world, ONE, 1).status, Status::Good);
    assert_eq!(out(&world, ONE, CLEAR, 0, (1, 0)), Status::Good);
    assert_eq!(keys(&restart(&keeper)), [0; 0]);
}

#[test]
fn an_order_that_cannot_be_kept_is_not_done() {
    let keeper: Arc<Keeper> = Arc::default();
    let world = restart(&keeper);
    keeper.fails.store(true, Ordering::Relaxed);
    let failed = Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE);
    assert_eq!(sense(&kept(&world, ONE, 1)), failed);
    assert_eq!(ask(&world, 0), (0, vec![]));
    register(&world, ONE, 1);
    keeper.fails.store(false, Ordering::Relaxed);
    assert_eq!(kept(&world, ONE, 1).status, Status::Good);
    keeper.fails.store(true, Ordering::Relaxed);
    assert_eq!(sense(&send(&world, ONE, RESERVE, 1, &list(1, 0, 0))), failed);
    assert_eq!(held(&world), None);
    assert_eq!(out(&world, ONE, RELEASE, 1, (1, 0)), Status::Good, "nothing to keep");
}

fn begin(world: &World, nexus: NexusId, action: u8, list: &[u8]) -> Progress {
    world.begin(nexus, crate::testing::task([0x5f, action, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], list))
}

fn waits(world: &World, progress: Progress) -> Progress {
    let Progress::Wait(waiting) = progress else { panic!("{progress:?}") };
    let Progress::Wait(waiting) = world.units.retry(waiting, &world.memory) else { panic!("it goes on") };
    Progress::Wait(waiting)
}

#[test]
fn who_reserves_is_woken_when_it_is_kept() {
    let keeper: Arc<Keeper> = Arc::default();
    let world = restart(&keeper);
    keeper.is_slow.store(true, Ordering::Relaxed);
    let driver = Driver::new();
    let first = driver.wait(&world, begin(&world, ONE, REGISTER_AND_IGNORE, &list(0, 1, KEEP)));
    let second = driver.wait(&world, begin(&world, TWO, REGISTER_AND_IGNORE, &list(0, 2, KEEP)));
    let (record, saved) = keeper.next();
    keeper.keep(record, saved);
    assert!(driver.take_woken());
    assert_eq!(world.finish(world.units.retry(first, &world.memory)).status, Status::Good);
    // The second one has its turn.
    let second = driver.wait(&world, world.units.retry(second, &world.memory));
    let (record, saved) = keeper.next();
    keeper.keep(record, saved);
    assert!(driver.take_woken());
    assert_eq!(world.finish(world.units.retry(second, &world.memory)).status, Status::Good);
}

#[test]
fn nobody_but_the_one_who_reserves_waits_until_it_is_kept() {
    let keeper: Arc<Keeper> = Arc::default();
    let world = restart(&keeper);
    keeper.is_slow.store(true, Ordering::Relaxed);
    let first = begin(&world, ONE, REGISTER_AND_IGNORE, &list(0, 1, KEEP));
    let first = waits(&world, first);
    let second = begin(&world, TWO, REGISTER_AND_IGNORE, &list(0, 2, KEEP));
    let second = waits(&world, second);
    assert_eq!(world.run(THREE, [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]).status, Status::Good, "it reads");
    world.establish(NexusId(7));
    assert_eq!(keys(&world), [0; 0], "not before it is kept");
    assert_eq!(world.run(THREE, [0x16, 0, 0, 0, 0, 0], &[]).status, Status::ReservationConflict, "RESERVE comes after");

    let (record, saved) = keeper.next();
    keeper.keep(record, saved);
    assert_eq!(keys(&world), [1]);
    assert_eq!(world.finish(first).status, Status::Good);
    let second = waits(&world, second);
    let (_, saved) = keeper.next();
    drop(saved);
    assert_eq!(sense(&world.finish(second)).additional, AdditionalSense::INTERNAL_TARGET_FAILURE, "it is not kept");
    assert_eq!(keys(&world), [1]);
}

#[test]
fn what_is_being_kept_is_done_also_when_its_command_is_aborted() {
    let keeper: Arc<Keeper> = Arc::default();
    let world = restart(&keeper);
    keeper.is_slow.store(true, Ordering::Relaxed);
    drop(begin(&world, ONE, REGISTER_AND_IGNORE, &list(0, 1, KEEP)));
    let (record, saved) = keeper.next();
    keeper.keep(record, saved);
    keeper.is_slow.store(false, Ordering::Relaxed);
    assert_eq!(keys(&world), [1], "memory says what the record says");
    assert_eq!(keys(&restart(&keeper)), [1]);
    assert_eq!(kept(&world, TWO, 2).status, Status::Good, "the next one is not held up");
}

#[test]
fn what_the_owner_ends_is_ended_when_that_is_kept() {
    let keeper: Arc<Keeper> = Arc::default();
    let world = restart(&keeper);
    assert_eq!(kept(&world, ONE, 1).status, Status::Good);
    keeper.fails.store(true, Ordering::Relaxed);
    assert_eq!(super::clearing::clear(&world, None, true), Err(NotCleared::NotKept("memory".into())));
    assert_eq!(keys(&world), [1]);
    keeper.fails.store(false, Ordering::Relaxed);
    keeper.is_slow.store(true, Ordering::Relaxed);
    let second = begin(&world, TWO, REGISTER_AND_IGNORE, &list(0, 2, KEEP));
    assert_eq!(super::clearing::clear(&world, None, true), Err(NotCleared::Ordering));
    let (record, saved) = keeper.next();
    keeper.keep(record, saved);
    assert_eq!(world.finish(second).status, Status::Good);
    let cleared: Arc<Mutex<Option<Result<_, _>>>> = Arc::default();
    let told = Arc::clone(&cleared);
    let unit = world.units.get(lun(0)).unwrap();
    unit.state().clear_reservations(Some(1), true, move |result| *told.lock().unwrap() = Some(result));
    assert!(cleared.lock().unwrap().is_none() && keys(&world) == [1, 2], "not before it is kept");
    let third = begin(&world, THREE, REGISTER_AND_IGNORE, &list(0, 3, 0));
    let third = waits(&world, third);
    let (record, saved) = keeper.next();
    keeper.keep(record, saved);
    assert!(cleared.lock().unwrap().as_ref().unwrap().is_ok());
    assert_eq!(keys(&world), [2]);
    drop(third);
    assert_eq!(keys(&restart(&keeper)), [2]);
}

#[test]
fn a_thousand_registrants_come_back() {
    let keeper = Arc::default();
    let world = restart(&keeper);
    let many: Vec<_> = (0..1000)
        .map(|n| TransportId::iscsi_port(&format!("iqn.2026-11.org.example:host-{n}"), [0, 2, 0, 0, 0, 1]).unwrap())
        .collect();
    assert_eq!(send(&world, ONE, REGISTER, 0, &list_with(0, 9, KEEP, &many)).status, Status::Good);
    assert_eq!(out(&world, ONE, RESERVE, 7, (9, 0)), Status::Good);
    let world = restart(&keeper);
    assert_eq!((keys(&world).len(), held(&world)), (1001, Some((0, 7))));
    let reply = world.run(ONE, [0x5e, 3, 0, 0, 0, 0, 0, 0xff, 0xff, 0], &[]).data_in.unwrap().to_vec();
    let whole = 1001 * 24 + many.iter().map(|id| id.as_bytes().len()).sum::<usize>() + 24;
    assert_eq!(reply[4..8], (whole as u32).to_be_bytes());
    assert_eq!(out(&world, ONE, PREEMPT, 1, (9, 0)), Status::Good);
    assert_eq!(keys(&restart(&keeper)), [9]);
}

#[test]
fn a_disk_does_not_begin_without_knowing_what_is_reserved() {
    let keeper: Arc<Keeper> = Arc::default();
    assert_eq!(kept(&restart(&keeper), ONE, 1).status, Status::Good);
    keeper.record.lock().unwrap().as_mut().unwrap()[20] ^= 1;
    let error = open(&keeper).map(drop).unwrap_err();
    let (place, reason) = ("memory".to_owned(), RecordError::Damaged);
    assert_eq!(error, UnitError::Reservations(KeptError::Damaged { place, reason }));
    assert!(error.to_string().contains("kept in memory are not usable: it is damaged; restore the file"), "{error}");
    keeper.fails.store(true, Ordering::Relaxed);
    assert!(matches!(open(&keeper), Err(UnitError::Reservations(KeptError::Unreadable { .. }))));
}

#[test]
fn moving_may_keep_as_well() {
    let keeper = Arc::default();
    let world = restart(&keeper);
    register(&world, ONE, 1);
    assert_eq!(out(&world, ONE, RESERVE, 3, (1, 0)), Status::Good);
    let to = &ports(TWO.0, 1).initiator;
    assert_eq!(send(&world, ONE, REGISTER_AND_MOVE, 0, &move_list((1, 2), KEEP, 1, to)).status, Status::Good);
    assert_eq!(held(&restart(&keeper)), Some((2, 3)));
    let without = super::world();
    register(&without, ONE, 1);
    let refused = send(&without, ONE, REGISTER_AND_MOVE, 0, &move_list((1, 2), KEEP, 1, to));
    assert_eq!(sense(&refused), Sense::invalid_field_in_parameters(17, Some(0)));
}
