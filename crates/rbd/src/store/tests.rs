//! Against a real cluster, which each test starts.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use sanwire_buffer::Frame;
use sanwire_store::{Completion, ErrorKind};
use sanwire_store_file::blocking::run;
use sanwire_testing::ceph::Ceph;
use sanwire_testing::{skip, this_test};

use super::*;

const SIZE_BYTES: u64 = 64 << 20;
const OBJECT_BYTES: u64 = 4 << 20;
/// Nothing here takes so long unless it never happens.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster with an image; `None`, and the test is skipped, where there can be none.
fn cluster() -> Option<Ceph> {
    if !Ceph::can_run() || crate::api::api().is_err() {
        skip(&this_test(), "it takes librbd1 and Ceph's daemons (packages ceph-mon, ceph-osd and ceph-common)");
        return None;
    }
    let ceph = Ceph::start();
    ceph.create("disk", "64M");
    Some(ceph)
}

fn options(ceph: &Ceph) -> Options {
    Options { config: Some(ceph.config()), ..Options::default() }
}

fn open(ceph: &Ceph, options: &Options) -> Result<RbdStore, RbdError> {
    let _ = ceph;
    RbdStore::open(&"rbd/disk".parse().unwrap(), options)
}

/// Opens the image when the store that had it before has ended.
fn open_when_free(ceph: &Ceph) -> RbdStore {
    let since = Instant::now();
    loop {
        match open(ceph, &options(ceph)) {
            Ok(store) => return store,
            Err(error) => {
                assert!(matches!(error, RbdError::Locked { .. }) && since.elapsed() < TIMEOUT, "{error}");
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn write(store: &RbdStore, offset_bytes: u64, byte: u8, length: usize) -> Completion {
    run(store, Request::Write { offset_bytes, data: vec![byte; length].into() })
}

fn read(store: &RbdStore, offset_bytes: u64, length: usize) -> Vec<u8> {
    match run(store, Request::Read { offset_bytes, buffer: Frame::from(vec![0xee; length]) }) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn extent(store: &RbdStore, offset_bytes: u64, length_bytes: u64) -> (bool, u64) {
    match run(store, Request::Allocation { offset_bytes, length_bytes }) {
        Ok(Outcome::Allocated(allocation)) => (allocation.is_mapped, allocation.length_bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_that_a_store_does_is_done_by_a_cluster() {
    let Some(ceph) = cluster() else { return };
    let store = open(&ceph, &options(&ceph)).unwrap();
    assert_eq!((store.geometry().length_bytes, store.geometry().block_bytes), (SIZE_BYTES, 512));
    assert_eq!(extent(&store, 0, SIZE_BYTES), (false, SIZE_BYTES));
    write(&store, OBJECT_BYTES - 1024, 7, 300 << 10).unwrap();
    run(&store, Request::Flush).unwrap();
    assert_eq!(read(&store, OBJECT_BYTES - 1024, 300 << 10), vec![7; 300 << 10]);
    assert!(extent(&store, 0, SIZE_BYTES).0, "an object that was written");
    assert!(!extent(&store, 4 * OBJECT_BYTES, OBJECT_BYTES).0);
    // Smaller than what librbd discards, which would silently stay.
    run(&store, Request::Discard { offset_bytes: OBJECT_BYTES, length_bytes: 1024 }).unwrap();
    run(&store, Request::WriteZeroes { offset_bytes: OBJECT_BYTES + 2048, length_bytes: 512 }).unwrap();
    let mut expected = vec![7; 4096];
    expected[..1024].fill(0);
    expected[2048..2560].fill(0);
    assert_eq!(read(&store, OBJECT_BYTES, 4096), expected);
    run(&store, Request::Discard { offset_bytes: 0, length_bytes: SIZE_BYTES }).unwrap();
    assert_eq!(extent(&store, 0, SIZE_BYTES), (false, SIZE_BYTES), "all of it was given back");
    assert_eq!(write(&store, SIZE_BYTES, 1, 512).unwrap_err().kind, ErrorKind::OutOfRange);
    store.resize(2 * SIZE_BYTES).unwrap();
    write(&store, SIZE_BYTES, 1, 512).unwrap();
    assert!(store.resize(SIZE_BYTES).is_err());
    ceph.run("rbd", &["resize", "rbd/disk", "--size", "256M"]);
    let since = Instant::now();
    while store.geometry().length_bytes != 4 * SIZE_BYTES {
        assert!(since.elapsed() < TIMEOUT, "it does not hear that others resize the image");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_image_is_had_by_one_and_taken_over_only_when_told_so() {
    let Some(ceph) = cluster() else { return };
    let first = open(&ceph, &options(&ceph)).unwrap();
    write(&first, 0, 1, 4096).unwrap();
    let refused = open(&ceph, &options(&ceph)).unwrap_err();
    assert!(matches!(refused, RbdError::Locked { is_own: true, .. }), "{refused}");
    assert!(refused.to_string().contains("this server itself"), "{refused}");
    let reader = open(&ceph, &Options { read_only: true, ..options(&ceph) }).unwrap();
    assert_eq!(read(&reader, 0, 4096), [1; 4096]);
    assert_eq!(write(&reader, 0, 1, 512).unwrap_err().kind, ErrorKind::ReadOnly);
    let since = Instant::now();
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let second = std::thread::scope(|scope| {
        // It writes on until it is shut out, and never hears of a write that was done after that.
        let writer = scope.spawn(|| {
            loop {
                let next = written.load(Ordering::Acquire) + 1;
                let data = next.to_be_bytes().repeat(64).into();
                if since.elapsed() > TIMEOUT {
                    panic!("it is never shut out");
                }
                // One that was done before may be heard of after it.
                let is_late = is_over.load(Ordering::Acquire);
                match run(&first, Request::Write { offset_bytes: 8192, data }) {
                    Ok(_) if is_late => panic!("a write was done after the takeover"),
                    Ok(_) => written.store(next, Ordering::Release),
                    Err(error) => return error,
                }
            }
        });
        while written.load(Ordering::Acquire) < 50 && since.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let second = open(&ceph, &Options { takes_over: true, ..options(&ceph) }).unwrap();
        is_over.store(true, Ordering::Release);
        let error = writer.join().unwrap();
        assert_eq!(error.kind, ErrorKind::Gone);
        assert!(error.to_string().contains("taken the image over"), "{error}");
        second
    });
    // All that was answered is there; the one that was not may be.
    let number = u64::from_be_bytes(read(&second, 8192, 512)[..8].try_into().unwrap());
    let answered = written.load(Ordering::Acquire);
    assert!(number == answered || number == answered + 1, "{number}, and {answered} were answered");
    write(&second, 8192, 9, 512).unwrap();
    assert_eq!(write(&first, 8192, 1, 512).unwrap_err().kind, ErrorKind::Gone);
    let lost = RemoteCount { is_reachable: false, times_gone: 1, reconnects: 0, requests: 0 };
    assert_eq!(first.remote(), Some(lost));
    assert_eq!(second.remote(), Some(RemoteCount { is_reachable: true, times_gone: 0, ..lost }));
    assert_eq!(read(&second, 8192, 512), [9; 512]);
    drop(second);
    drop(first);
    open(&ceph, &options(&ceph)).unwrap();
}

/// Gives so many writes at once; how they have ended.
fn write_many(store: &RbdStore, count: u64) -> Vec<Completion> {
    let completions = CompletionQueue::new(|| ());
    let mut ended = Vec::new();
    for index in 0..count {
        let request = Request::Write { offset_bytes: index % 1000 * 65_536, data: vec![index as u8; 4096].into() };
        match store.start(request, &completions) {
            Started::Done(completion) => ended.push(completion),
            started => assert!(matches!(started, Started::Pending(_)), "{started:?}"),
        }
    }
    let since = Instant::now();
    while ended.len() < count as usize {
        assert!(since.elapsed() < TIMEOUT, "{} of {count} have ended", ended.len());
        ended.extend(completions.take().into_iter().map(|(_, completion)| completion));
        std::thread::sleep(Duration::from_millis(1));
    }
    ended
}

#[test]
fn whatever_its_configuration_says_the_cluster_refuses_all_of_who_lost_an_image_and_nothing_is_left_waiting() {
    let Some(ceph) = cluster() else { return };
    let mut config = std::fs::read_to_string(ceph.config()).unwrap();
    config.push_str("\n[client]\nrbd blocklist on break lock = false\n");
    std::fs::write(ceph.config(), config).unwrap();
    let first = open(&ceph, &options(&ceph)).unwrap();
    write(&first, 0, 1, 4096).unwrap();
    let second = open(&ceph, &Options { takes_over: true, ..options(&ceph) }).unwrap();
    write(&second, 0, 2, 4096).unwrap();
    // librbd 16.2 ends none of these.
    let ended = write_many(&first, 500);
    assert!(ended.iter().all(|end| matches!(end, Err(error) if error.kind == ErrorKind::Gone)), "{ended:?}");
    assert_eq!(read(&second, 0, 4096), [2; 4096]);
    let since = Instant::now();
    drop(first);
    assert!(since.elapsed() < TIMEOUT, "its end waits for the cluster");
}

#[test]
fn many_requests_at_once_all_end() {
    let Some(ceph) = cluster() else { return };
    let store = open(&ceph, &options(&ceph)).unwrap();
    write_many(&store, 2000).into_iter().for_each(|completion| drop(completion.unwrap()));
}

#[test]
fn a_store_is_abandoned_while_its_cluster_hangs_and_keeps_nobody_waiting() {
    let Some(ceph) = cluster() else { return };
    let store = open(&ceph, &options(&ceph)).unwrap();
    write(&store, 0, 1, 4096).unwrap();
    let completions = CompletionQueue::new(|| ());
    let hang = ceph.freeze();
    let request = Request::Write { offset_bytes: 0, data: vec![2; 4096].into() };
    assert!(matches!(store.start(request, &completions), Started::Pending(_)));
    let allocation = Request::Allocation { offset_bytes: 0, length_bytes: SIZE_BYTES };
    assert!(matches!(store.start(allocation, &completions), Started::Pending(_)));
    store.abandon();
    let ended = completions.take();
    let is_gone = |end: &Completion| matches!(end, Err(error) if error.kind == ErrorKind::Gone);
    assert!(ended.len() == 2 && ended.iter().all(|(_, end)| is_gone(end)), "{ended:?}");
    // It does not wait for what the cluster has.
    drop(store);
    drop(hang);
    open_when_free(&ceph);
}

#[test]
fn what_waits_for_its_turn_when_a_store_is_abandoned_is_never_given_to_the_cluster() {
    let Some(ceph) = cluster() else { return };
    let waited = (SIZE_BYTES / 2..).step_by(4096).take(20).find(|place| abandon_behind_what_blocks(&ceph, *place));
    let place = waited.expect("librbd knows every time by itself what is allocated");
    assert_eq!(read(&open_when_free(&ceph), place, 4096), [0; 4096]);
}

/// Abandons a store whose write to this place waits behind a question; `false` when librbd has answered that without the cluster.
fn abandon_behind_what_blocks(ceph: &Ceph, place: u64) -> bool {
    let store = open_when_free(ceph);
    let completions = CompletionQueue::new(|| ());
    let begin = |request| assert!(matches!(store.start(request, &completions), Started::Pending(_)));
    let write_at = |offset_bytes| begin(Request::Write { offset_bytes, data: vec![7; 4096].into() });
    let _hang = ceph.freeze();
    begin(Request::Allocation { offset_bytes: 0, length_bytes: SIZE_BYTES });
    while store.under_way.has_room() {
        write_at(0);
    }
    write_at(place);
    std::thread::sleep(Duration::from_millis(200));
    let is_blocked = completions.take().is_empty();
    store.abandon();
    drop(store);
    is_blocked
}

#[test]
fn nobody_waits_for_ever_for_a_cluster_that_hangs() {
    let (go_on, hangs) = mpsc::channel::<()>();
    let work = move || hangs.recv().is_ok();
    assert!(within(Duration::from_millis(1), work).unwrap().is_none());
    drop(go_on);
    assert_eq!(within(TIMEOUT, || 7).unwrap(), Some(7));
}

#[test]
fn what_cannot_be_opened_says_why() {
    assert!("disk".parse::<ImageName>().is_err() && "a/b/c".parse::<ImageName>().is_err());
    let Some(ceph) = cluster() else { return };
    let missing = RbdStore::open(&"rbd/none".parse().unwrap(), &options(&ceph)).unwrap_err().to_string();
    assert!(missing.contains("cannot open the image") && missing.contains("No such file"), "{missing}");
    let missing = RbdStore::open(&"none/disk".parse().unwrap(), &options(&ceph)).unwrap_err().to_string();
    assert!(missing.contains("cannot open the pool"), "{missing}");
    let nowhere = Options { config: Some(ceph.directory().join("none")), ..Options::default() };
    assert!(open(&ceph, &nowhere).unwrap_err().to_string().contains("cannot read the Ceph configuration"));
}
