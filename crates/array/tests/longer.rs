//! A member may become longer at any time, also while its label is being written, and power be lost then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sanwire_array::{Arrangement, Begin, Candidate, Plan, assemble, create};
use sanwire_store::{Completion, CompletionQueue, ErrorKind, Geometry, RamStore, Request, Started, Store, StoreError};

const MIB: u64 = 1 << 20;

/// A disk whose writes are counted.
#[derive(Debug)]
struct Disk {
    inner: RamStore,
    writes: AtomicUsize,
    /// From this write on it is longer.
    longer_from: AtomicUsize,
    /// Of this write the first sector is spoiled, and nothing is written any more.
    torn_from: AtomicUsize,
}

impl Store for Disk {
    fn geometry(&self) -> Geometry {
        let is_longer = self.writes.load(Ordering::Relaxed) >= self.longer_from.load(Ordering::Relaxed);
        Geometry { length_bytes: if is_longer { 12 * MIB } else { 8 * MIB }, ..self.inner.geometry() }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let Request::Write { offset_bytes, data } = request else { return self.inner.start(request, completions) };
        let (number, torn_from) = (self.writes.fetch_add(1, Ordering::Relaxed), self.torn_from.load(Ordering::Relaxed));
        if number < torn_from {
            return self.inner.start(Request::Write { offset_bytes, data }, completions);
        }
        if number == torn_from {
            let _ = self.inner.start(Request::Write { offset_bytes, data: vec![7; 512].into() }, completions);
        }
        Started::Done(Err(StoreError::new(ErrorKind::Gone, 0)))
    }
}

fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, |op| panic!("{op:?} is for the kernel"))
}

#[test]
fn a_member_that_becomes_longer_while_its_label_is_written_has_one_whatever_is_torn() {
    // Of writes of an assembly the first one says what is being written, and the others are the label. Two hosts end in the midst.
    for [longer_from, first, second] in (0..6_usize.pow(3)).map(|way| [way / 36, way / 6 % 6, way % 6]) {
        let never = || AtomicUsize::new(usize::MAX);
        let (writes, inner) = (AtomicUsize::new(0), RamStore::new(12 * MIB, 512));
        let disk = Arc::new(Disk { inner, writes, longer_from: never(), torn_from: never() });
        let member = [Candidate { place: "0".to_owned(), store: Arc::<Disk>::clone(&disk) }];
        let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies: 1, force: false };
        let mut next = 0_u128;
        let fresh = || {
            next += 1;
            next.to_be_bytes()
        };
        create(&plan, &member, fresh, &mut drive).unwrap();
        let begun = disk.writes.load(Ordering::Relaxed);
        disk.longer_from.store(begun + longer_from, Ordering::Relaxed);
        for (run, torn) in [(1, first), (2, second)] {
            disk.torn_from.store(disk.writes.load(Ordering::Relaxed) + torn, Ordering::Relaxed);
            let _ = assemble("a", &member, false, run, &mut drive);
            let label = member[0].label(&mut drive).unwrap();
            assert!(label.is_some(), "longer from {longer_from} on, torn at {first}, then at {second}");
        }
        disk.torn_from.store(usize::MAX, Ordering::Relaxed);
        assemble("a", &member, false, 3, &mut drive).unwrap();
    }
}
