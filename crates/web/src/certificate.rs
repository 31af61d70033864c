//! What a certificate says of itself: until when it holds, and for which names.

use std::time::SystemTime;

use rustls_pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

/// Tags of DER (X.690 8.1.2).
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

/// When it ends (RFC 5280 4.1.2.5).
pub(crate) fn end_of(certificate: &[u8]) -> Option<SystemTime> {
    let (certificate, _) = value(certificate, SEQUENCE)?;
    let (content, _) = value(certificate, SEQUENCE)?;
    // It is left out of the oldest kind.
    let content = value(content, VERSION).map_or(content, |(_, rest)| rest);
    let (_, content) = value(content, INTEGER)?;
    let (_, content) = value(content, SEQUENCE)?;
    let (_, content) = value(content, SEQUENCE)?;
    let (validity, _) = value(content, SEQUENCE)?;
    let (_, rest) = any_value(validity)?;
    let (tag, end, _) = element(rest)?;
    time(tag, end)
}

/// Whether it is for this name or address; what can be none in a certificate is not looked for.
pub(crate) fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(name) = ServerName::try_from(name) else { return true };
    EndEntityCert::try_from(certificate).is_ok_and(|it| it.verify_is_valid_for_subject_name(&name).is_ok())
}

fn value(input: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    element(input).filter(|(tag, ..)| *tag == wanted).map(|(_, value, rest)| (value, rest))
}

fn any_value(input: &[u8]) -> Option<(&[u8], &[u8])> {
    element(input).map(|(_, value, rest)| (value, rest))
}

/// The first element: its tag and its content, and what follows.
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = input else { return None };
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((*tag, value, rest))
}

/// A time as certificates have it: `YYMMDDHHMMSSZ`, from 1950 on, or with four digits of the year.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let text = str::from_utf8(text).ok().filter(|text| text.is_ascii())?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let century = if year < "50" { "20" } else { "19" };
            (format!("{century}{year}"), rest)
        }
        GENERALIZED_TIME => text.split_at_checked(4).map(|(year, rest)| (year.to_owned(), rest))?,
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    let written = format!(
        "{year}-{}-{}T{}:{}:{}Z",
        part(0)?,
        part(2)?,
        part(4)?,
        part(6)?,
        part(8).filter(|_| rest.len() == 10)?
    );
    humantime::parse_rfc3339(&written).ok()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<u64> {
        Some(time(tag, text.as_bytes())?.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn both_forms_of_time_are_read() {
        assert_eq!(seconds(UTC_TIME, "261124013000Z"), Some(1_795_483_800));
        assert_eq!(seconds(GENERALIZED_TIME, "20261124013000Z"), Some(1_795_483_800));
        assert_eq!(seconds(UTC_TIME, "700101000000Z"), Some(0));
        for wrong in ["", "Z", "261124013000", "26112401300Z", "2611240130000Z", "261324013000Z", "26é1124013000Z"] {
            assert_eq!(seconds(UTC_TIME, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_certificate_says_when_it_ends_and_for_what_it_is() {
        let mut parameters = rcgen::CertificateParams::new(["box".to_owned(), "192.0.2.7".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2027, 3, 1);
        let made = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let end = humantime::parse_rfc3339("2027-03-01T00:00:00Z").unwrap();
        assert_eq!(end_of(made.der()), Some(end));
        assert!(is_for(made.der(), "box") && is_for(made.der(), "192.0.2.7"));
        assert!(!is_for(made.der(), "other") && !is_for(made.der(), "192.0.2.8"));
    }

    #[test]
    fn what_is_no_certificate_ends_never() {
        let made = rcgen::generate_simple_self_signed(["box".to_owned()]).unwrap();
        let whole = made.cert.der();
        assert!(end_of(whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(end_of(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            let mut other = whole.to_vec();
            other[at] ^= 0xff;
            let _ = end_of(&other);
        }
    }
}
