//! Which of its addresses a server tells clients, in HyperSCSI's lists of links and as portals of iSCSI targets: storage traffic goes
//! only where somebody said that it may.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use sanwire_core::Peer;
use sanwire_io::interface::Interface;

use crate::allow::{AllowRule, IpPrefix};
use crate::link::LinkAddress;

/// Addresses that may be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnnounceRule {
    /// Those that begin with these bits.
    Prefix(IpPrefix),
    /// Those of the interface of this name, its Ethernet address among them.
    Interface(String),
}

/// Text that is no such rule.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is neither an address, nor a prefix, nor an interface: write it like 10.0.0.0/8, fd00::/8 or eth1")]
pub struct AnnounceRuleError(String);

impl FromStr for AnnounceRule {
    type Err = AnnounceRuleError;

    fn from_str(text: &str) -> Result<Self, AnnounceRuleError> {
        /// IFNAMSIZ, without the zero at the end.
        const NAME_MAX_BYTES: usize = 15;
        if let Ok(AllowRule::Prefix(prefix)) = text.parse() {
            return Ok(AnnounceRule::Prefix(prefix));
        }
        // What looks like an address is one that is wrong.
        let is_name = (1..=NAME_MAX_BYTES).contains(&text.len())
            && text.bytes().all(|letter| letter.is_ascii_graphic() && !b"/:*,".contains(&letter))
            && !text.bytes().all(|letter| letter.is_ascii_digit() || letter == b'.');
        if is_name { Ok(AnnounceRule::Interface(text.to_owned())) } else { Err(AnnounceRuleError(text.to_owned())) }
    }
}

impl fmt::Display for AnnounceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnnounceRule::Prefix(prefix) => prefix.fmt(f),
            AnnounceRule::Interface(name) => f.write_str(name),
        }
    }
}

impl AnnounceRule {
    /// Whether it names an address that one of these interfaces has.
    #[must_use]
    pub fn matches_any(&self, interfaces: &[Interface]) -> bool {
        interfaces.iter().any(|interface| match self {
            AnnounceRule::Prefix(prefix) => interface.addresses.iter().any(|ip| prefix.contains(*ip)),
            AnnounceRule::Interface(name) => interface.name == *name,
        })
    }
}

/// The addresses that are told: without rules all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Announced(Vec<AnnounceRule>);

impl Announced {
    /// Those that some rule names.
    #[must_use]
    pub fn new(rules: Vec<AnnounceRule>) -> Self {
        Announced(rules)
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[AnnounceRule] {
        &self.0
    }

    /// Whether every address is told.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    fn permits(&self, peer: Peer, interfaces: &[Interface]) -> bool {
        let has = |interface: &Interface| match peer {
            Peer::Ethernet(mac) => interface.mac_address == Some(mac),
            Peer::Udp(address) => interface.addresses.contains(&address.ip()),
        };
        self.is_all()
            || self.0.iter().any(|rule| match rule {
                AnnounceRule::Prefix(prefix) => matches!(peer, Peer::Udp(address) if prefix.contains(address.ip())),
                AnnounceRule::Interface(name) => {
                    interfaces.iter().any(|interface| interface.name == *name && has(interface))
                }
            })
    }

    /// Those of a server's links that are told.
    pub(crate) fn of_links(&self, links: &[LinkAddress], interfaces: &[Interface]) -> Vec<LinkAddress> {
        links.iter().filter(|link| self.permits(link.peer, interfaces)).copied().collect()
    }

    /// In place of the wildcard address and of whatever else a portal has, the addresses at which it is told to who came in `here`.
    pub(crate) fn of_portal(&self, listens: IpAddr, here: IpAddr, interfaces: &[Interface]) -> Vec<IpAddr> {
        let may_be_told = |ip: &IpAddr| self.permits(Peer::Udp((*ip, 0).into()), interfaces);
        let is_everywhere = listens.is_unspecified();
        if !is_everywhere || (listens.is_ipv4() == here.is_ipv4() && may_be_told(&here)) {
            let address = if is_everywhere { here } else { listens };
            return Some(address).filter(may_be_told).into_iter().collect();
        }
        if self.is_all() {
            return Vec::new();
        }
        // Where it was reached it shall not be: then where it may be.
        let own = interfaces.iter().filter(|interface| interface.is_up).flat_map(|interface| &interface.addresses);
        own.copied().filter(|ip| ip.is_ipv4() == listens.is_ipv4()).filter(may_be_told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, mac: u8, addresses: &[&str]) -> Interface {
        Interface {
            name: name.to_owned(),
            index: mac.into(),
            mac_address: Some(sanwire_core::MacAddress([2, 0, 0, 0, 0, mac])),
            mtu_bytes: 1500,
            speed_mbit: None,
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            is_up: true,
            is_running: true,
            is_loopback: false,
        }
    }

    fn announced(rules: &[&str]) -> Announced {
        Announced::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    #[test]
    fn rules_are_prefixes_and_interfaces() {
        for text in ["10.0.0.0/8", "10.1.2.3", "fd00::/8", "eth1", "bond0.100", "br-lan"] {
            assert_eq!(text.parse::<AnnounceRule>().unwrap().to_string(), text);
        }
        for text in
            ["", "10.0.0.1/8", "10.0.0", "a/b", "iqn.2026-11.org.example:*", "02:00:00:00:00:01", "sixteen-letters-"]
        {
            assert!(text.parse::<AnnounceRule>().is_err(), "{text}");
        }
        let here = [interface("eth0", 1, &["192.0.2.1"]), interface("eth1", 2, &["10.0.0.1", "fd00::1"])];
        let matches = |rule: &str| rule.parse::<AnnounceRule>().unwrap().matches_any(&here);
        assert!(matches("10.0.0.0/8") && matches("eth0") && !matches("172.16.0.0/12") && !matches("eth2"));
    }

    #[test]
    fn links_are_told_by_rules() {
        let here = [interface("eth0", 1, &["192.0.2.1"]), interface("eth1", 2, &["10.0.0.1"])];
        let peers = [
            Peer::Ethernet(here[0].mac_address.unwrap()),
            Peer::Ethernet(here[1].mac_address.unwrap()),
            Peer::Udp(([192, 0, 2, 1], 5).into()),
            Peer::Udp(([10, 0, 0, 1], 5).into()),
        ];
        let links = peers.map(|peer| LinkAddress { peer, packet_max_bytes: 1472, speed_mbit: 0 });
        let told = |rules: &[&str]| {
            let told = announced(rules).of_links(&links, &here);
            peers.map(|peer| told.iter().any(|link| link.peer == peer))
        };
        assert_eq!(told(&[]), [true; 4]);
        assert_eq!(told(&["10.0.0.0/8"]), [false, false, false, true]);
        assert_eq!(told(&["eth0"]), [true, false, true, false]);
        assert_eq!(told(&["eth1", "192.0.2.1"]), [false, true, true, true]);
        assert_eq!(told(&["eth7"]), [false; 4]);
    }

    #[test]
    fn portals_are_told_where_they_may_be_reached() {
        let here = [interface("eth0", 1, &["192.0.2.1"]), interface("eth1", 2, &["10.0.0.1", "fd00::1"])];
        let told = |rules: &[&str], listens: &str, reached: &str| -> Vec<String> {
            let told = announced(rules).of_portal(listens.parse().unwrap(), reached.parse().unwrap(), &here);
            told.iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&[], "0.0.0.0", "192.0.2.1"), ["192.0.2.1"]);
        assert_eq!(told(&[], "0.0.0.0", "fd00::1"), [""; 0]);
        assert_eq!(told(&[], "10.0.0.1", "192.0.2.1"), ["10.0.0.1"]);
        assert_eq!(told(&["eth1"], "0.0.0.0", "10.0.0.1"), ["10.0.0.1"]);
        assert_eq!(told(&["eth1"], "0.0.0.0", "192.0.2.1"), ["10.0.0.1"], "discovery by the management network");
        assert_eq!(told(&["eth1"], "::", "192.0.2.1"), ["fd00::1"]);
        assert_eq!(told(&["eth1"], "192.0.2.1", "192.0.2.1"), [""; 0]);
    }
}
