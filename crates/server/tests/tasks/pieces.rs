//! Commands that are ended between two pieces of their data: nothing more of them is done, and everybody is answered.

use super::initiator::{BLOCK_BYTES, GOOD, Initiator, Said, TASK_ABORTED};
use super::{GATED, World};

const ABORT_TASK: u8 = 1;
const LOGICAL_UNIT_RESET: u8 = 5;
const COMPLETE: u8 = 0;

const LONG_BYTES: u32 = 4 << 20;

const PIECE_BLOCKS: u32 = (512 << 10) / BLOCK_BYTES as u32;

/// A block of the piece with this number, whole.
fn block_of(initiator: &mut Initiator, piece: u32) -> u8 {
    let lba = (piece * PIECE_BLOCKS).to_be_bytes();
    let tag = initiator.command(GATED, &[0x28, 0, lba[0], lba[1], lba[2], lba[3], 0, 0, 1, 0], &[], BLOCK_BYTES as u32);
    initiator.hear_read(tag)
}

/// Sends a piece as it is asked for, in two bursts.
fn send_piece(initiator: &mut Initiator, piece: u32, byte: u8) {
    for burst in 0..2 {
        let asked = initiator.hear_r2t();
        assert_eq!((asked.offset_bytes, asked.desired_bytes), ((2 * piece + burst) << 18, 1 << 18));
        initiator.answer_r2t(&asked, byte);
    }
}

/// A long write of which the first piece is done.
fn begun(initiator: &mut Initiator) -> u32 {
    let tag = initiator.give_long_write(GATED, LONG_BYTES);
    send_piece(initiator, 0, 1);
    tag
}

#[test]
fn a_long_write_goes_piece_by_piece_to_its_end() {
    let world = World::new();
    let mut initiator = world.login(1);
    let tag = begun(&mut initiator);
    (1..8).for_each(|piece| send_piece(&mut initiator, piece, piece as u8 + 1));
    assert_eq!(initiator.hear(), Said::Status(tag, GOOD));
    for piece in 0..8 {
        assert_eq!(block_of(&mut initiator, piece), piece as u8 + 1);
    }
}

#[test]
fn a_reset_by_another_port_on_another_shard_ends_a_long_write_between_its_pieces() {
    let world = World::new();
    let (mut initiator, mut other) = (world.login(1), world.login(2));
    assert_ne!(world.shard_of(1), world.shard_of(2));
    let tag = begun(&mut initiator);
    let asked = initiator.hear_r2t();
    let reset = other.manage(LOGICAL_UNIT_RESET, GATED, 0);
    assert_eq!(other.hear(), Said::Managed(reset, COMPLETE));
    assert_eq!(initiator.hear(), Said::Status(tag, TASK_ABORTED));
    initiator.answer_r2t(&asked, 2);
    initiator.settle(GATED);
    assert_eq!((block_of(&mut initiator, 0), block_of(&mut initiator, 1)), (1, 0));
}

#[test]
fn a_long_write_is_aborted_between_its_pieces() {
    let world = World::new();
    let mut initiator = world.login(1);
    let tag = begun(&mut initiator);
    let asked = initiator.hear_r2t();
    let abort = initiator.manage(ABORT_TASK, GATED, tag);
    assert_eq!(initiator.hear(), Said::Managed(abort, COMPLETE));
    initiator.answer_r2t(&asked, 2);
    assert_eq!((block_of(&mut initiator, 0), block_of(&mut initiator, 1)), (1, 0));
}

#[test]
fn a_long_write_of_a_lost_session_leaves_nothing_that_others_wait_for() {
    let world = World::new();
    let mut initiator = world.login(1);
    begun(&mut initiator);
    initiator.hear_r2t();
    drop(initiator);
    world.wait_for_sessions(0);
    let mut next = world.login(1);
    let tag = next.write(GATED, 0, 7);
    assert_eq!(next.hear(), Said::Status(tag, GOOD));
    assert_eq!((next.read(GATED, 0), block_of(&mut next, 1)), (7, 0));
}

/// Only the piece at the store is a write that cannot be called back.
#[test]
fn of_a_lost_long_write_the_piece_that_is_at_the_store_keeps_its_blocks() {
    let world = World::new();
    let mut initiator = world.login(1);
    initiator.give_long_write(GATED, (1 << 20) + BLOCK_BYTES as u32);
    send_piece(&mut initiator, 0, 1);
    send_piece(&mut initiator, 1, 1);
    let last = initiator.hear_r2t();
    assert_eq!((last.offset_bytes, last.desired_bytes as usize), (1 << 20, BLOCK_BYTES));
    world.store.hold(|| initiator.answer_r2t(&last, 1));
    drop(initiator);
    world.wait_for_sessions(0);
    let mut next = world.login(1);
    let waiting = next.command(GATED, &[0x2a, 0, 0, 0, 8, 0, 0, 0, 1, 0], &[2; BLOCK_BYTES], 0);
    next.hears_nothing_else();
    assert_eq!((block_of(&mut next, 0), block_of(&mut next, 1)), (1, 1), "those of other pieces can be reached");
    world.store.release();
    assert_eq!(next.hear(), Said::Status(waiting, GOOD));
    assert_eq!(block_of(&mut next, 2), 2);
}
