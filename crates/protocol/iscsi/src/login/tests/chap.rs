//! Who somebody is.

use super::*;

fn with_users(mutual: bool) -> OneTarget {
    let mut directory = OneTarget::default();
    let mutual = mutual.then(|| credential("target", "the secret of the target"));
    directory.entry.authentication = Authentication { users: vec![credential("user", "the secret of a user")], mutual };
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
    assert!(meeting.answers.contains("CHAP_A=8\0"), "the strongest: {}", meeting.answers);
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
