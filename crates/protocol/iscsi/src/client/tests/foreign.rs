//! Targets that do not quite do what the standard says, with which other initiators get along.

use super::*;
use crate::wire::NopIn;

/// Answers a login as gotgt does: it ends the connection on a key of RFC 7144, says no ISID and gives no TSIH.
fn answer_as_gotgt(world: &mut World, connection: ConnectionId) {
    world.open(connection);
    let is_login = |wire: &Wire| wire.inbox.first().is_some_and(|pdu| pdu.0.opcode() == Some(Opcode::LoginRequest));
    while world.wires.get(&connection).is_some_and(is_login) {
        let (header, text) = world.take(connection).unwrap();
        let request = LoginRequest::read(&header);
        if String::from_utf8(text).unwrap().contains("iSCSIProtocolLevel") {
            world.client.connection_lost(connection, world.now);
            return world.drain();
        }
        let response = LoginResponse {
            transits: request.transits,
            current_stage: request.current_stage,
            next_stage: request.next_stage,
            task_tag: request.task_tag,
            ..LoginResponse::default()
        };
        let keys = world.keys.clone();
        let text = if request.current_stage == 0 { "AuthMethod=None\0".to_owned() } else { keys };
        world.send(connection, response.write(), text.into_bytes());
    }
}

fn gotgt(config: ClientConfig) -> (World, ConnectionId) {
    let connections = config.wishes.connections.min(2);
    let mut world = World::new(config);
    world.keys += &format!("MaxConnections={connections}\0");
    let connection = world.only();
    answer_as_gotgt(&mut world, connection);
    (world, connection)
}

#[test]
fn a_target_without_rfc_7144_isid_and_session_number_is_used_with_one_connection() {
    for connections in [1, 4] {
        let (mut world, connection) = gotgt(wishing(0, connections));
        let ClientEvent::Connected { server, resumed: false } = world.event() else { panic!("{:?}", world.events) };
        assert_eq!((server.session.max_connections, server.session.protocol_level), (1, 1));
        let id = world.read(512);
        let (command, _) = world.take_command(connection);
        world.data(connection, command.task_tag, 0, 0, &pattern(512));
        world.status(connection, command.task_tag, Status::Good, 1);
        assert_eq!(world.expect_data(id), pattern(512));
        world.wait(Duration::from_secs(1));
        assert_eq!(world.only(), connection, "none is opened that could not join");
    }
}

#[test]
fn a_session_without_a_number_is_made_anew_after_a_loss() {
    let (mut world, connection) = gotgt(config());
    assert!(matches!(world.event(), ClientEvent::Connected { .. }));
    let id = world.read(512);
    world.wires.clear();
    world.client.connection_lost(connection, world.now);
    world.drain();
    assert!(matches!(world.event(), ClientEvent::Lost { .. }));
    world.wait(Duration::from_secs(3));
    let connection = world.only();
    world.expected_command = 1;
    answer_as_gotgt(&mut world, connection);
    assert!(matches!(world.event(), ClientEvent::Connected { resumed: false, .. }));
    let (command, _) = world.take_command(connection);
    world.data(connection, command.task_tag, 0, 0, &pattern(512));
    world.status(connection, command.task_tag, Status::Good, 1);
    assert_eq!(world.expect_data(id), pattern(512));
}

#[test]
fn recovery_of_connections_needs_a_session_number() {
    let mut world = World::new(wishing(2, 1));
    world.keys += "ErrorRecoveryLevel=2\0";
    let connection = world.only();
    answer_as_gotgt(&mut world, connection);
    world.wait(Duration::from_secs(30));
    let Some(ClientEvent::GivenUp(Failure::Protocol { what })) = world.events.pop() else { panic!() };
    assert!(what.contains("no number"), "{what}");
}

/// A session with two connections, and a command on each.
fn wide(world: &mut World) -> Vec<ConnectionId> {
    let first = world.only();
    world.expected_command = 1;
    world.log_in(first);
    assert!(matches!(world.event(), ClientEvent::Connected { .. }));
    let second = *world.wires.keys().max().unwrap();
    assert_ne!(second, first, "a further connection is opened");
    world.log_in(second);
    vec![first, second]
}

/// The target gives the client one connection; that there are no more is told.
fn is_narrow(world: &mut World) -> ConnectionId {
    world.wait(Duration::from_secs(3));
    let connection = world.only();
    world.expected_command = 1;
    world.keys = "InitialR2T=No\0".into();
    world.log_in(connection);
    let ClientEvent::Connected { server, .. } = world.event() else { panic!("{:?}", world.events) };
    assert!(server.is_narrowed);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.only(), connection);
    connection
}

fn two_connections() -> World {
    let mut world = World::new(wishing(0, 2));
    world.keys += "MaxConnections=2\0DefaultTime2Wait=0\0";
    world
}

/// As SPDK drops what was overtaken, and ends the session for it.
#[test]
fn a_target_that_ends_sessions_with_several_connections_gets_one() {
    let mut world = two_connections();
    let id = world.read(512);
    for _ in 0..3 {
        let connections = wide(&mut world);
        world.wires.clear();
        world.client.connection_lost(connections[0], world.now);
        world.drain();
        assert!(matches!(world.event(), ClientEvent::Lost { .. }));
        world.wait(Duration::from_millis(1));
    }
    let connection = is_narrow(&mut world);
    let (command, _) = world.take_command(connection);
    world.data(connection, command.task_tag, 0, 0, &pattern(512));
    world.status(connection, command.task_tag, Status::Good, 1);
    assert_eq!(world.expect_data(id), pattern(512));
}

#[test]
fn a_target_that_drops_what_overtakes_is_noticed_when_it_shows_a_sign_of_life() {
    let mut world = two_connections();
    let connections = wide(&mut world);
    let ids = [world.read(512), world.read(512)];
    // It answers questions, but still expects the first command, which came before them.
    world.wait(Duration::from_millis(2100));
    for connection in connections {
        let pings: Vec<Header> = std::iter::from_fn(|| world.take(connection))
            .map(|pdu| pdu.0)
            .filter(|header| header.opcode() == Some(Opcode::NopOut))
            .collect();
        for ping in pings {
            let pong = NopIn { task_tag: ping.task_tag(), transfer_tag: TAG_NONE, ..NopIn::default() };
            world.send(connection, pong.write(), Vec::new());
        }
    }
    assert!(matches!(world.event(), ClientEvent::Lost { .. }));
    let connection = is_narrow(&mut world);
    for id in ids {
        let (command, _) = world.take_command(connection);
        world.data(connection, command.task_tag, 0, 0, &pattern(512));
        world.status(connection, command.task_tag, Status::Good, 1);
        assert_eq!(world.expect_data(id), pattern(512));
    }
}

#[test]
fn a_target_that_orders_commands_keeps_its_connections() {
    let mut world = two_connections();
    let connections = wide(&mut world);
    world.read(512);
    world.read(512);
    world.expected_command = 3;
    world.wait(Duration::from_millis(2100));
    for connection in connections {
        while let Some((header, _)) = world.take(connection) {
            if header.opcode() == Some(Opcode::NopOut) {
                let pong = NopIn { task_tag: header.task_tag(), transfer_tag: TAG_NONE, ..NopIn::default() };
                world.send(connection, pong.write(), Vec::new());
            }
        }
    }
    assert!(world.events.is_empty(), "{:?}", world.events);
    assert_eq!(world.wires.len(), 2);
}
