mod rdma;

use super::*;

fn position() -> Position {
    Position {
        carriage: Carriage::Plain,
        session: SessionParameters {
            initial_r2t: false,
            max_burst_bytes: 1 << 20,
            first_burst_bytes: 256 << 10,
            max_outstanding_r2t: 8,
            data_pdu_in_order: false,
            max_connections: 8,
            error_recovery_level: 2,
            protocol_level: 2,
            ..SessionParameters::default()
        },
        receive_data_max_bytes: 256 << 10,
        prefers_digests: false,
        requires_digests: false,
        is_discovery: false,
        is_leading: true,
    }
}

fn answers(position: Position, pairs: &[(&str, &str)]) -> (Vec<Option<String>>, Negotiation) {
    let mut negotiation = Negotiation::new(position);
    let answers = pairs.iter().map(|(key, value)| negotiation.receive(key, value).unwrap()).collect();
    (answers, negotiation)
}

#[test]
fn each_key_is_answered_by_its_rule() {
    for (key, value, answer) in [
        ("HeaderDigest", "CRC32C,None", Some("CRC32C")),
        ("HeaderDigest", "None", Some("None")),
        ("DataDigest", "SHA1", Some("Reject")),
        ("MaxConnections", "4", Some("4")),
        ("MaxConnections", "0", Some("Reject")),
        ("MaxConnections", "65535", Some("8")),
        ("InitialR2T", "No", Some("No")),
        ("InitialR2T", "Yes", Some("Yes")),
        ("InitialR2T", "yes", Some("Reject")),
        ("ImmediateData", "No", Some("No")),
        ("ImmediateData", "Yes", Some("Yes")),
        ("MaxRecvDataSegmentLength", "16777215", None),
        ("MaxBurstLength", "16776192", Some("1048576")),
        ("MaxBurstLength", "0x200", Some("512")),
        ("MaxBurstLength", "511", Some("Reject")),
        ("FirstBurstLength", "262144", Some("262144")),
        ("DefaultTime2Wait", "0", Some("2")),
        ("DefaultTime2Retain", "0", Some("0")),
        ("MaxOutstandingR2T", "1", Some("1")),
        ("DataPDUInOrder", "No", Some("No")),
        ("DataSequenceInOrder", "No", Some("Yes")),
        ("ErrorRecoveryLevel", "0", Some("0")),
        ("ErrorRecoveryLevel", "3", Some("Reject")),
        ("iSCSIProtocolLevel", "31", Some("2")),
        ("OFMarker", "Yes", Some("No")),
        ("OFMarkInt", "2048~65535", Some("Reject")),
        ("TaskReporting", "FastAbort,RFC3720", Some("RFC3720")),
        ("X-com.example.key", "1", Some("NotUnderstood")),
        ("SomethingElse", "NotUnderstood", None),
    ] {
        assert_eq!(answers(position(), &[(key, value)]).0, [answer.map(String::from)], "{key}={value}");
    }
}

#[test]
fn keys_that_mean_nothing_are_answered_with_values_but_not_offered() {
    let offered =
        [("MaxConnections", "2"), ("ImmediateData", "Yes"), ("MaxBurstLength", "8192"), ("FirstBurstLength", "65536")];
    let expected = ["2", "Yes", "8192", "8192"].map(|answer| Some(answer.to_owned()));
    for (is_discovery, is_leading) in [(true, true), (false, false), (true, false)] {
        let position = Position { is_discovery, is_leading, ..position() };
        let (found, mut negotiation) = answers(position, &offered);
        assert_eq!(found, expected, "an initiator may take Irrelevant for a failure");
        let own: Vec<&str> = negotiation.offers().into_iter().map(|(key, _)| key).collect();
        assert!(offered.iter().all(|(key, _)| !own.contains(key)), "{own:?}");
        assert!(own.contains(&"HeaderDigest"));
    }
}

#[test]
fn a_key_comes_once() {
    let (_, mut negotiation) = answers(position(), &[("ImmediateData", "Yes"), ("MaxRecvDataSegmentLength", "4096")]);
    assert_eq!(negotiation.receive("MaxRecvDataSegmentLength", "8192"), Ok(None));
    assert_eq!(negotiation.connection.send_data_max_bytes, 8192);
    assert_eq!(negotiation.receive("ImmediateData", "Yes"), Err(NegotiationError::Twice("ImmediateData".into())));
}

#[test]
fn both_ends_come_to_the_same_result() {
    let (mut initiator, mut target) = (Negotiation::new(position()), Negotiation::new(position()));
    for (key, value) in initiator.offers() {
        if let Some(answer) = target.receive(key, &value).unwrap() {
            assert_eq!(initiator.receive(key, &answer), Ok(None), "{key}");
        }
    }
    let (key, value) = target.declare();
    assert_eq!(initiator.receive(key, &value), Ok(None));
    let ((one, of_one), (other, of_other)) = (initiator.finish().unwrap(), target.finish().unwrap());
    assert_eq!((one, of_one), (other, of_other));
    assert!(!one.initial_r2t && one.immediate_data && !one.data_pdu_in_order);
    assert_eq!((one.max_burst_bytes, one.max_connections, one.error_recovery_level), (1 << 20, 8, 2));
    assert_eq!(of_one.send_data_max_bytes, 256 << 10);
}

#[test]
fn required_digests_are_insisted_on() {
    let strict = Position { requires_digests: true, ..position() };
    assert_eq!(answers(strict, &[("HeaderDigest", "None,CRC32C")]).0, [Some("CRC32C".into())]);
    assert_eq!(Negotiation::new(strict).receive("DataDigest", "None"), Err(NegotiationError::Digest("DataDigest")));
    assert_eq!(Negotiation::new(strict).finish(), Err(NegotiationError::Digest("HeaderDigest")));
}

#[test]
fn an_answer_must_follow_from_the_offer() {
    let mut initiator = Negotiation::new(position());
    initiator.offers();
    assert!(initiator.receive("MaxBurstLength", "16776192").is_err(), "more than was offered");
    assert_eq!(initiator.receive("ErrorRecoveryLevel", "Reject"), Ok(None));
    assert_eq!(initiator.session.error_recovery_level, 0);
}

#[test]
fn what_keys_say_in_full_feature_phase() {
    let mut connection = ConnectionParameters::default();
    let mut answer = |key: &str, value: &str| receive_in_full_feature(key, value, &mut connection);
    assert_eq!(answer("MaxRecvDataSegmentLength", "0x10000"), None);
    assert_eq!(answer("MaxRecvDataSegmentLength", "511"), Some("Reject"));
    assert_eq!(answer("InitiatorAlias", "host"), None);
    assert_eq!(answer("HeaderDigest", "CRC32C"), Some("Reject"));
    assert_eq!(answer("InitiatorName", "iqn.2026-11.org.example:host"), Some("Reject"));
    assert_eq!(answer("X-org.example.unknown", "1"), Some("NotUnderstood"));
    assert_eq!(answer("X-org.example.unknown", "NotUnderstood"), None);
    assert_eq!(connection.send_data_max_bytes, 0x10000);
}

#[test]
fn an_answer_may_be_written_in_another_way_but_must_follow_from_the_offer() {
    for (key, value, is_legal) in [
        ("MaxBurstLength", "0x1000", true),
        ("MaxBurstLength", "16777215", false),
        ("InitialR2T", "Yes", true),
        ("ErrorRecoveryLevel", "3", false),
        ("DefaultTime2Wait", "1", false),
        ("HeaderDigest", "SHA1", false),
        ("MaxConnections", "Reject", true),
    ] {
        let mut negotiation = Negotiation::new(position());
        negotiation.offers();
        assert_eq!(negotiation.receive(key, value).is_ok(), is_legal, "{key}={value}");
    }
}

#[test]
fn the_first_burst_is_no_longer_than_a_burst() {
    let (answers, _) = answers(position(), &[("MaxBurstLength", "8192"), ("FirstBurstLength", "65536")]);
    assert_eq!(answers, [Some("8192".to_owned()), Some("8192".to_owned())]);
}

#[test]
fn a_declaration_that_is_none_is_rejected() {
    for value in ["", "0", "511", "16777216", "-1", "0x", "8192 "] {
        let (answers, negotiation) = answers(position(), &[("MaxRecvDataSegmentLength", value)]);
        assert_eq!(answers, [Some("Reject".to_owned())], "{value}");
        assert_eq!(negotiation.connection.send_data_max_bytes, 8192);
    }
}

/// RFC 7145 6.3: RDMAExtensions is said on the leading connection, and holds for those that follow.
#[test]
fn a_further_connection_of_an_iser_session_does_not_say_again_that_it_is_rdma() {
    for is_target in [true, false] {
        let carriage = Carriage::Iser { initiator_receive_max_bytes: 1024, target_receive_max_bytes: 8192, is_target };
        let failure = |is_leading| Negotiation::new(Position { is_leading, carriage, ..position() }).finish().err();
        assert_eq!([failure(true), failure(false)], [Some(NegotiationError::NoRdma), None]);
    }
}
