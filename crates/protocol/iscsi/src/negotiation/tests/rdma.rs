//! The keys of RFC 7145, and of RFC 5046 before it, by what carries the session.

use super::*;

const INITIATOR: Carriage = iser(false);
const TARGET: Carriage = iser(true);

const fn iser(is_target: bool) -> Carriage {
    Carriage::Iser { initiator_receive_max_bytes: 1024, target_receive_max_bytes: 8192, is_target }
}

/// A target over plain TCP; in a discovery session over RDMA; in a session with a target over RDMA.
fn targets() -> [Position; 3] {
    let carried = Position { carriage: TARGET, ..position() };
    [position(), Position { is_discovery: true, ..carried }, carried]
}

/// What a target of each kind answers.
#[test]
fn each_key_of_rdma_is_answered_by_what_carries_the_session() {
    const UNKNOWN: Option<&str> = Some("NotUnderstood");
    const REJECT: Option<&str> = Some("Reject");
    const YES: Option<&str> = Some("Yes");
    const NO: Option<&str> = Some("No");
    for (key, value, expected) in [
        // The connection of a discovery session is RDMA, too, as with Linux.
        ("RDMAExtensions", "Yes", [NO, YES, YES]),
        ("RDMAExtensions", "No", [NO; 3]),
        ("RDMAExtensions", "yes", [REJECT; 3]),
        ("InitiatorRecvDataSegmentLength", "262144", [UNKNOWN, UNKNOWN, Some("1024")]),
        ("InitiatorRecvDataSegmentLength", "512", [UNKNOWN, UNKNOWN, Some("512")]),
        ("InitiatorRecvDataSegmentLength", "511", [UNKNOWN, UNKNOWN, REJECT]),
        ("TargetRecvDataSegmentLength", "0x40000", [UNKNOWN, UNKNOWN, Some("8192")]),
        ("TargetRecvDataSegmentLength", "16777215", [UNKNOWN, UNKNOWN, Some("8192")]),
        ("TargetRecvDataSegmentLength", "16777216", [UNKNOWN, UNKNOWN, REJECT]),
        ("iSERHelloRequired", "Yes", [NO, YES, YES]),
        ("iSERHelloRequired", "No", [NO; 3]),
        ("iSERHelloRequired", "1", [REJECT; 3]),
        // Declared, and declared in turn where it holds.
        ("MaxOutstandingUnexpectedPDUs", "8", [None, None, Some("48")]),
        ("MaxOutstandingUnexpectedPDUs", "0", [None, None, Some("48")]),
        ("MaxOutstandingUnexpectedPDUs", "4294967295", [None, None, Some("48")]),
        ("MaxOutstandingUnexpectedPDUs", "1", [REJECT; 3]),
        ("MaxOutstandingUnexpectedPDUs", "4294967296", [REJECT; 3]),
        // Declared, of no interest, and so without an answer.
        ("MaxAHSLength", "0", [None; 3]),
        ("MaxAHSLength", "1020", [None; 3]),
        ("TaggedBufferForSolicitedDataOnly", "Yes", [None; 3]),
        ("TaggedBufferForSolicitedDataOnly", "No", [None; 3]),
        // Two others stand for it in a session with a target.
        ("MaxRecvDataSegmentLength", "65536", [None; 3]),
        // RFC 7145 6.1: what carries it has digests of its own.
        ("HeaderDigest", "CRC32C", [Some("CRC32C"), REJECT, REJECT]),
        ("DataDigest", "CRC32C", [Some("CRC32C"), REJECT, REJECT]),
        ("HeaderDigest", "CRC32C,None", [Some("CRC32C"), Some("None"), Some("None")]),
        ("DataDigest", "CRC32C,None", [Some("CRC32C"), Some("None"), Some("None")]),
        ("HeaderDigest", "None,CRC32C", [Some("None"); 3]),
        ("DataDigest", "None", [Some("None"); 3]),
        ("OFMarker", "Yes", [NO; 3]),
        ("IFMarkInt", "2048", [REJECT; 3]),
    ] {
        let found = targets().map(|target| answers(target, &[(key, value)]).0.remove(0));
        assert_eq!(found, expected.map(|answer| answer.map(String::from)), "{key}={value}");
    }
}

#[test]
fn what_a_target_sends_and_takes_in_a_message_follows_from_the_keys_that_hold() {
    let said = [
        ("RDMAExtensions", "Yes"),
        ("InitiatorRecvDataSegmentLength", "512"),
        ("TargetRecvDataSegmentLength", "4096"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("HeaderDigest", "CRC32C"),
        ("DataDigest", "CRC32C,None"),
    ];
    let found = targets().map(|target| answers(target, &said).1.finish().expect("an agreement").1);
    let lengths = found.map(|connection| (connection.send_data_max_bytes, connection.receive_data_max_bytes));
    // Linux' initiator has room for 128 bytes in a session with a target, and for 8,192 in a discovery session.
    assert_eq!(lengths, [(65536, 8192), (8192, 8192), (128, 4096)]);
    let digests = found.map(|connection| (connection.digests.header, connection.digests.data));
    assert_eq!(digests, [(true, true), (false, false), (false, false)]);
}

#[test]
fn a_target_that_insists_on_digests_has_nothing_to_agree_on_over_rdma() {
    let strict = Position { requires_digests: true, carriage: TARGET, ..position() };
    for value in ["CRC32C", "CRC32C,None", "None"] {
        let refusal = Negotiation::new(strict).receive("HeaderDigest", value);
        assert_eq!(refusal, Err(NegotiationError::Digest("HeaderDigest")), "{value}");
    }
}

#[test]
fn an_initiator_offers_the_keys_of_what_carries_the_session() {
    let keys = [
        "HeaderDigest",
        "DataDigest",
        "MaxRecvDataSegmentLength",
        "RDMAExtensions",
        "InitiatorRecvDataSegmentLength",
        "TargetRecvDataSegmentLength",
        "iSERHelloRequired",
        "MaxOutstandingUnexpectedPDUs",
        "MaxAHSLength",
        "TaggedBufferForSolicitedDataOnly",
    ];
    let offered = |position: Position| {
        let mut offers = Negotiation::new(position).offers();
        offers.retain(|(key, _)| keys.contains(key));
        offers.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    let carried = Position { carriage: INITIATOR, ..position() };
    let lengths = ["InitiatorRecvDataSegmentLength=1024", "TargetRecvDataSegmentLength=8192"];
    let plain = ["HeaderDigest=None,CRC32C", "DataDigest=None,CRC32C", "MaxRecvDataSegmentLength=262144"];
    assert_eq!(offered(position()), plain);
    assert_eq!(offered(Position { is_discovery: true, ..carried }), ["MaxRecvDataSegmentLength=262144"]);
    let unexpected = ["MaxOutstandingUnexpectedPDUs=48"];
    assert_eq!(offered(carried), [&["RDMAExtensions=Yes"][..], &lengths[..], &unexpected[..]].concat());
    assert_eq!(offered(Position { is_leading: false, ..carried }), lengths);
}

/// What a target may ask of an initiator: Hello is not sent here, and nobody is to wait for it.
#[test]
fn an_initiator_says_what_it_has_when_a_target_asks() {
    for (key, value, expected) in [
        ("iSERHelloRequired", "Yes", Some("No")),
        ("iSERHelloRequired", "No", Some("No")),
        ("HeaderDigest", "CRC32C", Some("Reject")),
        ("DataDigest", "CRC32C,None", Some("None")),
        ("MaxOutstandingUnexpectedPDUs", "8", None),
        ("MaxAHSLength", "256", None),
        ("TaggedBufferForSolicitedDataOnly", "No", None),
    ] {
        let initiator = Position { carriage: INITIATOR, ..position() };
        assert_eq!(answers(initiator, &[(key, value)]).0, [expected.map(String::from)], "{key}={value}");
    }
}

#[test]
fn an_initiator_takes_no_digest_that_it_has_not_offered() {
    let mut initiator = Negotiation::new(Position { carriage: INITIATOR, ..position() });
    initiator.offers();
    for key in ["HeaderDigest", "DataDigest"] {
        assert_eq!(initiator.receive(key, "CRC32C"), Ok(Some("Reject".into())));
    }
    assert!(!initiator.connection.digests.header && !initiator.connection.digests.data);
}

#[test]
fn who_has_said_how_many_unexpected_pdus_it_takes_is_heard_and_who_does_not_know_the_key_is_too() {
    for (value, expected) in [("8", 8), ("0x10", 16), ("0", 0), ("NotUnderstood", 0), ("Irrelevant", 0)] {
        let mut initiator = Negotiation::new(Position { carriage: INITIATOR, ..position() });
        initiator.offers();
        assert_eq!(initiator.receive("MaxOutstandingUnexpectedPDUs", value), Ok(None), "{value}");
        assert_eq!(initiator.session.unexpected_max, expected, "{value}");
    }
}

#[test]
fn a_target_keeps_to_what_an_initiator_takes_unasked_in_sessions_by_rdma_alone() {
    for (position, expected) in targets().into_iter().zip([0, 0, 8]) {
        let mut target = Negotiation::new(position);
        target.receive("MaxOutstandingUnexpectedPDUs", "8").unwrap();
        assert_eq!(target.session.unexpected_max, expected);
    }
}
