use proptest::prelude::*;
use sanwire_buffer::Region;

use super::*;
use crate::login::PortalCarrier;
use crate::other_portals::OtherPortal;
use crate::wire::{NopIn, NopOut, TextRequest, TextResponse};

#[test]
fn a_read_ends_with_its_data_in_the_callers_frame() {
    let (mut world, connection) = World::connected(config());
    let id = world.read(10_000);
    let (command, _) = world.take_command(connection);
    assert_eq!((command.expected_bytes, command.is_read, command.is_write), (10_000, true, false));
    assert_eq!((command.lun, command.command_number), ([0, 3, 0, 0, 0, 0, 0, 0], 1));
    let data = pattern(10_000);
    world.data(connection, command.task_tag, 0, 0, &data[..6000]);
    world.data(connection, command.task_tag, 1, 6000, &data[6000..]);
    assert!(world.events.is_empty() && world.client.in_transit() == 1);
    world.status(connection, command.task_tag, Status::Good, 2);
    assert_eq!(world.expect_data(id), data);
    assert_eq!(world.client.in_transit(), 0);
}

#[test]
fn data_and_status_may_come_in_one_pdu() {
    let (mut world, connection) = World::connected(config());
    let id = world.read(512);
    let (command, _) = world.take_command(connection);
    let header = DataIn {
        is_final: true,
        has_status: true,
        underflow: true,
        residual_bytes: 412,
        task_tag: command.task_tag,
        transfer_tag: TAG_NONE,
        ..DataIn::default()
    };
    world.send(connection, header.write(), pattern(100));
    assert_eq!(world.expect_data(id), pattern(100));
}

#[test]
fn a_write_goes_out_as_it_was_agreed_on() {
    let (mut world, connection) = World::connected(config());
    let data = pattern(400_000);
    let id = world.write(&data);
    // The target takes 8192 bytes in a PDU and 65536 unasked: those are the defaults.
    let (command, immediate) = world.take_command(connection);
    assert!(!command.is_final && command.is_write && command.expected_bytes == 400_000);
    let mut found = immediate;
    assert_eq!(found.len(), 8192);
    for number in 0..7 {
        let (header, part) = world.take_data(connection);
        assert_eq!((header.transfer_tag, header.data_number, header.is_final), (TAG_NONE, number, number == 6));
        assert_eq!(header.offset_bytes as usize, found.len());
        found.extend(part);
    }
    assert!(found.len() == 65_536 && world.take(connection).is_none());
    world.ready(connection, command.task_tag, 0, 65_536, 262_144);
    world.ready(connection, command.task_tag, 1, 327_680, 72_320);
    while found.len() < data.len() {
        let (header, part) = world.take_data(connection);
        assert_eq!(header.offset_bytes as usize, found.len());
        found.extend(part);
        assert_eq!(header.is_final, [327_680, 400_000].contains(&found.len()));
    }
    assert_eq!(found, data);
    world.status(connection, command.task_tag, Status::Good, 2);
    world.expect_data(id);
}

#[test]
fn a_target_that_wants_to_be_asked_gets_no_data_unasked() {
    let mut world = World::new(config());
    world.keys = "InitialR2T=Yes\0ImmediateData=No\0".into();
    let connection = world.only();
    world.log_in(connection);
    world.write(&pattern(4000));
    let (command, data) = world.take_command(connection);
    assert!(command.is_final && data.is_empty() && world.take(connection).is_none());
    world.ready(connection, command.task_tag, 0, 0, 4000);
    assert_eq!(world.take_data(connection).1, pattern(4000));
}

#[test]
fn sense_data_and_status_reach_the_caller() {
    let (mut world, connection) = World::connected(config());
    let id = world.read(512);
    let (command, _) = world.take_command(connection);
    let response = ScsiResponse {
        is_final: true,
        status: Status::CheckCondition as u8,
        task_tag: command.task_tag,
        underflow: true,
        residual_bytes: 512,
        ..ScsiResponse::default()
    };
    world.send(connection, response.write(), vec![0, 3, 0x70, 0, 6, 99]);
    let ClientEvent::Completed { id: found, status, sense, data_in, data_in_bytes } = world.event() else { panic!() };
    assert_eq!((found, status, sense, data_in_bytes), (id, Status::CheckCondition, vec![0x70, 0, 6], 0));
    assert_eq!(data_in.map(|frame| frame.len()), Some(512));
}

#[test]
fn long_command_blocks_and_two_directions_have_their_segments() {
    let (mut world, connection) = World::connected(config());
    let cdb: [u8; 32] = std::array::from_fn(|at| at as u8 + 1);
    let (data_out, data_in) = (Some(Slice::from(vec![9; 8])), Some(Frame::from(vec![0; 16])));
    world.order(Order { data_out, data_in, ..order(cdb) });
    let (command, rest) = world.take_command(connection);
    assert_eq!((command.cdb[..].to_vec(), command.expected_bytes), (cdb[..16].to_vec(), 8));
    assert_eq!(rest[..4], [0, 17, 1, 0]);
    assert_eq!(rest[4..20], cdb[16..]);
    assert_eq!(rest[20..], [0, 5, 2, 0, 0, 0, 0, 16, 9, 9, 9, 9, 9, 9, 9, 9]);
}

#[test]
fn commands_wait_for_the_window_and_for_room() {
    let (mut world, connection) = World::connected(ClientConfig { commands_max: 40, ..config() });
    for _ in 0..40 {
        world.read(512);
    }
    assert!(world.client.order(order([0; 6]), world.now).is_err());
    assert_eq!(world.client.server().unwrap().commands_max, 32);
    let sent: Vec<u32> = (0..32).map(|_| world.take_command(connection).0.task_tag).collect();
    assert!(world.take(connection).is_none());
    // A target that moves its window back changes nothing.
    let back = NopIn { task_tag: TAG_NONE, transfer_tag: TAG_NONE, max_command_number: 1, ..NopIn::default() };
    world.send_raw(connection, back.write(), Vec::new());
    assert!(world.take(connection).is_none() && world.events.is_empty());
    world.status(connection, sent[5], Status::Good, 0);
    assert_eq!(world.take_command(connection).0.command_number, 33);
    for _ in 0..7 {
        world.take_command(connection);
    }
    assert!(world.take(connection).is_none());
}

#[test]
fn a_ping_is_answered_before_the_data_that_waits() {
    let (mut world, connection) = World::connected(config());
    let ping = NopIn { task_tag: TAG_NONE, transfer_tag: 55, lun: [0, 9, 0, 0, 0, 0, 0, 0], ..NopIn::default() };
    world.send(connection, ping.write(), Vec::new());
    let (header, data) = world.take(connection).unwrap();
    let answer = NopOut::read(&header);
    assert_eq!((answer.transfer_tag, answer.task_tag, answer.lun, data.len()), (55, TAG_NONE, ping.lun, 0));
    assert!(answer.is_immediate && answer.is_final);
}

#[test]
fn a_silent_target_is_asked_for_a_sign_of_life() {
    let (mut world, connection) = World::connected(config());
    world.wait(Duration::from_secs(6));
    let (header, _) = world.take(connection).unwrap();
    assert_eq!(header.opcode(), Some(Opcode::NopOut));
    let answer = NopIn { task_tag: header.task_tag(), transfer_tag: TAG_NONE, ..NopIn::default() };
    world.send(connection, answer.write(), Vec::new());
    world.wait(Duration::from_secs(6));
    assert!(world.take(connection).is_some());
    world.wait(Duration::from_secs(6));
    assert!(matches!(world.event(), ClientEvent::Lost { announced: false }));
    assert_eq!(world.closed, [connection]);
}

#[test]
fn targets_are_told_of_in_many_pdus() {
    let mut world = World::new(ClientConfig { target: None, ..config() });
    world.keys.clear();
    let connection = world.only();
    world.client.discover(world.now);
    world.log_in(connection);
    let text: String = (0..1000)
        .map(|number| {
            format!("TargetName=iqn.2026-11.org.sanwire:disk{number}\0TargetAddress=10.0.0.1:3260,{number}\0")
        })
        .collect();
    let parts: Vec<&[u8]> = text.as_bytes().chunks(5000).collect();
    for (at, part) in parts.iter().enumerate() {
        let (header, asked) = world.take(connection).unwrap();
        let request = TextRequest::read(&header);
        assert_eq!(request.transfer_tag, if at == 0 { TAG_NONE } else { 7 });
        let first = &b"SendTargets=All\0X-org.sanwire.OtherPortals=Yes\0"[..];
        assert_eq!(asked, if at == 0 { first } else { &[] });
        let is_last = at + 1 == parts.len();
        let response = TextResponse {
            is_final: is_last,
            continues: !is_last,
            task_tag: request.task_tag,
            transfer_tag: if is_last { TAG_NONE } else { 7 },
            ..TextResponse::default()
        };
        world.send(connection, response.write(), part.to_vec());
    }
    let Some(ClientEvent::Targets(targets)) = world.events.pop() else { panic!() };
    assert_eq!(targets.len(), 1000);
    assert_eq!(targets[999].name.as_str(), "iqn.2026-11.org.sanwire:disk999");
    assert_eq!(targets[999].addresses, [("10.0.0.1:3260".to_owned(), 999)]);
}

/// Only who answers the question has told of all.
#[test]
fn portals_that_are_spoken_to_in_another_way_are_told_by_who_knows_the_question() {
    let told = |answer: &str| {
        let mut world = World::new(ClientConfig { target: None, ..config() });
        world.keys.clear();
        let connection = world.only();
        world.client.discover(world.now);
        world.log_in(connection);
        let (header, _) = world.take(connection).unwrap();
        let target = "TargetName=iqn.2026-11.org:disk\0TargetAddress=10.0.0.1:3260,1\0";
        let others = "X-org.sanwire.OtherPortal=iser:10.0.0.1:3261,2\0X-org.sanwire.OtherPortal=new:10.0.0.1:1,2\0";
        let text = format!("{target}{others}TargetName=iqn.2026-11.org:other\0{answer}").into_bytes();
        let (task_tag, transfer_tag) = (header.task_tag(), TAG_NONE);
        let response = TextResponse { is_final: true, task_tag, transfer_tag, ..TextResponse::default() };
        world.send(connection, response.write(), text);
        let Some(ClientEvent::Targets(targets)) = world.events.pop() else { panic!() };
        targets.into_iter().map(|target| target.others).collect::<Vec<_>>()
    };
    let other = OtherPortal { carrier: PortalCarrier::Iwarp, address: "10.0.0.1:3261".into(), group_tag: 2 };
    assert_eq!(told("X-org.sanwire.OtherPortals=Yes\0"), [Some(vec![other]), Some(vec![])]);
    for answer in ["X-org.sanwire.OtherPortals=NotUnderstood\0", ""] {
        assert_eq!(told(answer), [None, None], "{answer}");
    }
}

#[test]
fn leaving_logs_out_and_gives_the_frames_back() {
    let (mut world, connection) = World::connected(config());
    let region = Region::new(16_384).unwrap();
    let frame = region.frame(16_384).unwrap();
    world.order(Order { data_in: Some(frame), ..order([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]) });
    let (command, _) = world.take_command(connection);
    // In the middle of a data segment.
    let header = DataIn { task_tag: command.task_tag, transfer_tag: TAG_NONE, ..DataIn::default() };
    let mut bytes = *header.write().as_bytes();
    bytes[6] = 0x20;
    world.send_bytes(connection, &bytes);
    world.send_bytes(connection, &[1; 5000]);
    world.client.disconnect(world.now);
    world.drain();
    assert!(matches!(world.event(), ClientEvent::Failed { failure: Failure::Closed, data_in: Some(_), .. }));
    assert_eq!(region.free_bytes(), 16_384);
    let (header, _) = world.take(connection).unwrap();
    assert_eq!(header.opcode(), Some(Opcode::LogoutRequest));
    world.send_bytes(connection, &[1; 8192 - 5000]);
    let response = crate::wire::LogoutResponse { task_tag: header.task_tag(), ..Default::default() };
    world.send(connection, response.write(), Vec::new());
    assert!(world.wires.is_empty() && world.client.poll_timeout().is_none());
    assert!(world.client.order(order([0; 6]), world.now).is_err());
}

#[test]
fn a_target_that_does_not_answer_the_logout_is_left_all_the_same() {
    let (mut world, connection) = World::connected(config());
    world.wait(Duration::from_millis(4500));
    world.client.disconnect(world.now);
    world.drain();
    // In between, a sign of life would have been due.
    world.wait(Duration::from_secs(2));
    assert!(world.closed == [connection] && world.client.poll_timeout().is_none());
}

#[test]
fn commands_go_to_the_connection_with_the_fewest() {
    let (mut world, first) = World::connected(wishing(0, 2));
    let second = *world.wires.keys().find(|&&id| id != first).unwrap();
    world.log_in(second);
    assert_eq!(world.client.server().unwrap().connections, 2);
    for _ in 0..6 {
        world.read(512);
    }
    for connection in [first, second] {
        let numbers: Vec<u32> = (0..3).map(|_| world.take_command(connection).0.command_number).collect();
        assert!(numbers.is_sorted() && world.take(connection).is_none(), "{numbers:?}");
    }
}

proptest! {
    #[test]
    fn pieces_of_any_size_make_the_same_data(
        pieces in prop::collection::vec(prop_oneof![1..60usize, 1000..6000usize], 1..8),
        lengths in prop::collection::vec(1..9000usize, 1..8),
        digests: bool,
    ) {
        let wishes = DesiredParameters { digests, ..config().wishes };
        let mut world = World::new(ClientConfig { wishes, ..config() });
        if digests {
            world.keys += "HeaderDigest=CRC32C\0DataDigest=CRC32C\0";
        }
        let connection = world.only();
        world.log_in(connection);
        let agreed = Digests { header: digests, data: digests };
        world.wires.get_mut(&connection).unwrap().set_digests(agreed);
        world.pieces = pieces;
        world.events.clear();
        let data = pattern(lengths.iter().sum());
        let id = world.read(data.len());
        let (command, _) = world.take_command(connection);
        let mut offset = 0;
        for (number, &length) in (0..).zip(&lengths) {
            world.data(connection, command.task_tag, number, offset, &data[offset..offset + length]);
            offset += length;
        }
        world.status(connection, command.task_tag, Status::Good, lengths.len() as u32);
        prop_assert_eq!(world.expect_data(id), data);
    }
}
