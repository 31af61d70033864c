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
        assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
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

/// One of many sessions, of an initiator that has many ports.
fn admit_one_of_many(world: &mut World, number: u16) {
    let [high, low] = number.to_be_bytes();
    let login = Admitted { isid: Isid([0x40, 0, 0, high, low, 1]), ..admitted(parameters()) };
    world.admit(number.into(), login, number);
}

#[test]
fn of_thousands_of_sessions_only_those_that_are_due_are_visited() {
    const SESSIONS: u16 = 5000;
    let mut world = World::new(4 << 20);
    for number in 1..=SESSIONS {
        admit_one_of_many(&mut world, number);
        world.now += Duration::from_millis(1);
    }
    // Logins, commands and time that passes visit nobody who is not due.
    let now = world.now;
    for number in 1..=30 {
        world.now += Duration::from_millis(1);
        world.server.handle_timeout(world.now);
        world.send(1, read_command(number, 512, number).write(), &[]);
    }
    assert_eq!(world.server.shared.visits, 0);
    // Each is due 20 s after it was last heard of, in the order in which they came; the first has been heard of since.
    world.now = world.server.poll_timeout().unwrap();
    assert!(world.now > now);
    world.server.handle_timeout(world.now);
    assert_eq!((world.server.shared.visits, world.take(1).len()), (1, 1), "only the answer to the login");
    world.now = world.server.poll_timeout().unwrap();
    world.server.handle_timeout(world.now);
    assert_eq!((world.server.shared.visits, world.take(2).len()), (2, 2), "a sign of life is asked for");
    // One that ends leaves nothing behind.
    world.server.connection_lost(ConnectionId(3), world.now);
    world.now = now + Duration::from_secs(19);
    world.server.handle_timeout(world.now);
    assert!(world.server.shared.visits < usize::from(SESSIONS));
    let visited = world.server.shared.visits;
    world.server.handle_timeout(world.now);
    assert_eq!(world.server.shared.visits, visited);
}

#[test]
fn of_thousands_of_sessions_the_one_that_is_meant_is_replaced_or_joined() {
    let mut world = World::new(4 << 20);
    (1..=2000).for_each(|number| admit_one_of_many(&mut world, number));
    let login = |world: &World, number: u64| {
        let session = &world.server.sessions[&NexusId(number)];
        Admitted { isid: session.isid, ..admitted(parameters()) }
    };
    let again = login(&world, 1234);
    world.admit(5000, again, 5000);
    assert!(!world.server.sessions.contains_key(&NexusId(1234)) && world.server.sessions.len() == 2000);
    let mut joining = login(&world, 77);
    (joining.request.tsih, joining.request.connection) = (77, 9);
    world.admit(5001, joining, 5001);
    assert_eq!(world.server.sessions[&NexusId(77)].connections.len(), 2);
    world.server.drop_initiator(&admitted(parameters()).initiator);
    assert!(world.server.sessions.is_empty() && world.server.shared.deadlines.next_at().is_none());
    world.admit(5002, login_of(1), 5002);
    assert_eq!(world.server.sessions.len(), 1);
}

/// A login of the session with this number.
fn login_of(number: u8) -> Admitted {
    Admitted { isid: Isid([0x40, 0, 0, 0, number, 1]), ..admitted(parameters()) }
}
