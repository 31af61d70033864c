//! Several connections in one session.

use super::*;
use crate::wire::{LogoutRequest, LogoutResponse, TaskResponse};

fn two() -> World {
    let mut world = World::with_session(parameters());
    world.join(2, 1, parameters(), 1);
    assert_eq!(LoginResponse::read(&world.take_one(2).0).tsih, 1);
    assert!(world.server.poll_event().is_none(), "no new session");
    world
}

#[test]
fn commands_are_executed_in_the_order_of_their_numbers_over_all_connections() {
    let mut world = two();
    world.send(2, read_command(12, 512, 2).write(), &[]);
    world.send(2, write_command(13, 512, 3).write(), &pattern(512));
    assert!(world.server.poll_event().is_none());
    world.send(1, read_command(11, 512, 1).write(), &[]);
    let handles: Vec<_> = (0..3).map(|_| world.command()).collect();
    let codes: Vec<u8> = handles.iter().map(|(_, task)| task.cdb.operation_code()).collect();
    assert_eq!(codes, [0x28, 0x28, 0x2a]);
    for (handle, _) in handles.into_iter().rev() {
        world.reply(handle, None);
    }
    assert_eq!((world.take(1).len(), world.take(2).len()), (1, 2), "each is answered where it came");
    world.assert_home();
}

#[test]
fn data_for_a_command_of_another_connection_is_rejected() {
    let mut world = two();
    world.send(1, write_command(5, 20000, 1).write(), &pattern(8192));
    let asked = crate::wire::ReadyToTransfer::read(&world.take_one(1).0);
    world.send(2, data_out(5, asked.transfer_tag + 1, 0, 8192, true).write(), &pattern(11808));
    assert_eq!(rejection(&world.take_one(2)), 9);
    world.send(1, data_out(5, asked.transfer_tag, 0, 8192, true).write(), &pattern(11808));
    world.command();
}

#[test]
fn joining_has_its_rules() {
    let mut world = two();
    world.join(3, 3, parameters(), 7);
    let refused = LoginResponse::read(&world.take_one(3).0);
    assert_eq!((refused.status_class, refused.status_detail), (2, 0x0a), "no such session");
    let mut login = admitted(parameters());
    (login.request.tsih, login.request.connection, login.isid) = (1, 3, Isid([1; 6]));
    world.admit(4, login, 99);
    assert_eq!(LoginResponse::read(&world.take_one(4).0).status_detail, 8, "another port");
    for (connection, cid) in [(5, 3), (6, 4)] {
        world.join(connection, cid, parameters(), 1);
        assert_eq!(LoginResponse::read(&world.take_one(connection).0).status_class, 0);
    }
    world.join(7, 5, parameters(), 1);
    assert_eq!(LoginResponse::read(&world.take_one(7).0).status_detail, 6, "too many");
}

/// The name of an initiator and its ISID are what anybody says.
#[test]
fn who_shows_another_chap_user_ends_no_session_of_the_same_port_and_joins_none() {
    let as_user = |user: &str| Admitted { user: Some(user.to_owned()), ..admitted(parameters()) };
    let mut world = World::new(4 << 20);
    world.admit(1, as_user("one"), 1);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionOpened { nexus: NexusId(1), .. })));
    world.admit(2, as_user("two"), 2);
    let refused = LoginResponse::read(&world.take_one(2).0);
    assert_eq!((refused.status_class, refused.status_detail), (2, 2));
    let closed = world.server.poll_event();
    assert!(matches!(closed, Some(ServerEvent::SessionClosed { nexus: NexusId(2), tsih: 2, .. })), "{closed:?}");
    let mut joining = as_user("two");
    (joining.request.tsih, joining.request.connection) = (1, 0);
    world.admit(3, joining, 99);
    assert_eq!(LoginResponse::read(&world.take_one(3).0).status_detail, 8);
    assert_eq!(world.server.sessions[&NexusId(1)].connections.len(), 1);
    world.admit(4, as_user("one"), 4);
    assert!(!world.server.sessions.contains_key(&NexusId(1)) && world.server.sessions.contains_key(&NexusId(4)));
}

/// What a session may do is decided by the address of its first connection, where there is no CHAP: another one would get that, too.
#[test]
fn an_address_that_has_shown_no_user_joins_no_session_of_another_one() {
    let mut world = two();
    let from = |peer: &str, user: Option<&str>| {
        let mut login =
            Admitted { peer: peer.parse().unwrap(), user: user.map(str::to_owned), ..admitted(parameters()) };
        (login.request.tsih, login.request.connection) = (1, 0);
        login
    };
    let connections = |world: &World| world.server.sessions[&NexusId(1)].connections.len();
    world.admit(3, from("192.0.2.66", None), 99);
    assert_eq!(LoginResponse::read(&world.take_one(3).0).status_detail, 8);
    assert_eq!(connections(&world), 2, "its connection of the same number stays");
    let mut world = World::new(4 << 20);
    world.admit(1, Admitted { user: Some("one".into()), ..admitted(parameters()) }, 1);
    world.admit(2, from("192.0.2.66", Some("one")), 99);
    assert_eq!(
        LoginResponse::read(&world.take(2).pop().unwrap().0).status_class,
        0,
        "who shows the secret may have several"
    );
}

#[test]
fn a_connection_that_is_lost_takes_its_commands_along_and_no_others() {
    let mut world = two();
    let first = world.read(5, 512);
    world.send(2, read_command(6, 512, 2).write(), &[]);
    let (second, _) = world.command();
    world.send(2, write_command(7, 65536, 3).write(), &pattern(8192));
    world.send(2, read_command(8, 512, 5).write(), &[]);
    world.server.connection_lost(ConnectionId(2), world.now);
    let (handle, function) = world.manage();
    assert_eq!(function, Function::AbandonTask(second));
    world.server.aborted(second, world.now);
    world.server.managed(handle, ManageOutcome::Complete, world.now);
    assert!(world.take(1).is_empty());
    world.reply(first, None);
    assert_eq!(world.take(1).len(), 1);
    // What was not acknowledged comes again, on the connection that is left.
    world.send(1, read_command(9, 512, 4).write(), &[]);
    world.command();
    assert!(world.server.poll_event().is_none());
    world.send(1, read_command(8, 512, 5).write(), &[]);
    world.command();
    world.assert_home();
}

#[test]
fn a_connection_of_the_same_number_takes_the_place_of_the_old_one() {
    let mut world = two();
    world.send(2, read_command(6, 512, 1).write(), &[]);
    let (old, _) = world.command();
    world.join(3, 1, parameters(), 1);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Manage { .. })));
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Close { connection: ConnectionId(2) })));
    assert_eq!(LoginResponse::read(&world.take_one(3).0).status_class, 0);
    world.reply(old, None);
    assert!(world.take(3).is_empty());
    world.send(3, read_command(6, 512, 2).write(), &[]);
    world.command();
}

#[test]
fn one_connection_can_be_logged_out_over_another() {
    let mut world = two();
    let logout = LogoutRequest {
        is_immediate: true,
        is_final: true,
        reason: 1,
        connection: 1,
        task_tag: 9,
        ..LogoutRequest::default()
    };
    world.send(1, logout.write(), &[]);
    assert_eq!(LogoutResponse::read(&world.take_one(1).0).response, 0);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Close { connection: ConnectionId(2) })));
    world.send(1, logout.write(), &[]);
    assert_eq!(LogoutResponse::read(&world.take_one(1).0).response, 1, "it is not there any more");
    world.send(1, LogoutRequest { reason: 2, ..logout }.write(), &[]);
    assert_eq!(LogoutResponse::read(&world.take_one(1).0).response, 2, "no recovery");
    world.read(5, 512);
}

#[test]
fn task_sets_are_aborted_after_the_commands_before_have_come() {
    let mut world = two();
    world.send(1, task_request(2, 50, (TAG_NONE, 0), 2).write(), &[]);
    assert!(world.server.poll_event().is_none(), "command 1 is on its way");
    world.send(2, read_command(5, 512, 1).write(), &[]);
    let (task, _) = world.command();
    let (handle, _) = world.manage();
    world.server.aborted(task, world.now);
    world.server.managed(handle, ManageOutcome::Complete, world.now);
    assert_eq!(TaskResponse::read(&world.take_one(1).0).response, 0);
    world.send(1, task_request(6, 51, (TAG_NONE, 0), 4).write(), &[]);
    world.manage();
    world.send(2, read_command(6, 512, 3).write(), &[]);
    assert!(world.server.poll_event().is_none(), "a target reset counts all that did not come as received");
}

/// RFC 7143 11.5.1: a function acts on what has lower numbers. Nobody sends the others again.
#[test]
fn a_target_reset_leaves_what_came_early_and_comes_after_it_to_its_turn() {
    let mut world = two();
    for (tag, number) in [(8, 3), (9, 4), (10, 6)] {
        world.send(2, read_command(tag, 512, number).write(), &[]);
    }
    world.send(1, task_request(6, 51, (TAG_NONE, 0), 4).write(), &[]);
    let (handle, _) = world.manage();
    world.send(2, read_command(6, 512, 1).write(), &[]);
    assert!(world.server.poll_event().is_none(), "a command that it acts on comes while it is under way");
    world.server.managed(handle, ManageOutcome::Complete, world.now);
    assert_eq!(TaskResponse::read(&world.take_one(1).0).response, 0);
    let (task, _) = world.command();
    assert!(world.server.poll_event().is_none());
    world.reply(task, None);
    assert_eq!(world.take_one(2).0.task_tag(), 9);
    world.send(2, read_command(7, 512, 2).write(), &[]);
    assert!(world.server.poll_event().is_none(), "it comes too late");
    world.send(1, read_command(11, 512, 5).write(), &[]);
    world.command();
    let (task, _) = world.command();
    world.reply(task, None);
    assert_eq!(world.take_one(2).0.task_tag(), 10);
    world.assert_home();
}

#[test]
fn a_target_reset_that_is_refused_leaves_all_commands_to_their_turn() {
    let mut world = two();
    world.send(2, write_command(8, 512, 3).write(), &pattern(512));
    world.send(1, task_request(7, 51, (TAG_NONE, 0), 4).write(), &[]);
    let (handle, _) = world.manage();
    world.send(1, read_command(6, 512, 1).write(), &[]);
    assert!(world.server.poll_event().is_none(), "it waits for what comes of the reset");
    world.server.managed(handle, ManageOutcome::Rejected, world.now);
    assert_eq!(TaskResponse::read(&world.take_one(1).0).response, 255);
    world.command();
    assert!(world.server.poll_event().is_none());
    world.send(2, read_command(7, 512, 2).write(), &[]);
    let codes: Vec<u8> = (0..2).map(|_| world.command().1.cdb.operation_code()).collect();
    assert_eq!(codes, [0x28, 0x2a]);
}

#[test]
fn commands_wait_for_all_target_resets_that_act_on_them() {
    let mut world = two();
    world.send(1, task_request(6, 51, (TAG_NONE, 0), 2).write(), &[]);
    world.send(1, task_request(6, 52, (TAG_NONE, 0), 3).write(), &[]);
    let [(first, _), (second, _)] = [world.manage(), world.manage()];
    for (tag, number) in [(6, 1), (7, 2), (8, 3)] {
        world.send(2, read_command(tag, 512, number).write(), &[]);
    }
    world.server.managed(first, ManageOutcome::Complete, world.now);
    assert!(world.server.poll_event().is_none());
    world.server.managed(second, ManageOutcome::Rejected, world.now);
    for tag in [7, 8] {
        let (task, _) = world.command();
        world.reply(task, None);
        assert_eq!(world.take_one(2).0.task_tag(), tag);
    }
    assert!(world.server.poll_event().is_none());
}

#[test]
fn an_abort_forgets_nothing_but_the_number_that_it_names() {
    let mut world = two();
    world.send(2, read_command(7, 512, 4).write(), &[]);
    world.send(1, task_request(1, 50, (7, 2), 3).write(), &[]);
    assert_eq!(TaskResponse::read(&world.take_one(1).0).response, 0, "number 2 counts as received");
    world.send(1, task_request(1, 51, (9, 4), 5).write(), &[]);
    assert_eq!(TaskResponse::read(&world.take_one(1).0).response, 1, "that is another task");
    for (tag, number) in [(5, 1), (6, 3)] {
        world.send(1, read_command(tag, 512, number).write(), &[]);
        world.command();
    }
    let (task, _) = world.command();
    world.reply(task, None);
    assert_eq!(world.take_one(2).0.task_tag(), 7);
}
