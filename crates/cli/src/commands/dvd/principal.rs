//! Who gives a command, in words.

use sanwire_core::{HostAddress, MacAddress, Principal};
use sanwire_scsi::IscsiName;

/// Somebody of whom this is known.
///
/// # Errors
/// Nobody is called so; the text says who can be.
pub(super) fn parse(text: &str) -> Result<Principal, String> {
    let nobody = || {
        format!(
            "'{text}' is nobody: use chap:USER, key:CLIENTID with 32 hexadecimal digits, an iSCSI name like \
             iqn.1993-08.org.debian:host, an IP address, or a MAC like 02:00:5e:10:00:01"
        )
    };
    let mut principal = Principal::default();
    if let Some(user) = text.strip_prefix("chap:").filter(|user| !user.is_empty()) {
        principal.chap_user = Some(user.into());
    } else if let Some(client) = text.strip_prefix("key:") {
        principal.client = Some(client.parse().map_err(|_| nobody())?);
    } else if let Ok(mac) = text.parse::<MacAddress>() {
        principal.address = Some(HostAddress::from(mac));
    } else if let Ok(ip) = text.parse::<std::net::IpAddr>() {
        principal.address = Some(HostAddress::from(ip));
    } else {
        let name = text.parse::<IscsiName>().map_err(|_| nobody())?;
        principal.initiator_name = Some(name.to_string().into());
    }
    Ok(principal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_words() {
        for (text, shown) in [
            ("chap:alice", "somebody (user alice)"),
            ("key:000102030405060708090a0b0c0d0e0f", "client 000102030405060708090a0b0c0d0e0f"),
            ("iqn.1993-08.org.debian:host", "initiator iqn.1993-08.org.debian:host"),
            ("192.0.2.1", "host 192.0.2.1"),
            ("02:00:5e:10:00:01", "host 02:00:5e:10:00:01"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown);
        }
        for text in ["", "alice", "chap:", "key:12", "iqn.", "10.0.0.0/8"] {
            assert!(parse(text).unwrap_err().contains("is nobody"), "{text}");
        }
    }
}
