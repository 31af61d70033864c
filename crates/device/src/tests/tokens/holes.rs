//! Where a source has no space behind its blocks, a copy leaves none at its destination.

use sanwire_store::{ErrorKind, Geometry};

use super::*;
use crate::testing::Op;
use crate::tests::copy::{A, B, list, run, segment};

/// What stands for so many zeroes as are wanted.
fn zeroes() -> Bytes {
    let mut token = [0; TOKEN_BYTES];
    token[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]);
    token
}

#[test]
fn holes_stay_holes_for_copies_of_both_kinds() {
    for is_token in [false, true] {
        let (world, second) = world();
        (0..128).for_each(|block| set(&second, block, 0xee));
        set(&world.store, 100, 0x55);
        if is_token {
            let token = world.token(NEXUS, 0, &[(60, 60)]);
            world.use_token(NEXUS, &token, 1, (0, 60)).unwrap();
        } else {
            run(&world, &list(1, &[segment(A, B, 60, 60, 0)])).unwrap();
        }
        let block = BLOCK as u64;
        let log = [
            (Op::Write, 0, 4 * block),
            (Op::Discard, 4 * block, 36 * block),
            (Op::Write, 40 * block, block),
            (Op::Discard, 41 * block, 19 * block),
        ];
        assert_eq!(second.take_log(), log, "{is_token}");
        let held = held(&second, 0, 61);
        assert_eq!(
            (&held[..5], held[40], &held[41..]),
            (&[61, 62, 63, 64, 0][..], 0x55, &[&[0; 19][..], &[0xee]].concat()[..])
        );
    }
}

#[test]
fn a_destination_that_gives_no_space_back_is_zeroed_in_the_way_that_it_can() {
    for (fault, log) in
        [(None, vec![(Op::Zero, 0, 2 * 512)]), (Some(Op::Zero), vec![(Op::Zero, 0, 2 * 512), (Op::Write, 0, 2 * 512)])]
    {
        let (world, second) = with_second(Geometry { discards: false, ..SMALL }, true);
        fault.iter().for_each(|op| second.fail(*op, ErrorKind::Unsupported));
        (0..3).for_each(|block| set(&second, block, 0xee));
        run(&world, &list(1, &[segment(A, B, 2, 9, 0)])).unwrap();
        assert_eq!((second.take_log(), held(&second, 0, 3)), (log, vec![0, 0, 0xee]));
    }
    let (world, second) = with_second(SMALL, true);
    second.fail(Op::Discard, ErrorKind::Unsupported);
    run(&world, &list(1, &[segment(A, B, 2, 9, 0)])).unwrap();
    assert_eq!(second.take_log(), [(Op::Discard, 0, 1024), (Op::Zero, 0, 1024)]);
    assert_eq!(
        world.good([0x84, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], &[]),
        [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 4, 0]
    );
}

#[test]
fn a_source_that_cannot_tell_is_read() {
    let (world, second) = world();
    world.store.fail(Op::Allocation, ErrorKind::Unsupported);
    run(&world, &list(1, &[segment(A, B, 80, 0, 0)])).unwrap();
    assert_eq!(second.take_log(), [(Op::Write, 0, 80 * 512)]);
    world.store.fail(Op::Allocation, ErrorKind::Unreadable);
    assert!(run(&world, &list(1, &[segment(A, B, 80, 0, 0)])).is_err(), "it could not be read either");
}

#[test]
fn an_overlapping_copy_moves_its_holes_too() {
    for (from, to) in [(0, 3), (3, 0), (0, 40), (40, 0)] {
        let (world, _) = world();
        (20..30).for_each(|block| set(&world.store, block, 0));
        let before = held(&world.store, from, 60);
        run(&world, &list(1, &[segment(A, A, 60, from as u64, to as u64)])).unwrap();
        assert_eq!(held(&world.store, to, 60), before, "{from} {to}");
    }
}

#[test]
fn zeroes_have_a_token_of_their_own() {
    let (world, second) = world();
    (0..16).for_each(|block| set(&second, block, 0xee));
    world.tell(NEXUS, write_using(&zeroes(), (DELETE, 1), 1, (7, &[(0, 2), (8, 4)]))).unwrap();
    assert_eq!(second.take_log(), [(Op::Discard, 0, 1024), (Op::Discard, 4096, 2048)]);
    assert_eq!(held(&second, 0, 16), [[0, 0, 0xee, 0xee].as_slice(), &[0xee; 4], &[0; 4], &[0xee; 4]].concat());
    let told = world.tell(NEXUS, ask(INFORMATION, 1, 1, 1024)).unwrap();
    assert_eq!((told[5], told[23]), (1, 6));
}

#[test]
fn what_is_not_cached_is_flushed_once_at_the_end() {
    let (world, second) = with_second(SMALL, false);
    (0..8).for_each(|block| set(&world.store, block, content(block)));
    let token = world.token(NEXUS, 0, &[(0, 2), (4, 2)]);
    world.tell(NEXUS, write_using(&token, (0, 1), 1, (0, &[(0, 3), (9, 1)]))).unwrap();
    let log = [(Op::Write, 0, 1024), (Op::Write, 1024, 512), (Op::Write, 4608, 512), (Op::Flush, 0, 0)];
    assert_eq!(second.take_log(), log);
}
