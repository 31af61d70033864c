//! The power of all members goes at once while an array becomes longer: whatever is torn then, it is found as it was or as it was to be.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sanwire_array::{Arrangement, Array, ArrayError, Candidate, Label, Plan, assemble, create, grow};
use sanwire_store::{CompletionQueue, ErrorKind, Geometry, Outcome, RamStore, Request, Started, Store, StoreError};

use common::{drive, kernel, settle};

const MIB: u64 = 1 << 20;
const SECTOR_BYTES: usize = 512;

/// What all disks have in common.
#[derive(Debug)]
struct Power {
    writes_left: AtomicUsize,
    is_out: AtomicBool,
}

/// What becomes of a write that is not stable when the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Kept,
    Lost,
    /// Its first sector is spoiled.
    Torn,
}

/// A disk with a cache.
#[derive(Debug)]
struct Disk {
    inner: RamStore,
    length_bytes: AtomicU64,
    power: Arc<Power>,
    /// What was written since it was stable: where, and what was there before.
    cached: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Disk {
    fn lose_power(&self, loss: Loss) {
        for (offset_bytes, before) in self.cached.lock().unwrap().drain(..).rev() {
            let data = match loss {
                Loss::Kept => continue,
                Loss::Lost => before,
                Loss::Torn => vec![7; SECTOR_BYTES],
            };
            sanwire_store::run(&self.inner, Request::Write { offset_bytes, data: data.into() }, kernel).unwrap();
        }
    }
}

impl Store for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { length_bytes: self.length_bytes.load(Ordering::Relaxed), ..self.inner.geometry() }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let Power { writes_left, is_out } = &*self.power;
        let gone = || Started::Done(Err(StoreError::new(ErrorKind::Gone, 0)));
        if is_out.load(Ordering::Relaxed) {
            return gone();
        }
        match &request {
            Request::Write { offset_bytes, data } => {
                self.cached.lock().unwrap().push((*offset_bytes, read(&self.inner, *offset_bytes, data.len())));
                let take_one = |left: usize| left.checked_sub(1);
                if writes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_err() {
                    is_out.store(true, Ordering::Relaxed);
                    let _ = self.inner.start(request, completions);
                    return gone();
                }
            }
            Request::Flush => self.cached.lock().unwrap().clear(),
            _ => {}
        }
        self.inner.start(request, completions)
    }
}

fn read(store: &dyn Store, offset_bytes: u64, length: usize) -> Vec<u8> {
    let request = Request::Read { offset_bytes, buffer: vec![9; length].into() };
    match sanwire_store::run(store, request, kernel) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Assembles it, and has all its copies be the same, and known to be.
fn used(members: &[Candidate], run: u64) -> Array {
    let array = assemble("a", members, false, run, &mut drive).unwrap();
    settle(&array);
    array
}

/// How an array becomes longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    InUse,
    Alone,
}

/// After so many writes the power goes; whether it was longer before that.
fn lose_power(way: Way, copies: usize, loss: Loss, writes: usize) -> bool {
    let power = Arc::new(Power { writes_left: AtomicUsize::new(usize::MAX), is_out: AtomicBool::new(false) });
    let disk = |_| {
        let (inner, length_bytes) = (RamStore::new(12 * MIB, SECTOR_BYTES as u32), AtomicU64::new(4 * MIB));
        Arc::new(Disk { inner, length_bytes, power: Arc::clone(&power), cached: Mutex::default() })
    };
    let disks: Vec<Arc<Disk>> = (0..copies).map(disk).collect();
    let candidate = |(number, disk): (usize, &Arc<Disk>)| {
        let store = Arc::clone(disk) as Arc<dyn Store>;
        Candidate { place: format!("disk{number}"), store }
    };
    let members: Vec<_> = disks.iter().enumerate().map(candidate).collect();
    let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies, force: false };
    let mut next = 100_u128;
    let mut fresh = || {
        next += 1;
        next.to_be_bytes()
    };
    create(&plan, &members, &mut fresh, &mut drive).unwrap();
    let array = used(&members, 1);
    sanwire_store::run(&array, Request::Write { offset_bytes: 4096, data: vec![5; 4096].into() }, kernel).unwrap();
    drop(array);
    let array = used(&members, 2);
    for (byte, disk) in (1..).zip(&disks) {
        let data = vec![byte; 4096].into();
        sanwire_store::run(&disk.inner, Request::Write { offset_bytes: 9 * MIB, data }, kernel).unwrap();
        disk.cached.lock().unwrap().clear();
        disk.length_bytes.store(12 * MIB, Ordering::Relaxed);
    }
    power.writes_left.store(writes, Ordering::Relaxed);
    let end = match way {
        Way::InUse => array.grow(&[], &mut fresh, &mut drive),
        Way::Alone => grow("a", &members, &[], &mut fresh, &mut drive).map(drop),
    };
    drop(array);
    disks.iter().for_each(|disk| disk.lose_power(loss));
    power.writes_left.store(usize::MAX, Ordering::Relaxed);
    power.is_out.store(false, Ordering::Relaxed);
    let what = format!("{way:?}, {copies} copies, {loss:?} after {writes} writes: {end:?}");
    for disk in &disks {
        // One of the two at the beginning, whatever stands at the end.
        let label = |at| Label::decode(&read(&disk.inner, at, 16 << 10)).unwrap();
        assert!([0, 16 << 10].into_iter().any(|at| label(at).is_some()), "{what}");
    }
    let array = used(&members, 3);
    let length_bytes = array.geometry().length_bytes;
    assert!([2 * MIB, 10 * MIB].contains(&length_bytes) && (end.is_err() || length_bytes == 10 * MIB), "{what}");
    assert_eq!((read(&array, 4096, 4096), array.scrub(&mut drive).unwrap()), (vec![5; 4096], 0), "{what}");
    match array.grow(&[], fresh, &mut drive) {
        Ok(()) => assert_eq!(length_bytes, 2 * MIB, "{what}"),
        Err(ArrayError::Shape(_)) => assert_eq!(length_bytes, 10 * MIB, "{what}"),
        Err(error) => panic!("{what}: {error}"),
    }
    assert_eq!(array.geometry().length_bytes, 10 * MIB, "{what}");
    end.is_ok()
}

#[test]
fn whatever_is_torn_of_all_members_at_once_the_array_is_as_it_was_or_as_it_was_to_be() {
    for (way, copies) in [(Way::InUse, 1), (Way::InUse, 2), (Way::Alone, 1), (Way::Alone, 2)] {
        for loss in [Loss::Kept, Loss::Lost, Loss::Torn] {
            let ends: Vec<bool> = (0..24).map(|writes| lose_power(way, copies, loss, writes)).collect();
            assert!(!ends[0] && ends[23] && ends.is_sorted(), "{way:?}, {copies} copies: {ends:?}");
        }
    }
}
