//! Both ends come to the same agreement.

use super::*;

#[test]
fn a_login_without_authentication_comes_to_the_same_agreement_on_both_ends() {
    let meeting = log_in(&config(), &OneTarget::default());
    let client = meeting.client.unwrap();
    let Some(LoginOutcome::Admitted(server)) = meeting.server else { panic!("{:?}", meeting.server) };
    assert_eq!((client.tsih, client.alias.as_str()), (0x4711, "a disk"));
    assert_eq!(client.session, server.session);
    assert!(!client.session.initial_r2t && client.session.immediate_data);
    assert_eq!(client.connection.send_data_max_bytes, server.connection.receive_data_max_bytes);
    assert_eq!(client.connection.receive_data_max_bytes, server.connection.send_data_max_bytes);
    assert_eq!(client.connection.digests, server.connection.digests);
    assert_eq!((server.initiator.as_str(), server.user.as_deref()), (INITIATOR, None));
    assert!(matches!(server.kind, SessionKind::Normal { target: TargetId(3), .. }));
    assert!(meeting.answers.contains("TargetPortalGroupTag=7\0"), "{}", meeting.answers);
}

#[test]
fn a_discovery_session_has_no_target() {
    let meeting = log_in(&ClientConfig { target: None, ..config() }, &OneTarget::default());
    assert!(meeting.client.is_ok());
    let Some(LoginOutcome::Admitted(server)) = meeting.server else { panic!("{:?}", meeting.server) };
    assert_eq!(server.kind, SessionKind::Discovery);
    assert!(!meeting.answers.contains("TargetPortalGroupTag"));
}
