//! Task management that reaches the tasks of other sessions, on other shards (RFC 7143 11.5, SAM-5 7).

use super::initiator::{GOOD, Initiator, NO_TASK, Said, TASK_ABORTED};
use super::{DELAYED, GATED, PROMPT, World};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const COMPLETE: u8 = 0;
const REJECTED: u8 = 255;

/// Sessions of two ports on two shards.
fn apart(world: &World) -> (Initiator, Initiator) {
    let both = (world.login(1), world.login(2));
    assert_ne!(world.shard_of(1), world.shard_of(2));
    both
}

/// A write that waits for an hour, and has been begun.
fn delayed_write(initiator: &mut Initiator) -> u32 {
    let tag = initiator.write(DELAYED, 0, 1);
    initiator.hears_nothing_else();
    tag
}

#[test]
fn a_delayed_command_is_aborted_at_once_and_never_done() {
    let world = World::new();
    let mut initiator = world.login(1);
    let write = delayed_write(&mut initiator);
    let request = initiator.manage(ABORT_TASK, DELAYED, write);
    assert_eq!(initiator.hear(), Said::Managed(request, COMPLETE));
    assert_eq!(initiator.read(DELAYED, 0), 0);
}

#[test]
fn abort_task_set_spares_the_tasks_of_others() {
    let world = World::new();
    let (mut here, mut there) = apart(&world);
    delayed_write(&mut there);
    delayed_write(&mut here);
    let request = here.manage(ABORT_TASK_SET, DELAYED, NO_TASK);
    assert_eq!(here.hear(), Said::Managed(request, COMPLETE));
    there.hears_nothing_else();
}

#[test]
fn what_ends_all_tasks_of_a_unit_ends_those_of_other_shards() {
    for function in [CLEAR_TASK_SET, LOGICAL_UNIT_RESET, TARGET_WARM_RESET] {
        let world = World::new();
        let (mut here, mut there) = apart(&world);
        let write = delayed_write(&mut there);
        delayed_write(&mut here);
        let request = here.manage(function, DELAYED, NO_TASK);
        assert_eq!(here.hear(), Said::Managed(request, COMPLETE), "function {function}");
        assert_eq!(there.hear(), Said::Status(write, TASK_ABORTED), "function {function}");
        here.settle(DELAYED);
        assert_eq!(here.read(DELAYED, 0), 0, "function {function}");
    }
}

#[test]
fn a_reset_of_one_unit_spares_the_tasks_of_another() {
    let world = World::new();
    let (mut here, mut there) = apart(&world);
    delayed_write(&mut there);
    let request = here.manage(LOGICAL_UNIT_RESET, GATED, NO_TASK);
    assert_eq!(here.hear(), Said::Managed(request, COMPLETE));
    there.hears_nothing_else();
}

#[test]
fn a_function_is_complete_when_the_stores_of_all_shards_have_done_what_they_do() {
    for function in [CLEAR_TASK_SET, LOGICAL_UNIT_RESET, TARGET_WARM_RESET] {
        let world = World::new();
        let (mut here, mut there) = apart(&world);
        let write = world.store.hold(|| there.write(GATED, 0, 1));
        let request = here.manage(function, GATED, NO_TASK);
        here.hears_nothing_else();
        world.store.release();
        assert_eq!(here.hear(), Said::Managed(request, COMPLETE), "function {function}");
        assert_eq!(there.hear(), Said::Status(write, TASK_ABORTED), "function {function}");
    }
}

/// RFC 7143 11.5.1: a cold reset ends the connections of all initiators.
#[test]
fn a_cold_reset_ends_the_sessions_of_all_shards_with_the_target() {
    let world = World::new();
    let (mut here, mut there) = apart(&world);
    let mut elsewhere = Initiator::login(world.portal(), "iqn.2026-11.org.sanwire:prompt", 3);
    let write = delayed_write(&mut there);
    let request = here.manage(TARGET_COLD_RESET, DELAYED, NO_TASK);
    assert_eq!(here.hear(), Said::Managed(request, COMPLETE));
    assert_eq!(here.hear(), Said::End);
    assert_eq!(there.hear(), Said::Status(write, TASK_ABORTED));
    assert_eq!(there.hear(), Said::End);
    world.wait_for_sessions(1);
    elsewhere.settle(0);
    let tag = elsewhere.write(0, 0, 1);
    assert_eq!(elsewhere.hear(), Said::Status(tag, GOOD), "another target");
}

/// Each cold reset ends all sessions: whoever may log in could do it again and again, and nobody else would come to his turn.
#[test]
fn who_resets_a_target_cold_again_and_again_leaves_others_time_to_work() {
    let world = World::new();
    let (_, mut honest) = apart(&world);
    let mut done = 0;
    for turn in 0..40 {
        let mut greedy = world.login(1);
        let request = greedy.manage(TARGET_COLD_RESET, PROMPT, NO_TASK);
        let said = greedy.hear();
        if said == Said::Managed(request, COMPLETE) {
            done += 1;
            assert_eq!(honest.hear(), Said::End);
            honest = world.login(2);
        } else {
            assert_eq!(said, Said::Managed(request, REJECTED));
        }
        let write = honest.write(PROMPT, 0, turn);
        assert_eq!((honest.hear(), honest.read(PROMPT, 0)), (Said::Status(write, GOOD), turn));
    }
    assert!((4..=5).contains(&done), "{done} were done");
}

#[test]
fn a_cold_reset_is_done_though_the_one_who_wants_it_leaves() {
    let world = World::new();
    let (mut here, mut there) = apart(&world);
    let mut beside = world.login(3);
    assert_eq!(world.shard_of(1), world.shard_of(3));
    let write = world.store.hold(|| there.write(GATED, 0, 1));
    here.manage(TARGET_COLD_RESET, GATED, NO_TASK);
    here.hears_nothing_else();
    drop(here);
    world.wait_for_sessions(2);
    world.store.release();
    assert_eq!(there.hear(), Said::Status(write, TASK_ABORTED));
    assert_eq!((there.hear(), beside.hear()), (Said::End, Said::End));
}
