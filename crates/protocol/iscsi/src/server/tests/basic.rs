//! Logins, reads, pings, logouts, the window of commands.

use super::*;
use crate::wire::{AsyncMessage, DataIn, LogoutRequest, LogoutResponse, NopIn, NopOut, ScsiResponse};

#[test]
fn the_last_login_request_is_answered_with_the_identity_and_the_window() {
    let mut world = World::new(1 << 20);
    world.admit(1, admitted(parameters()), 9);
    let (header, text) = world.take_one(1);
    let answer = LoginResponse::read(&header);
    assert!(answer.transits && (answer.current_stage, answer.next_stage) == (1, 3));
    assert_eq!((answer.tsih, answer.task_tag, answer.status_number, answer.status_class), (9, 7, 100, 0));
    assert_eq!((answer.expected_command_number, answer.max_command_number), (1, 32));
    assert_eq!(text, b"TargetPortalGroupTag=1\0");
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionOpened { tsih: 9, .. })));
    assert_eq!(world.server.poll_ready(), Some(ConnectionId(1)));
}

#[test]
fn what_came_behind_the_login_is_not_lost() {
    let mut world = World::new(1 << 20);
    let mut login = admitted(parameters());
    login.leftover = pdu(read_command(5, 512, 1).write(), &[], Digests::default());
    world.admit(1, login, 1);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionOpened { .. })));
    assert_eq!(world.command().1.cdb.operation_code(), 0x28);
}

#[test]
fn a_read_is_cut_to_segments_and_bursts_and_carries_its_status() {
    let mut session = parameters();
    session.max_burst_bytes = 12288;
    let mut world = World::with_session(session);
    let handle = world.read(5, 20000);
    let data = pattern(20000);
    world.reply(handle, Some(data.clone().into()));
    let sent = world.take(1);
    let headers: Vec<DataIn> = sent.iter().map(|(header, _)| DataIn::read(header)).collect();
    let shapes: Vec<_> =
        headers.iter().zip(&sent).map(|(h, s)| (h.data_number, h.offset_bytes, s.1.len(), h.is_final)).collect();
    assert_eq!(shapes, [(0, 0, 8192, false), (1, 8192, 4096, true), (2, 12288, 7712, true)]);
    assert_eq!(headers.iter().map(|h| h.has_status).collect::<Vec<_>>(), [false, false, true]);
    let last = headers[2];
    assert_eq!((last.status, last.status_number, last.residual_bytes), (0, 101, 0));
    assert!(!last.overflow && !last.underflow);
    assert_eq!((last.expected_command_number, last.max_command_number), (2, 33));
    assert_eq!(sent.iter().flat_map(|(_, part)| part).copied().collect::<Vec<u8>>(), data);
}

#[test]
fn residuals_tell_exactly_what_was_too_much_or_too_little() {
    let mut world = World::with_session(parameters());
    for (expected, available, sent_bytes, overflow, underflow, residual) in [
        (10000, 512, 512, false, true, 9488),
        (200, 512, 200, true, false, 312),
        (512, 1024, 512, true, false, 512),
        (0, 512, 0, true, false, 512),
        (512, 0, 0, false, true, 512),
        (512, 512, 512, false, false, 0),
    ] {
        let handle = world.read(5, expected);
        world.reply(handle, (available > 0).then(|| pattern(available).into()));
        let (header, data) = world.take_one(1);
        let found = if header.opcode() == Some(Opcode::DataIn) {
            let answer = DataIn::read(&header);
            (answer.overflow, answer.underflow, answer.residual_bytes)
        } else {
            let answer = ScsiResponse::read(&header);
            (answer.overflow, answer.underflow, answer.residual_bytes)
        };
        assert_eq!((data.len(), found), (sent_bytes, (overflow, underflow, residual)), "{expected} {available}");
    }
}

#[test]
fn residuals_of_writes_tell_what_the_command_would_have_taken() {
    let mut world = World::with_session(parameters());
    for (expected, taken, overflow, underflow, residual) in [
        (0, Some(512), true, false, 512),
        (1024, Some(512), false, true, 512),
        (200, Some(512), true, false, 312),
        (512, None, false, false, 0),
    ] {
        let number = world.next_number();
        world.send(1, write_command(5, expected, number).write(), &pattern(expected as usize));
        let (handle, _) = world.command();
        world.server.reply(handle, Reply { data_out_bytes: taken, ..Reply::good(None) }, world.now);
        let answer = ScsiResponse::read(&world.take_one(1).0);
        let found = (answer.overflow, answer.underflow, answer.residual_bytes);
        assert_eq!(found, (overflow, underflow, residual), "{expected} {taken:?}");
    }
}

#[test]
fn sense_data_stands_behind_its_length() {
    let mut world = World::with_session(parameters());
    let handle = world.read(5, 512);
    let reply = Reply { sense: vec![0x70; 18], ..Reply::bare(sanwire_scsi::Status::CheckCondition) };
    world.server.reply(handle, reply, world.now);
    let (header, data) = world.take_one(1);
    let answer = ScsiResponse::read(&header);
    assert_eq!((answer.status, answer.underflow, answer.residual_bytes, answer.task_tag), (2, true, 512, 5));
    assert_eq!((&data[..2], data.len()), (&[0u8, 18][..], 20));
}

#[test]
fn the_window_closes_at_its_limit_and_opens_as_commands_end() {
    let mut world = World::with_session(parameters());
    let handles: Vec<_> = (0..32).map(|tag| world.read(tag, 512)).collect();
    world.send(1, read_command(99, 512, 33).write(), &[]);
    assert!(world.server.poll_event().is_none() && world.take(1).is_empty(), "silently ignored");
    world.reply(handles[7], None);
    let answer = ScsiResponse::read(&world.take_one(1).0);
    assert_eq!((answer.task_tag, answer.expected_command_number, answer.max_command_number), (7, 33, 33));
    world.send(1, read_command(99, 512, 33).write(), &[]);
    world.command();
}

#[test]
fn numbers_outside_the_window_are_ignored_and_immediate_commands_are_not() {
    let mut world = World::with_session(parameters());
    for number in [0, 33, 0x8000_0000, u32::MAX] {
        world.send(1, read_command(number, 512, number).write(), &[]);
        assert!(world.server.poll_event().is_none() && world.take(1).is_empty(), "{number}");
    }
    let immediate = ScsiCommand { is_immediate: true, ..read_command(5, 512, 1) };
    world.send(1, immediate.write(), &[]);
    let (handle, _) = world.command();
    world.reply(handle, None);
    let answer = ScsiResponse::read(&world.take_one(1).0);
    assert_eq!((answer.expected_command_number, answer.max_command_number), (1, 32), "no number was used");
    world.read(6, 512);
}

#[test]
fn a_tag_in_use_is_rejected_and_harms_nobody() {
    let mut world = World::with_session(parameters());
    let handle = world.read(5, 512);
    world.send(1, read_command(5, 512, 2).write(), &[]);
    let sent = world.take_one(1);
    assert_eq!((rejection(&sent), &sent.1[16..20]), (7, &5u32.to_be_bytes()[..]));
    assert!(world.server.poll_event().is_none());
    world.reply(handle, Some(pattern(512).into()));
    let answer = DataIn::read(&world.take_one(1).0);
    assert_eq!((answer.status, answer.expected_command_number), (0, 2), "the rejected number did not come");
}

#[test]
fn a_ping_comes_back_with_its_data_and_a_silent_connection_is_pinged() {
    let mut world = World::with_session(parameters());
    let number = world.next_number();
    let ping = NopOut {
        is_final: true,
        lun: [0, 3, 0, 0, 0, 0, 0, 0],
        task_tag: 8,
        transfer_tag: TAG_NONE,
        command_number: number,
        ..NopOut::default()
    };
    world.send(1, ping.write(), b"nopping");
    let (header, data) = world.take_one(1);
    let pong = NopIn::read(&header);
    assert_eq!((pong.task_tag, pong.transfer_tag, pong.lun[1], pong.status_number), (8, TAG_NONE, 3, 101));
    assert_eq!(data, b"nopping");
    world.send(1, NopOut { is_immediate: true, ..ping }.write(), &[]);
    assert_eq!(world.take_one(1).1, b"");

    world.now = world.server.poll_timeout().unwrap();
    world.server.handle_timeout(world.now);
    let asked = NopIn::read(&world.take_one(1).0);
    assert!(asked.task_tag == TAG_NONE && asked.transfer_tag != TAG_NONE);
    assert_eq!(asked.status_number, 103, "it takes none");
    let answer = NopOut {
        is_immediate: true,
        is_final: true,
        task_tag: TAG_NONE,
        transfer_tag: asked.transfer_tag,
        ..NopOut::default()
    };
    world.now += Duration::from_secs(10);
    world.send(1, answer.write(), &[]);
    assert!(world.take(1).is_empty());
    while world.take(1).is_empty() {
        world.now = world.server.poll_timeout().unwrap();
        world.server.handle_timeout(world.now);
    }
    world.now = world.server.poll_timeout().unwrap();
    world.server.handle_timeout(world.now);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Close { connection: ConnectionId(1) })));
}

#[test]
fn a_logout_ends_the_session_also_with_commands_under_way() {
    let mut world = World::with_session(parameters());
    let handle = world.read(5, 512);
    let number = world.next_number();
    world.send(1, write_command(6, 100_000, number).write(), &pattern(8192));
    world.take(1);
    let logout = LogoutRequest { is_immediate: true, is_final: true, task_tag: 9, ..LogoutRequest::default() };
    world.send(1, logout.write(), &[]);
    let answer = LogoutResponse::read(&world.take_one(1).0);
    assert_eq!((answer.response, answer.task_tag), (0, 9));
    assert!(matches!(
        world.server.poll_event(),
        Some(ServerEvent::SessionClosed { nexus: NexusId(1), tsih: 1, end: SessionEnd::Closed })
    ));
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Close { .. })));
    world.reply(handle, Some(pattern(512).into()));
    assert!(world.take(1).is_empty());
    assert_eq!(world.server.spaces(ConnectionId(1)).map(|space| space.len()), [0, 0]);
    world.server.connection_lost(ConnectionId(1), world.now);
    world.assert_home();
}

#[test]
fn a_second_login_of_the_same_port_ends_the_first_session() {
    let mut world = World::with_session(parameters());
    world.read(5, 512);
    world.admit(2, admitted(parameters()), 2);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { nexus: NexusId(1), .. })));
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Close { connection: ConnectionId(1) })));
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionOpened { nexus: NexusId(2), .. })));
    assert_eq!(LoginResponse::read(&world.take_one(2).0).tsih, 2);
    let mut other = admitted(parameters());
    other.isid = Isid([0x40, 0, 0, 0, 0, 2]);
    world.admit(3, other, 3);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionOpened { nexus: NexusId(3), .. })));
}

#[test]
fn an_initiator_is_asked_to_leave_and_dropped_if_it_stays() {
    let mut world = World::with_session(parameters());
    world.server.shut_down(world.now);
    let message = AsyncMessage::read(&world.take_one(1).0);
    assert_eq!((message.event, message.parameter_3, message.task_tag), (1, 2, TAG_NONE));
    world.now += Duration::from_secs(2);
    world.server.handle_timeout(world.now);
    let message = AsyncMessage::read(&world.take_one(1).0);
    assert_eq!((message.event, message.parameter_2, message.parameter_3), (3, 2, 0), "nothing is retained");
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
    world.admit(2, admitted(parameters()), 2);
    let refused = LoginResponse::read(&world.take_one(2).0);
    assert_eq!((refused.status_class, refused.status_detail, refused.transits), (3, 1, false));
}

#[test]
fn who_uses_a_target_that_has_moved_is_asked_to_leave() {
    let mut world = World::with_session(parameters());
    world.server.move_target(TargetId(1), world.now);
    assert!(world.take(1).is_empty(), "another target");
    world.server.move_target(TargetId(0), world.now);
    let message = AsyncMessage::read(&world.take_one(1).0);
    assert_eq!((message.event, message.parameter_3), (1, 10));
    let handle = world.read(5, 512);
    world.reply(handle, Some(pattern(512).into()));
    assert_eq!(world.take(1).len(), 1, "it goes on until then");
    world.now += Duration::from_secs(10);
    world.server.handle_timeout(world.now);
    assert_eq!(AsyncMessage::read(&world.take_one(1).0).event, 3);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
}

#[test]
fn a_login_for_which_there_is_no_room_is_told_so() {
    let mut login = admitted(parameters());
    login.status_number = 7;
    let packet = login.out_of_resources().pop().unwrap();
    let header = Header::from_bytes(*packet.head.first_chunk().unwrap());
    let answer = LoginResponse::read(&header);
    assert_eq!((answer.status_class, answer.status_detail), (3, 2), "out of resources");
    assert_eq!((answer.status_number, answer.task_tag, answer.transits, answer.tsih), (7, 7, false, 0));
}

#[test]
fn a_target_that_is_taken_away_takes_its_sessions_along() {
    let mut world = World::with_session(parameters());
    world.server.drop_target(TargetId(1), world.now);
    assert!(world.take(1).is_empty() && world.server.poll_event().is_none());
    world.server.drop_target(TargetId(0), world.now);
    assert_eq!(AsyncMessage::read(&world.take_one(1).0).event, 3);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
}

#[test]
fn what_no_initiator_may_send_is_rejected_and_harms_nobody() {
    let mut world = World::with_session(parameters());
    for (code, reason) in [(0x1c, 5), (0x3f, 4), (0x25, 4), (0x03, 4), (0x10, 4)] {
        let mut bytes = [0; 48];
        bytes[0] = code;
        bytes[16] = 1;
        world.send(1, Header::from_bytes(bytes), &[]);
        assert_eq!(rejection(&world.take_one(1)), reason, "{code:02x}");
    }
    let handle = world.read(5, 512);
    world.reply(handle, None);
    world.take_one(1);
}
