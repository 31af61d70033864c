use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::{Allocation, CompletionQueue, ErrorKind, NullStore, Outcome, Started, Store};

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
    let store = ThickLayer::new(null());
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
    let store = ReadOnlyLayer::new(null());
    assert!(store.geometry().read_only && store.geometry().discards, "it would, if it took writes");
    let memory = ReadOnlyLayer::new(Arc::new(crate::RamStore::new(1 << 20, 512)));
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
    let store = DelayLayer::new(null(), rules);
    for (request, delay_us) in [(read(0, 512), 5250), (write(0, 512), 5000)] {
        let Started::Later(delayed) = store.start(request, &queue()) else { panic!("at once") };
        assert_eq!(delayed.delay, Duration::from_micros(delay_us));
        assert!(matches!(delayed.resume(&queue()), Started::Done(Ok(_))));
    }
    let store = DelayLayer::new(null(), vec!["read:1s".parse().unwrap()]);
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
    let store = ErrorLayer::new(null(), rules, 1);
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
        let store = ErrorLayer::new(null(), vec!["read:0.25".parse().unwrap()], seed);
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
