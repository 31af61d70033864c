//! Initiators that give signs of life, and hold memory nevertheless.

use super::*;
use crate::wire::{NopOut, ReadyToTransfer};

/// Lets time pass while the connection gives signs of life.
fn wait(world: &mut World, seconds: u64) {
    let until = world.now + Duration::from_secs(seconds);
    while let Some(at) = world.server.poll_timeout().filter(|at| *at <= until) {
        assert!(at > world.now, "time goes on");
        world.now = at;
        world.server.handle_timeout(at);
        if world.server.connection(ConnectionId(1)).is_some() {
            let sign = NopOut { is_immediate: true, is_final: true, task_tag: TAG_NONE, ..NopOut::default() };
            world.send(1, NopOut { transfer_tag: TAG_NONE, ..sign }.write(), &[]);
        }
        world.take(1);
    }
    world.now = until;
}

fn holds_memory(world: &World) -> bool {
    world.memory.free_bytes() < world.memory.length_bytes()
}

#[test]
fn a_pdu_that_comes_a_byte_now_and_then_holds_no_memory() {
    for with_command in [true, false] {
        let mut world = World::with_session(parameters());
        let bytes = if with_command {
            pdu(write_command(5, 16384, 1).write(), &pattern(16384), Digests::default())
        } else {
            world.send(1, write_command(5, 20000, 1).write(), &[]);
            let asked = ReadyToTransfer::read(&world.take_one(1).0);
            pdu(data_out(5, asked.transfer_tag, 0, 0, true).write(), &pattern(20000), Digests::default())
        };
        let (begin, rest) = bytes.split_at(6000);
        world.send_bytes(1, begin);
        assert!(holds_memory(&world));
        for byte in &rest[..9] {
            world.now += Duration::from_secs(10);
            world.server.handle_timeout(world.now);
            world.send_bytes(1, &[*byte]);
        }
        assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })), "{with_command}");
        world.assert_home();
    }
}

#[test]
fn data_that_comes_slowly_but_comes_is_taken() {
    let mut world = World::with_session(parameters());
    let data = pattern(16384);
    for (tag, number) in (5..).zip(1..8) {
        let bytes = pdu(write_command(tag, 16384, number).write(), &data, Digests::default());
        for part in bytes.chunks(4000) {
            world.send_bytes(1, part);
            world.now += Duration::from_secs(10);
            world.server.handle_timeout(world.now);
        }
        assert!(world.command().1.data_out.as_deref() == Some(&data[..]));
    }
}

#[test]
fn requests_do_not_wait_for_ever_for_a_number_that_does_not_come() {
    let mut world = World::with_session(parameters());
    world.send(1, write_command(5, 4096, 2).write(), &pattern(4096));
    wait(&mut world, 59);
    assert!(world.server.poll_event().is_none() && holds_memory(&world));
    wait(&mut world, 25);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
    world.assert_home();
}
