use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use sanwire_buffer::Slice;

use super::chunk::WARY_READS;
use super::*;
use crate::run::run_pure;

fn read(store: &RamStore, offset_bytes: u64, length: usize) -> Vec<u8> {
    match run_pure(store, Request::Read { offset_bytes, buffer: vec![0xee; length].into() }) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("read at {offset_bytes}: {other:?}"),
    }
}

fn done(store: &RamStore, request: Request) {
    assert!(matches!(run_pure(store, request), Ok(Outcome::Done)));
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize, u8),
    Discard(usize, usize),
    Zero(usize, usize),
    Read(usize, usize),
}

const BLOCKS: usize = 3 * CHUNK_BYTES / 512;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..BLOCKS, prop_oneof![1..64usize, 1..BLOCKS]).prop_map(|(at, count)| (at, count.min(BLOCKS - at)));
    prop::collection::vec(
        prop_oneof![
            (range(), 1..=255u8).prop_map(|((at, count), fill)| Step::Write(at, count, fill)),
            range().prop_map(|(at, count)| Step::Discard(at, count)),
            range().prop_map(|(at, count)| Step::Zero(at, count)),
            range().prop_map(|(at, count)| Step::Read(at, count)),
        ],
        1..24,
    )
}

/// In up to three pieces, which end where they like.
fn in_pieces(data: Vec<u8>) -> Slices {
    let whole = Slice::from(data);
    let borders = [0, whole.len() / 5, whole.len() / 2 + 1, whole.len()];
    Slices::join(borders.windows(2).map(|border| whole.slice(border[0]..border[1]))).unwrap()
}

/// Runs the steps on the store and on a plain vector, on the 3 chunks from `base_bytes` on. What reads share stays as it was.
fn run(store: &RamStore, base_bytes: u64, steps: &[Step]) {
    let mut model = vec![0u8; BLOCKS * 512];
    let mut shared = Vec::new();
    for step in steps {
        let range =
            |at: usize, count: usize| (base_bytes + at as u64 * 512, count as u64 * 512, at * 512..(at + count) * 512);
        match *step {
            Step::Write(at, count, fill) => {
                let (offset_bytes, _, bytes) = range(at, count);
                let data: Vec<u8> = bytes.clone().map(|i| fill ^ (i / 512) as u8).collect();
                model[bytes].copy_from_slice(&data);
                done(store, Request::Write { offset_bytes, data: in_pieces(data) });
            }
            Step::Discard(at, count) => {
                let (offset_bytes, length_bytes, bytes) = range(at, count);
                model[bytes].fill(0);
                done(store, Request::Discard { offset_bytes, length_bytes });
            }
            Step::Zero(at, count) => {
                let (offset_bytes, length_bytes, bytes) = range(at, count);
                model[bytes].fill(0);
                done(store, Request::WriteZeroes { offset_bytes, length_bytes });
            }
            Step::Read(at, count) => {
                let (offset_bytes, _, bytes) = range(at, count);
                shared
                    .extend(store.share(offset_bytes, bytes.len()).map(|found| (found, model[bytes.clone()].to_vec())));
                assert!(read(store, offset_bytes, bytes.len()) == model[bytes], "{step:?} of {steps:?}");
            }
        }
    }
    assert!(shared.iter().all(|(found, then)| found.to_vec() == *then), "shares of {steps:?}");
    assert!(read(store, base_bytes, model.len()) == model, "after {steps:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Each thread has chunks of its own, so each sees just what it wrote, whatever the others do.
    #[test]
    fn threads_see_what_they_wrote(plans in prop::collection::vec(steps(), 1..4)) {
        let area_bytes = (BLOCKS * 512) as u64;
        let store = Arc::new(RamStore::new(plans.len() as u64 * area_bytes, 512));
        thread::scope(|scope| {
            for (place, plan) in plans.iter().enumerate() {
                let store = &store;
                scope.spawn(move || run(store, place as u64 * area_bytes, plan));
            }
        });
        done(&store, Request::Discard { offset_bytes: 0, length_bytes: store.geometry().length_bytes });
        prop_assert_eq!(store.allocated_bytes(), 0);
    }
}

#[test]
fn memory_comes_with_writes_and_goes_with_discards() {
    let store = RamStore::new(1 << 44, 4096);
    assert_eq!(store.allocated_bytes(), 0);
    let far = (1 << 44) - 8192;
    done(&store, Request::Write { offset_bytes: far, data: vec![1; 8192].into() });
    assert_eq!(store.allocated_bytes(), CHUNK_BYTES as u64);
    done(&store, Request::Discard { offset_bytes: far, length_bytes: 4096 });
    assert_eq!(store.allocated_bytes(), CHUNK_BYTES as u64, "one page is still in use");
    assert_eq!(read(&store, far, 8192), [vec![0; 4096], vec![1; 4096]].concat());
    done(&store, Request::Discard { offset_bytes: far + 4096, length_bytes: 4096 });
    assert_eq!(store.allocated_bytes(), 0);
    assert_eq!(read(&store, far, 8192), [0; 8192]);
}

#[test]
fn what_is_not_within_the_store_is_refused() {
    let store = RamStore::new(8192, 4096);
    for (offset_bytes, length) in [(8192, 4096), (4096, 8192), (512, 4096), (0, 512), (u64::MAX - 4095, 4096)] {
        let answer = run_pure(&store, Request::Read { offset_bytes, buffer: vec![0; length].into() });
        assert!(
            matches!(&answer, Err(error) if error.kind == crate::ErrorKind::OutOfRange),
            "{offset_bytes}+{length}: {answer:?}"
        );
    }
}

#[test]
fn readers_never_see_half_a_block() {
    let store = RamStore::new(CHUNK_BYTES as u64, 512);
    thread::scope(|scope| {
        for fill in 1..=2u8 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..2000 {
                    done(store, Request::Write { offset_bytes: 4096, data: vec![fill; 4096].into() });
                }
            });
        }
        for _ in 0..2000 {
            let seen = read(&store, 4096, 4096);
            assert!(seen.iter().all(|byte| *byte == seen[0]));
        }
    });
}

#[test]
fn a_shared_read_keeps_what_it_showed() {
    let store = RamStore::new(1 << 20, 512);
    let write = |offset_bytes, byte: u8, length| {
        let outcome = run_pure(&store, Request::Write { offset_bytes, data: vec![byte; length].into() });
        assert!(outcome.is_ok());
    };
    assert!(store.share(0, 32 << 10).is_none(), "never written");
    write(0, 1, 256 << 10);
    let before = store.share(16 << 10, 32 << 10).expect("within a chunk");
    write(20 << 10, 2, 4096);
    assert!(before.to_vec().iter().all(|byte| *byte == 1), "the past stays");
    assert!(store.share(16 << 10, 32 << 10).is_none(), "wary after it had to be copied");
    drop(before);
    let after = (0..=WARY_READS).find_map(|_| store.share(16 << 10, 32 << 10)).expect("shared again after some reads");
    let after = after.to_vec();
    assert_eq!((after[0], after[4 << 10], after[8 << 10]), (1, 2, 1));
    assert!(store.share(0, 512).is_none() && store.share(240 << 10, 32 << 10).is_none());
    assert!(store.share(1 << 20, 32 << 10).is_none() && store.share(u64::MAX, 32 << 10).is_none());
}

#[test]
fn a_read_over_several_chunks_shares_all_of_them() {
    const CHUNK: u64 = CHUNK_BYTES as u64;
    let store = RamStore::new(16 << 20, 512);
    let write = |offset_bytes, byte, length| {
        done(&store, Request::Write { offset_bytes, data: vec![byte; length].into() });
    };
    for (chunk, byte) in (0..4).zip(1..) {
        write(chunk * CHUNK, byte, CHUNK_BYTES);
    }
    let (offset_bytes, length) = (CHUNK - 512, 2 * CHUNK_BYTES + 1024);
    let before = store.share(offset_bytes, length).expect("all of them were written");
    assert_eq!(
        before.pieces().iter().map(|piece| piece.len()).collect::<Vec<_>>(),
        [512, CHUNK_BYTES, CHUNK_BYTES, 512]
    );
    assert_eq!((before.heap_bytes(), before.lent_bytes()), (0, 4 * CHUNK_BYTES));
    let past = read(&store, offset_bytes, length);
    write(CHUNK + 4096, 9, CHUNK_BYTES);
    assert!(before.to_vec() == past, "the past stays, in both chunks that were written");
    assert_eq!(read(&store, CHUNK + 4096, 512), [9; 512]);
    assert!(store.share(0, CHUNK_BYTES).is_some(), "a chunk that was not written is shared as before");
    let refused = (0..).take_while(|_| store.share(offset_bytes, length).is_none()).count();
    assert_eq!(refused, usize::from(WARY_READS), "each read counts for all chunks that had to be copied");
    assert!(store.share(3 * CHUNK, CHUNK_BYTES + 512).is_none(), "the last one was never written");
    assert!(store.share(CHUNK - 4096, 8192).is_none(), "a short one is copied");
    (4..=16).for_each(|chunk| write(chunk * CHUNK, 7, CHUNK_BYTES));
    assert!(
        store.share(0, 15 * CHUNK_BYTES).is_some() && store.share(0, 16 * CHUNK_BYTES).is_none(),
        "lists are short"
    );
}

#[test]
fn written_pages_are_told_from_the_others() {
    let store = RamStore::new(1 << 30, 512);
    let ask = |offset_bytes: u64, length_bytes| {
        let asked = Request::Allocation { offset_bytes, length_bytes };
        let Ok(Outcome::Allocated(allocation)) = run_pure(&store, asked) else { panic!("at once") };
        (allocation.is_mapped, allocation.length_bytes)
    };
    assert_eq!(ask(512, (1 << 30) - 512), (false, (1 << 30) - 512));
    let chunk = CHUNK_BYTES as u64;
    let group = chunk * GROUP_CHUNKS as u64;
    done(&store, Request::Write { offset_bytes: group + chunk - 512, data: vec![1; 1024].into() });
    assert_eq!(ask(0, 1 << 30), (false, group + chunk - 4096), "across groups and chunks");
    assert_eq!(ask(group + chunk - 4096, 1 << 20), (true, 8192), "pages of 4 KiB");
    assert_eq!(ask(group + chunk + 4096, 512), (false, 512), "no further than asked");
    done(&store, Request::Discard { offset_bytes: group + chunk, length_bytes: 4096 });
    assert_eq!(ask(group + chunk - 512, 1024), (true, 512));
}

/// A write across chunks, which have locks of their own, is seen wholly or not at all.
#[test]
fn nobody_sees_a_part_of_a_write() {
    let store = Arc::new(RamStore::new(1 << 20, 512));
    let (offset_bytes, length) = (CHUNK_BYTES as u64 - 512, CHUNK_BYTES + 1024);
    let writer = {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            for fill in 1..=200u8 {
                done(&store, Request::Write { offset_bytes, data: vec![fill; length].into() });
            }
        })
    };
    while !writer.is_finished() {
        let seen = read(&store, offset_bytes, length);
        assert!(seen.iter().all(|byte| *byte == seen[0]), "{} and {}", seen[0], seen[length - 1]);
    }
    writer.join().unwrap();
}

#[test]
fn nobody_shares_a_part_of_a_write() {
    let store = RamStore::new(1 << 20, 512);
    let (offset_bytes, length) = (CHUNK_BYTES as u64 - 512, CHUNK_BYTES + 1024);
    let write = |fill| done(&store, Request::Write { offset_bytes, data: vec![fill; length].into() });
    write(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| (0..2000).for_each(|fill| write(fill as u8)));
        while !writer.is_finished() {
            // Looked at for so short a time, it seldom has a chunk copied, after which none would be shared for a while.
            let seen = store.share(offset_bytes, length).map(|shared| [0, 1, 2].map(|piece| shared.pieces()[piece][0]));
            assert!(seen.is_none_or(|seen| seen == [seen[0]; 3]), "{seen:?}");
        }
    });
}
