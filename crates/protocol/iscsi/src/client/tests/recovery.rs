use super::*;
use crate::wire::{
    AsyncMessage, LogoutRequest, LogoutResponse, Reject, SnackRequest, TAG_NONE, TaskRequest, TaskResponse,
};

impl World {
    /// Cuts a connection.
    fn cut(&mut self, connection: ConnectionId) {
        self.wires.remove(&connection);
        self.client.connection_lost(connection, self.now);
        self.drain();
    }

    /// The next PDU of this kind; others are left out.
    fn find(&mut self, connection: ConnectionId, opcode: Opcode) -> Header {
        loop {
            let (header, _) = self.take(connection).unwrap_or_else(|| panic!("no {opcode:?}"));
            if header.opcode() == Some(opcode) {
                return header;
            }
        }
    }

    fn snack(&mut self, connection: ConnectionId) -> (u8, u32, u32) {
        let snack = SnackRequest::read(&self.find(connection, Opcode::SnackRequest));
        (snack.kind, snack.first, snack.count)
    }

    fn reconnect(&mut self) -> ConnectionId {
        self.wait(Duration::from_secs(3));
        self.expected_command = 1;
        let connection = self.only();
        self.log_in(connection);
        connection
    }
}

fn flipped(world: &mut World, connection: ConnectionId, header: Header, data: Vec<u8>) {
    let wire = world.wires.get_mut(&connection).unwrap();
    wire.outbox.push(header, Some(data.into()));
    let mut bytes = Vec::new();
    while let Some(packet) = wire.outbox.pop() {
        bytes.extend_from_slice(&packet.head);
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
    }
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    world.send_bytes(connection, &bytes);
}

#[test]
fn commands_are_given_again_on_a_new_session_unless_that_could_do_harm() {
    let (mut world, connection) = World::connected(config());
    let read = world.read(512);
    let once = world.order(order([0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]));
    let write = world.write(&pattern(512));
    world.cut(connection);
    let late = world.order(order([0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]));
    let connection = world.reconnect();
    assert!(matches!(world.event(), ClientEvent::Lost { announced: false }));
    let event = world.event();
    assert!(matches!(event, ClientEvent::Failed { id, failure: Failure::InDoubt, .. } if id == once), "{event:?}");
    assert!(matches!(world.event(), ClientEvent::Connected { resumed: false, .. }));
    for (id, code) in [(read, 0x28), (write, 0x2a), (late, 0x89)] {
        let (command, _) = world.take_command(connection);
        assert_eq!(command.cdb[0], code);
        world.status(connection, command.task_tag, Status::Good, 0);
        world.expect_data(id);
    }
}

#[test]
fn held_commands_wait_until_they_are_released_or_abandoned() {
    let (mut world, connection) = World::connected(config());
    world.client.hold_after_restart();
    let held = world.read(512);
    let other = world.order(Order { lun: Lun::new(5).unwrap(), ..order([0; 6]) });
    world.cut(connection);
    let connection = world.reconnect();
    world.events.clear();
    assert!(world.take(connection).is_none());
    let question = world.order(order([0x12, 0, 0, 0, 0, 0]));
    let (command, _) = world.take_command(connection);
    assert_eq!(command.cdb[0], 0x12);
    world.client.abandon(Lun::new(5).unwrap(), Failure::InDoubt);
    world.client.abandon(Lun::new(3).unwrap().min(Lun::new(4).unwrap()), Failure::Closed);
    world.drain();
    let failed: Vec<CommandId> = std::mem::take(&mut world.events)
        .into_iter()
        .map(|event| if let ClientEvent::Failed { id, .. } = event { id } else { panic!("{event:?}") })
        .collect();
    assert_eq!(failed, [other, held]);
    let again = world.read(512);
    world.client.release();
    world.drain();
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(question);
    let (command, _) = world.take_command(connection);
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(again);
}

#[test]
fn damaged_data_ends_the_session_at_level_0() {
    let mut world =
        World::new(ClientConfig { wishes: DesiredParameters { digests: true, ..config().wishes }, ..config() });
    world.keys += "HeaderDigest=CRC32C\0DataDigest=CRC32C\0";
    let connection = world.only();
    world.log_in(connection);
    world.wires.get_mut(&connection).unwrap().set_digests(Digests { header: true, data: true });
    world.read(512);
    let (command, _) = world.take_command(connection);
    let header = DataIn { task_tag: command.task_tag, transfer_tag: TAG_NONE, ..DataIn::default() };
    flipped(&mut world, connection, header.write(), pattern(512));
    assert!(matches!(world.events.pop(), Some(ClientEvent::Lost { .. })));
}

/// A session with digests that recovers data.
fn recovering() -> (World, ConnectionId) {
    let wishes = DesiredParameters { digests: true, error_recovery_level: 1, connections: 1 };
    let mut world = World::new(ClientConfig { wishes, ..config() });
    world.keys += "HeaderDigest=CRC32C\0DataDigest=CRC32C\0ErrorRecoveryLevel=1\0DefaultTime2Wait=0\0";
    let connection = world.only();
    world.log_in(connection);
    world.wires.get_mut(&connection).unwrap().set_digests(Digests { header: true, data: true });
    world.events.clear();
    (world, connection)
}

#[test]
fn damaged_data_is_asked_for_once_more_at_level_1() {
    let (mut world, connection) = recovering();
    let id = world.read(1536);
    let (command, _) = world.take_command(connection);
    let (data, tag) = (pattern(1536), command.task_tag);
    world.data(connection, tag, 0, 0, &data[..512]);
    let header =
        DataIn { task_tag: tag, transfer_tag: TAG_NONE, data_number: 1, offset_bytes: 512, ..DataIn::default() };
    flipped(&mut world, connection, header.write(), data[512..1024].to_vec());
    assert_eq!(world.snack(connection), (0, 1, 1));
    world.data(connection, tag, 2, 1024, &data[1024..]);
    world.status(connection, tag, Status::Good, 3);
    assert!(world.events.is_empty());
    world.data(connection, tag, 1, 512, &data[512..1024]);
    assert_eq!(world.expect_data(id), data);
    // It was asked for more than once; a second copy changes nothing.
    world.data(connection, tag, 1, 512, &data[512..1024]);
    world.wait(Duration::from_secs(4));
    assert!(world.events.is_empty());
}

#[test]
fn data_that_is_missing_at_the_end_is_asked_for_at_level_1() {
    let (mut world, connection) = recovering();
    let id = world.read(1024);
    let tag = world.take_command(connection).0.task_tag;
    world.data(connection, tag, 0, 0, &pattern(512));
    world.status(connection, tag, Status::Good, 2);
    assert_eq!(world.snack(connection), (0, 1, 1));
    world.data(connection, tag, 1, 512, &[5; 512]);
    assert_eq!(world.expect_data(id).len(), 1024);
}

#[test]
fn a_missing_status_is_asked_for_at_level_1() {
    let (mut world, connection) = recovering();
    let (first, second) = (world.read(512), world.read(512));
    let tags = [0, 1].map(|_| world.take_command(connection).0.task_tag);
    let missing = world.wires[&connection].status;
    let set = |world: &mut World, status| world.wires.get_mut(&connection).unwrap().status = status;
    set(&mut world, missing + 1);
    world.status(connection, tags[1], Status::Good, 0);
    world.expect_data(second);
    assert_eq!(world.snack(connection), (1, missing, 1));
    set(&mut world, missing);
    world.status(connection, tags[0], Status::Good, 0);
    world.expect_data(first);
    set(&mut world, missing + 2);
    world.wait(Duration::from_secs(4));
    assert!(world.events.is_empty());
}

#[test]
fn a_target_that_does_not_send_again_what_it_was_asked_for_is_left() {
    let (mut world, connection) = recovering();
    world.read(1024);
    let tag = world.take_command(connection).0.task_tag;
    world.data(connection, tag, 1, 512, &pattern(512));
    assert_eq!(world.snack(connection), (0, 0, 1));
    // Otherwise it is lively.
    for _ in 0..6 {
        world.wait(Duration::from_secs(1));
        let ping = crate::wire::NopIn { task_tag: TAG_NONE, transfer_tag: TAG_NONE, ..Default::default() };
        world.send(connection, ping.write(), Vec::new());
    }
    assert!(matches!(world.event(), ClientEvent::Lost { .. }));
}

#[test]
fn lost_data_of_a_write_is_sent_again_at_level_1() {
    let (mut world, connection) = recovering();
    let id = world.write(&pattern(100_000));
    let tag = world.take_command(connection).0.task_tag;
    while world.take(connection).is_some() {}
    world.ready(connection, tag, 0, 65_536, 8192);
    world.take_data(connection);
    world.ready(connection, tag, 1, 8192, 8192);
    assert_eq!(world.take_data(connection).1, pattern(100_000)[8192..16_384]);
    world.status(connection, tag, Status::Good, 2);
    world.expect_data(id);
}

#[test]
fn data_that_the_target_asks_for_anew_is_not_sent_for_the_r2t_before() {
    let (mut world, connection) = recovering();
    let data = pattern(300_000);
    let id = world.write(&data);
    let tag = world.take_command(connection).0.task_tag;
    while world.take(connection).is_some() {}
    // Nothing has gone out when the target loses its patience.
    let bytes = [(0, 100_000), (1, 100_000)].map(|(number, offset)| ReadyToTransfer {
        is_final: true,
        task_tag: tag,
        transfer_tag: 100 + number,
        number,
        offset_bytes: offset,
        desired_bytes: 50_000,
        status_number: world.wires[&connection].status,
        expected_command_number: 2,
        max_command_number: 30,
        ..ReadyToTransfer::default()
    });
    let wire = world.wires.get_mut(&connection).unwrap();
    bytes.iter().for_each(|ready| wire.outbox.push(ready.write(), None));
    let bytes: Vec<u8> = std::iter::from_fn(|| wire.outbox.pop()).flat_map(|packet| packet.head.to_vec()).collect();
    world.send_bytes(connection, &bytes);
    let (header, sent) = world.take_data(connection);
    assert_eq!((header.transfer_tag, &sent[..]), (101, &data[100_000..100_000 + sent.len()]));
    while world.take(connection).is_some() {}
    world.status(connection, tag, Status::Good, 2);
    world.expect_data(id);
}

#[test]
fn a_target_that_has_not_kept_what_is_missing_is_left() {
    let (mut world, connection) = recovering();
    world.read(1024);
    let tag = world.take_command(connection).0.task_tag;
    world.data(connection, tag, 1, 512, &pattern(512));
    let snack = world.find(connection, Opcode::SnackRequest);
    let reject = Reject { is_final: true, reason: 3, task_tag: TAG_NONE, ..Reject::default() };
    world.send(connection, reject.write(), snack.as_bytes().to_vec());
    assert!(matches!(world.event(), ClientEvent::Lost { .. }));
    let connection = world.reconnect();
    assert_eq!(world.take_command(connection).0.cdb[0], 0x28, "the command is given again");
}

/// A connection that says nothing is asked for a sign of life; its answer shows what is missing.
#[test]
fn a_status_that_is_lost_last_is_found_by_a_ping_at_level_1() {
    let (mut world, connection) = recovering();
    let id = world.read(512);
    let tag = world.take_command(connection).0.task_tag;
    let missing = world.wires[&connection].status;
    world.wires.get_mut(&connection).unwrap().status += 1;
    world.wait(Duration::from_secs(3));
    let ping = world.find(connection, Opcode::NopOut);
    let pong = crate::wire::NopIn { task_tag: ping.task_tag(), transfer_tag: TAG_NONE, ..Default::default() };
    world.send(connection, pong.write(), Vec::new());
    assert_eq!(world.snack(connection), (1, missing, 1));
    let next = std::mem::replace(&mut world.wires.get_mut(&connection).unwrap().status, missing);
    world.status(connection, tag, Status::Good, 0);
    world.wires.get_mut(&connection).unwrap().status = next;
    world.expect_data(id);
    world.wait(Duration::from_secs(1));
    assert!(world.events.is_empty());
}

#[test]
fn tasks_of_a_lost_connection_go_on_on_another_at_level_2() {
    let (mut world, first) = World::connected(wishing(2, 2));
    let second = *world.wires.keys().find(|&&id| id != first).unwrap();
    world.log_in(second);
    let (taken, untaken) = (world.read(1024), world.write(&pattern(512)));
    // One to each; the target takes the read from the first connection, and cuts it.
    let (read, _) = world.take_command(first);
    world.data(first, read.task_tag, 0, 0, &pattern(512));
    let (write, _) = world.take_command(second);
    assert_eq!(write.cdb[0], 0x2a);
    world.cut(first);
    let logout = LogoutRequest::read(&world.find(second, Opcode::LogoutRequest));
    assert_eq!((logout.reason, logout.connection), (2, 0));
    assert!(world.events.is_empty(), "the session goes on");
    let response = LogoutResponse { task_tag: logout.task_tag, ..LogoutResponse::default() };
    world.send(second, response.write(), Vec::new());
    let reassign = TaskRequest::read(&world.find(second, Opcode::TaskRequest));
    assert_eq!((reassign.function, reassign.referenced_task_tag), (8, read.task_tag));
    assert_eq!(reassign.expected_data_number, 1);
    let response = TaskResponse { task_tag: reassign.task_tag, ..TaskResponse::default() };
    world.send(second, response.write(), Vec::new());
    world.data(second, read.task_tag, 1, 512, &pattern(512));
    world.status(second, read.task_tag, Status::Good, 2);
    assert_eq!(world.expect_data(taken), [pattern(512), pattern(512)].concat());
    world.status(second, write.task_tag, Status::Good, 0);
    world.expect_data(untaken);
}

#[test]
fn a_command_that_the_target_has_not_had_is_sent_again_under_its_number() {
    let (mut world, first) = World::connected(wishing(2, 2));
    let second = *world.wires.keys().find(|&&id| id != first).unwrap();
    world.log_in(second);
    let id = world.read(512);
    let (header, _) = world.take(first).unwrap();
    let lost = ScsiCommand::read(&header);
    world.cut(first);
    let logout = world.find(second, Opcode::LogoutRequest);
    let response = LogoutResponse { task_tag: logout.task_tag(), ..LogoutResponse::default() };
    world.send(second, response.write(), Vec::new());
    let again = ScsiCommand::read(&world.find(second, Opcode::ScsiCommand));
    assert_eq!((again.task_tag, again.command_number), (lost.task_tag, lost.command_number));
    world.expected_command = 2;
    world.status(second, again.task_tag, Status::Good, 0);
    world.expect_data(id);
}

#[test]
fn a_session_without_connections_is_taken_up_again_at_level_2() {
    let (mut world, connection) = World::connected(wishing(2, 1));
    world.client.hold_after_restart();
    let id = world.write(&pattern(300_000));
    let (command, _) = world.take_command(connection);
    world.ready(connection, command.task_tag, 0, 65_536, 100_000);
    world.cut(connection);
    assert!(matches!(world.event(), ClientEvent::Lost { .. }));
    world.wait(Duration::from_millis(10));
    let connection = world.only();
    world.open(connection);
    let request = LoginRequest::read(&world.wires[&connection].inbox[0].0);
    assert_eq!((request.tsih, request.connection), (77, 0));
    world.answer_login(connection, 0, 0, "");
    assert!(matches!(world.event(), ClientEvent::Connected { resumed: true, .. }));
    let reassign = TaskRequest::read(&world.find(connection, Opcode::TaskRequest));
    let response = TaskResponse { task_tag: reassign.task_tag, ..TaskResponse::default() };
    world.send(connection, response.write(), Vec::new());
    world.ready(connection, command.task_tag, 1, 65_536, 234_464);
    let mut found = 0;
    while found < 234_464 {
        found += world.take_data(connection).1.len();
    }
    world.status(connection, command.task_tag, Status::Good, 2);
    world.expect_data(id);
}

#[test]
fn a_command_that_arrived_before_its_session_was_taken_up_again_is_not_sent_twice() {
    let (mut world, connection) = World::connected(wishing(2, 1));
    world.read(512);
    let (command, _) = world.take_command(connection);
    world.cut(connection);
    // The answer of the login is the first that tells.
    world.expected_command = 2;
    world.wait(Duration::from_millis(10));
    let connection = world.only();
    world.log_in(connection);
    let (header, _) = world.take(connection).unwrap();
    assert_eq!(header.opcode(), Some(Opcode::TaskRequest));
    assert_eq!(TaskRequest::read(&header).referenced_task_tag, command.task_tag);
}

#[test]
fn a_command_that_was_rejected_because_its_data_was_damaged_is_given_again() {
    let (mut world, connection) = World::connected(config());
    let id = world.write(&pattern(512));
    let (header, _) = world.take(connection).unwrap();
    let reject = Reject { reason: 2, task_tag: TAG_NONE, ..Reject::default() };
    world.send(connection, reject.write(), header.as_bytes().to_vec());
    let connection = world.reconnect();
    let (command, data) = world.take_command(connection);
    assert_eq!(data, pattern(512));
    world.status(connection, command.task_tag, Status::Good, 0);
    assert!(matches!(world.event(), ClientEvent::Lost { .. }));
    assert!(matches!(world.event(), ClientEvent::Connected { .. }));
    world.expect_data(id);
}

#[test]
fn a_session_that_the_target_has_forgotten_is_made_anew() {
    let (mut world, connection) = World::connected(wishing(2, 1));
    let id = world.read(512);
    world.take_command(connection);
    world.cut(connection);
    world.wait(Duration::from_millis(10));
    let connection = world.only();
    world.open(connection);
    world.answer_login(connection, 2, 10, "");
    world.expected_command = 1;
    let connection = world.only();
    world.log_in(connection);
    assert!(matches!(world.events[..], [ClientEvent::Lost { .. }, ClientEvent::Connected { resumed: false, .. }]));
    world.events.clear();
    let (command, _) = world.take_command(connection);
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(id);
}

fn message(event: u8, parameters: [u16; 3]) -> Header {
    let [parameter_1, parameter_2, parameter_3] = parameters;
    let task_tag = TAG_NONE;
    AsyncMessage { event, parameter_1, parameter_2, parameter_3, task_tag, ..AsyncMessage::default() }.write()
}

#[test]
fn a_target_that_wants_a_logout_gets_it_when_the_commands_are_done() {
    let (mut world, connection) = World::connected(config());
    let id = world.read(512);
    let (command, _) = world.take_command(connection);
    world.send(connection, message(1, [0, 0, 4]), Vec::new());
    let waiting = world.read(512);
    assert!(world.take(connection).is_none());
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(id);
    let logout = world.find(connection, Opcode::LogoutRequest);
    let response = LogoutResponse { task_tag: logout.task_tag(), ..LogoutResponse::default() };
    world.send(connection, response.write(), Vec::new());
    assert!(matches!(world.event(), ClientEvent::Lost { announced: true }));
    world.expected_command = 1;
    let connection = world.only();
    world.log_in(connection);
    world.events.clear();
    let (command, _) = world.take_command(connection);
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(waiting);
}

#[test]
fn a_dropped_session_is_sought_again_when_the_target_says() {
    let (mut world, _) = World::connected(config());
    let connection = world.only();
    world.send(connection, message(3, [0, 3, 20]), Vec::new());
    assert!(matches!(world.event(), ClientEvent::Lost { announced: true }));
    world.wait(Duration::from_millis(2900));
    assert!(world.wires.is_empty());
    world.wait(Duration::from_millis(200));
    world.only();
}

#[test]
fn a_target_that_wants_to_negotiate_may_change_how_much_it_takes() {
    let (mut world, connection) = World::connected(config());
    world.send(connection, message(4, [0, 0, 3]), Vec::new());
    let request = world.find(connection, Opcode::TextRequest);
    let response = crate::wire::TextResponse {
        is_final: true,
        task_tag: request.task_tag(),
        transfer_tag: TAG_NONE,
        ..Default::default()
    };
    world.send(connection, response.write(), b"MaxRecvDataSegmentLength=1024\0".to_vec());
    world.write(&pattern(2048));
    assert_eq!(world.take_command(connection).1.len(), 1024);
}
