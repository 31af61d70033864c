//! A target that keeps no rule: the connection is dropped and found again, nothing panics, nothing grows, every frame
//! comes back.

use super::*;
use crate::wire::{LogoutResponse, NopIn, Reject, TaskResponse, TextResponse};

/// Does something evil to a client with a read and a write under way; the session must be lost, and the commands done on
/// the next one.
fn survives(name: &str, evil: impl Fn(&mut World, ConnectionId, [u32; 2])) {
    let (mut world, connection) = World::connected(config());
    let ids = [world.read(4096), world.write(&pattern(100_000))];
    let tags = [0, 1].map(|_| world.find_command(connection));
    evil(&mut world, connection, tags);
    let event = world.event();
    assert!(matches!(event, ClientEvent::Lost { announced: false }), "{name}: {event:?}");
    assert!(world.closed.contains(&connection), "{name}");
    world.wait(Duration::from_secs(3));
    world.expected_command = 1;
    let connection = world.only();
    world.log_in(connection);
    assert!(matches!(world.event(), ClientEvent::Connected { resumed: false, .. }), "{name}");
    for id in ids {
        let tag = world.find_command(connection);
        world.status(connection, tag, Status::Good, 0);
        world.expect_data(id);
    }
}

impl World {
    fn find_command(&mut self, connection: ConnectionId) -> u32 {
        loop {
            let (header, _) = self.take(connection).expect("a command");
            if header.opcode() == Some(Opcode::ScsiCommand) {
                self.expected_command += 1;
                return header.task_tag();
            }
        }
    }
}

#[test]
fn tags_that_were_never_given_are_refused_in_every_pdu() {
    for tag in [u32::MAX - 1, 0x8000_0000, 0x8000_0001, 0x7fff_ffff, 0xffff, 17, 0x10_0000] {
        survives("answer", |world, connection, _| world.status(connection, tag, Status::Good, 0));
        survives("data", |world, connection, _| world.data(connection, tag, 0, 0, &[1; 100]));
        survives("ready", |world, connection, _| world.ready(connection, tag, 0, 0, 10));
        survives("task management", |world, connection, _| {
            let response = TaskResponse { task_tag: tag, ..TaskResponse::default() };
            world.send(connection, response.write(), Vec::new());
        });
        survives("logout", |world, connection, _| {
            let response = LogoutResponse { task_tag: tag, ..LogoutResponse::default() };
            world.send(connection, response.write(), Vec::new());
        });
        survives("text", |world, connection, _| {
            let response = TextResponse { task_tag: tag, ..TextResponse::default() };
            world.send(connection, response.write(), b"TargetName=x\0".to_vec());
        });
        survives("ping", |world, connection, _| {
            let response = NopIn { task_tag: tag, transfer_tag: TAG_NONE, ..NopIn::default() };
            world.send(connection, response.write(), Vec::new());
        });
        survives("reject", |world, connection, _| {
            let command = ScsiCommand { task_tag: tag, ..ScsiCommand::default() };
            let reject = Reject { reason: 4, task_tag: TAG_NONE, ..Reject::default() };
            world.send(connection, reject.write(), command.write().as_bytes().to_vec());
        });
    }
}

#[test]
fn an_answer_to_a_command_that_is_over_is_refused() {
    survives("twice", |world, connection, [_, _]| {
        let id = world.read(512);
        let tag = world.find_command(connection);
        world.status(connection, tag, Status::Good, 0);
        world.expect_data(id);
        world.status(connection, tag, Status::Good, 0);
    });
}

#[test]
fn data_that_does_not_belong_is_refused() {
    survives("for a write", |world, connection, [_, write]| world.data(connection, write, 0, 0, &[1; 100]));
    survives("more than asked for", |world, connection, [read, _]| world.data(connection, read, 0, 0, &[1; 4097]));
    survives("beyond the end", |world, connection, [read, _]| world.data(connection, read, 0, 4095, &[1; 2]));
    survives("far beyond", |world, connection, [read, _]| {
        world.data(connection, read, 0, u32::MAX as usize, &[1; 5000]);
    });
    survives("twice", |world, connection, [read, _]| {
        world.data(connection, read, 0, 0, &[1; 100]);
        world.data(connection, read, 1, 50, &[1; 100]);
    });
    survives("more than one PDU may have", |world, connection, [read, _]| {
        let mut bytes = *DataIn { task_tag: read, ..DataIn::default() }.write().as_bytes();
        bytes[5..8].fill(0xff);
        world.send_bytes(connection, &bytes);
    });
    survives("a gap in a whole answer", |world, connection, [read, _]| {
        world.data(connection, read, 0, 100, &[1; 100]);
        world.status(connection, read, Status::Good, 1);
    });
}

#[test]
fn data_numbers_that_jump_are_refused() {
    for numbers in [[1, 2], [0, 0], [0, 2], [u32::MAX, 0], [0, u32::MAX]] {
        survives("numbers", |world, connection, [read, _]| {
            world.data(connection, read, numbers[0], 0, &[1; 100]);
            world.data(connection, read, numbers[1], 100, &[1; 100]);
        });
    }
}

#[test]
fn sense_data_longer_than_its_segment_is_refused() {
    survives("sense", |world, connection, [read, _]| {
        let response = ScsiResponse { status: 2, task_tag: read, ..ScsiResponse::default() };
        world.send(connection, response.write(), vec![0xff, 0xff, 0x70, 0]);
    });
}

#[test]
fn r2ts_for_what_is_not_there_are_refused() {
    for (offset, length) in
        [(65_536, 0), (99_999, 2), (100_000, 1), (u32::MAX, u32::MAX), (0, u32::MAX), (0, 100), (65_535, 2)]
    {
        survives("ready", |world, connection, [_, write]| world.ready(connection, write, 0, offset, length));
    }
    survives("for a read", |world, connection, [read, _]| world.ready(connection, read, 0, 0, 100));
    survives("a wrong number", |world, connection, [_, write]| world.ready(connection, write, 1, 65_536, 100));
    survives("the same again", |world, connection, [_, write]| {
        world.ready(connection, write, 0, 65_536, 100);
        world.ready(connection, write, 1, 65_600, 100);
    });
    survives("no tag", |world, connection, [_, write]| {
        let ready = ReadyToTransfer {
            task_tag: write,
            transfer_tag: TAG_NONE,
            offset_bytes: 65_536,
            desired_bytes: 10,
            ..ReadyToTransfer::default()
        };
        world.send(connection, ready.write(), Vec::new());
    });
}

/// Sends to a client whose answers the target does not take.
fn flood(connection: ConnectionId, world: &mut World, pdus: impl Iterator<Item = Header>) {
    let mut bytes = Vec::new();
    for header in pdus {
        bytes.extend_from_slice(header.as_bytes());
    }
    for chunk in bytes.chunks(48 * 100) {
        let mut taken = 0;
        while taken < chunk.len() {
            let [_, space] = world.client.spaces(connection);
            let count = space.len().min(chunk.len() - taken);
            if count == 0 {
                return;
            }
            space[..count].copy_from_slice(&chunk[taken..taken + count]);
            taken += count;
            world.client.filled(connection, count, world.now);
        }
    }
}

#[test]
fn a_flood_of_pings_or_r2ts_ends_the_session() {
    survives("pings", |world, connection, _| {
        let ping = NopIn { task_tag: TAG_NONE, transfer_tag: 5, ..NopIn::default() };
        flood(connection, world, (0..10_000).map(|_| ping.write()));
        world.drain();
    });
    survives("r2ts", |world, connection, [_, write]| {
        let ready = |number: u32| ReadyToTransfer {
            task_tag: write,
            transfer_tag: number,
            number,
            offset_bytes: 65_536 + number,
            desired_bytes: 1,
            ..ReadyToTransfer::default()
        };
        flood(connection, world, (0..10_000).map(|number| ready(number).write()));
        world.drain();
    });
}

#[test]
fn what_is_no_pdu_of_a_target_is_refused() {
    for code in [0x00, 0x01, 0x03, 0x1c, 0x23, 0x3e] {
        survives("code", |world, connection, _| {
            let mut bytes = [0; 48];
            bytes[0] = code;
            world.send_raw(connection, Header::from_bytes(bytes), Vec::new());
        });
    }
    survives("short reject", |world, connection, _| {
        let reject = Reject { reason: 4, task_tag: TAG_NONE, ..Reject::default() };
        world.send(connection, reject.write(), vec![0; 47]);
    });
}

#[test]
fn windows_that_cannot_be_change_nothing() {
    let (mut world, connection) = World::connected(ClientConfig { commands_max: 4, ..config() });
    for (expected, max) in [(0, u32::MAX), (0x8000_0001, 0x8000_0000), (50, 0x7fff_ffff), (u32::MAX, 5), (9, 1)] {
        let nop = NopIn {
            task_tag: TAG_NONE,
            transfer_tag: TAG_NONE,
            expected_command_number: expected,
            max_command_number: max,
            ..NopIn::default()
        };
        world.send_raw(connection, nop.write(), Vec::new());
        let id = world.read(512);
        let tag = world.find_command(connection);
        world.status(connection, tag, Status::Good, 0);
        world.expect_data(id);
    }
}

#[test]
fn a_rejected_command_fails_alone() {
    let (mut world, connection) = World::connected(config());
    let (id, other) = (world.read(512), world.read(512));
    let (rejected, _) = world.take(connection).unwrap();
    let (command, _) = world.take_command(connection);
    let reject = Reject { reason: 5, task_tag: TAG_NONE, ..Reject::default() };
    world.send(connection, reject.write(), rejected.as_bytes().to_vec());
    let event = world.event();
    assert!(
        matches!(&event, ClientEvent::Failed { id: failed, failure: Failure::Protocol { .. }, data_in: Some(_) } if *failed == id),
        "{event:?}"
    );
    world.status(connection, command.task_tag, Status::Good, 0);
    world.expect_data(other);
}

#[test]
fn a_target_that_only_breaks_rules_is_given_up_with_a_reason() {
    let (mut world, _) = World::connected(config());
    let id = world.read(512);
    for _ in 0..10 {
        world.wait(Duration::from_secs(3));
        let Some(&connection) = world.wires.keys().next() else { break };
        world.expected_command = 1;
        world.log_in(connection);
        world.status(connection, 0x5555, Status::Good, 0);
    }
    let Some(ClientEvent::GivenUp(Failure::Protocol { what })) = world.events.pop() else { panic!() };
    assert!(what.contains("not given"), "{what}");
    assert!(matches!(world.events.pop(), Some(ClientEvent::Failed { id: failed, .. }) if failed == id));
    assert!(world.client.poll_timeout().is_none());
}

#[test]
fn a_login_without_end_is_ended() {
    let mut world = World::new(config());
    let connection = world.only();
    world.open(connection);
    for _ in 0..1000 {
        let Some((header, _)) = world.take(connection) else { break };
        let request = LoginRequest::read(&header);
        let response = LoginResponse {
            current_stage: request.current_stage,
            isid: request.isid,
            tsih: 77,
            task_tag: request.task_tag,
            ..LoginResponse::default()
        };
        world.send(connection, response.write(), Vec::new());
    }
    assert!(!world.wires.contains_key(&connection));
}

#[test]
fn a_text_without_end_is_ended() {
    for length in [0, 8000] {
        let mut world = World::new(ClientConfig { target: None, ..config() });
        world.keys.clear();
        let connection = world.only();
        world.client.discover(world.now);
        world.log_in(connection);
        world.events.clear();
        for _ in 0..10_000 {
            let Some((header, _)) = world.take(connection) else { break };
            let (task_tag, continues) = (header.task_tag(), true);
            let response = TextResponse { continues, task_tag, transfer_tag: 1, ..TextResponse::default() };
            world.send(connection, response.write(), vec![b'x'; length]);
        }
        assert!(matches!(world.event(), ClientEvent::Lost { .. }));
    }
}

#[test]
fn more_targets_than_anybody_has_are_refused() {
    let mut world = World::new(ClientConfig { target: None, ..config() });
    world.keys.clear();
    let connection = world.only();
    world.client.discover(world.now);
    world.log_in(connection);
    world.events.clear();
    let (header, _) = world.take(connection).unwrap();
    let text: String = (0..5000).map(|number| format!("TargetName=iqn.2026-11.org.sanwire:{number}\0")).collect();
    let (task_tag, transfer_tag) = (header.task_tag(), TAG_NONE);
    let response = TextResponse { is_final: true, task_tag, transfer_tag, ..TextResponse::default() };
    world.send(connection, response.write(), text.into_bytes());
    assert!(matches!(world.event(), ClientEvent::Lost { .. }));
}
