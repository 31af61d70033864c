//! Text exchanges.

use super::*;
use crate::wire::{TextRequest, TextResponse};

fn discovery() -> World {
    let mut world = World::new(1 << 20);
    let mut login = admitted(parameters());
    login.kind = SessionKind::Discovery;
    world.admit(1, login, 1);
    world.take_one(1);
    assert!(world.server.poll_event().is_none(), "no target, no event");
    world
}

fn text(world: &mut World, transfer_tag: u32, continues: bool, text: &[u8]) -> (TextResponse, Vec<u8>) {
    let command_number = world.next_number();
    let request = TextRequest {
        is_final: !continues,
        continues,
        task_tag: 4,
        transfer_tag,
        command_number,
        ..TextRequest::default()
    };
    world.send(1, request.write(), text);
    let (header, data) = world.take_one(1);
    assert_eq!(header.opcode(), Some(Opcode::TextResponse), "{header:?}");
    (TextResponse::read(&header), data)
}

#[test]
fn thousands_of_targets_are_told_piece_by_piece() {
    let mut world = discovery();
    let (mut answer, mut all) = text(&mut world, TAG_NONE, false, b"SendTargets=All\0");
    while !answer.is_final {
        assert!(answer.continues && answer.transfer_tag != TAG_NONE);
        let (next, more) = text(&mut world, answer.transfer_tag, false, b"");
        answer = next;
        all.extend(more);
    }
    assert_eq!(answer.transfer_tag, TAG_NONE);
    let told = String::from_utf8(all).unwrap();
    assert_eq!(told.matches("TargetName=").count(), TARGETS);
    assert!(told.ends_with("TargetName=iqn.2026-11.org.sanwire:disk2999\0TargetAddress=192.0.2.1:3260,1\0"));
    assert_eq!(answer.max_command_number - answer.expected_command_number, 31, "each number came back");
}

#[test]
fn one_target_is_told_by_its_name() {
    let mut world = discovery();
    let (_, told) = text(&mut world, TAG_NONE, false, b"SendTargets=iqn.2026-11.org.sanwire:disk7\0");
    assert_eq!(told, b"TargetName=iqn.2026-11.org.sanwire:disk7\0TargetAddress=192.0.2.1:3260,1\0");
    assert_eq!(text(&mut world, TAG_NONE, false, b"SendTargets=iqn.2026-11.org:none\0").1, b"");
}

/// Who does not ask, as nobody else does, is told only of portals that are spoken to as the one at which it asks.
#[test]
fn who_asks_is_told_of_portals_that_are_spoken_to_in_another_way() {
    let mut world = discovery();
    let asked = |key: &str| format!("SendTargets=iqn.2026-11.org.sanwire:disk7\0{key}\0");
    let own = "TargetName=iqn.2026-11.org.sanwire:disk7\0TargetAddress=192.0.2.1:3260,1\0";
    let others = "X-org.sanwire.OtherPortal=iser:192.0.2.1:3261,1\0";
    for (key, more) in [
        ("X-org.sanwire.OtherPortals=Yes", format!("{others}X-org.sanwire.OtherPortals=Yes\0")),
        ("X-org.sanwire.OtherPortals=No", "X-org.sanwire.OtherPortals=Reject\0".to_owned()),
        ("X-org.sanwire.OtherPortal=Yes", "X-org.sanwire.OtherPortal=NotUnderstood\0".to_owned()),
    ] {
        let (_, told) = text(&mut world, TAG_NONE, false, asked(key).as_bytes());
        assert_eq!(String::from_utf8_lossy(&told), format!("{own}{more}"), "{key}");
    }
}

#[test]
fn a_normal_session_is_told_of_its_own_target_only() {
    let mut world = World::with_session(parameters());
    let own = b"TargetName=iqn.2026-11.org.sanwire:disk0\0TargetAddress=192.0.2.1:3260,1\0";
    assert_eq!(text(&mut world, TAG_NONE, false, b"SendTargets=\0").1, own);
    assert_eq!(text(&mut world, TAG_NONE, false, b"SendTargets=All\0").1, b"SendTargets=Reject\0");
    for other in ["iqn.2026-11.org.sanwire:disk7", "Alle", "A"] {
        let asked = format!("SendTargets={other}\0");
        assert_eq!(text(&mut world, TAG_NONE, false, asked.as_bytes()).1, b"SendTargets=Reject\0", "{other}");
    }
    for key in ["SendTargetsPlease", "sENDtARGETS"] {
        let (asked, answer) = (format!("{key}=All\0"), format!("{key}=NotUnderstood\0"));
        assert_eq!(text(&mut world, TAG_NONE, false, asked.as_bytes()).1, answer.as_bytes());
    }
}

#[test]
fn text_may_come_in_pieces_also_without_any_data() {
    let mut world = discovery();
    let (answer, data) = text(&mut world, TAG_NONE, true, b"");
    assert!(!answer.is_final && !answer.continues && data.is_empty());
    let (answer, _) = text(&mut world, answer.transfer_tag, true, b"SendTargets=iqn.2026-11.");
    let (answer, told) = text(&mut world, answer.transfer_tag, false, b"org.sanwire:disk7\0");
    assert!(answer.is_final && told.starts_with(b"TargetName=iqn.2026-11.org.sanwire:disk7\0"));
}

#[test]
fn a_tag_that_was_not_given_and_text_without_end_are_rejected() {
    let mut world = discovery();
    let request =
        TextRequest { is_immediate: true, is_final: true, task_tag: 4, transfer_tag: 99, ..TextRequest::default() };
    world.send(1, request.write(), b"");
    assert_eq!(rejection(&world.take_one(1)), 9);
    let mut transfer_tag = TAG_NONE;
    for round in 0.. {
        assert!(round < 3, "it was bounded");
        let request =
            TextRequest { is_immediate: true, continues: true, task_tag: 4, transfer_tag, ..TextRequest::default() };
        world.send(1, request.write(), &[b'x'; 40000]);
        let sent = world.take_one(1);
        if sent.0.opcode() == Some(Opcode::Reject) {
            break;
        }
        transfer_tag = TextResponse::read(&sent.0).transfer_tag;
    }
}

#[test]
fn parameters_of_the_login_stay_and_the_segment_length_may_change() {
    let mut world = World::with_session(parameters());
    let (_, told) = text(&mut world, TAG_NONE, false, b"MaxBurstLength=512\0X-test=1\0InitiatorAlias=me\0");
    assert_eq!(told, b"MaxBurstLength=Reject\0X-test=NotUnderstood\0");
    let (_, told) = text(&mut world, TAG_NONE, false, b"MaxRecvDataSegmentLength=512\0");
    assert_eq!(told, b"");
    let handle = world.read(9, 2048);
    world.reply(handle, Some(pattern(2048).into()));
    assert_eq!(world.take(1).iter().map(|(_, data)| data.len()).collect::<Vec<_>>(), [512; 4]);
    assert_eq!(text(&mut world, TAG_NONE, false, b"MaxRecvDataSegmentLength=1\0").1.len(), 32);
}

#[test]
fn a_discovery_session_executes_no_commands() {
    let mut world = discovery();
    world.send(1, read_command(5, 512, 1).write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 4);
    assert!(world.server.poll_event().is_none());
}

#[test]
fn a_discovery_session_ends_with_its_connection_and_takes_no_other() {
    let mut world = discovery();
    for cid in [0, 1] {
        let mut login = admitted(parameters());
        (login.kind, login.request.tsih, login.request.connection) = (SessionKind::Discovery, 1, cid);
        world.admit(2 + u64::from(cid), login, 99);
        let refused = LoginResponse::read(&world.take_one(2 + u64::from(cid)).0);
        assert_eq!((refused.status_class, refused.status_detail), (2, 6), "{cid}");
    }
    assert_eq!(text(&mut world, TAG_NONE, false, b"X=1\0").1, b"X=NotUnderstood\0");
}
