//! Where a packet came from and where the next one goes, whatever the wire.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Every station of the link.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text was not six pairs of hexadecimal digits with colons or dashes between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseMacAddressError;

impl fmt::Display for ParseMacAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is written like 02:00:5e:10:00:01")
    }
}

impl std::error::Error for ParseMacAddressError {}

impl FromStr for MacAddress {
    type Err = ParseMacAddressError;

    fn from_str(text: &str) -> Result<Self, ParseMacAddressError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut address = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut address {
            let part = parts.next().ok_or(ParseMacAddressError)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(ParseMacAddressError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseMacAddressError)?;
        }
        if parts.next().is_some() { Err(ParseMacAddressError) } else { Ok(MacAddress(address)) }
    }
}

/// The far end of a packet on its link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peer {
    /// A station on the same Ethernet.
    Ethernet(MacAddress),
    /// A UDP endpoint.
    Udp(SocketAddr),
}

/// The bits of an IPv6 address that name a network; one host may have all addresses of a network (RFC 4291 2.5.4).
const IPV6_NETWORK_BITS: u32 = 64;

impl Peer {
    /// One host: the station, or the IP address without its port.
    #[must_use]
    pub fn host(self) -> Peer {
        let Peer::Udp(address) = self else { return self };
        Peer::Udp(SocketAddr::new(address.ip().to_canonical(), 0))
    }

    /// What one stranger may have: a host, or the network of an IPv6 address, except where all hosts of a link share that network.
    #[must_use]
    pub fn source(self) -> Peer {
        let Peer::Udp(address) = self else { return self };
        Peer::Udp(SocketAddr::new(source(address.ip()), 0))
    }
}

/// The same of an IP address.
#[must_use]
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => {
            let bits = ip.to_bits() >> (128 - IPV6_NETWORK_BITS) << (128 - IPV6_NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        ip => ip,
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Ethernet(mac) => mac.fmt(f),
            Peer::Udp(address) => address.fmt(f),
        }
    }
}

/// A host, as its address tells it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HostAddress {
    /// By its IP address; one of IPv4 within IPv6 is that of IPv4.
    Ip(IpAddr),
    /// By its Ethernet address.
    Mac(MacAddress),
}

impl From<IpAddr> for HostAddress {
    fn from(address: IpAddr) -> Self {
        HostAddress::Ip(address.to_canonical())
    }
}

impl From<MacAddress> for HostAddress {
    fn from(address: MacAddress) -> Self {
        HostAddress::Mac(address)
    }
}

impl From<Peer> for HostAddress {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Ethernet(mac) => mac.into(),
            Peer::Udp(address) => address.ip().into(),
        }
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostAddress::Ip(address) => address.fmt(f),
            HostAddress::Mac(address) => address.fmt(f),
        }
    }
}

/// One of the links (sockets on an interface or address) that a driver serves, by its place in the driver's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LinkId(pub u8);

/// The way of a packet: which link of ours, and who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// Our link.
    pub link: LinkId,
    /// The far end.
    pub peer: Peer,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_address_survives_its_text() {
        let mac = MacAddress([2, 0, 0x5e, 0x10, 0, 0xff]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("02-00-5e-10-00-FF".parse(), Ok(mac));
        for text in ["", "02:00:5e:10:00", "02:00:5e:10:00:01:02", "2:0:5e:10:0:1", "0g:00:5e:10:00:01", "server-name"]
        {
            assert_eq!(text.parse::<MacAddress>(), Err(ParseMacAddressError), "{text}");
        }
    }

    #[test]
    fn a_source_is_a_host_or_a_network_of_ipv6() {
        let source = |text: &str| Peer::Udp(text.parse().unwrap()).source();
        assert_eq!(source("10.0.0.1:5"), source("10.0.0.1:6"));
        assert_eq!(source("[::ffff:10.0.0.1]:5"), source("10.0.0.1:6"));
        assert_ne!(source("10.0.0.1:5"), source("10.0.0.2:5"));
        assert_eq!(source("[2001:db8::1]:5"), source("[2001:db8::ffff:0:0:1]:6"));
        assert_ne!(source("[2001:db8::1]:5"), source("[2001:db8:0:1::1]:5"));
        assert_ne!(source("[fe80::1]:5"), source("[fe80::2]:5"), "all hosts of a link share that network");
        let host = |text: &str| Peer::Udp(text.parse().unwrap()).host();
        assert_eq!(host("[::ffff:10.0.0.1]:5"), host("10.0.0.1:6"));
        assert_ne!(host("[2001:db8::1]:5"), host("[2001:db8::2]:5"));
        let station = Peer::Ethernet(MacAddress([2; 6]));
        let address = |text: &str| HostAddress::from(Peer::Udp(text.parse().unwrap())).to_string();
        assert_eq!(
            (address("[::ffff:10.0.0.1]:5"), address("[2001:db8::1]:5")),
            ("10.0.0.1".into(), "2001:db8::1".into())
        );
        assert_eq!((station.host(), station.source()), (station, station));
    }
}
