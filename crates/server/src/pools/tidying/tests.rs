//! What becomes of layers in the background, and of writes while snapshots are taken.

use std::fs;
use std::path::PathBuf;
use std::thread;

use sanwire_store::{CompletionQueue, Request, Started};
use sanwire_store_file::blocking;

use crate::pools::layered::tests::{BLOCK, Place, holds, id, names, serve, take};
use crate::pools::{Pool, PoolError};

fn directory(pool: &Pool) -> PathBuf {
    pool.families_directory().join(&pool.catalogue().layered["a"])
}

/// How many layers there are of volume `a`, and whether what is below them is sealed.
fn layers(pool: &Pool) -> (usize, bool) {
    let names = fs::read_dir(directory(pool)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.collect();
    (names.iter().filter(|name| name.ends_with(".layer")).count(), names.contains(&"base.seal".to_owned()))
}

fn write(block: u64, byte: u8) -> Request {
    Request::Write { offset_bytes: block * BLOCK as u64, data: vec![byte; BLOCK].into() }
}

fn first_bytes(file: &[u8]) -> Vec<u8> {
    file.chunks(BLOCK).map(|block| block[0]).collect()
}

#[test]
fn a_volume_whose_snapshots_are_gone_goes_back_to_its_file_and_stays_there() {
    let place = Place::new("to-its-file");
    place.fill();
    let file = place.0.join("a.img");
    let pool = place.reopen();
    let store = serve(&pool, "a");
    pool.delete_snapshot(&id("a@first")).unwrap();
    while layers(&pool) != (0, false) {
        thread::yield_now();
    }
    assert_eq!(first_bytes(&fs::read(&file).unwrap()), [3, 4, 1]);
    assert!([write(2, 5), Request::Flush].into_iter().all(|request| blocking::run(&*store, request).is_ok()));
    assert_eq!(first_bytes(&fs::read(&file).unwrap()), [3, 4, 5], "it is written there");
    drop((store, pool));
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    for _ in 0..2 {
        let pool = place.reopen();
        assert!(holds(&pool, "a", &[3, 4, 5]));
        let counted = layers(&pool);
        drop(pool);
        assert_eq!(
            (counted, fs::metadata(&file).unwrap().modified().unwrap()),
            ((0, false), written),
            "nothing is copied"
        );
    }
    // It can have snapshots again, and what is below them is known.
    let pool = place.reopen();
    take(&pool, &["a@second"]).unwrap();
    let store = serve(&pool, "a");
    assert!([write(0, 6), Request::Flush].into_iter().all(|request| blocking::run(&*store, request).is_ok()));
    while layers(&pool) != (1, true) {
        thread::yield_now();
    }
    drop((store, pool));
    let pool = place.reopen();
    assert!(holds(&pool, "a", &[6, 4, 5]) && holds(&pool, "a@second", &[3, 4, 5]));
}

#[test]
fn writes_go_on_when_a_snapshot_takes_too_long() {
    let place = Place::new("late");
    place.fill();
    let pool = place.reopen();
    let store = serve(&pool, "a");
    let (late, other) = (id("a@late"), id("a@other"));
    pool.prepare(&late).unwrap();
    // The disk does not end it.
    let queue = CompletionQueue::new(|| ());
    let hanging = store.start(write(0, 7), &queue);
    assert!(!matches!(hanging, Started::Done(_)));
    thread::scope(|scope| {
        let taking = scope.spawn(|| pool.capture(&late));
        let writing = scope.spawn(|| blocking::run(&*store, write(1, 8)).is_ok());
        pool.give_up(&late);
        assert!(matches!(taking.join().unwrap(), Err(PoolError::Failed { .. })));
        assert!(writing.join().unwrap());
    });
    drop(hanging);
    pool.discard(std::slice::from_ref(&late));
    pool.prepare(&other).and_then(|()| pool.capture(&other)).unwrap();
    pool.commit(std::slice::from_ref(&other), false).unwrap();
    assert_eq!(names(&pool), ["a@first", "a@other"]);
    drop(store);
    assert!(holds(&pool, "a@other", &[3, 8, 1]));
}
