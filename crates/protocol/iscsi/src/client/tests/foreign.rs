//! Targets that do not quite do what the standard says, with which other initiators get along.

use super::*;

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
