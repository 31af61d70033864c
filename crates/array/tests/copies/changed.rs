//! What is copied to members that lack something: what was written meanwhile, by the regions that were noted, and nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sanwire_array::{Array, Candidate, assemble};
use sanwire_store::{CompletionQueue, ErrorKind, Geometry, Outcome, RamStore, Request, Started, Store, StoreError};

use super::common::{drive, kernel, settle};
use super::mirror_of;

/// A region.
const MIB: u64 = 1 << 20;
/// Where the data of a member begins, and where it ends.
const DATA_AT: u64 = MIB;
const DATA_END: u64 = 41 * MIB;
const BYTES: usize = 4096;

/// A disk that may be gone, and knows which regions of its data were written.
#[derive(Debug)]
struct Disk {
    inner: RamStore,
    is_gone: AtomicBool,
    written: Mutex<BTreeSet<u64>>,
}

impl Store for Disk {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if self.is_gone.load(Ordering::Relaxed) {
            return Started::Done(Err(StoreError::new(ErrorKind::Gone, 0)));
        }
        let (from, length_bytes) = request.range_bytes();
        let is_data = (DATA_AT..DATA_END).contains(&from) && length_bytes > 0;
        if is_data && !matches!(request, Request::Read { .. }) {
            let (first, last) = (from - DATA_AT, from + length_bytes - 1 - DATA_AT);
            self.written.lock().unwrap().extend(first / MIB..=last / MIB);
        }
        self.inner.start(request, completions)
    }
}

impl Disk {
    /// The regions that were written since this was asked last.
    fn take_written(&self) -> Vec<u64> {
        std::mem::take(&mut *self.written.lock().unwrap()).into_iter().collect()
    }

    /// What it has at this place of its data.
    fn byte(&self, at: u64) -> u8 {
        let request = Request::Read { offset_bytes: DATA_AT + at, buffer: vec![9; BYTES].into() };
        match sanwire_store::run(&self.inner, request, kernel) {
            Ok(Outcome::Read(frame)) => frame[0],
            other => panic!("{other:?}"),
        }
    }
}

/// Two disks, and a mirror of them, which are the same and known to be.
fn mirror() -> (Vec<Arc<Disk>>, Vec<Candidate>, Array) {
    let disk = |_| {
        let inner = RamStore::new(DATA_END + MIB, 512);
        Arc::new(Disk { inner, is_gone: AtomicBool::new(false), written: Mutex::default() })
    };
    let disks: Vec<Arc<Disk>> = (0..2).map(disk).collect();
    let (members, array) = mirror_of(&disks);
    let all: Vec<u64> = (0..(DATA_END - DATA_AT) / MIB).collect();
    assert_eq!(disks[1].take_written(), all, "nobody knew that they are the same");
    assert!(disks[0].take_written().is_empty());
    (disks, members, array)
}

fn write(array: &Array, offset_bytes: u64, byte: u8) {
    let request = Request::Write { offset_bytes, data: vec![byte; BYTES].into() };
    sanwire_store::run(array, request, kernel).unwrap();
}

#[test]
fn a_member_that_comes_back_gets_what_was_written_meanwhile_and_nothing_else() {
    let (disks, members, array) = mirror();
    let places = [(3 * MIB + 8192, 1), (17 * MIB, 2), (40 * MIB - BYTES as u64, 3)];
    disks[1].is_gone.store(true, Ordering::Relaxed);
    for (at, byte) in places {
        write(&array, at, byte);
    }
    // What is stable is not forgotten, as long as a member lacks it.
    sanwire_store::run(&array, Request::Flush, kernel).unwrap();
    assert!(!array.members()[1].is_present, "{:?}", array.members());
    disks[1].is_gone.store(false, Ordering::Relaxed);
    array.rejoin(1, &members[1], &mut drive).unwrap();
    assert_eq!(array.members()[1].behind_bytes, 3 * MIB);
    assert!(disks[1].take_written().is_empty());
    settle(&array);
    assert_eq!(disks[1].take_written(), [3, 17, 39]);
    assert_eq!(places.map(|(at, _)| disks[1].byte(at)), [1, 2, 3]);
    assert_eq!(array.scrub(&mut drive).unwrap(), 0);
}

/// Regions are noted sixteen in a row.
#[test]
fn after_the_end_of_a_host_what_it_may_have_been_writing_is_copied_and_nothing_else() {
    let (disks, members, array) = mirror();
    write(&array, 20 * MIB, 7);
    for disk in &disks {
        assert_eq!(disk.take_written(), [20]);
    }
    drop(array);
    let array = assemble("a", &members, false, 2, &mut drive).unwrap();
    settle(&array);
    assert!(disks[0].take_written().is_empty());
    assert_eq!(disks[1].take_written(), (16..32).collect::<Vec<u64>>());
    assert_eq!(disks[1].byte(20 * MIB), 7);
    drop(array);
    // All is stable, and noted to be.
    let array = assemble("a", &members, false, 3, &mut drive).unwrap();
    settle(&array);
    assert!(disks.iter().all(|disk| disk.take_written().is_empty()));
    assert_eq!(array.scrub(&mut drive).unwrap(), 0);
}
