//! Threads that write a volume while snapshots of it are taken, merged away and looked at by others.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{BLOCK, Memory, id, kernel, read, write};
use sanwire_snapshot::{Origin, SnapshotError, SnapshotStore, Tree};
use sanwire_store::{Request, Store};

/// Blocks of each thread. It writes them in turn, each time with the next version.
const OWN: u64 = 50;
const WRITERS: u64 = 2;

/// The version of a block of its own after so many writes of a thread.
fn version_after(writes: u64, block: u64) -> u64 {
    match writes.checked_sub(block + 1) {
        Some(rest) => rest / OWN * OWN + block + 1,
        None => 0,
    }
}

/// Writes its blocks and reads them again, until the end.
fn work(store: &SnapshotStore, writer: u64, is_over: &AtomicBool) -> u64 {
    let mut writes = 0;
    while !is_over.load(Ordering::Relaxed) {
        write(store, writer * OWN + writes % OWN, writes + 1);
        writes += 1;
        if writes % 64 == 0 {
            sanwire_store::run(store, Request::Flush, kernel).unwrap();
        }
        let block = writes * 13 % OWN;
        assert_eq!(read(store, writer * OWN + block), version_after(writes, block), "after {writes} writes");
    }
    writes
}

/// A volume as it was at one moment: of each thread there is what it had written up to some write, and nothing else.
fn check(store: &SnapshotStore) {
    for writer in 0..WRITERS {
        let versions: Vec<u64> = (0..OWN).map(|block| read(store, writer * OWN + block)).collect();
        let writes = versions.iter().copied().max().unwrap_or(0);
        let expected: Vec<u64> = (0..OWN).map(|block| version_after(writes, block)).collect();
        assert_eq!(versions, expected, "of thread {writer}");
    }
}

fn administer(tree: &Tree, store: &SnapshotStore) {
    for round in 1..=60 {
        let prepared = tree.prepare("v", id(2 * round), &mut kernel).unwrap();
        let hold = tree.hold("v").unwrap();
        assert!(matches!(tree.hold("v"), Err(SnapshotError::Busy)));
        tree.take(prepared, Some(&format!("s{round}")), 0, &hold, &mut kernel).unwrap();
        drop(hold);
        tree.clone_volume(("v", &format!("s{round}")), "clone", id(2 * round + 1), &mut kernel).unwrap();
        check(&tree.volume("clone", &mut kernel).unwrap());
        tree.remove("clone").unwrap();
        if round % 3 == 0 {
            (round - 2..=round).for_each(|past| tree.forget("v", &format!("s{past}")).unwrap());
            while tree.tidy(&mut kernel).unwrap().is_some() {}
        }
        if round % 9 == 0 {
            let settling = tree.prepare_settle("v", 16 << 20, &mut kernel).unwrap().unwrap();
            let hold = tree.hold("v").unwrap();
            tree.settle(settling, &hold, || Ok(()), &mut kernel).unwrap();
        }
        if round % 20 == 0 {
            store.resize((WRITERS * OWN + round) * BLOCK).unwrap();
        }
    }
}

#[test]
fn snapshots_under_writes_show_one_moment_and_disturb_nobody() {
    let shelf = Arc::new(Memory::default());
    let origin = Origin::Empty { length_bytes: WRITERS * OWN * BLOCK, block_bytes: BLOCK as u32, layer: id(1) };
    let tree = Tree::create(shelf, "v", origin, &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let store = &store;
                    let is_over = &is_over;
                    move || work(store, writer, is_over)
                })
            })
            .collect();
        let administrator = scope.spawn(|| administer(&tree, &store)).join();
        is_over.store(true, Ordering::Relaxed);
        for (writer, ended) in (0..).zip(writers) {
            let writes = ended.join().unwrap();
            for block in 0..OWN {
                assert_eq!(read(&store, writer * OWN + block), version_after(writes, block));
            }
        }
        administrator.unwrap();
    });
}
