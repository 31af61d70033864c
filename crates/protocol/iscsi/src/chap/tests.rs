use super::*;

fn secret() -> ChapSecret {
    ChapSecret::new(b"a secret of some length".to_vec()).unwrap()
}

#[test]
fn a_secret_has_96_bits_or_more() {
    assert_eq!(ChapSecret::new(vec![7; 11]), Err(SecretTooShort));
    assert!(ChapSecret::new(vec![7; 12]).is_ok());
}

fn challenge(algorithm: ChapAlgorithm) -> Challenge {
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
    assert_eq!(Challenge::read(ChapAlgorithm::Md5, "1", &text), None);
    let longest = format!("0x{}", "ab".repeat(1024));
    assert_eq!(Challenge::read(ChapAlgorithm::Md5, "1", &longest).map(|challenge| challenge.bytes.len()), Some(1024));
    assert_eq!(Challenge::read(ChapAlgorithm::Md5, "1", &format!("{longest}00")), None);
}

#[test]
fn identifiers_are_one_byte_in_any_notation() {
    for (text, expected) in [("7", Some(7)), ("0xff", Some(255)), ("0bBw==", Some(7)), ("256", None), ("-1", None)] {
        assert_eq!(Challenge::read(ChapAlgorithm::Md5, text, "0x01").map(|challenge| challenge.identifier), expected);
    }
}

#[test]
fn only_the_secret_meets_a_challenge() {
    for algorithm in ChapAlgorithm::ALL {
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
    let challenge = Challenge { algorithm: ChapAlgorithm::Md5, identifier: 1, bytes: vec![1, 2, 3] };
    let expected = encode(&Md5::digest(b"\x01secret\x01\x02\x03"));
    assert_eq!(challenge.response(&ChapSecret(b"secret".to_vec())), expected);
}

#[test]
fn another_secret_has_another_digest_which_is_not_the_secret() {
    let digest = |text: &[u8]| ChapSecret::new(text.to_vec()).unwrap().digest();
    assert_eq!(digest(b"correct horse"), <[u8; 32]>::from(Sha256::digest(b"correct horse")));
    assert_ne!(digest(b"correct horse"), digest(b"correct horsf"));
}

#[test]
fn the_first_of_a_list_that_is_allowed_is_taken() {
    use ChapAlgorithm::{Md5, Sha1, Sha3, Sha256};
    for (list, allowed, taken) in [
        ("5,6,7,8", &[][..], Some(Md5)),
        ("7,5", &[], Some(Sha256)),
        (ChapAlgorithm::OFFER, &[], Some(Sha3)),
        ("9,x,,0x06,5", &[], Some(Sha1)),
        ("5,6,7,8", &[Sha3, Sha256], Some(Sha256)),
        ("5,6", &[Sha3, Sha256], None),
        ("56", &[], None),
        ("", &[], None),
    ] {
        assert_eq!(ChapAlgorithm::first_of(list, allowed), taken, "{list} {allowed:?}");
    }
}

#[test]
fn algorithms_have_names() {
    for (name, algorithm) in ["sha3-256", "sha256", "sha1", "md5"].into_iter().zip(ChapAlgorithm::ALL) {
        assert_eq!((name.parse(), algorithm.to_string()), (Ok(algorithm), name.to_owned()));
    }
    let error = "SHA256".parse::<ChapAlgorithm>().expect_err("small letters only").to_string();
    assert_eq!(error, "'SHA256' is no algorithm of CHAP: use md5, sha1, sha256 or sha3-256");
}
