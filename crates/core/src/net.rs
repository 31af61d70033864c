//! Where a packet came from and where the next one goes, whatever the wire.

use std::fmt;
use std::net::SocketAddr;
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

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Ethernet(mac) => mac.fmt(f),
            Peer::Udp(address) => address.fmt(f),
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
}
