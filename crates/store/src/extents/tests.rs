use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::completion::CompletionQueue;
use crate::request::{Allocation, Completion, Geometry, Outcome, Request, Started, Store};
use crate::run::run_pure;
use crate::{ErrorKind, ExtentAccess, ExtentStore, RamStore};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 64;
const ALL: ExtentAccess = ExtentAccess { writes: true, discards: true };

fn map(extents: &[(u64, u64)]) -> ExtentMap {
    ExtentMap::new(extents).unwrap()
}

#[test]
fn extents_that_make_no_map_are_refused_by_number() {
    for (extents, error) in [
        (&[][..], ExtentError::None),
        (&[(0, 8), (8, 0)], ExtentError::Empty(2)),
        (&[(u64::MAX, 1), (0, 1)], ExtentError::Overflow(1)),
        (&[(100, 8), (0, 8), (107, 8)], ExtentError::Overlap(1, 3)),
        (&[(0, 8), (0, 8)], ExtentError::Overlap(1, 2)),
        (&[(0, 100), (10, 1)], ExtentError::Overlap(1, 2)),
    ] {
        assert_eq!(ExtentMap::new(extents), Err(error), "{extents:?}");
    }
    let many: Vec<_> = (0..EXTENTS_MAX as u64 + 1).map(|at| (2 * at, 1)).collect();
    assert_eq!(ExtentMap::new(&many), Err(ExtentError::TooMany(EXTENTS_MAX + 1)));
    assert_eq!(ExtentMap::new(&many[1..]).map(|map| map.length_bytes()), Ok(EXTENTS_MAX as u64));
}

#[test]
fn extents_that_follow_each_other_are_one() {
    let map = map(&[(16, 8), (24, 8), (0, 8)]);
    assert_eq!((map.length_bytes(), map.is_one_piece(), map.end_bytes()), (24, false, 32));
    assert_eq!(map.pieces(4..20).collect::<Vec<_>>(), [20..32, 0..4]);
    assert_eq!((map.piece(0..16), map.piece(12..20)), (Some(16..32), None));
    assert_eq!((map.numbers_of(20..28), map.numbers_of(4..8), map.numbers_of(4..9)), (Some(4..12), Some(20..24), None));
    assert_eq!((map.pieces(24..30).count(), map.piece(20..25)), (0, None), "behind the end");
}

#[test]
fn a_map_is_aligned_to_what_each_of_its_pieces_begins_at_here_and_where_it_lies() {
    let aligned = |extents: &[(u64, u64)]| [512, 1024, 2048, 3000].map(|bytes| map(extents).is_aligned_to(bytes));
    assert_eq!(aligned(&[(4096, 1024), (16384, 512)]), [true, true, false, false]);
    assert_eq!(aligned(&[(4096, 2048), (16384, 512)]), [true, true, true, false]);
    assert_eq!(aligned(&[(512, 4096)]), [true, false, false, false]);
    assert_eq!(aligned(&[(6000, 3000), (0, 3000)]), [false, false, false, true]);
    assert_eq!(aligned(&[(0, 1)]), [true; 4]);
}

/// Extents of blocks within so many blocks, none overlapping.
fn extents(blocks: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    let cuts = prop::collection::btree_set(0..=blocks, 2..8);
    (cuts, any::<u64>()).prop_map(|(cuts, seed)| {
        let cuts: Vec<_> = cuts.into_iter().collect();
        let mut parts: Vec<_> = cuts.windows(2).map(|cut| (cut[0] * BLOCK, (cut[1] - cut[0]) * BLOCK)).collect();
        let turns = seed as usize % parts.len();
        parts.rotate_left(turns);
        if parts.len() > 2 && seed & 1 << 40 != 0 {
            parts.remove(1);
        }
        parts
    })
}

/// Where each block of a map lies, one by one.
fn blocks_of(extents: &[(u64, u64)]) -> Vec<u64> {
    extents
        .iter()
        .flat_map(|(offset, length)| (offset / BLOCK..(offset + length) / BLOCK).collect::<Vec<_>>())
        .collect()
}

proptest! {
    #[test]
    fn a_map_is_the_list_of_its_blocks(extents in extents(BLOCKS), from in 0..BLOCKS, to in 0..=BLOCKS) {
        let (map, blocks) = (map(&extents), blocks_of(&extents));
        prop_assert_eq!(map.length_bytes(), blocks.len() as u64 * BLOCK);
        let range = from.min(to)..from.max(to);
        let pieces = map.pieces(range.start * BLOCK..range.end * BLOCK);
        let found: Vec<_> = pieces.flat_map(|piece| (piece.start / BLOCK..piece.end / BLOCK).collect::<Vec<_>>()).collect();
        let expected: Vec<_> = blocks.iter().copied().skip(range.start as usize).take((range.end - range.start) as usize).collect();
        prop_assert_eq!(&found, &expected);
        let bytes = range.start * BLOCK..range.end * BLOCK;
        let first = map.pieces(bytes.clone()).next();
        prop_assert_eq!(map.piece(bytes.clone()), first.filter(|piece| piece.end - piece.start == bytes.end - bytes.start));
        for (number, block) in blocks.iter().enumerate() {
            let number = number as u64 * BLOCK;
            prop_assert_eq!(map.numbers_of(block * BLOCK..(block + 1) * BLOCK), Some(number..number + BLOCK));
        }
        for block in (0..BLOCKS).filter(|block| !blocks.contains(block)) {
            prop_assert_eq!(map.numbers_of(block * BLOCK..(block + 1) * BLOCK), None);
        }
    }

    #[test]
    fn a_map_over_a_map_is_both_one_after_the_other(below in extents(BLOCKS), above in extents(BLOCKS)) {
        let (below_blocks, above_blocks) = (blocks_of(&below), blocks_of(&above));
        let joined = map(&above).over(&map(&below));
        let expected: Option<Vec<u64>> =
            above_blocks.iter().map(|block| below_blocks.get(*block as usize).copied()).collect();
        let found = joined.map(|joined| {
            let pieces = joined.pieces(0..joined.length_bytes());
            pieces.flat_map(|piece| (piece.start / BLOCK..piece.end / BLOCK).collect::<Vec<_>>()).collect::<Vec<_>>()
        });
        prop_assert_eq!(found, expected);
    }

    /// Whatever is done by the extents is done to those blocks and to no others, and reads say what is there.
    #[test]
    fn a_store_of_extents_is_those_bytes(
        extents in extents(BLOCKS),
        deeds in prop::collection::vec((0..5_u8, 0..BLOCKS, 0..12_u64, 1..=255_u8), 1..40),
    ) {
        let root: Arc<dyn Store> = Arc::new(RamStore::new(BLOCKS * BLOCK, BLOCK as u32));
        let blocks = blocks_of(&extents);
        let store = ExtentStore::new(Arc::clone(&root), Arc::new(map(&extents)), ALL);
        let mut model = vec![0_u8; BLOCKS as usize];
        for (deed, from, count, seed) in deeds {
            let (offset_bytes, length_bytes) = (from * BLOCK, count * BLOCK);
            let touched = blocks.get(from as usize..(from + count) as usize);
            let request = match deed {
                0 => Request::Write { offset_bytes, data: vec![seed; length_bytes as usize].into() },
                1 => Request::WriteZeroes { offset_bytes, length_bytes },
                2 => Request::Discard { offset_bytes, length_bytes },
                _ => Request::Read { offset_bytes, buffer: vec![1; length_bytes as usize].into() },
            };
            let shared = store.share(offset_bytes, length_bytes as usize).filter(|_| deed == 4 && count > 0);
            let end = run_pure(&store, request);
            let Some(touched) = touched else {
                prop_assert!(end.is_err_and(|error| error.kind == ErrorKind::OutOfRange));
                continue;
            };
            let expected: Vec<u8> = touched.iter().flat_map(|block| [model[*block as usize]; BLOCK as usize]).collect();
            match (deed, end) {
                (0, end) => {
                    prop_assert!(end.is_ok());
                    touched.iter().for_each(|block| model[*block as usize] = seed);
                }
                (1 | 2, end) => {
                    prop_assert!(end.is_ok());
                    touched.iter().for_each(|block| model[*block as usize] = 0);
                }
                (_, Ok(Outcome::Read(frame))) => {
                    prop_assert_eq!(&*frame, &expected[..]);
                    prop_assert!(shared.is_none_or(|shared| shared.to_vec() == expected));
                }
                (_, end) => prop_assert!(false, "{:?}", end),
            }
            for (block, byte) in model.iter().enumerate() {
                let buffer = vec![1; BLOCK as usize].into();
                let found = run_pure(&*root, Request::Read { offset_bytes: block as u64 * BLOCK, buffer });
                prop_assert!(matches!(found, Ok(Outcome::Read(frame)) if frame.iter().all(|found| found == byte)));
            }
        }
    }
}

fn read(store: &dyn Store, offset_bytes: u64, length: usize) -> Completion {
    run_pure(store, Request::Read { offset_bytes, buffer: vec![0; length].into() })
}

#[test]
fn a_store_that_is_closed_begins_nothing_and_leaves_the_other_one_alone() {
    let root: Arc<dyn Store> = Arc::new(RamStore::new(BLOCKS * BLOCK, BLOCK as u32));
    let store = ExtentStore::new(Arc::clone(&root), Arc::new(map(&[(4096, 4096)])), ALL);
    assert!(read(&store, 0, 512).is_ok() && !store.is_closed());
    store.close();
    assert!(read(&store, 0, 512).is_err_and(|error| error.kind == ErrorKind::Gone));
    assert!(store.share(0, 512).is_none());
    let write = run_pure(&store, Request::Write { offset_bytes: 0, data: vec![1; 512].into() });
    assert!(write.is_err_and(|error| error.kind == ErrorKind::Gone));
    assert!(run_pure(&store, Request::Flush).is_ok(), "what others have written becomes stable all the same");
    store.retire();
    store.abandon();
    assert!(store.resize(1 << 20).is_err());
    assert!(read(&*root, 4096, 512).is_ok_and(|end| matches!(end, Outcome::Read(frame) if *frame == [0; 512])));
}

/// A store that has become shorter than it was.
#[derive(Debug)]
struct Shrinking(RamStore, AtomicU64);

impl Store for Shrinking {
    fn geometry(&self) -> Geometry {
        Geometry { length_bytes: self.1.load(Ordering::Relaxed), ..self.0.geometry() }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match self.geometry().check(&request) {
            Ok(()) => self.0.start(request, completions),
            Err(error) => Started::Done(Err(error)),
        }
    }
}

#[test]
fn what_the_store_below_has_no_more_fails_and_the_rest_is_there() {
    let root = Arc::new(Shrinking(RamStore::new(8192, 512), AtomicU64::new(8192)));
    let store = ExtentStore::new(root.clone(), Arc::new(map(&[(4096, 4096), (0, 1024)])), ALL);
    assert!(read(&store, 0, 5120).is_ok());
    root.1.store(6144, Ordering::Relaxed);
    assert_eq!(store.geometry().length_bytes, 5120, "its length is what was derived");
    assert!(read(&store, 0, 2048).is_ok() && read(&store, 4096, 1024).is_ok());
    for (offset_bytes, length) in [(2048, 512), (0, 5120)] {
        assert!(read(&store, offset_bytes, length).is_err_and(|error| error.kind == ErrorKind::OutOfRange));
    }
}

#[test]
fn a_store_of_extents_tells_what_is_true_of_them() {
    let root: Arc<dyn Store> = Arc::new(RamStore::new(BLOCKS * BLOCK, BLOCK as u32));
    let below = root.geometry();
    let of =
        |extents: &[(u64, u64)], access| ExtentStore::new(Arc::clone(&root), Arc::new(map(extents)), access).geometry();
    let one = of(&[(4096, 8192)], ALL);
    assert_eq!(one, Geometry { length_bytes: 8192, ..below });
    let several = of(&[(4096, 4096), (0, 512)], ALL);
    assert_eq!((several.length_bytes, several.atomic_write_bytes), (4608, 0));
    let askew = of(&[(512, 8192)], ALL).physical_block_bytes;
    assert_eq!(askew, if below.physical_block_bytes > 512 { 512 } else { below.physical_block_bytes });
    let reading = of(&[(0, 512)], ExtentAccess { writes: false, discards: false });
    assert!(reading.read_only && !reading.discards);
    let store = ExtentStore::new(root, Arc::new(map(&[(0, 512)])), ExtentAccess { writes: true, discards: false });
    assert!(!store.capabilities().tells_space && !store.capabilities().grows);
    let discard = run_pure(&store, Request::Discard { offset_bytes: 0, length_bytes: 512 });
    assert!(discard.is_err_and(|error| error.kind == ErrorKind::Unsupported));
    let asked = run_pure(&store, Request::Allocation { offset_bytes: 0, length_bytes: 512 });
    assert!(matches!(asked, Ok(Outcome::Allocated(Allocation { length_bytes: 512, .. }))), "{asked:?}");
}
