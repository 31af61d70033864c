//! Requests and their answers, stage by stage.

use super::*;
use crate::wire::{NopOut, Opcode};

#[test]
fn a_login_may_lead_straight_to_the_operational_stage() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    let answers = ask(&mut server, &directory, &request(1, None), &(names() + "InitialR2T=No\0"));
    assert_eq!((status(&answers), answers[0].0.transits), (0, false));
    assert!(answers[0].1.contains("InitialR2T=No\0") && answers[0].1.contains("MaxRecvDataSegmentLength="));
    assert!(ask(&mut server, &directory, &request(1, Some(3)), "").is_empty(), "the session answers");
    let admitted = admitted(&mut server);
    assert_eq!(admitted.status_number, answers[0].0.status_number.wrapping_add(1));
    assert!(!admitted.session.initial_r2t);
}

#[test]
fn a_login_may_skip_the_operational_stage() {
    let mut server = server_with_seed(1);
    assert!(ask(&mut server, &OneTarget::default(), &request(0, Some(3)), &(names() + "AuthMethod=None\0")).is_empty());
    let admitted = admitted(&mut server);
    assert!(String::from_utf8_lossy(&admitted.text).contains("AuthMethod=None\0TargetAlias=a disk\0"));
    assert_eq!(admitted.session, SessionParameters::default());
    assert_eq!(admitted.connection, ConnectionParameters::default());
}

/// A Data-Out that nobody has asked for takes a receive of an adapter, and there are receives for commands.
#[test]
fn an_initiator_that_an_adapter_carries_waits_until_its_data_is_read() {
    for (carrier, waits) in [(PortalCarrier::Adapter, true), (PortalCarrier::Iwarp, false)] {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 3260));
        let portal = Portal { address, group_tag: 7, carrier };
        let mut server = ServerLogin::new(portal, Ipv4Addr::LOCALHOST.into(), [1; 32], Instant::ZERO);
        let keys = names() + "RDMAExtensions=Yes\0InitialR2T=No\0ImmediateData=Yes\0";
        assert!(ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &keys).is_empty(), "the session answers");
        let admitted = admitted(&mut server);
        assert_eq!(admitted.session.initial_r2t, waits, "{carrier:?}");
        assert!(admitted.session.immediate_data);
        let answer = if waits { "InitialR2T=Yes\0" } else { "InitialR2T=No\0" };
        assert!(String::from_utf8_lossy(&admitted.text).contains(answer), "{carrier:?}");
    }
}

#[test]
fn only_stages_that_follow_are_gone_to() {
    for (current, next) in [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2), (2, 3), (3, 3)] {
        assert_eq!(
            status_of(&OneTarget::default(), &request(current, Some(next)), &names()),
            0x0200,
            "{current} {next}"
        );
    }
    let wants_both = LoginRequest { continues: true, ..request(1, Some(3)) };
    assert_eq!(status_of(&OneTarget::default(), &wants_both, &names()), 0x0200);
}

#[test]
fn a_login_stays_in_its_stage_until_it_transits_and_keeps_its_identity() {
    let first = request(1, None);
    for second in [
        request(0, None),
        LoginRequest { isid: [1; 6], ..first },
        LoginRequest { tsih: 1, ..first },
        LoginRequest { connection: 1, ..first },
        LoginRequest { task_tag: 6, ..first },
    ] {
        let (mut server, directory) = (server_with_seed(1), OneTarget::default());
        assert_eq!(status(&ask(&mut server, &directory, &first, &names())), 0);
        assert_eq!(status(&ask(&mut server, &directory, &second, "")), 0x0200);
        refused(&mut server);
    }
}

#[test]
fn a_login_without_an_initiator_or_a_target_misses_a_parameter() {
    for text in ["", "InitiatorName=iqn.2026-11.org.example:host\0", "TargetName=iqn.2026-11.org.sanwire:disk0\0"] {
        assert_eq!(status_of(&OneTarget::default(), &request(1, Some(3)), text), 0x0207);
    }
}

#[test]
fn a_refusal_says_why() {
    let last = request(1, Some(3));
    for (refusal, status) in
        [(LoginRefusal::NotFound, 0x0203), (LoginRefusal::Forbidden, 0x0202), (LoginRefusal::Unavailable, 0x0301)]
    {
        let directory = OneTarget { refusal: Some(refusal), ..OneTarget::default() };
        assert_eq!(status_of(&directory, &last, &names()), status);
        assert_eq!(status_of(&directory, &last, &(names() + "SessionType=Discovery\0")), status);
    }
    let directory = OneTarget::default();
    assert_eq!(status_of(&directory, &last, &names().replace("disk0", "disk1")), 0x0203);
    assert_eq!(status_of(&directory, &last, &names().replace(TARGET, "no name")), 0x0203);
    assert_eq!(status_of(&directory, &last, &(names() + "SessionType=Other\0")), 0x0209);
    assert_eq!(status_of(&directory, &last, &names().replace(INITIATOR, "no name")), 0x0200);
    assert_eq!(status_of(&directory, &LoginRequest { version_min: 1, ..last }, &names()), 0x0205);
}

#[test]
fn a_text_may_be_cut_anywhere_and_is_answered_when_it_is_whole() {
    let text = names() + "AuthMethod=None\0";
    for at in 0..=text.len() {
        let (mut server, directory) = (server_with_seed(1), OneTarget::default());
        let (first, rest) = text.split_at(at);
        let part = LoginRequest { continues: true, ..request(0, None) };
        for segment in [first, ""] {
            let answers = ask(&mut server, &directory, &part, segment);
            let (answer, said) = &answers[0];
            assert_eq!((status(&answers), answer.transits, answer.continues, said.as_str()), (0, false, false, ""));
        }
        let answers = ask(&mut server, &directory, &request(0, Some(1)), rest);
        assert!(answers[0].0.transits && answers[0].1.contains("AuthMethod=None\0"), "{at}: {answers:?}");
    }
}

#[test]
fn a_long_answer_is_cut_into_segments() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    let unknown: String = (0..120).map(|index| format!("X-{index:060}=1\0")).collect();
    let (first, rest) = unknown.split_at(4000);
    let part = LoginRequest { continues: true, ..request(1, None) };
    ask(&mut server, &directory, &part, &(names() + first));
    let mut answers = ask(&mut server, &directory, &request(1, Some(3)), rest);
    assert!(answers[0].0.continues && !answers[0].0.transits && answers[0].1.len() == 8192);
    let mut text = answers.remove(0).1;
    assert!(ask(&mut server, &directory, &request(1, Some(3)), "").is_empty());
    text.push_str(&String::from_utf8_lossy(&admitted(&mut server).text));
    assert_eq!(text.matches("=NotUnderstood\0").count(), 120);
}

#[test]
fn keys_come_once_except_those_that_may_come_again() {
    let (directory, last) = (OneTarget::default(), request(1, Some(3)));
    for key in ["MaxBurstLength=8192\0", "InitialR2T=No\0", "HeaderDigest=None\0", "OFMarker=No\0"] {
        assert_eq!(status_of(&directory, &last, &(names() + key + key)), 0x0200, "{key}");
    }
    assert_eq!(status_of(&directory, &last, &(names() + "InitiatorName=iqn.2026-11.org.example:other\0")), 0x0200);
    let mut server = server_with_seed(1);
    let again = "MaxRecvDataSegmentLength=512\0MaxRecvDataSegmentLength=4096\0";
    assert!(ask(&mut server, &directory, &last, &(names() + again + &names())).is_empty());
    assert_eq!(admitted(&mut server).connection.send_data_max_bytes, 4096);
}

#[test]
fn a_target_that_insists_on_digests_gets_them_or_no_login() {
    let mut directory = OneTarget::default();
    directory.entry.requires_digests = true;
    assert_eq!(status_of(&directory, &request(1, Some(3)), &names()), 0x0200);
    assert_eq!(status_of(&directory, &request(1, Some(3)), &(names() + "HeaderDigest=None\0")), 0x0200);
    let meeting = log_in(&config(), &directory);
    let digests = meeting.client.map(|client| client.connection.digests);
    assert_eq!(digests, Ok(crate::digest::Digests { header: true, data: true }));
}

#[test]
fn a_client_is_sent_elsewhere() {
    for is_permanent in [false, true] {
        let mut directory = OneTarget::default();
        directory.entry.redirect = Some(("192.0.2.1:3260".to_owned(), is_permanent));
        let address = "192.0.2.1:3260".to_owned();
        let meeting = log_in(&config(), &directory);
        assert_eq!(meeting.client, Err(ClientRefusal::Redirected { address, is_permanent }));
        let Some(LoginOutcome::Redirected(note)) = meeting.server else { panic!("{:?}", meeting.server) };
        assert_eq!(note, format!("{INITIATOR} was sent to 192.0.2.1:3260"));
    }
}

#[test]
fn nothing_but_login_requests_belongs_to_a_login() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    let nop = bytes([(NopOut::default().write(), vec![])]);
    server.handle_input(&nop, &directory, Instant::ZERO);
    assert!(sent(&mut server).is_empty(), "no answer before a login has begun");
    refused(&mut server);

    let mut server = server_with_seed(1);
    ask(&mut server, &directory, &request(1, None), &names());
    server.handle_input(&nop, &directory, Instant::ZERO);
    let answers = pdus(&sent(&mut server));
    assert_eq!(answers[0].0.opcode(), Some(Opcode::LoginResponse));
    let answer = LoginResponse::read(&answers[0].0);
    assert_eq!((answer.status_class, answer.status_detail), (2, 0x0b));
    refused(&mut server);
}

#[test]
fn what_follows_the_last_request_is_handed_on() {
    let last = (request(1, Some(3)).write(), names().into_bytes());
    let stream = bytes([last, (NopOut::default().write(), b"ping".to_vec())]);
    for piece in [1, 47, 48, 100, usize::MAX] {
        let mut server = server_with_seed(1);
        for piece in stream.chunks(piece) {
            server.handle_input(piece, &OneTarget::default(), Instant::ZERO);
        }
        let Admitted { datamover: mut mover, leftover, .. } = *admitted(&mut server);
        mover.widen(leftover.len());
        assert_eq!(mover.take(&leftover), leftover.len());
        assert!(matches!(mover.poll(), Step::Header(header) if header.opcode() == Some(Opcode::NopOut)), "{piece}");
        mover.place(Destination::Frame(vec![0; 4].into(), 0));
        let Step::Pdu(pdu) = mover.poll() else { panic!("{piece}") };
        assert_eq!(pdu.data.as_deref(), Some(&b"ping"[..]), "{piece}");
        assert!(matches!(mover.poll(), Step::Starving), "{piece}");
    }
}

/// Goes on until the login is given up, and gives that time and the reason.
fn given_up(server: &mut ServerLogin) -> (Duration, String) {
    let due = server.poll_timeout().expect("a deadline");
    server.handle_timeout(Instant::from_nanos(due.as_nanos() - 1));
    assert!(server.poll_outcome().is_none());
    server.handle_timeout(due);
    let reason = refused(server);
    assert_eq!(server.poll_timeout(), None);
    (due.saturating_since(Instant::ZERO), reason)
}

#[test]
fn a_login_that_takes_too_long_is_refused() {
    let mut server = server_with_seed(1);
    ask(&mut server, &OneTarget::default(), &request(0, None), &names());
    assert!(server.has_spoken());
    assert_eq!(given_up(&mut server), (Duration::from_secs(15), "the login took more than 15 seconds".to_owned()));
}

#[test]
fn a_connection_without_a_login_request_is_given_up_early() {
    let expected = (Duration::from_secs(5), "no login request came within 5 seconds".to_owned());
    let mut server = server_with_seed(1);
    assert_eq!(given_up(&mut server), expected);
    let mut slow = server_with_seed(1);
    let request = bytes([(request(0, None).write(), names().into_bytes())]);
    slow.handle_input(&request[..request.len() - 1], &OneTarget::default(), Instant::ZERO);
    assert!(!slow.has_spoken());
    assert_eq!(given_up(&mut slow), expected, "a part of one is none");
}

#[test]
fn a_login_of_endless_requests_is_refused() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    for _ in 0..64 {
        assert_eq!(status(&ask(&mut server, &directory, &request(1, None), &names())), 0);
    }
    assert_eq!(status(&ask(&mut server, &directory, &request(1, None), "")), 0x0200);
    assert!(refused(&mut server).contains("64 requests"));
}

#[test]
fn a_discovery_session_has_short_segments_one_connection_and_no_recovery() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    let text = names() + "SessionType=Discovery\0MaxConnections=8\0ErrorRecoveryLevel=2\0";
    assert!(ask(&mut server, &directory, &request(1, Some(3)), &text).is_empty());
    let admitted = admitted(&mut server);
    assert_eq!(admitted.connection.receive_data_max_bytes, 8192);
    assert_eq!((admitted.session.max_connections, admitted.session.error_recovery_level), (1, 0));
    let said = String::from_utf8(admitted.text).unwrap();
    assert_eq!(said.matches("MaxRecvDataSegmentLength=8192\0").count(), 1, "{said}");
}
