//! Who somebody is.

use super::*;
use crate::chap::{Challenge, ChapAlgorithm};

fn with_users(mutual: bool) -> OneTarget {
    let mut directory = OneTarget::default();
    let mutual = mutual.then(|| credential("target", "the secret of the target"));
    let users = vec![credential("user", "the secret of a user")];
    directory.entry.authentication = Authentication { users, mutual, algorithms: vec![] };
    directory
}

fn as_user(secret: &str) -> ClientConfig {
    ClientConfig { credential: Some(credential("user", secret)), ..config() }
}

fn reason(meeting: Meeting) -> String {
    match meeting.server {
        Some(LoginOutcome::Refused(reason)) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_user_is_let_in_by_its_secret() {
    let meeting = log_in(&as_user("the secret of a user"), &with_users(false));
    assert!(meeting.client.is_ok(), "{:?}", meeting.client);
    let Some(LoginOutcome::Admitted(server)) = meeting.server else { panic!("{:?}", meeting.server) };
    assert_eq!(server.user.as_deref(), Some("user"));
    assert!(meeting.answers.contains("CHAP_A=8\0"), "our first: {}", meeting.answers);
}

#[test]
fn both_ends_show_who_they_are() {
    let target_credential = Some(credential("target", "the secret of the target"));
    let config = ClientConfig { target_credential, ..as_user("the secret of a user") };
    assert!(log_in(&config, &with_users(true)).client.is_ok());
    let false_target = Some(credential("target", "another secret for it"));
    let meeting = log_in(&ClientConfig { target_credential: false_target, ..config.clone() }, &with_users(true));
    assert!(matches!(meeting.client, Err(ClientRefusal::Refused(Failure::NotAuthentic { .. }))));
    let meeting = log_in(&config, &with_users(false));
    assert!(reason(meeting).contains("has no name and secret"));
}

/// What a target answers to this CHAP_A; empty when it refuses.
fn algorithm(list: &str, allowed: &[ChapAlgorithm]) -> String {
    let (mut server, mut directory) = (server_with_seed(1), with_users(false));
    directory.entry.authentication.algorithms = allowed.to_vec();
    ask(&mut server, &directory, &request(0, None), &(names() + "AuthMethod=CHAP\0"));
    let answer = ask(&mut server, &directory, &request(0, None), &format!("CHAP_A={list}\0")).remove(0);
    if answer.0.status_class == 0 { value(&answer.1, "CHAP_A").to_owned() } else { String::new() }
}

/// RFC 7143 6.2.1: "the first value that it supports (and is allowed to use for the specific originator) selected from the
/// originator list".
#[test]
fn the_first_algorithm_of_the_initiators_list_that_is_allowed_is_taken() {
    use ChapAlgorithm::{Sha3, Sha256};
    assert_eq!(algorithm("5,6,7,8", &[]), "5");
    assert_eq!(algorithm("7,5", &[]), "7");
    assert_eq!(algorithm("5,6,7,8", &[Sha3, Sha256]), "7");
    assert_eq!(algorithm("5,6", &[Sha3, Sha256]), "", "none of them");
    for none in ["", "56"] {
        assert_eq!(algorithm(none, &[]), "", "{none}: no algorithm has that number");
    }
}

#[test]
fn our_client_does_without_md5_where_it_is_not_allowed() {
    let mut directory = with_users(false);
    directory.entry.authentication.algorithms = vec![ChapAlgorithm::Sha256];
    let meeting = log_in(&as_user("the secret of a user"), &directory);
    assert!(meeting.client.is_ok() && meeting.answers.contains("CHAP_A=7\0"), "{}", meeting.answers);
    let meeting =
        meet(&mut client(&as_user("the secret of a user"), true), &mut server_with_seed(1), &directory, usize::MAX);
    assert!(reason(meeting).contains("no CHAP algorithm that is allowed here"));
}

#[test]
fn a_wrong_secret_is_refused_after_md5_was_tried_too() {
    let config = as_user("not the secret of a user");
    let meeting = log_in(&config, &with_users(false));
    assert_eq!(meeting.client, Err(ClientRefusal::Md5Only));
    let meeting = meet(&mut client(&config, true), &mut server_with_seed(1), &with_users(false), 7);
    assert!(meeting.answers.contains("CHAP_A=5\0"));
    assert!(matches!(meeting.client, Err(ClientRefusal::Refused(Failure::NotAuthentic { .. }))));
    assert!(reason(meeting).contains("user"));
}

#[test]
fn nobody_gets_past_the_security_stage_unseen() {
    for stage in [0, 1] {
        let mut server = server_with_seed(1);
        let text = if stage == 0 { "AuthMethod=None\0" } else { "" };
        let answers = ask(&mut server, &with_users(false), &request(stage, Some(3)), &(names() + text));
        assert_eq!(status(&answers), 0x0201);
        assert!(refused(&mut server).contains("show who it is"));
    }
}

/// Leads a server to its challenge by hand; gives its answer.
fn challenged(server: &mut ServerLogin, directory: &OneTarget) -> String {
    let answers = ask(server, directory, &request(0, None), &(names() + "AuthMethod=CHAP,None\0"));
    assert!(answers[0].1.contains("AuthMethod=CHAP\0"), "{answers:?}");
    ask(server, directory, &request(0, None), "CHAP_A=5\0").remove(0).1
}

fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let pairs = crate::text::parse(text.as_bytes()).unwrap();
    pairs.iter().find(|pair| pair.0 == key).expect("the key").1
}

/// The right CHAP_R of the user.
fn response(text: &str) -> String {
    let challenge =
        Challenge::read(ChapAlgorithm::Md5, value(text, "CHAP_I"), value(text, "CHAP_C")).expect("a challenge");
    challenge.response(&credential("user", "the secret of a user").secret)
}

#[test]
fn no_two_logins_have_the_same_challenge() {
    let challenges: std::collections::BTreeSet<String> = (0..100)
        .map(|seed| challenged(&mut server_with_seed(seed), &with_users(false)))
        .map(|text| value(&text, "CHAP_C").to_owned())
        .collect();
    assert_eq!(challenges.len(), 100);
    assert!(challenges.iter().all(|challenge| challenge.len() == 2 + 32), "of full length: {challenges:?}");
}

#[test]
fn responses_come_in_any_notation_and_only_once() {
    for notation in ["hex", "HEX", "base64"] {
        let (mut server, directory) = (server_with_seed(1), with_users(false));
        let right = response(&challenged(&mut server, &directory));
        let shown = match notation {
            "hex" => right,
            "HEX" => right.to_uppercase(),
            _ => {
                use base64::Engine;
                let bytes = crate::chap::decode(&right, 16).unwrap();
                format!("0b{}", base64::engine::general_purpose::STANDARD.encode(bytes))
            }
        };
        let text = format!("CHAP_N=user\0CHAP_R={shown}\0");
        let answers = ask(&mut server, &directory, &request(0, Some(1)), &text);
        assert_eq!((status(&answers), answers[0].0.transits), (0, true), "{notation}");
        assert_eq!(status(&ask(&mut server, &directory, &request(1, None), &text)), 0x0200, "out of turn");
    }
}

#[test]
fn one_wrong_response_ends_the_login() {
    let oversized = format!("0b{}", "A".repeat(8000));
    for wrong in ["0x00112233445566778899aabbccddeeff", "0x", "", "12", "0b!", oversized.as_str()] {
        let (mut server, directory) = (server_with_seed(1), with_users(false));
        let text = challenged(&mut server, &directory);
        let answers = ask(&mut server, &directory, &request(0, Some(1)), &format!("CHAP_N=user\0CHAP_R={wrong}\0"));
        assert_eq!(status(&answers), 0x0201);
        refused(&mut server);
        let again = format!("CHAP_N=user\0CHAP_R={}\0", response(&text));
        assert!(ask(&mut server, &directory, &request(0, Some(1)), &again).is_empty(), "it is over");
    }
}

#[test]
fn names_are_text_even_if_they_look_like_numbers() {
    for name in ["0x75736572", "0bdXNlcg==", "user with spaces", "Ünser"] {
        let mut directory = with_users(false);
        directory.entry.authentication.users = vec![credential(name, "the secret of a user")];
        let config = ClientConfig { credential: Some(credential(name, "the secret of a user")), ..config() };
        let meeting = log_in(&config, &directory);
        assert!(matches!(meeting.server, Some(LoginOutcome::Admitted(a)) if a.user.as_deref() == Some(name)));
    }
    assert_eq!(log_in(&as_user("the secret of a user"), &with_users(false)).client.map(|_| ()), Ok(()));
}

#[test]
fn a_reflected_challenge_is_refused() {
    let (mut server, directory) = (server_with_seed(1), with_users(true));
    let text = challenged(&mut server, &directory);
    let back = format!("CHAP_I={}\0CHAP_C={}\0", value(&text, "CHAP_I"), value(&text, "CHAP_C"));
    let answer = format!("CHAP_N=user\0CHAP_R={}\0{back}", response(&text));
    let answers = ask(&mut server, &directory, &request(0, Some(1)), &answer);
    assert_eq!(status(&answers), 0x0201);
    assert!(!answers[0].1.contains("CHAP_R"));
    assert!(refused(&mut server).contains("our own challenge back"));
}

#[test]
fn one_secret_for_both_directions_is_used_by_neither_end() {
    let mut directory = with_users(true);
    directory.entry.authentication.mutual = Some(credential("target", "the secret of a user"));
    let (mut server, challenge) = (server_with_seed(1), "CHAP_I=1\0CHAP_C=0x010203\0");
    let answer = format!("CHAP_N=user\0CHAP_R={}\0{challenge}", response(&challenged(&mut server, &directory)));
    assert_eq!(status(&ask(&mut server, &directory, &request(0, Some(1)), &answer)), 0x0300);

    let target_credential = Some(credential("target", "the secret of a user"));
    let config = ClientConfig { target_credential, ..as_user("the secret of a user") };
    let mut client = client(&config, true);
    let good = LoginResponse { isid: config.isid.0, ..LoginResponse::default() };
    assert!(client.handle(&good, b"AuthMethod=CHAP\0").is_none());
    let outcome = client.handle(&good, b"CHAP_A=5\0CHAP_I=1\0CHAP_C=0x010203\0");
    assert!(matches!(outcome, Some(Err(ClientRefusal::Refused(Failure::NotAuthentic { .. })))));
}

#[test]
fn a_challenge_of_an_initiator_is_whole_and_has_an_identifier_of_one_byte() {
    for (challenge, expected) in [
        ("CHAP_I=256\0CHAP_C=0x010203\0", 0x0201),
        ("CHAP_I=1\0CHAP_C=0x\0", 0x0201),
        ("CHAP_I=1\0CHAP_C=text\0", 0x0201),
        ("CHAP_I=1\0", 0x0207),
        ("CHAP_C=0x010203\0", 0x0207),
        ("CHAP_I=255\0CHAP_C=0x010203\0", 0),
        ("CHAP_I=0x0f\0CHAP_C=0bAQID\0", 0),
    ] {
        let (mut server, directory) = (server_with_seed(1), with_users(true));
        let text = challenged(&mut server, &directory);
        let answer = format!("CHAP_N=user\0CHAP_R={}\0{challenge}", response(&text));
        let answers = ask(&mut server, &directory, &request(0, Some(1)), &answer);
        assert_eq!(status(&answers), expected, "{challenge}");
        assert_eq!(answers[0].1.contains("CHAP_R="), expected == 0);
    }
}

#[test]
fn a_client_refuses_challenges_that_are_none() {
    let long = format!("CHAP_A=5\0CHAP_I=1\0CHAP_C=0x{}\0", "00".repeat(1025));
    for text in [
        "CHAP_A=5\0CHAP_I=256\0CHAP_C=0x01\0",
        "CHAP_A=5\0CHAP_I=1\0CHAP_C=0x\0",
        "CHAP_A=5\0CHAP_I=1\0",
        "CHAP_A=4\0CHAP_I=1\0CHAP_C=0x01\0",
        "CHAP_A=7\0CHAP_I=1\0CHAP_C=0x01\0",
        long.as_str(),
    ] {
        let config = as_user("the secret of a user");
        let mut client = client(&config, true);
        let good = LoginResponse { isid: config.isid.0, ..LoginResponse::default() };
        assert!(client.handle(&good, b"AuthMethod=CHAP\0").is_none());
        let outcome = client.handle(&good, text.as_bytes());
        assert!(matches!(outcome, Some(Err(ClientRefusal::Unavailable(_)))), "{text} {outcome:?}");
    }
}

#[test]
fn a_client_tries_md5_alone_with_targets_that_refuse_a_list() {
    let config = as_user("the secret of a user");
    let good = LoginResponse { isid: config.isid.0, ..LoginResponse::default() };
    for (status_class, status_detail, text) in [(0, 0, "CHAP_A=Reject\0"), (2, 0, ""), (2, 1, "")] {
        let mut client = client(&config, false);
        client.poll_transmit().expect("a request");
        assert!(client.handle(&good, b"AuthMethod=CHAP\0").is_none());
        let (_, list) = client.poll_transmit().expect("a request");
        assert_eq!(list, b"CHAP_A=8,7,6,5\0");
        let response = LoginResponse { status_class, status_detail, ..good };
        assert_eq!(client.handle(&response, text.as_bytes()), Some(Err(ClientRefusal::Md5Only)));
    }
}

#[test]
fn a_client_tries_md5_alone_with_targets_that_mean_another_algorithm_by_a_number() {
    let config = as_user("the secret of a user");
    let good = LoginResponse { isid: config.isid.0, ..LoginResponse::default() };
    // To tgt, 7 is SHA1; it then finds a response of SHA-256 too long.
    for status_detail in [0, 1] {
        let mut client = client(&config, false);
        assert!(client.handle(&good, b"AuthMethod=CHAP\0").is_none());
        let challenge = b"CHAP_A=7\0CHAP_I=1\0CHAP_C=0x000102030405060708090a0b0c0d0e0f10111213\0";
        assert!(client.handle(&good, challenge).is_none());
        let response = LoginResponse { status_class: 2, status_detail, ..good };
        assert_eq!(client.handle(&response, b""), Some(Err(ClientRefusal::Md5Only)));
    }
}

#[test]
fn who_gives_no_user_to_a_target_that_asks_for_one_is_told_so() {
    let config = ClientConfig { credential: None, ..as_user("none is asked for") };
    let response = LoginResponse { isid: config.isid.0, status_class: 2, status_detail: 1, ..LoginResponse::default() };
    let outcome = client(&config, false).handle(&response, b"");
    let Some(Err(ClientRefusal::Refused(Failure::NotAuthentic { reason }))) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("give a user and a secret"), "{reason}");
}

#[test]
fn a_user_who_may_not_use_the_target_is_refused() {
    let directory = OneTarget { forbids_user: true, ..with_users(false) };
    assert!(reason(log_in(&as_user("the secret of a user"), &directory)).contains("may not use it"));
}

#[test]
fn an_open_target_takes_who_insists_on_chap_as_nobody_in_particular() {
    let mut server = server_with_seed(1);
    let directory = OneTarget::default();
    ask(&mut server, &directory, &request(0, None), &(names() + "AuthMethod=CHAP\0"));
    ask(&mut server, &directory, &request(0, None), "CHAP_A=7,5\0");
    assert!(ask(&mut server, &directory, &request(0, Some(3)), "CHAP_N=anybody\0CHAP_R=0x00\0").is_empty());
    assert_eq!(admitted(&mut server).user, None);
}

#[test]
fn discovery_is_guarded_too() {
    let discovery = with_users(false).entry.authentication;
    let directory = OneTarget { discovery, ..OneTarget::default() };
    let config = ClientConfig { target: None, ..as_user("the secret of a user") };
    assert!(log_in(&config, &directory).client.is_ok());
    let meeting = log_in(&ClientConfig { credential: None, ..config }, &directory);
    assert!(matches!(meeting.client, Err(ClientRefusal::Refused(Failure::NotAuthentic { .. }))));
}
