//! Who is served.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use sanwire_core::{ClientId, MacAddress, Peer};
use sanwire_scsi::IscsiName;

use crate::pattern::InitiatorPattern;

/// One entry of the allow list. Made from text by `parse`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowRule {
    /// Everybody.
    Any,
    /// The addresses whose first bits are these; one address is a prefix of all its bits.
    Prefix(IpPrefix),
    /// The station with this Ethernet address.
    Mac(MacAddress),
    /// The HyperSCSI client with this identity, from wherever it comes.
    Client(ClientId),
    /// The iSCSI initiators with such names, from wherever they come.
    Initiator(InitiatorPattern),
}

/// The first bits of an IP address, the rest zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IpPrefix {
    network: IpAddr,
    length_bits: u8,
}

/// Why a text is not a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllowRuleError {
    /// Nothing that is known.
    #[error(
        "'{text}' names nobody: use an IP address, a prefix like 10.0.0.0/8, a MAC like 02:00:5e:10:00:01, a client id \
         of 32 hexadecimal digits, an iSCSI name like iqn.1993-08.org.debian:*, or any"
    )]
    Unknown {
        /// What was written.
        text: String,
    },
    /// More bits than the address has.
    #[error("'{text}' is no prefix: its length is a number from 0 to {max_bits}")]
    Length {
        /// What was written.
        text: String,
        /// Bits of such an address.
        max_bits: u8,
    },
    /// The address has bits beyond the prefix, so it is not clear what was meant.
    #[error(
        "'{text}' has bits set beyond its prefix: write {network} for the network, or the address without a length"
    )]
    HostBits {
        /// What was written.
        text: String,
        /// The prefix.
        network: IpPrefix,
    },
}

/// The rules of one server: a client is served when one of them names it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllowList(Vec<AllowRule>);

impl AllowList {
    /// The list of these rules; without any, only clients on the same host are served.
    #[must_use]
    pub fn new(rules: Vec<AllowRule>) -> Self {
        AllowList(rules)
    }

    /// A list by which no iSCSI initiator is served, not even one of this host.
    pub(crate) fn of_no_initiator() -> Self {
        AllowList(vec![AllowRule::Client(ClientId([0; 16]))])
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[AllowRule] {
        &self.0
    }

    /// Whether the client at `peer` may be served.
    ///
    /// As long as the handshake has not shown who the client is, `client` is `None`: the answer is then whether the
    /// handshake may go on, and the question must be asked again with the identity. `is_local` says that the peer
    /// is on this host; it counts only when there are no rules.
    #[must_use]
    pub fn permits(&self, peer: Peer, client: Option<ClientId>, is_local: bool) -> bool {
        if self.0.is_empty() {
            return is_local;
        }
        self.0.iter().any(|rule| rule.permits(peer, client))
    }

    /// Whether the station at this address may be served, of which nothing else is known. Without a rule none is: anybody can send as if
    /// from an address of this host.
    #[must_use]
    pub fn permits_station(&self, station: MacAddress) -> bool {
        self.0.iter().any(|rule| match rule {
            AllowRule::Any => true,
            AllowRule::Mac(mac) => *mac == station,
            AllowRule::Prefix(_) | AllowRule::Client(_) | AllowRule::Initiator(_) => false,
        })
    }

    /// Whether the iSCSI initiator of this name at this address may be served. `is_local` is as for [`AllowList::permits`].
    #[must_use]
    pub fn permits_initiator(&self, name: &IscsiName, address: IpAddr, is_local: bool) -> bool {
        if self.0.is_empty() {
            return is_local;
        }
        self.0.iter().any(|rule| match rule {
            AllowRule::Any => true,
            AllowRule::Prefix(prefix) => prefix.contains(address),
            AllowRule::Initiator(pattern) => pattern.matches(name),
            AllowRule::Mac(_) | AllowRule::Client(_) => false,
        })
    }
}

impl AllowRule {
    fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool {
        match (self, peer) {
            (AllowRule::Any, _) => true,
            (AllowRule::Prefix(prefix), Peer::Udp(address)) => prefix.contains(address.ip()),
            (AllowRule::Mac(mac), Peer::Ethernet(station)) => *mac == station,
            (AllowRule::Client(id), _) => client.is_none_or(|client| client == *id),
            (AllowRule::Prefix(_), Peer::Ethernet(_)) | (AllowRule::Mac(_), Peer::Udp(_)) => false,
            (AllowRule::Initiator(_), _) => false,
        }
    }
}

impl IpPrefix {
    /// Those that contain this address, the shortest first.
    pub(crate) fn all_of(address: IpAddr) -> impl Iterator<Item = IpPrefix> {
        let address = address.to_canonical();
        let lengths = 0..=bits_of(address);
        lengths.map(move |length_bits| IpPrefix { network: first_bits(address, length_bits), length_bits })
    }

    /// Whether it is a prefix of IPv4 addresses.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.network.is_ipv4()
    }

    /// Whether it is this address and no other one.
    pub(crate) fn is_only(&self, address: IpAddr) -> bool {
        self.contains(address) && self.length_bits == bits_of(self.network)
    }

    /// Whether all addresses of the other one begin with these bits too.
    #[must_use]
    pub fn covers(&self, other: &IpPrefix) -> bool {
        self.length_bits <= other.length_bits && self.contains(other.network)
    }

    /// Whether the address begins with these bits. An IPv4 address inside IPv6 (`::ffff:10.0.0.1`) counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        first_bits(address.to_canonical(), self.length_bits) == self.network
    }
}

/// The address with all bits after the first `length_bits` zero.
fn first_bits(address: IpAddr, length_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(length_bits.into())).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(length_bits.into())).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for AllowRule {
    type Err = AllowRuleError;

    fn from_str(text: &str) -> Result<Self, AllowRuleError> {
        if text == "any" {
            return Ok(AllowRule::Any);
        }
        if let Ok(mac) = text.parse() {
            return Ok(AllowRule::Mac(mac));
        }
        if let Ok(id) = text.parse() {
            return Ok(AllowRule::Client(id));
        }
        if let Ok(pattern) = text.parse() {
            return Ok(AllowRule::Initiator(pattern));
        }
        parse_prefix(text).map(AllowRule::Prefix)
    }
}

fn parse_prefix(text: &str) -> Result<IpPrefix, AllowRuleError> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let written: IpAddr = address.parse().map_err(|_| AllowRuleError::Unknown { text: text.into() })?;
    let max_bits = bits_of(written);
    let Some(length) = length else {
        let address = written.to_canonical();
        return Ok(IpPrefix { network: address, length_bits: bits_of(address) });
    };
    let length_bits = length.parse().ok().filter(|bits| *bits <= max_bits);
    let length_bits = length_bits.ok_or_else(|| AllowRuleError::Length { text: text.into(), max_bits })?;
    let network = IpPrefix { network: first_bits(written, length_bits), length_bits };
    if network.network == written { Ok(network) } else { Err(AllowRuleError::HostBits { text: text.into(), network }) }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.length_bits == bits_of(self.network) {
            self.network.fmt(f)
        } else {
            write!(f, "{}/{}", self.network, self.length_bits)
        }
    }
}

impl fmt::Display for AllowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllowRule::Any => f.write_str("any"),
            AllowRule::Prefix(prefix) => prefix.fmt(f),
            AllowRule::Mac(mac) => mac.fmt(f),
            AllowRule::Client(id) => id.fmt(f),
            AllowRule::Initiator(pattern) => pattern.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId([7; 16]);
    const STRANGER: ClientId = ClientId([8; 16]);

    fn udp(address: &str) -> Peer {
        Peer::Udp((address.parse::<IpAddr>().unwrap(), 5674).into())
    }

    fn list(rules: &[&str]) -> AllowList {
        AllowList::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    #[test]
    fn every_form_is_read_and_written_again() {
        let client = CLIENT.to_string();
        for text in
            ["any", "10.0.0.1", "10.0.0.0/8", "0.0.0.0/0", "fe80::/10", "::1", "02:00:5e:10:00:01", &client, "iqn.*"]
        {
            assert_eq!(text.parse::<AllowRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, part) in [
            ("", "'' names nobody"),
            ("host.example", "use an IP address, a prefix like 10.0.0.0/8"),
            ("Any", "names nobody"),
            ("10.0.0.0/33", "a number from 0 to 32"),
            ("fe80::/129", "a number from 0 to 128"),
            ("10.0.0.0/", "a number from 0 to 32"),
            ("10.0.0.1/8", "write 10.0.0.0/8 for the network"),
            ("0123", "names nobody"),
        ] {
            let message = text.parse::<AllowRule>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn without_rules_only_this_host_is_served() {
        let nobody = AllowList::default();
        assert!(nobody.permits(udp("127.0.0.1"), None, true));
        assert!(!nobody.permits(udp("10.0.0.1"), Some(CLIENT), false));
        assert!(!list(&["10.0.0.1"]).permits(udp("127.0.0.1"), None, true), "with rules, they alone count");
        let station = MacAddress([2, 0, 0x5e, 0x10, 0, 1]);
        let served = [&[][..], &["10.0.0.1"], &["02:00:5e:10:00:02"], &["02:00:5e:10:00:01"], &["any"]];
        let served = served.map(|rules| list(rules).permits_station(station));
        assert_eq!(served, [false, false, false, true, true], "an address is forged easily, that of this host too");
    }

    #[test]
    fn an_initiator_is_served_by_its_name_or_its_address() {
        let name: IscsiName = "iqn.1993-08.org.debian:01:abc".parse().unwrap();
        let here: IpAddr = "10.1.2.3".parse().unwrap();
        for (rules, is_served) in [
            (&["iqn.1993-08.org.debian:*"][..], true),
            (&["iqn.1994-05.com.redhat:*"], false),
            (&["iqn.1994-05.com.redhat:*", "10.0.0.0/8"], true),
            (&["192.168.0.0/16"], false),
            (&["any"], true),
            (&["02:00:5e:10:00:01"], false),
        ] {
            assert_eq!(list(rules).permits_initiator(&name, here, true), is_served, "{rules:?}");
        }
        assert!(AllowList::default().permits_initiator(&name, here, true), "without rules, only this host");
        assert!(!AllowList::default().permits_initiator(&name, here, false));
        assert!(!list(&["iqn.*"]).permits(udp("10.1.2.3"), None, true), "no rule for HyperSCSI");
    }

    #[test]
    fn prefixes_match_bit_by_bit() {
        let allow = list(&["10.1.0.0/16", "192.168.7.9", "fe80::/10"]);
        for (address, is_served) in [
            ("10.1.255.255", true),
            ("10.2.0.0", false),
            ("192.168.7.9", true),
            ("192.168.7.8", false),
            ("::ffff:10.1.2.3", true),
            ("fe80::5", true),
            ("fec0::5", false),
        ] {
            assert_eq!(allow.permits(udp(address), None, false), is_served, "{address}");
        }
        assert!(list(&["0.0.0.0/0"]).permits(udp("1.2.3.4"), None, false));
        assert!(!list(&["0.0.0.0/0"]).permits(udp("::2"), None, false), "the other family");
        assert!(!list(&["0.0.0.0/0"]).permits(Peer::Ethernet(MacAddress([2; 6])), None, false));
    }

    #[test]
    fn a_client_id_is_asked_for_once_it_is_known() {
        let allow = list(&[&CLIENT.to_string(), "02:02:02:02:02:02"]);
        let station = Peer::Ethernet(MacAddress([2; 6]));
        assert!(allow.permits(udp("10.0.0.1"), None, false), "the handshake may go on");
        assert!(allow.permits(udp("10.0.0.1"), Some(CLIENT), false));
        assert!(!allow.permits(udp("10.0.0.1"), Some(STRANGER), false));
        assert!(allow.permits(station, Some(STRANGER), false), "its station is allowed");
        assert!(!allow.permits(Peer::Ethernet(MacAddress([3; 6])), Some(STRANGER), false));
    }
}
