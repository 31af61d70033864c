//! What a whole target says to the keys of an initiator over RDMA, and what holds then.

use sanwire_iser::wire::HeaderForm;
use sanwire_iwarp::{Config, Registration};

use super::raw::{Raw, window};
use super::world::MEMORY_BYTES;

/// An initiator that has said this in its login besides what is necessary; with what the target has said.
fn logged_in(key: &str) -> (Raw, Vec<String>) {
    let raw = Raw::logged_in_as(HeaderForm::Rfc7145, Config::default(), key);
    let said = raw.line.said.clone();
    (raw, said)
}

/// Whether a command and its data pass.
fn works(raw: &mut Raw) -> bool {
    let stag = raw.line.rdma.register(Registration::of_slices(vec![7; 8192].into()).with_invalidation()).unwrap();
    raw.write(1, window(stag));
    raw.host.disk[..8192] == [7; 8192] && raw.host.closed.is_empty() && raw.host.memory.free_bytes() == MEMORY_BYTES
}

/// RFC 7145 6.1: iWARP has CRCs of its own. What follows a PDU in its message is then no digest either.
#[test]
fn digests_are_refused_and_the_session_does_without_them() {
    for (offered, answers) in [
        ("HeaderDigest=CRC32C\0DataDigest=CRC32C", ["HeaderDigest=Reject", "DataDigest=Reject"]),
        ("HeaderDigest=CRC32C,None\0DataDigest=CRC32C,None", ["HeaderDigest=None", "DataDigest=None"]),
        ("HeaderDigest=None,CRC32C\0DataDigest=None", ["HeaderDigest=None", "DataDigest=None"]),
    ] {
        let (mut raw, said) = logged_in(offered);
        assert!(answers.iter().all(|answer| said.iter().any(|key| key == answer)), "{offered:?}: {said:?}");
        assert!(works(&mut raw), "{offered:?}");
    }
}

/// There are initiators, Linux' among them, that end a login for a key that they do not know: it is named to who has named it.
#[test]
fn a_target_says_how_many_unexpected_pdus_it_takes_to_who_knows_the_key() {
    for (key, is_told) in
        [("MaxOutstandingUnexpectedPDUs=8", true), ("MaxOutstandingUnexpectedPDUs=0", true), ("InitialR2T=Yes", false)]
    {
        let (mut raw, said) = logged_in(key);
        let told: Vec<&String> = said.iter().filter(|key| key.starts_with("MaxOutstandingUnexpectedPDUs")).collect();
        let expected: &[&str] = if is_told { &["MaxOutstandingUnexpectedPDUs=48"] } else { &[] };
        assert_eq!(told, expected, "{key}");
        assert!(works(&mut raw), "{key}");
    }
}
