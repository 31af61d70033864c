//! Who may use a derived volume, or owns a volume.
//!
//! What a wire says of who asks is proven or only claimed. A client id is proven by the handshake, for it comes from the key of the client; a CHAP
//! user is proven by the secret; an IP address by the answers that arrive there. The name of an iSCSI initiator and a MAC address are whatever their
//! host says. A rule for something that is only claimed must say so: `claimed:iqn.2026-11.org.example:host`.

use std::fmt;
use std::str::FromStr;

use sanwire_core::{ClientId, HostAddress, MacAddress, Principal};
use sanwire_device::Admission;

use crate::allow::{AllowRule, IpPrefix};
use crate::pattern::InitiatorPattern;

/// The longest name of a CHAP user, in bytes.
const USER_MAX_BYTES: usize = 255;

/// What is such a rule, in words.
pub(crate) const EXPECTED: &str = "any, an address, a prefix like 10.0.0.0/8, key:ID (`sanwire id` prints one), chap:USER, or \
     claimed: before what nobody proves: an iSCSI initiator name (with * and ?) or a MAC address";

/// The word before what is believed without a proof.
const CLAIMED: &str = "claimed:";

/// One rule that says who may do something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PrincipalRule {
    /// Everybody whom the server serves.
    Any,
    /// Who comes from such an address.
    Address(IpPrefix),
    /// The client that has shown to have the key with this id.
    Client(ClientId),
    /// The iSCSI initiator that has shown to know the secret of this CHAP user.
    User(String),
    /// iSCSI initiators that say to be called so.
    ClaimedInitiator(InitiatorPattern),
    /// Whose packets say that they come from this Ethernet address.
    ClaimedStation(MacAddress),
}

impl FromStr for PrincipalRule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if let Some(user) = text.strip_prefix("chap:") {
            let is_user = (1..=USER_MAX_BYTES).contains(&user.len()) && !user.chars().any(char::is_control);
            return if is_user { Ok(PrincipalRule::User(user.to_owned())) } else { Err(EXPECTED) };
        }
        if let Some(id) = text.strip_prefix("key:") {
            return id.parse().map(PrincipalRule::Client).map_err(|_| EXPECTED);
        }
        let claimed = text.strip_prefix(CLAIMED);
        let rule: AllowRule = claimed.unwrap_or(text).parse().map_err(|_| EXPECTED)?;
        match (rule, claimed.is_some()) {
            (AllowRule::Any, false) => Ok(PrincipalRule::Any),
            (AllowRule::Prefix(prefix), false) => Ok(PrincipalRule::Address(prefix)),
            (AllowRule::Client(id), false) => Ok(PrincipalRule::Client(id)),
            (AllowRule::Initiator(pattern), true) => Ok(PrincipalRule::ClaimedInitiator(pattern)),
            (AllowRule::Mac(station), true) => Ok(PrincipalRule::ClaimedStation(station)),
            (AllowRule::Initiator(_), false) => Err(
                "claimed: before an iSCSI name, which proves nothing, like claimed:iqn.1993-08.org.debian:*; or chap:USER",
            ),
            (AllowRule::Mac(_), false) => {
                Err("claimed: before a MAC address, which proves nothing, like claimed:02:00:5e:10:00:01; or key:ID")
            }
            (AllowRule::Any | AllowRule::Prefix(_) | AllowRule::Client(_), true) => Err(EXPECTED),
        }
    }
}

impl fmt::Display for PrincipalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrincipalRule::Any => f.write_str("any"),
            PrincipalRule::Address(prefix) => prefix.fmt(f),
            PrincipalRule::Client(id) => write!(f, "key:{id}"),
            PrincipalRule::User(user) => write!(f, "chap:{user}"),
            PrincipalRule::ClaimedInitiator(pattern) => write!(f, "{CLAIMED}{pattern}"),
            PrincipalRule::ClaimedStation(station) => write!(f, "{CLAIMED}{station}"),
        }
    }
}

impl PrincipalRule {
    /// Whether it names this one.
    #[must_use]
    pub fn names(&self, principal: &Principal) -> bool {
        match self {
            PrincipalRule::Any => true,
            PrincipalRule::Address(prefix) => match principal.address {
                Some(HostAddress::Ip(address)) => prefix.contains(address),
                Some(HostAddress::Mac(_)) | None => false,
            },
            PrincipalRule::Client(id) => principal.client == Some(*id),
            PrincipalRule::User(user) => principal.chap_user.as_deref() == Some(user),
            PrincipalRule::ClaimedInitiator(pattern) => {
                let name = principal.initiator_name.as_deref().and_then(|name| name.parse().ok());
                name.is_some_and(|name| pattern.matches(&name))
            }
            PrincipalRule::ClaimedStation(station) => principal.address == Some(HostAddress::Mac(*station)),
        }
    }
}

/// Those whom some rules name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PrincipalRules(pub(crate) Vec<PrincipalRule>);

impl Admission for PrincipalRules {
    fn admits(&self, principal: &Principal) -> bool {
        self.0.iter().any(|rule| rule.names(principal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ClientId = ClientId([7; 16]);

    fn rule(text: &str) -> PrincipalRule {
        text.parse().unwrap_or_else(|expected| panic!("{text}: {expected}"))
    }

    #[test]
    fn every_form_is_read_and_written_again() {
        let key = format!("key:{KEY}");
        for text in [
            "any",
            "10.0.0.1",
            "10.0.0.0/8",
            "fe80::/10",
            &key,
            "chap:host",
            "claimed:iqn.1993-08.org.debian:*",
            "claimed:02:00:5e:10:00:01",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule(&KEY.to_string()).to_string(), key, "a client id stands for its key");
    }

    #[test]
    fn what_nobody_proves_counts_only_where_the_rule_says_so() {
        for (text, part) in [
            ("iqn.1993-08.org.debian:host", "claimed: before an iSCSI name"),
            ("02:00:5e:10:00:01", "claimed: before a MAC address"),
            ("claimed:any", "any, an address"),
            ("claimed:10.0.0.1", "any, an address"),
            ("claimed:chap:host", "any, an address"),
            ("chap:", "any, an address"),
            ("key:host", "any, an address"),
            ("", "any, an address"),
            ("10.0.0.1/8", "any, an address"),
        ] {
            let expected = text.parse::<PrincipalRule>().expect_err(text);
            assert!(expected.contains(part), "{text}: {expected}");
        }
        assert!(format!("claimed:{KEY}").parse::<PrincipalRule>().is_err(), "wires prove ids, or leave them out");
    }

    #[test]
    fn a_rule_names_by_what_it_says_and_by_nothing_else() {
        let ip = Principal { address: Some(HostAddress::Ip("10.1.2.3".parse().unwrap())), ..Principal::default() };
        let client = Principal { client: Some(KEY), ..ip.clone() };
        let name = "iqn.1993-08.org.debian:host";
        let initiator = Principal { initiator_name: Some(name.into()), ..ip.clone() };
        let user = Principal { chap_user: Some("host".into()), ..initiator.clone() };
        let station = Principal { address: Some(HostAddress::Mac(MacAddress([2; 6]))), ..Principal::default() };
        let all = [&ip, &client, &initiator, &user, &station];
        for (text, named) in [
            ("any", [true; 5]),
            ("10.0.0.0/8", [true, true, true, true, false]),
            ("10.1.2.4", [false; 5]),
            (&*format!("key:{KEY}"), [false, true, false, false, false]),
            ("claimed:iqn.1993-08.org.debian:*", [false, false, true, true, false]),
            ("chap:host", [false, false, false, true, false]),
            ("chap:Host", [false; 5]),
            ("claimed:02:02:02:02:02:02", [false, false, false, false, true]),
        ] {
            assert_eq!(all.map(|principal| rule(text).names(principal)), named, "{text}");
        }
        // The name of a CHAP user, and that of an initiator, are different things, also where they are the same text.
        let same = Principal { initiator_name: Some("iqn.x".into()), ..Principal::default() };
        assert!(!rule("chap:iqn.x").names(&same));
        let same = Principal { chap_user: Some("iqn.x".into()), ..Principal::default() };
        assert!(!rule("claimed:iqn.x").names(&same));
        assert!(!PrincipalRules(Vec::new()).admits(&client), "without rules nobody");
    }
}
