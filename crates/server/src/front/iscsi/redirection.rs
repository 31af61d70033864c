//! Where a target sends its initiators.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A portal as targets tell it: `ADDR[:PORT][,GROUP]`, with an IPv4 address, an IPv6 address in brackets, or a name (RFC 7143
/// 13.8). Made from text by `parse`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirection(String);

/// The text is no such portal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is no portal: use an IPv4 address, an IPv6 address in brackets, or a host's name, and perhaps :PORT and ,GROUP"
)]
pub struct NoPortal(String);

impl fmt::Display for Redirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Redirection {
    type Err = NoPortal;

    fn from_str(text: &str) -> Result<Self, NoPortal> {
        let (portal, tag) = text.split_once(',').map_or((text, None), |(portal, tag)| (portal, Some(tag)));
        let (host, port) = match portal.rfind(':').filter(|at| !portal[*at..].contains(']')) {
            Some(at) => (&portal[..at], Some(&portal[at + 1..])),
            None => (portal, None),
        };
        let is_number = |number: Option<&str>| number.is_none_or(|number| number.parse::<u16>().is_ok_and(|n| n != 0));
        let is_portal = is_host(host) && is_number(port) && is_number(tag);
        if is_portal { Ok(Redirection(text.to_owned())) } else { Err(NoPortal(text.to_owned())) }
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inside.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(is_allowed)
    };
    let is_numeric = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_numeric { host.parse::<IpAddr>().is_ok() } else { host.len() <= 253 && host.split('.').all(is_label) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portals_are_taken_as_they_are_written_and_nothing_else() {
        for good in
            ["10.0.0.2", "10.0.0.2:99", "10.0.0.2:99,2", "[2001:db8::1]", "[::1]:3260,1", "box.example", "box:99"]
        {
            assert_eq!(good.parse(), Ok(Redirection(good.to_owned())));
        }
        for bad in [
            "",
            "10.0.0",
            "10.0.0.2:",
            "10.0.0.2:0",
            "10.0.0.2,x",
            "::1",
            "[::1",
            "[box]",
            "a b",
            "a\0b",
            "iscsi://box",
            "box.:1",
        ] {
            assert!(
                bad.parse::<Redirection>().is_err_and(|error| error.to_string().contains("is no portal")),
                "{bad:?}"
            );
        }
    }
}
