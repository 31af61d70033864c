//! What a member lacks is known by its label, also when the array could not tell it at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sanwire_array::{Arrangement, Array, Begin, Candidate, Label, Plan, Standing, assemble, create};
use sanwire_store::{
    Completion, CompletionQueue, ErrorKind, Geometry, Outcome, RamStore, Request, Started, Store, StoreError,
};

const LABEL_BYTES: usize = 16 << 10;
const AT: u64 = 2 << 20;

/// A disk that may be gone, and spoil one write.
#[derive(Debug)]
struct Disk {
    inner: RamStore,
    is_gone: AtomicBool,
    /// Of the next write that begins here, the first sector is spoiled, and the rest is not written.
    torn_at: Mutex<Option<u64>>,
    /// It is gone when it was written so often.
    writes_left: AtomicUsize,
    /// Where data was written since somebody looked.
    written: Mutex<Vec<Range<u64>>>,
}

impl Store for Disk {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let gone = || Started::Done(Err(StoreError::new(ErrorKind::Gone, 0)));
        if self.is_gone.load(Ordering::Relaxed) {
            return gone();
        }
        let Request::Write { offset_bytes, data } = request else { return self.inner.start(request, completions) };
        let take_one = |left: usize| left.checked_sub(1);
        if self.writes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_err() {
            return gone();
        }
        self.written.lock().unwrap().push(offset_bytes..offset_bytes + data.len() as u64);
        let torn_at = &mut *self.torn_at.lock().unwrap();
        if torn_at.take_if(|at| *at == offset_bytes).is_none() {
            return self.inner.start(Request::Write { offset_bytes, data }, completions);
        }
        let _ = self.inner.start(Request::Write { offset_bytes, data: vec![0; 512].into() }, completions);
        gone()
    }
}

fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, |op| panic!("{op:?} is for the kernel"))
}

fn ask(store: &Arc<dyn Store>, request: Request) -> Completion {
    let store = Arc::clone(store);
    drive(Box::new(move |queue| store.start(request, queue)))
}

fn resync(array: &Array) {
    let step = || sanwire_store::drive(|queue| array.resync(queue).unwrap_or_else(done), |op| panic!("{op:?}"));
    (0..100).for_each(|_| _ = step());
}

fn done() -> Started {
    Started::Done(Ok(Outcome::Done))
}

fn write(byte: u8) -> Request {
    Request::Write { offset_bytes: AT, data: vec![byte; 512].into() }
}

fn first_byte(array: &Array) -> u8 {
    let array: Arc<dyn Store> = Arc::new(array.clone());
    match ask(&array, Request::Read { offset_bytes: AT, buffer: vec![9; 512].into() }) {
        Ok(Outcome::Read(frame)) => frame[0],
        other => panic!("{other:?}"),
    }
}

/// A mirror, whose members are the same.
fn made(copies: usize) -> (Vec<Arc<Disk>>, Vec<Candidate>, Array) {
    let disk = |_| {
        Arc::new(Disk {
            inner: RamStore::new(8 << 20, 512),
            is_gone: AtomicBool::new(false),
            torn_at: Mutex::default(),
            writes_left: AtomicUsize::new(usize::MAX),
            written: Mutex::default(),
        })
    };
    let disks: Vec<_> = (0..copies).map(disk).collect();
    let candidate =
        |(number, disk): (usize, &Arc<Disk>)| Candidate { place: number.to_string(), store: Arc::<Disk>::clone(disk) };
    let members: Vec<_> = disks.iter().enumerate().map(candidate).collect();
    let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies, force: false };
    let mut next = 0_u128;
    let fresh = || {
        next += 1;
        next.to_be_bytes()
    };
    create(&plan, &members, fresh, &mut drive).unwrap();
    let array = assemble("a", &members, false, 1, &mut drive).unwrap();
    resync(&array);
    let flushed: Arc<dyn Store> = Arc::new(array.clone());
    ask(&flushed, Request::Flush).unwrap();
    (disks, members, array)
}

fn is_gone(disk: &Disk, is_gone: bool) {
    disk.is_gone.store(is_gone, Ordering::Relaxed);
}

fn is_out(candidate: &Candidate) -> bool {
    let Label { own, table } = candidate.label(&mut drive).unwrap().expect("it has a label");
    matches!(table.members[own].standing, Standing::Out { .. })
}

#[test]
fn a_member_that_lacks_what_was_flushed_is_not_the_first_one_after_the_end_of_its_host() {
    let (disks, members, array) = made(3);
    let store: Arc<dyn Store> = Arc::new(array.clone());
    ask(&store, write(7)).unwrap();
    // Two are gone at once, so one of them is kept: by their labels all three have everything.
    [0, 1].iter().for_each(|at| is_gone(&disks[*at], true));
    ask(&store, write(8)).unwrap_err();
    is_gone(&disks[1], false);
    assert!(!is_out(&members[1]));
    ask(&store, write(9)).unwrap();
    // What was not flushed when it was gone.
    let lost: Arc<dyn Store> = Arc::<Disk>::clone(&disks[1]);
    ask(&lost, Request::Write { offset_bytes: (1 << 20) + AT, data: vec![0; 512].into() }).unwrap();
    ask(&store, Request::Flush).unwrap();
    assert!(is_out(&members[1]), "what it has lost, another one has");
    drop((store, array));
    let again = assemble("a", &members[1..], false, 2, &mut drive).unwrap();
    assert_eq!(first_byte(&again), 9);
    resync(&again);
    assert!(!is_out(&members[1]));
}

#[test]
fn a_member_that_comes_back_says_that_it_lacks_something_before_anything_is_copied_to_it() {
    let (disks, members, array) = made(2);
    let store: Arc<dyn Store> = Arc::new(array.clone());
    is_gone(&disks[1], true);
    ask(&store, write(7)).unwrap();
    is_gone(&disks[1], false);
    assert!(!is_out(&members[1]), "nobody could tell it");
    disks[1].written.lock().unwrap().clear();
    array.rejoin(1, &members[1], &mut drive).unwrap();
    assert!(is_out(&members[1]));
    let is_data = |range: &Range<u64>| range.start >= 1 << 20 && range.start < (8 << 20) - LABEL_BYTES as u64;
    assert!(!disks[1].written.lock().unwrap().iter().any(is_data));
    drop((store, array));
    assemble("a", &members[1..], true, 2, &mut drive).unwrap_err();
}

#[test]
fn of_the_copies_of_a_label_one_is_whole_however_often_another_one_is_torn() {
    let (second_at, last_at) = (LABEL_BYTES as u64, (8 << 20) - LABEL_BYTES as u64);
    let (disks, members, array) = made(1);
    drop(array);
    for (run, end) in (2..).zip([0, 0, second_at, second_at, last_at, 0, last_at, second_at, 0, second_at]) {
        *disks[0].torn_at.lock().unwrap() = Some(end);
        assemble("a", &members, false, run, &mut drive).unwrap_err();
        assert!(members[0].label(&mut drive).unwrap().is_some(), "run {run}");
    }
    assemble("a", &members, false, 100, &mut drive).unwrap();
}

#[test]
fn hosts_that_end_while_they_begin_leave_an_array() {
    // So often each member is written before the host ends: what is being written, and the copies of its label.
    for writes in [[[4, 1, 1], [1, 4, 4]], [[4, 1, 1], [1, 4, 1]], [[1, 4, 4], [4, 1, 1]], [[4, 4, 1], [1, 1, 4]]] {
        let (disks, members, array) = made(3);
        drop(array);
        for (run, writes) in (2..).zip(writes) {
            let set = |to: [usize; 3]| {
                disks.iter().zip(to).for_each(|(disk, left)| disk.writes_left.store(left, Ordering::Relaxed));
            };
            set(writes);
            let _ = assemble("a", &members, false, run, &mut drive);
            set([usize::MAX; 3]);
        }
        let array = assemble("a", &members, false, 9, &mut drive).unwrap();
        resync(&array);
        assert!(!members.iter().any(is_out), "{writes:?}");
    }
}
