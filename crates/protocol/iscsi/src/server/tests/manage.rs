//! Task management.

use super::*;
use crate::wire::{ScsiResponse, TaskResponse};

/// What a request is answered with at once.
fn ask(world: &mut World, request: TaskRequest) -> u8 {
    world.send(1, request.write(), &[]);
    answer(world)
}

fn answer(world: &mut World) -> u8 {
    let (header, _) = world.take_one(1);
    assert_eq!(header.opcode(), Some(Opcode::TaskResponse), "{header:?}");
    TaskResponse::read(&header).response
}

#[test]
fn an_abort_is_answered_after_its_task_has_ended() {
    let mut world = World::with_session(parameters());
    let task = world.read(5, 512);
    world.send(1, task_request(1, 50, (5, 1), 2).write(), &[]);
    let (handle, function) = world.manage();
    assert_eq!(function, Function::AbortTask(task));
    world.server.aborted(task, world.now);
    assert!(world.take(1).is_empty());
    world.server.managed(handle, ManageOutcome::Complete, world.now);
    assert_eq!(answer(&mut world), 0);
    world.reply(task, Some(pattern(512).into()));
    assert!(world.take(1).is_empty(), "nothing more of it");
    assert_eq!(ask(&mut world, task_request(1, 51, (5, 1), 2)), 1, "it is gone");
    world.read(5, 512);
}

#[test]
fn an_abort_that_comes_too_late_follows_the_status() {
    let mut world = World::with_session(parameters());
    let task = world.read(5, 512);
    world.send(1, task_request(1, 50, (5, 1), 2).write(), &[]);
    let (handle, _) = world.manage();
    world.reply(task, Some(pattern(512).into()));
    world.server.managed(handle, ManageOutcome::Complete, world.now);
    let taken = world.take(1);
    let opcodes: Vec<_> = taken.iter().map(|(header, _)| header.opcode()).collect();
    assert_eq!(opcodes, [Some(Opcode::DataIn), Some(Opcode::TaskResponse)]);
    assert_eq!(TaskResponse::read(&taken[1].0).response, 1, "there was nothing to abort any more");
}

/// RFC 7143 11.5.1.
#[test]
fn an_abort_of_a_command_that_did_not_come_counts_it_as_received() {
    let mut world = World::with_session(parameters());
    assert_eq!(ask(&mut world, task_request(1, 50, (5, 1), 2)), 0);
    world.send(1, read_command(5, 512, 1).write(), &[]);
    assert!(world.server.poll_event().is_none(), "it comes too late");
    world.command_number = 2;
    world.read(6, 512);
    assert_eq!(ask(&mut world, task_request(1, 51, (9, 3), 3)), 1, "not earlier than the request");
    assert_eq!(ask(&mut world, task_request(1, 52, (9, 90), 91)), 1, "not in the window");
}

#[test]
fn a_reset_ends_what_is_gathered_and_asks_for_the_rest() {
    let mut world = World::with_session(parameters());
    for (function, expected) in [
        (2, Function::AbortTaskSet),
        (4, Function::ClearTaskSet),
        (5, Function::LogicalUnitReset),
        (6, Function::TargetReset { is_cold: false }),
        (11, Function::NexusReset),
    ] {
        let number = world.next_number();
        world.send(1, write_command(5, 65536, number).write(), &pattern(8192));
        assert_eq!(world.take(1).len(), 1, "an R2T");
        let other = world.next_number();
        let command = ScsiCommand { lun: [0, 1, 0, 0, 0, 0, 0, 0], ..write_command(6, 65536, other) };
        world.send(1, command.write(), &pattern(8192));
        assert_eq!(world.take(1).len(), 1, "an R2T");
        let number = world.command_number;
        world.send(1, task_request(function, 50, (TAG_NONE, 0), number).write(), &[]);
        let (handle, found) = world.manage();
        assert_eq!(found, expected);
        world.server.managed(handle, ManageOutcome::Complete, world.now);
        assert_eq!(answer(&mut world), 0);
        let is_whole = matches!(function, 6 | 11);
        let mut abort = task_request(1, 51, (6, other), number);
        abort.lun = [0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(ask(&mut world, abort), u8::from(is_whole), "of another unit");
        world.assert_home();
    }
}

#[test]
fn what_a_function_has_ended_is_answered_when_the_function_is_refused() {
    for outcome in [ManageOutcome::Rejected, ManageOutcome::NoLogicalUnit] {
        let mut world = World::with_session(parameters());
        let number = world.next_number();
        world.send(1, write_command(5, 65536, number).write(), &pattern(8192));
        assert_eq!(world.take(1).len(), 1, "an R2T");
        world.send(1, task_request(5, 50, (TAG_NONE, 0), world.command_number).write(), &[]);
        let (handle, _) = world.manage();
        world.server.managed(handle, outcome, world.now);
        let taken = world.take(1);
        let opcodes: Vec<_> = taken.iter().map(|(header, _)| header.opcode()).collect();
        assert_eq!(opcodes, [Some(Opcode::ScsiResponse), Some(Opcode::TaskResponse)]);
        let response = ScsiResponse::read(&taken[0].0);
        assert_eq!((response.task_tag, response.status), (5, 8), "BUSY: nothing of it was done");
        world.assert_home();
    }
}

#[test]
fn a_cold_reset_ends_the_sessions_after_its_answer() {
    let mut world = World::with_session(parameters());
    world.send(1, task_request(7, 50, (TAG_NONE, 0), 1).write(), &[]);
    let (handle, function) = world.manage();
    assert_eq!(function, Function::TargetReset { is_cold: true });
    world.server.managed(handle, ManageOutcome::Complete, world.now);
    assert_eq!(answer(&mut world), 0);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
}

#[test]
fn what_the_layer_above_finds_out_is_told() {
    let mut world = World::with_session(parameters());
    let outcomes =
        [(ManageOutcome::NoLogicalUnit, 2), (ManageOutcome::NotSupported, 5), (ManageOutcome::Rejected, 255)];
    for (outcome, expected) in outcomes {
        world.send(1, task_request(5, 50, (TAG_NONE, 0), 1).write(), &[]);
        let (handle, _) = world.manage();
        world.server.managed(handle, outcome, world.now);
        assert_eq!(answer(&mut world), expected);
    }
}

#[test]
fn functions_that_are_not_there_are_told_apart() {
    let mut world = World::with_session(parameters());
    assert_eq!(ask(&mut world, task_request(3, 50, (TAG_NONE, 0), 1)), 5, "CLEAR ACA");
    assert_eq!(ask(&mut world, task_request(8, 50, (5, 0), 1)), 4, "TASK REASSIGN without recovery");
    assert_eq!(ask(&mut world, task_request(99, 50, (5, 0), 1)), 5);
    let mut old = World::with_session(SessionParameters { protocol_level: 1, ..parameters() });
    for function in 9..=12 {
        assert_eq!(ask(&mut old, task_request(function, 50, (5, 0), 1)), 5, "RFC 7144 was not agreed on");
    }
}

#[test]
fn queries_tell_whether_a_task_is_there() {
    let mut world = World::with_session(parameters());
    assert_eq!(ask(&mut world, task_request(9, 50, (5, 1), 1)), 0);
    assert_eq!(ask(&mut world, task_request(10, 50, (TAG_NONE, 0), 1)), 0);
    world.read(5, 512);
    assert_eq!(ask(&mut world, task_request(9, 50, (5, 1), 2)), 7);
    assert_eq!(ask(&mut world, task_request(10, 50, (TAG_NONE, 0), 2)), 7);
    assert_eq!(ask(&mut world, task_request(12, 50, (TAG_NONE, 0), 2)), 0);
}

#[test]
fn requests_without_end_are_bounded() {
    let mut world = World::with_session(parameters());
    for tag in 0..200 {
        world.send(1, task_request(5, tag, (TAG_NONE, 0), 1).write(), &[]);
    }
    assert_eq!(std::iter::from_fn(|| world.server.poll_event()).count(), 64);
    assert!(world.take(1).iter().all(|(header, _)| TaskResponse::read(header).response == 255));
}
