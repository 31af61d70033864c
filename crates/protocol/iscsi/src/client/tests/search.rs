use super::*;

fn portals(count: u8) -> Vec<SocketAddr> {
    (1..=count).map(portal).collect()
}

#[test]
fn portals_are_tried_in_turn_with_a_pause_after_the_last() {
    let mut world = World::new(ClientConfig { portals: portals(2), ..config() });
    let mut tried = Vec::new();
    let begin = world.now;
    while tried.len() < 6 {
        let Some((&connection, wire)) = world.wires.iter().next() else {
            world.wait(Duration::from_millis(10));
            continue;
        };
        tried.push((wire.to, (world.now - begin).as_millis()));
        world.wires.clear();
        world.client.connection_lost(connection, world.now);
        world.drain();
    }
    let to: Vec<SocketAddr> = tried.iter().map(|&(to, _)| to).collect();
    assert_eq!(to, [1, 2, 1, 2, 1, 2].map(portal));
    let at: Vec<u128> = tried.iter().map(|&(_, at)| at).collect();
    assert!(at[1] == 0 && (50..=110).contains(&at[2]) && at[3] == at[2], "{at:?}");
    assert!((100..=210).contains(&(at[4] - at[3])), "{at:?}");
}

#[test]
fn nobody_is_sought_for_ever() {
    let mut world = World::new(config());
    let id = world.read(512);
    for _ in 0..200 {
        world.wait(Duration::from_millis(100));
        for connection in std::mem::take(&mut world.wires).into_keys() {
            world.client.connection_lost(connection, world.now);
            world.drain();
        }
    }
    assert!(
        matches!(world.event(), ClientEvent::Failed { id: failed, failure: Failure::NoAnswer, .. } if failed == id)
    );
    assert!(matches!(world.event(), ClientEvent::GivenUp(Failure::NoAnswer)));
    assert!(world.client.poll_timeout().is_none());
}

#[test]
fn a_target_that_never_answers_a_login_is_left() {
    let mut world =
        World::new(ClientConfig { portals: portals(2), connect_patience: Duration::from_secs(60), ..config() });
    world.wait(Duration::from_secs(6));
    assert_eq!(world.wires[&world.only()].to, portal(2));
    let connection = world.only();
    world.open(connection);
    world.wait(Duration::from_secs(11));
    assert_eq!((world.wires[&world.only()].to, world.closed.len()), (portal(1), 2));
    world.wait(Duration::from_secs(60));
    let Some(ClientEvent::GivenUp(failure)) = world.events.pop() else { panic!("{:?}", world.events) };
    assert_eq!(failure, Failure::LoginUnanswered);
}

#[test]
fn a_target_that_closes_the_connection_during_the_login_is_not_called_unreachable() {
    let mut world = World::new(config());
    while world.client.poll_timeout().is_some() {
        for connection in std::mem::take(&mut world.wires).into_keys() {
            world.open(connection);
            world.client.connection_lost(connection, world.now);
            world.drain();
        }
        world.wait(Duration::from_millis(100));
    }
    let Some(ClientEvent::GivenUp(failure)) = world.events.pop() else { panic!("{:?}", world.events) };
    assert!(failure.to_string().starts_with("the target closed the connection during the login"), "{failure}");
}

#[test]
fn a_refusal_by_all_portals_is_final_at_first() {
    let mut world = World::new(ClientConfig { portals: portals(2), ..config() });
    for _ in 0..2 {
        let connection = world.only();
        world.open(connection);
        world.answer_login(connection, 2, 3, "");
    }
    let ClientEvent::GivenUp(Failure::Refused { reason }) = world.event() else { panic!() };
    assert!(!reason.is_empty() && world.wires.is_empty());
}

#[test]
fn a_target_out_of_service_is_waited_for() {
    let mut world = World::new(config());
    for _ in 0..4 {
        let connection = world.only();
        world.open(connection);
        world.answer_login(connection, 3, 1, "");
        world.wait(Duration::from_secs(2));
    }
    let connection = world.only();
    world.log_in(connection);
    assert!(matches!(world.event(), ClientEvent::Connected { .. }));
}

#[test]
fn an_address_that_is_learned_while_an_old_one_is_tried_comes_next() {
    let mut world = World::new(config());
    let lose = |world: &mut World| {
        let connection = world.only();
        world.wires.clear();
        world.client.connection_lost(connection, world.now);
        world.drain();
    };
    let connection = world.only();
    world.log_in(connection);
    assert!(matches!(world.event(), ClientEvent::Connected { .. }));
    lose(&mut world);
    world.wait(Duration::from_secs(2));
    let old = world.wires[&world.only()].to;
    world.client.learn_portals(portals(8)[7..].to_vec());
    world.client.learn_portals(portals(8)[7..].to_vec());
    lose(&mut world);
    assert_eq!(world.wires[&world.only()].to, portal(8));
    lose(&mut world);
    assert_eq!(world.wires[&world.only()].to, old);
}

#[test]
fn redirections_are_followed() {
    for (is_permanent, detail) in [(false, 1), (true, 2)] {
        let (mut world, connection) = (World::new(config()), ConnectionId(0));
        world.open(connection);
        world.answer_login(connection, 1, detail, "TargetAddress=10.0.0.9:3261\0");
        let connection = world.only();
        assert_eq!(world.wires[&connection].to, SocketAddr::from(([10, 0, 0, 9], 3261)));
        world.log_in(connection);
        let ClientEvent::Connected { server, .. } = world.event() else { panic!() };
        assert_eq!(server.portal.port(), 3261);
        // After a loss: to where it was sent for good, else to where it was told to go at first.
        world.client.connection_lost(connection, world.now);
        world.wires.clear();
        world.drain();
        world.wait(Duration::from_secs(2));
        let port = world.wires[&world.only()].to.port();
        assert_eq!(port, if is_permanent { 3261 } else { 3260 });
    }
}

#[test]
fn a_circle_of_redirections_has_an_end() {
    let mut world = World::new(config());
    for _ in 0..9 {
        let connection = world.only();
        world.open(connection);
        world.answer_login(connection, 1, 1, "TargetAddress=10.0.0.1\0");
    }
    assert!(world.wires.is_empty());
    world.wait(Duration::from_secs(30));
    let ClientEvent::GivenUp(Failure::Refused { reason }) = world.events.pop().unwrap() else { panic!() };
    assert!(reason.contains("10.0.0.1"), "{reason}");
}

#[test]
fn a_redirection_to_a_name_says_what_to_do() {
    let mut world = World::new(config());
    let connection = world.only();
    world.open(connection);
    world.answer_login(connection, 1, 1, "TargetAddress=storage.example.com:3260\0");
    world.wait(Duration::from_secs(20));
    let ClientEvent::GivenUp(Failure::Refused { reason }) = world.events.pop().unwrap() else { panic!() };
    assert!(reason.contains("storage.example.com:3260"), "{reason}");
}

#[test]
fn a_second_failure_while_reconnecting_does_not_leave_it_stuck() {
    let (mut world, connection) = World::connected(ClientConfig { reconnect_patience: None, ..config() });
    let id = world.read(512);
    world.wires.clear();
    world.client.connection_lost(connection, world.now);
    world.drain();
    assert!(matches!(world.event(), ClientEvent::Lost { announced: false }));
    for round in 0..12 {
        world.wait(Duration::from_secs(3));
        let connection = world.only();
        // It fails while opening, after opening, in the login, and by itself.
        if round % 4 >= 1 {
            world.open(connection);
        }
        if round % 4 == 2 {
            world.send_bytes(connection, &[0x23; 30]);
        }
        if round % 4 == 3 {
            world.wait(Duration::from_secs(11));
        } else {
            world.wires.clear();
            world.client.connection_lost(connection, world.now);
            world.drain();
        }
        if world.events.iter().any(|event| matches!(event, ClientEvent::GivenUp(_))) {
            panic!("given up in round {round}");
        }
    }
    world.wait(Duration::from_secs(2));
    let connection = world.only();
    world.log_in(connection);
    assert!(matches!(world.event(), ClientEvent::Connected { resumed: false, .. }));
    let (command, _) = world.take_command(connection);
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(id);
}

#[test]
fn further_connections_that_fail_are_tried_again_and_refused_ones_are_not() {
    let (mut world, first) = World::connected(wishing(0, 3));
    let other = |world: &World| world.wires.keys().copied().find(|&id| id > first);
    let second = other(&world).unwrap();
    world.wires.remove(&second);
    world.client.connection_lost(second, world.now);
    world.drain();
    world.wait(Duration::from_millis(200));
    let second = other(&world).expect("tried again");
    world.open(second);
    world.answer_login(second, 2, 6, "");
    world.wait(Duration::from_secs(1));
    assert_eq!(world.wires.keys().copied().collect::<Vec<_>>(), [first]);
    assert!(world.events.is_empty());
}

#[test]
fn a_target_that_comes_back_late_finds_no_commands_and_a_new_session() {
    for level in [0, 2] {
        let patience = Duration::from_secs(5);
        let (mut world, connection) =
            World::connected(ClientConfig { reconnect_patience: Some(patience), ..wishing(level, 1) });
        let id = world.read(512);
        world.wires.clear();
        world.client.connection_lost(connection, world.now);
        world.drain();
        assert!(matches!(world.event(), ClientEvent::Lost { announced: false }));
        world.wait(patience);
        assert!(
            matches!(world.event(), ClientEvent::Failed { id: failed, failure: Failure::NoAnswer, .. } if failed == id)
        );
        assert!(matches!(world.event(), ClientEvent::OutOfPatience(Failure::NoAnswer)));
        assert!(world.client.order(order([0; 10]), world.now).is_err(), "nobody would wait for its end");
        // It is told once, however long it takes.
        for _ in 0..10 {
            world.wires.clear();
            world.wait(Duration::from_secs(20));
        }
        assert!(world.events.is_empty());
        let connection = world.only();
        world.log_in(connection);
        assert!(matches!(world.event(), ClientEvent::Connected { resumed: false, .. }));
        assert!(world.take(connection).is_none(), "the command was given again");
        // A session that never worked does not begin the wait anew, not for what was asked in it either.
        let id = world.read(512);
        world.wires.clear();
        world.client.connection_lost(connection, world.now);
        world.drain();
        assert!(matches!(world.event(), ClientEvent::Lost { .. }));
        assert!(matches!(world.event(), ClientEvent::Failed { id: failed, .. } if failed == id));
        assert!(matches!(world.event(), ClientEvent::OutOfPatience(_)));
        world.wait(Duration::from_secs(60));
        assert_eq!(world.events.len(), 0);
    }
}
