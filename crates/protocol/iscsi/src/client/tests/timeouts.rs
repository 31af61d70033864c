//! Commands that are not answered in time.

mod unexpected;

use super::*;
use crate::wire::{NopIn, TaskRequest, TaskResponse};

impl World {
    /// The target answers pings and nothing else for so long.
    fn tarry(&mut self, connection: ConnectionId, seconds: u64) -> Vec<(Header, Vec<u8>)> {
        let mut sent = Vec::new();
        for _ in 0..seconds {
            self.wait(Duration::from_secs(1));
            while let Some((header, data)) = self.take(connection) {
                if header.opcode() == Some(Opcode::NopOut) {
                    let pong = NopIn { task_tag: header.task_tag(), transfer_tag: TAG_NONE, ..NopIn::default() };
                    self.send(connection, pong.write(), Vec::new());
                } else {
                    sent.push((header, data));
                }
            }
        }
        sent
    }

    fn answer_abort(&mut self, connection: ConnectionId, request: &TaskRequest, response: u8) {
        let response = TaskResponse { response, task_tag: request.task_tag, ..TaskResponse::default() };
        self.send(connection, response.write(), Vec::new());
    }
}

/// The one ABORT TASK among these.
fn abort(sent: &[(Header, Vec<u8>)]) -> TaskRequest {
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].0.opcode(), Some(Opcode::TaskRequest));
    let request = TaskRequest::read(&sent[0].0);
    assert_eq!((request.function, request.is_immediate), (1, true));
    request
}

fn timed_out(event: &ClientEvent, expected: CommandId) -> bool {
    matches!(event, ClientEvent::Failed { id, failure: Failure::TimedOut { .. }, .. } if *id == expected)
}

#[test]
fn a_command_that_is_late_is_aborted_and_fails() {
    let (mut world, connection) = World::connected(config());
    let late = world.read(512);
    let (command, _) = world.take_command(connection);
    assert!(world.tarry(connection, 59).is_empty(), "it has a minute");
    let request = abort(&world.tarry(connection, 16));
    assert_eq!(
        (request.referenced_task_tag, request.referenced_command_number, request.lun),
        (command.task_tag, command.command_number, command.lun)
    );
    world.answer_abort(connection, &request, 0);
    assert!(timed_out(&world.event(), late));
    let next = world.read(512);
    let (command, _) = world.take_command(connection);
    world.data(connection, command.task_tag, 0, 0, &pattern(512));
    world.status(connection, command.task_tag, Status::Good, 1);
    assert_eq!(world.expect_data(next), pattern(512), "the session goes on");
    assert!(world.tarry(connection, 120).is_empty());
}

#[test]
fn an_answer_that_comes_before_its_abort_is_done_counts() {
    let (mut world, connection) = World::connected(config());
    let late = world.write(&pattern(512));
    let (command, _) = world.take_command(connection);
    let request = abort(&world.tarry(connection, 75));
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(late);
    world.answer_abort(connection, &request, 1);
    assert!(world.events.is_empty() && world.tarry(connection, 30).is_empty());
}

#[test]
fn a_late_command_that_the_target_does_not_know_is_given_again() {
    let (mut world, connection) = World::connected(config());
    let late = world.read(512);
    world.take_command(connection);
    let request = abort(&world.tarry(connection, 75));
    world.answer_abort(connection, &request, 1);
    let (command, _) = world.take_command(connection);
    world.data(connection, command.task_tag, 0, 0, &pattern(512));
    world.status(connection, command.task_tag, Status::Good, 1);
    world.expect_data(late);
}

#[test]
fn a_connection_on_which_nothing_can_be_aborted_is_given_up() {
    for level in [0, 2] {
        let (mut world, connection) = World::connected(wishing(level, 1));
        let late = world.read(512);
        world.take_command(connection);
        abort(&world.tarry(connection, 75));
        let other = world.read(512);
        world.tarry(connection, 16);
        let is_lost = |event: &ClientEvent| matches!(event, ClientEvent::Lost { .. });
        let events = std::mem::take(&mut world.events);
        assert!(events.iter().any(is_lost) && events.iter().any(|event| timed_out(event, late)), "{events:?}");
        assert_eq!((events.len(), world.client.in_transit()), (2, 1), "{other:?} goes on");
    }
}

/// On a slow way the last command of many is answered long after it was given.
#[test]
fn a_command_that_waits_for_others_is_not_late() {
    let (mut world, connection) = World::connected(config());
    let reads: Vec<CommandId> = (0..8).map(|_| world.read(512)).collect();
    let tags: Vec<u32> = reads.iter().map(|_| world.take_command(connection).0.task_tag).collect();
    for (read, tag) in reads.into_iter().zip(tags) {
        assert!(world.tarry(connection, 40).is_empty(), "nothing is aborted");
        world.data(connection, tag, 0, 0, &pattern(512));
        world.status(connection, tag, Status::Good, 1);
        world.expect_data(read);
    }
}
