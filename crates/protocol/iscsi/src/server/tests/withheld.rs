//! Commands that wait for memory that is kept by others of their logical unit.

use super::*;
use crate::wire::ReadyToTransfer;

const LUN_1: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// A session, and a WRITE of it that waits for its store.
fn crowded() -> (World, CommandHandle) {
    let mut world = World::with_session(parameters());
    let number = world.next_number();
    world.send(1, write_command(5, 4096, number).write(), &pattern(4096));
    let (stalled, _) = world.command();
    world.server.hold_back(&[stalled], world.now);
    (world, stalled)
}

/// A WRITE with this tag, all of which is to be asked for.
fn write(world: &mut World, task_tag: u32, lun: [u8; 8]) {
    let command_number = world.next_number();
    world.send(1, ScsiCommand { lun, ..write_command(task_tag, 65_536, command_number) }.write(), &[]);
}

fn asked(world: &mut World) -> Vec<u32> {
    world.take(1).iter().map(|(header, _)| ReadyToTransfer::read(header).task_tag).collect()
}

#[test]
fn data_is_not_asked_for_while_others_of_the_unit_keep_the_memory() {
    let (mut world, stalled) = crowded();
    let free_bytes = world.memory.free_bytes();
    (10..30).for_each(|tag| write(&mut world, tag, [0; 8]));
    assert!(asked(&mut world).is_empty() && world.memory.free_bytes() == free_bytes);
    assert_eq!(world.server.starving().count(), 0, "nobody is to give up memory for them");
    write(&mut world, 30, LUN_1);
    assert_eq!(asked(&mut world), [30], "of another unit");
    world.now += Duration::from_secs(15);
    world.server.handle_timeout(world.now);
    world.server.hold_back(&[stalled], world.now);
    assert!(asked(&mut world).is_empty());
    world.server.hold_back(&[], world.now);
    assert_eq!(asked(&mut world), (10..30).collect::<Vec<_>>());
}

#[test]
fn what_comes_unasked_is_taken_and_asked_on_for_while_others_keep_the_memory() {
    let (mut world, _) = crowded();
    let number = world.next_number();
    world.send(1, write_command(6, 4096, number).write(), &pattern(4096));
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&pattern(4096)[..]));
    let number = world.next_number();
    world.send(1, write_command(7, 20_000, number).write(), &pattern(4096));
    assert_eq!(asked(&mut world), [7], "it has its memory");
}

#[test]
fn a_command_that_was_withheld_ends_with_its_connection() {
    let (mut world, _) = crowded();
    write(&mut world, 6, [0; 8]);
    world.server.connection_lost(ConnectionId(1), world.now);
    world.server.hold_back(&[], world.now);
    world.assert_home();
}

#[test]
fn a_command_that_was_withheld_goes_on_on_another_connection() {
    let mut world = World::with_session(SessionParameters { error_recovery_level: 2, ..parameters() });
    let number = world.next_number();
    world.send(1, write_command(5, 4096, number).write(), &pattern(4096));
    let (stalled, _) = world.command();
    world.server.hold_back(&[stalled], world.now);
    write(&mut world, 6, [0; 8]);
    world.server.connection_lost(ConnectionId(1), world.now);
    world.server.hold_back(&[], world.now);
    world.join(2, 1, SessionParameters { error_recovery_level: 2, ..parameters() }, 1);
    world.take(2);
    let reassign = TaskRequest { lun: [0; 8], ..task_request(8, 77, (6, 0), 3) };
    world.send(2, reassign.write(), &[]);
    let opcodes: Vec<_> = world.take(2).iter().map(|(header, _)| header.opcode()).collect();
    assert_eq!(opcodes, [Some(Opcode::TaskResponse), Some(Opcode::ReadyToTransfer)]);
}
