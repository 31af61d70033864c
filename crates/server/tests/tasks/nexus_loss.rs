//! What the store writes for a lost session ends before anybody else reaches those blocks: the next session of the port (SAM-5
//! 6.3.4), other ports, and the session itself, when it has lost a connection only.

use super::initiator::{GOOD, Initiator, NO_TASK, Said};
use super::{GATED, PROMPT, World};

const ABORT_TASK: u8 = 1;
const LOGICAL_UNIT_RESET: u8 = 5;
const COMPLETE: u8 = 0;

/// A world where the store does the write of a 1, by this session of port 1.
fn with_a_slow_write() -> (World, Initiator) {
    let world = World::new();
    let mut initiator = world.login(1);
    world.store.hold(|| initiator.write(GATED, 0, 1));
    (world, initiator)
}

/// The same when the session was lost meanwhile.
fn with_an_old_write() -> World {
    let (world, old) = with_a_slow_write();
    drop(old);
    world.wait_for_sessions(0);
    world
}

#[test]
fn a_write_of_a_lost_session_never_lands_on_one_of_the_next_session() {
    let world = with_an_old_write();
    // The shard with the fewest sessions is now another one.
    let _other = world.login(2);
    let mut new = world.login(1);
    let again = new.write(GATED, 0, 1);
    new.hears_nothing_else();
    let newer = new.write(GATED, 0, 2);
    new.hears_nothing_else();
    world.store.release();
    assert_eq!(new.hear(), Said::Status(again, GOOD));
    assert_eq!(new.hear(), Said::Status(newer, GOOD));
    assert_eq!(new.read(GATED, 0), 2);
}

#[test]
fn a_write_of_a_replaced_session_never_lands_on_one_of_its_successor() {
    let (world, mut old) = with_a_slow_write();
    let mut new = world.login(1);
    assert_eq!(old.hear(), Said::End);
    let newer = new.write(GATED, 0, 2);
    new.hears_nothing_else();
    world.store.release();
    assert_eq!(new.hear(), Said::Status(newer, GOOD));
    assert_eq!(new.read(GATED, 0), 2);
}

/// Who has several paths gives a lost write again through another one, and then overwrites it there.
#[test]
fn a_write_of_a_lost_session_never_lands_on_one_through_another_port_on_another_shard() {
    let (world, old) = with_a_slow_write();
    let mut beside = world.login(2);
    assert_ne!(world.shard_of(1), world.shard_of(2));
    drop(old);
    world.wait_for_sessions(1);
    let newer = beside.write(GATED, 0, 2);
    beside.hears_nothing_else();
    world.store.release();
    assert_eq!(beside.hear(), Said::Status(newer, GOOD));
    assert_eq!(beside.read(GATED, 0), 2);
}

/// A host that falls silent takes its path for dead, and uses another one, before the server can know.
#[test]
fn a_write_that_takes_long_is_waited_for_though_its_session_may_live() {
    let (world, mut silent) = with_a_slow_write();
    let mut beside = world.login(2);
    let waiting = beside.read_until_it_waits(GATED, 0);
    let newer = beside.write(GATED, 0, 2);
    beside.hears_nothing_else();
    world.store.release();
    assert_eq!(beside.hear_read(waiting), 1);
    assert_eq!(beside.hear(), Said::Status(newer, GOOD));
    assert!(matches!(silent.hear(), Said::Status(_, GOOD)));
    assert_eq!(silent.read(GATED, 0), 2);
}

#[test]
fn nobody_reads_blocks_that_a_lost_session_still_changes() {
    let world = with_an_old_write();
    let mut others = [world.login(1), world.login(2)];
    let reads = others.each_mut().map(|other| {
        let tag = other.give_read(GATED, 0);
        other.hears_nothing_else();
        tag
    });
    world.store.release();
    for (other, tag) in others.iter_mut().zip(reads) {
        assert_eq!(other.hear_read(tag), 1);
    }
}

#[test]
fn neither_other_blocks_nor_other_units_wait() {
    let world = with_an_old_write();
    let mut new = world.login(1);
    let tag = new.write(GATED, 1, 9);
    assert_eq!(new.hear(), Said::Status(tag, GOOD));
    assert_eq!(new.read(GATED, 1), 9);
    let tag = new.write(PROMPT, 0, 8);
    assert_eq!(new.hear(), Said::Status(tag, GOOD));
    world.store.release();
    assert_eq!((new.read(GATED, 0), new.read(GATED, 1), new.read(PROMPT, 0)), (1, 9, 8));
}

#[test]
fn a_command_that_waits_for_an_earlier_session_can_be_aborted() {
    let world = with_an_old_write();
    let mut new = world.login(1);
    let waiting = new.write(GATED, 0, 2);
    let request = new.manage(ABORT_TASK, GATED, waiting);
    assert_eq!(new.hear(), Said::Managed(request, COMPLETE));
    new.write(GATED, 0, 3);
    new.hears_nothing_else();
    // It waits for the end of the old write as well, which is a task of the unit.
    let request = new.manage(LOGICAL_UNIT_RESET, GATED, NO_TASK);
    new.hears_nothing_else();
    world.store.release();
    assert_eq!(new.hear(), Said::Managed(request, COMPLETE));
    new.settle(GATED);
    assert_eq!(new.read(GATED, 0), 1, "neither was done");
}

#[test]
fn sessions_that_come_and_go_do_not_hide_the_old_one() {
    let world = with_an_old_write();
    for byte in 2..5 {
        let mut next = world.login(1);
        next.write(GATED, 0, byte);
        next.hears_nothing_else();
        drop(next);
        world.wait_for_sessions(0);
    }
    let _others = [world.login(2), world.login(3)];
    let mut last = world.login(1);
    let tag = last.write(GATED, 0, 7);
    last.hears_nothing_else();
    world.store.release();
    assert_eq!(last.hear(), Said::Status(tag, GOOD));
    assert_eq!(last.read(GATED, 0), 7);
}

#[test]
fn a_target_that_was_away_meanwhile_is_the_same_target() {
    let (world, mut old) = with_a_slow_write();
    let exports = world.target.exports();
    world.target.set_exports(vec![]).unwrap();
    assert_eq!(old.hear(), Said::End);
    world.wait_for_sessions(0);
    world.target.set_exports(exports).unwrap();
    let _other = world.login(2);
    let mut new = world.login(1);
    let tag = new.write(GATED, 0, 2);
    new.hears_nothing_else();
    world.store.release();
    assert_eq!(new.hear(), Said::Status(tag, GOOD));
    assert_eq!(new.read(GATED, 0), 2);
}

/// RFC 7143 11.14.1: the commands of a connection that is logged out are terminated, and the initiator gives them again.
#[test]
fn a_write_of_a_closed_connection_never_lands_on_one_given_on_another_connection() {
    let (world, lost) = with_a_slow_write();
    let mut rest = lost.join(world.portal(), 1);
    let request = rest.log_out(0);
    assert_eq!(rest.hear(), Said::LoggedOut(request, 0));
    let newer = rest.write(GATED, 0, 2);
    rest.hears_nothing_else();
    let elsewhere = rest.write(PROMPT, 0, 3);
    assert_eq!(rest.hear(), Said::Status(elsewhere, GOOD), "another unit does not wait");
    world.store.release();
    assert_eq!(rest.hear(), Said::Status(newer, GOOD));
    assert_eq!(rest.read(GATED, 0), 2);
}

/// RFC 7143 6.3.4: the session lives on, and when it is lost too, what its first connection has left still counts.
#[test]
fn a_write_of_a_reinstated_connection_never_lands_on_a_newer_one() {
    let (world, lost) = with_a_slow_write();
    let mut second = lost.join(world.portal(), 0);
    second.write(GATED, 0, 2);
    second.hears_nothing_else();
    drop(second);
    world.wait_for_sessions(0);
    let mut last = world.login(1);
    let newer = last.write(GATED, 0, 3);
    last.hears_nothing_else();
    world.store.release();
    assert_eq!(last.hear(), Said::Status(newer, GOOD));
    assert_eq!(last.read(GATED, 0), 3);
}

/// The new session is on the other shard, unless that has noticed the end of the old one already.
#[test]
fn what_a_lost_session_had_reserved_is_free_for_the_next_under_another_port() {
    const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    let world = World::new();
    for round in 0..100 {
        let mut session = world.login(round % 2);
        let tag = session.command(PROMPT, &RESERVE_6, &[], 0);
        assert_eq!(session.hear(), Said::Status(tag, GOOD), "round {round}");
    }
}

/// A shard watches a busy connection for a moment after each answer: that is when this one ends.
#[test]
fn a_session_that_ends_right_after_an_answer_is_over_at_once() {
    let world = World::new();
    for _ in 0..100 {
        let mut session = world.login(1);
        let tag = session.write(PROMPT, 0, 1);
        assert_eq!(session.hear(), Said::Status(tag, GOOD));
        drop(session);
        world.wait_for_sessions(0);
    }
}
