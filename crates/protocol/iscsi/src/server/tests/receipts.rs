//! Which answers an initiator had when it gave a command.

use sanwire_scsi::{Receipt, Status};

use super::*;

/// A command with this number, which expects this status next on its connection: up to which receipt its initiator had the answers.
fn receipts(world: &mut World, connection: u64, number: u32, expected_status: u32) -> u64 {
    let command = ScsiCommand { expected_status_number: expected_status, ..read_command(number, 512, number) };
    world.send(connection, command.write(), &[]);
    world.command().1.receipts
}

fn answer_with_receipt(world: &mut World, handle: CommandHandle) {
    let reply = Reply { receipt: Some(Receipt::default()), ..Reply::bare(Status::Busy) };
    world.server.reply(handle, reply, world.now);
}

#[test]
fn an_answer_is_had_by_commands_given_after_it_was_acknowledged() {
    let mut world = World::with_session(parameters());
    let handle = world.read(1, 512);
    answer_with_receipt(&mut world, handle);
    assert_eq!(receipts(&mut world, 1, 2, 101), 0, "given before it came");
    assert_eq!(receipts(&mut world, 1, 3, 102), 1);
    assert_eq!(receipts(&mut world, 1, 4, 102), 1);
}

/// Else it would hear of one failed flush by every further one.
#[test]
fn an_answer_is_had_in_the_end_by_who_acknowledges_nothing() {
    for others in [false, true] {
        let mut world = World::with_session(parameters());
        if others {
            world.join(2, 1, parameters(), 1);
            world.take(2);
        }
        let handle = world.read(1, 512);
        answer_with_receipt(&mut world, handle);
        let first = (2..1000).find(|number| {
            let command = ScsiCommand { expected_status_number: 100, ..read_command(*number, 512, *number) };
            world.send(1, command.write(), &[]);
            let (handle, task) = world.command();
            world.server.reply(handle, Reply::bare(Status::Busy), world.now);
            world.take(1);
            task.receipts == 1
        });
        let window = 32;
        assert!(if others { first.is_none() } else { first.is_some_and(|number| number > window) }, "{first:?}");
    }
}

#[test]
fn a_command_that_another_connection_brings_late_was_given_before_the_answer_came() {
    let mut world = World::with_session(parameters());
    world.join(2, 1, parameters(), 1);
    world.take(2);
    let handle = world.read(1, 512);
    answer_with_receipt(&mut world, handle);
    // The third comes first, and waits for the second.
    let third = ScsiCommand { expected_status_number: 102, ..read_command(3, 512, 3) };
    world.send(1, third.write(), &[]);
    assert!(world.server.poll_event().is_none());
    assert_eq!(receipts(&mut world, 2, 2, 101), 0);
    assert_eq!(world.command().1.receipts, 1);
    assert_eq!(receipts(&mut world, 2, 4, 101), 1, "also by another connection");
}

#[test]
fn an_answer_is_never_had_when_its_connection_was_lost_before() {
    let mut world = World::with_session(parameters());
    world.join(2, 1, parameters(), 1);
    world.take(2);
    let handle = world.read(1, 512);
    let receipt = Receipt::default();
    let reply = Reply { receipt: Some(receipt.clone()), ..Reply::bare(Status::Busy) };
    world.server.reply(handle, reply, world.now);
    world.server.connection_lost(ConnectionId(1), world.now);
    let had = receipts(&mut world, 2, 2, 101);
    assert!(!receipt.is_among(had));
}
