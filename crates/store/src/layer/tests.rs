use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::{Allocation, Completer, Course, ErrorKind, NullStore, Outcome, StoreError};

fn queue() -> CompletionQueue {
    CompletionQueue::new(|| ())
}

fn null() -> Arc<dyn Store> {
    Arc::new(NullStore::new(16 << 20, 512))
}

fn read(offset_bytes: u64, length: usize) -> Request {
    Request::Read { offset_bytes, buffer: vec![0; length].into() }
}

fn write(offset_bytes: u64, length: usize) -> Request {
    Request::Write { offset_bytes, data: vec![0; length].into() }
}

fn failure(store: &dyn Store, request: Request) -> Option<(ErrorKind, u64)> {
    match store.start(request, &queue()) {
        Started::Done(completion) => completion.err().map(|error| (error.kind, error.offset_bytes)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_thick_store_gives_nothing_back_and_is_mapped_everywhere() {
    let store = Over::new(ThickLayer, null());
    assert!(!store.geometry().discards && !store.geometry().read_only);
    let (offset_bytes, length_bytes) = (512, 1024);
    let discard = Request::Discard { offset_bytes, length_bytes };
    assert_eq!(failure(&store, discard), Some((ErrorKind::Unsupported, 512)));
    let Started::Done(Ok(Outcome::Allocated(allocation))) =
        store.start(Request::Allocation { offset_bytes, length_bytes }, &queue())
    else {
        panic!("it answers at once");
    };
    assert_eq!(allocation, Allocation { is_mapped: true, length_bytes });
    assert_eq!(failure(&store, Request::WriteZeroes { offset_bytes, length_bytes }), None);
}

#[test]
fn read_only_refuses_every_change() {
    let store = Over::new(ReadOnlyLayer, null());
    assert!(store.geometry().read_only && store.geometry().discards, "it would, if it took writes");
    let memory = Over::new(ReadOnlyLayer, Arc::new(crate::RamStore::new(1 << 20, 512)));
    assert_eq!(memory.space(), Some(crate::Space { used_bytes: 0, available_bytes: None }));
    let range = (512, 512);
    for request in [
        write(512, 512),
        Request::Discard { offset_bytes: range.0, length_bytes: range.1 },
        Request::WriteZeroes { offset_bytes: range.0, length_bytes: range.1 },
    ] {
        assert_eq!(failure(&store, request), Some((ErrorKind::ReadOnly, 512)));
    }
    assert_eq!(failure(&store, read(0, 512)), None);
    assert_eq!(failure(&store, Request::Flush), None);
}

#[test]
fn delays_hold_only_what_they_are_for() {
    let rules = ["5ms", "read:250us"].map(|text| text.parse().unwrap()).to_vec();
    let store = Over::new(DelayLayer::new(rules), null());
    for (request, delay_us) in [(read(0, 512), 5250), (write(0, 512), 5000)] {
        let Started::Later(delayed) = store.start(request, &queue()) else { panic!("at once") };
        assert_eq!(delayed.delay, Duration::from_micros(delay_us));
        assert!(matches!(delayed.resume(&queue()), Started::Done(Ok(_))));
    }
    let store = Over::new(DelayLayer::new(vec!["read:1s".parse().unwrap()]), null());
    assert!(matches!(store.start(Request::Flush, &queue()), Started::Done(Ok(_))));
}

#[test]
fn delays_are_numbers_with_a_unit() {
    for text in ["", "5", "ms", "5m", "-5ms", "read:", "reads:5ms", "3601s", "99999999999999999999s", "1.5s"] {
        assert!(text.parse::<DelayRule>().is_err(), "{text}");
    }
}

#[test]
fn errors_name_the_first_bad_byte() {
    let rules = ["read@1M..2M", "write#100..101"].map(|text| text.parse().unwrap()).to_vec();
    let store = Over::new(ErrorLayer::new(rules, 1), null());
    let mib = 1 << 20;
    assert_eq!(failure(&store, read(mib - 512, 512)), None);
    assert_eq!(failure(&store, read(mib - 512, 1024)), Some((ErrorKind::Unreadable, mib)));
    assert_eq!(failure(&store, read(mib + 512, 1024)), Some((ErrorKind::Unreadable, mib + 512)));
    assert_eq!(failure(&store, read(2 * mib, 1024)), None);
    assert_eq!(failure(&store, write(mib, 512)), None);
    assert_eq!(failure(&store, write(99 * 512, 2048)), Some((ErrorKind::Unwritable, 51200)));
    assert_eq!(failure(&store, write(101 * 512, 512)), None);
}

#[test]
fn chance_follows_the_seed() {
    let outcomes = |seed| {
        let store = Over::new(ErrorLayer::new(vec!["read:0.25".parse().unwrap()], seed), null());
        (0..4000).map(|_| failure(&store, read(0, 512)).is_some()).collect::<Vec<_>>()
    };
    let failures = outcomes(7).iter().filter(|failed| **failed).count();
    assert!((850..1150).contains(&failures), "{failures}");
    assert_eq!(outcomes(7), outcomes(7));
    assert_ne!(outcomes(7), outcomes(8));
}

#[test]
fn error_rules_are_read_strictly() {
    let rule: ErrorRule = "all@0..4K:0.5".parse().unwrap();
    assert_eq!(rule, ErrorRule { which: Which::All, place: Place::Bytes(0..4096), probability: 0.5 });
    for text in
        ["", "reads", "read:2", "read:-1", "read:nan", "read@5..5", "read@5", "read#1K..2K", "read@2M..1M", "0.1"]
    {
        assert!(text.parse::<ErrorRule>().is_err(), "{text}");
    }
}

#[test]
fn a_layer_passes_on_what_the_store_below_can_do_and_narrows_what_it_must() {
    let ram = || -> Arc<dyn Store> { Arc::new(crate::RamStore::new(1 << 20, 512)) };
    let all = ram().capabilities();
    assert!(all.shares && all.tells_space && all.grows);
    let read_only = Over::new(ReadOnlyLayer, ram()).capabilities();
    assert_eq!(read_only, Capabilities { geometry: Geometry { read_only: true, ..all.geometry }, ..all });
    let thick = Over::new(ThickLayer, ram());
    let geometry = Geometry { discards: false, ..all.geometry };
    assert_eq!(thick.capabilities(), Capabilities { geometry, tells_space: false, ..all });
    assert!(thick.space().is_none() && thick.resize(2 << 20).is_ok() && thick.geometry().length_bytes == 2 << 20);
    let late = Over::new(DelayLayer::new(vec!["read:1s".parse().unwrap()]), ram());
    assert!(matches!(late.start(write(0, 4096), &queue()), Started::Done(Ok(_))));
    assert!(late.share(0, 4096).is_none() && !late.capabilities().shares && late.space().is_some());
}

/// Takes ranges of up to 1 MiB, leaves them pending, and fails those from `bad` on.
#[derive(Debug)]
struct Short {
    bad: u64,
    held: Mutex<Vec<(u64, u64, Completer)>>,
}

impl Short {
    fn new(bad: u64) -> Arc<Self> {
        Arc::new(Short { bad, held: Mutex::default() })
    }

    /// Ends what it holds; where it was.
    fn end(&self) -> Vec<(u64, u64)> {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        let end = |(offset, length, completer): (u64, u64, Completer)| {
            let is_bad = offset + length > self.bad;
            completer.complete(if is_bad { Err(StoreError::new(ErrorKind::Gone, offset)) } else { Ok(Outcome::Done) });
            (offset, length)
        };
        held.into_iter().map(end).collect()
    }
}

impl Store for Short {
    fn geometry(&self) -> Geometry {
        null().geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { range_max_bytes: Some(64 << 10), ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let ((offset_bytes, length_bytes), (pending, completer)) = (request.range_bytes(), completions.pend());
        self.held.lock().unwrap().push((offset_bytes, length_bytes, completer));
        Started::Pending(pending)
    }
}

#[test]
fn a_long_range_goes_in_parts_that_the_store_takes_and_ends_with_the_first_failure() {
    const PART: u64 = 64 << 10;
    for (bad, is_well) in [(u64::MAX, true), (20 * PART, false)] {
        let (short, queue) = (Short::new(bad), queue());
        let store = Over::new(SplitLayer, short.clone());
        assert_eq!(store.capabilities().range_max_bytes, None);
        let discard = Request::Discard { offset_bytes: 512, length_bytes: 60 * PART };
        let (mut course, mut begun) = (Course::default(), Vec::new());
        let mut end = course.begin(store.start(discard, &queue), &mut |number, _| begun.push(number));
        let mut parts = Vec::new();
        while end.is_none() {
            parts.extend(short.end());
            let taken = queue.take().into_iter().map(|(_, completion)| completion);
            for (number, completion) in std::mem::take(&mut begun).into_iter().zip(taken) {
                let started = Started::Done(completion);
                end = end.or(course.go_on(number, started, &queue, &mut |number, _| begun.push(number)));
            }
        }
        assert_eq!(end.unwrap().is_ok(), is_well);
        assert_eq!(parts[..2], [(512, PART - 512), (PART, PART)], "up to a multiple of the longest");
        let next = parts.iter().fold(512, |at, (offset, length)| {
            assert_eq!(at, *offset);
            offset + length
        });
        assert_eq!(next, if is_well { 512 + 60 * PART } else { 32 * PART });
    }
    let too_far = Request::WriteZeroes { offset_bytes: 0, length_bytes: 32 << 20 };
    assert_eq!(failure(&Over::new(SplitLayer, Short::new(0)), too_far), Some((ErrorKind::OutOfRange, 0)));
    let at_once = Request::WriteZeroes { offset_bytes: 0, length_bytes: 16 << 20 };
    assert_eq!(failure(&Over::new(SplitLayer, null()), at_once), None);
}
