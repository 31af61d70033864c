use super::*;

fn secret() -> ChapSecret {
    ChapSecret::new(b"a secret of some length".to_vec()).unwrap()
}

#[test]
fn a_secret_has_96_bits_or_more() {
    assert_eq!(ChapSecret::new(vec![7; 11]), Err(SecretTooShort));
    assert!(ChapSecret::new(vec![7; 12]).is_ok());
}

fn challenge(algorithm: Algorithm) -> Challenge {
    Challenge { algorithm, identifier: 0x5a, bytes: (0..algorithm.bytes() as u8).collect() }
}

#[test]
fn binary_values_come_in_two_notations() {
    for (text, bytes) in
        [("0x", &[][..]), ("0x0aFF", &[10, 255]), ("0XaFF", &[10, 255]), ("0bAQID", &[1, 2, 3]), ("0BAQI=", &[1, 2])]
    {
        assert_eq!(decode(text, 8).as_deref(), Some(bytes), "{text}");
    }
    for text in ["", "12", "0x1g", "0bA", "0b!!!!", "0x112233445566778899", "0bAAAAAAAAAAAAAAAAAAAA"] {
        assert_eq!(decode(text, 8), None, "{text}");
    }
    assert_eq!(encode(&[0, 0xab]), "0x00ab");
}

#[test]
fn oversized_base64_is_refused_before_it_is_decoded() {
    let text = format!("0b{}", "A".repeat(1 << 20));
    assert_eq!(decode(&text, 32), None);
    assert_eq!(Challenge::read(Algorithm::Md5, "1", &text), None);
    let longest = format!("0x{}", "ab".repeat(1024));
    assert_eq!(Challenge::read(Algorithm::Md5, "1", &longest).map(|challenge| challenge.bytes.len()), Some(1024));
    assert_eq!(Challenge::read(Algorithm::Md5, "1", &format!("{longest}00")), None);
}

#[test]
fn identifiers_are_one_byte_in_any_notation() {
    for (text, expected) in [("7", Some(7)), ("0xff", Some(255)), ("0bBw==", Some(7)), ("256", None), ("-1", None)] {
        assert_eq!(Challenge::read(Algorithm::Md5, text, "0x01").map(|challenge| challenge.identifier), expected);
    }
}

#[test]
fn only_the_secret_meets_a_challenge() {
    for algorithm in Algorithm::ALL {
        let challenge = challenge(algorithm);
        let response = challenge.response(&secret());
        assert!(challenge.is_met(&response, &secret()), "{algorithm:?}");
        assert!(!challenge.is_met(&response, &ChapSecret(b"another".to_vec())));
        assert!(!challenge.is_met(&format!("{response}00"), &secret()));
        assert!(!challenge.is_met("0x", &secret()));
        assert!(!Challenge { identifier: 0, ..challenge }.is_met(&response, &secret()));
    }
}

/// MD5 of 01 "secret" 01 02 03, by md5sum.
#[test]
fn a_response_is_the_digest_of_identifier_secret_and_challenge() {
    let challenge = Challenge { algorithm: Algorithm::Md5, identifier: 1, bytes: vec![1, 2, 3] };
    let expected = encode(&Md5::digest(b"\x01secret\x01\x02\x03"));
    assert_eq!(challenge.response(&ChapSecret(b"secret".to_vec())), expected);
}

#[test]
fn the_strongest_of_a_list_is_taken() {
    assert_eq!(Algorithm::strongest("5,7"), Some(Algorithm::Sha256));
    assert_eq!(Algorithm::strongest(Algorithm::OFFER), Some(Algorithm::Sha3));
    assert_eq!(Algorithm::strongest("5"), Some(Algorithm::Md5));
    assert_eq!(Algorithm::strongest("9,x,"), None);
}
