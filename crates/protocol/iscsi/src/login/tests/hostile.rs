//! Ends that break the rules on purpose: a login ends, in bounded memory, and nothing panics.

use super::*;

/// What a server that has seen nothing else says to these bytes.
fn status_of_text(text: &[u8]) -> u16 {
    let mut server = server_with_seed(1);
    let stream = bytes([(request(1, Some(3)).write(), text.to_vec())]);
    server.handle_input(&stream, &OneTarget::default(), Instant::ZERO);
    let answers = pdus(&sent(&mut server));
    let answer = LoginResponse::read(&answers.first().expect("an answer").0);
    refused(&mut server);
    u16::from_be_bytes([answer.status_class, answer.status_detail])
}

#[test]
fn a_data_segment_larger_than_the_login_buffer_is_refused_before_its_data_comes() {
    let lengths = (8193..0x100_0000).step_by(4099).chain([8193, 8196, 65_536, 0xff_fffe, 0xff_ffff]);
    for length in lengths {
        let mut header = *request(0, Some(1)).write().as_bytes();
        header[5..8].copy_from_slice(&u32::to_be_bytes(length)[1..]);
        let mut server = server_with_seed(1);
        server.handle_input(&header, &OneTarget::default(), Instant::ZERO);
        assert!(refused(&mut server).contains("more than a login may"), "{length}");
        assert_eq!(pdus(&sent(&mut server)).len(), 1);
        server.handle_input(&[0; 100_000], &OneTarget::default(), Instant::ZERO);
        assert!(server.poll_outcome().is_none(), "nothing more is looked at");
    }
}

#[test]
fn every_smaller_data_segment_is_taken_whole() {
    for length in (0..=8192).step_by(61).chain([8191, 8192]) {
        let mut server = server_with_seed(1);
        let stream = bytes([(request(0, None).write(), vec![0; length])]);
        server.handle_input(&stream, &OneTarget::default(), Instant::ZERO);
        assert!(refused(&mut server).contains("did not say"), "{length} zero bytes say nothing");
    }
}

#[test]
fn texts_that_are_none_are_refused() {
    let names = names().into_bytes();
    let with = |text: &[u8]| [&names[..], text].concat();
    let many: String = (0..600).map(|index| format!("X-{index}=1\0")).collect();
    for text in [
        with(b"key without a value\0"),
        with(b"=value\0"),
        with(b"Key=\xff\xfe\0"),
        with(format!("{}=1\0", "K".repeat(64)).as_bytes()),
        with(many.as_bytes()),
    ] {
        assert_eq!(status_of_text(&text), 0x0200);
    }
}

#[test]
fn ten_thousand_keys_are_refused_in_bounded_memory() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    let text: String = (0..10_000).map(|index| format!("X-{index}=1\0")).collect();
    let part = LoginRequest { continues: true, ..request(1, None) };
    for segment in text.as_bytes().chunks(8192) {
        ask(&mut server, &directory, &part, std::str::from_utf8(segment).unwrap());
    }
    assert!(refused(&mut server).contains("too many keys"));
}

#[test]
fn a_missing_terminator_and_a_text_of_the_exact_size_do_no_harm() {
    let mut text = names();
    text.truncate(text.len() - 1);
    let mut server = server_with_seed(1);
    assert!(ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &text).is_empty());
    assert!(matches!(admitted(&mut server).kind, SessionKind::Normal { .. }));

    let mut full = names();
    full.push_str(&format!("X-a={}\0", "x".repeat(8192 - full.len() - 5)));
    assert_eq!(full.len(), 8192);
    let mut server = server_with_seed(1);
    assert!(ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &full).is_empty());
    admitted(&mut server);
}

#[test]
fn text_that_never_ends_is_refused() {
    let (mut server, directory) = (server_with_seed(1), OneTarget::default());
    let part = LoginRequest { continues: true, ..request(1, None) };
    let requests = (0..100).take_while(|_| !ask(&mut server, &directory, &part, "").is_empty()).count();
    assert_eq!(requests, 65, "64 and a refusal");
    refused(&mut server);
}

#[test]
fn a_reason_for_the_log_has_no_control_characters_and_an_end() {
    let mut server = server_with_seed(1);
    let text = format!("InitiatorName=a\x1b[31m\n{}\0", "x".repeat(8000));
    ask(&mut server, &OneTarget::default(), &request(1, Some(3)), &text);
    let reason = refused(&mut server);
    assert!(reason.chars().count() <= 600 && !reason.chars().any(char::is_control), "{reason}");
}

#[test]
fn a_target_that_breaks_the_rules_does_not_get_our_session() {
    let good = LoginResponse { transits: true, next_stage: 1, isid: config().isid.0, ..LoginResponse::default() };
    for (response, text) in [
        (LoginResponse { task_tag: 1, ..good }, ""),
        (LoginResponse { version_active: 1, ..good }, ""),
        (LoginResponse { current_stage: 1, next_stage: 3, ..good }, ""),
        (LoginResponse { next_stage: 3, ..good }, ""),
        (LoginResponse { continues: true, ..good }, ""),
        (good, "no text\0"),
        (good, "AuthMethod=None\0AuthMethod=None\0"),
        (good, "CHAP_A=5\0"),
    ] {
        let mut client = client(&config(), false);
        client.poll_transmit().expect("a request");
        let outcome = client.handle(&response, text.as_bytes());
        let is_violation = matches!(outcome, Some(Err(ClientRefusal::Unavailable(Failure::Protocol { .. }))));
        assert!(is_violation, "{response:?} {text:?} {outcome:?}");
    }
}

#[test]
fn a_target_that_never_comes_to_an_end_is_left() {
    let mut client = client(&config(), false);
    let response = LoginResponse { continues: true, isid: config().isid.0, ..LoginResponse::default() };
    let responses = (0..1000).take_while(|_| client.handle(&response, b"").is_none()).count();
    assert_eq!(responses, 64);
}
