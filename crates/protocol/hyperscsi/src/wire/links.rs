//! Bodies of ADDR_REPORT and ADDR_REPLY: where a server can be reached besides, and how another path becomes a link of a
//! connection. Always sealed.
//!
//! ```text
//! ADDR_REPORT  1 byte kind
//!   1 addresses  1 byte count, then each: 1 byte kind (1 Ethernet, 4 IPv4, 6 IPv6), the address (6, 4 or 16 bytes),
//!                2 bytes UDP port (0 with Ethernet), 4 bytes largest packet, 4 bytes speed in Mbit/s (0: not known)
//!   2 join       8 bytes nonce, 4 bytes largest packet of the sender's end, 4 bytes packets that it takes at once
//!   3 confirm    8 bytes the other end's nonce
//! ADDR_REPLY   1 byte kind
//!   1 addresses  nothing more
//!   2 join       8 bytes nonce, repeated; 8 bytes nonce of the answerer; 4 and 4 bytes as above, of its end
//!   3 confirm    8 bytes nonce, repeated
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sanwire_core::{MacAddress, Peer};

use super::{Malformed, Reader};

/// Links of a connection at the most, and addresses in a report.
pub const LINKS_MAX: usize = 8;

const ETHERNET: u8 = 1;
const IPV4: u8 = 4;
const IPV6: u8 = 6;

const ADDRESSES: u8 = 1;
const JOIN: u8 = 2;
const CONFIRM: u8 = 3;

/// Where a server can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The address.
    pub peer: Peer,
    /// The largest packet of the link there, in bytes.
    pub packet_max_bytes: u32,
    /// The link's speed in Mbit/s; 0: not known.
    pub speed_mbit: u32,
}

impl Address {
    fn read(reader: &mut Reader<'_>) -> Result<Address, Malformed> {
        let kind = reader.u8()?;
        let peer = match kind {
            ETHERNET => {
                let mac = MacAddress(reader.array()?);
                reader.u16()?;
                Peer::Ethernet(mac)
            }
            IPV4 => {
                let ip: [u8; 4] = reader.array()?;
                Peer::Udp(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), reader.u16()?))
            }
            IPV6 => {
                let ip: [u8; 16] = reader.array()?;
                Peer::Udp(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), reader.u16()?))
            }
            _ => return Err(Malformed::Field("kind of address")),
        };
        Ok(Address { peer, packet_max_bytes: reader.u32()?, speed_mbit: reader.u32()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self.peer {
            Peer::Ethernet(mac) => {
                out.push(ETHERNET);
                out.extend_from_slice(&mac.0);
                out.extend_from_slice(&[0, 0]);
            }
            Peer::Udp(address) => {
                match address.ip() {
                    IpAddr::V4(ip) => {
                        out.push(IPV4);
                        out.extend_from_slice(&ip.octets());
                    }
                    IpAddr::V6(ip) => {
                        out.push(IPV6);
                        out.extend_from_slice(&ip.octets());
                    }
                }
                out.extend_from_slice(&address.port().to_be_bytes());
            }
        }
        out.extend_from_slice(&self.packet_max_bytes.to_be_bytes());
        out.extend_from_slice(&self.speed_mbit.to_be_bytes());
    }
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// The largest packet that it takes, in bytes from the HyperSCSI header on.
    pub packet_max_bytes: u32,
    /// How many such packets may be under way towards it.
    pub receive_capacity_packets: u32,
}

fn read_end(reader: &mut Reader<'_>) -> Result<LinkLimits, Malformed> {
    Ok(LinkLimits { packet_max_bytes: reader.u32()?, receive_capacity_packets: reader.u32()? })
}

fn end_bytes(end: LinkLimits) -> [u8; 8] {
    (u64::from(end.packet_max_bytes) << 32 | u64::from(end.receive_capacity_packets)).to_be_bytes()
}

/// The body of ADDR_REPORT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddrReport {
    /// A server says where it can be reached, besides where it is reached already.
    Addresses(Vec<Address>),
    /// On a new path: may this be a link of the connection?
    Join {
        /// Drawn for this path.
        nonce: u64,
        /// The sender's end.
        end: LinkLimits,
    },
    /// The answer has arrived: the path works in both directions.
    Confirm {
        /// The nonce of the answer.
        nonce: u64,
    },
}

impl AddrReport {
    /// Reads the unsealed body.
    ///
    /// # Errors
    /// [`Malformed`] for unknown kinds, and for more addresses than a connection can have links.
    pub fn read(body: &[u8]) -> Result<AddrReport, Malformed> {
        let mut reader = Reader::new(body);
        match reader.u8()? {
            ADDRESSES => {
                let count = usize::from(reader.u8()?);
                if count > LINKS_MAX {
                    return Err(Malformed::Field("number of addresses"));
                }
                (0..count).map(|_| Address::read(&mut reader)).collect::<Result<_, _>>().map(AddrReport::Addresses)
            }
            JOIN => Ok(AddrReport::Join { nonce: reader.u64()?, end: read_end(&mut reader)? }),
            CONFIRM => Ok(AddrReport::Confirm { nonce: reader.u64()? }),
            _ => Err(Malformed::Field("kind of ADDR_REPORT")),
        }
    }

    /// The body. Of addresses only the first [`LINKS_MAX`] are told.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            AddrReport::Addresses(addresses) => {
                let told = &addresses[..addresses.len().min(LINKS_MAX)];
                out.extend_from_slice(&[ADDRESSES, told.len() as u8]);
                told.iter().for_each(|address| address.write(&mut out));
            }
            AddrReport::Join { nonce, end } => {
                out.push(JOIN);
                out.extend_from_slice(&nonce.to_be_bytes());
                out.extend_from_slice(&end_bytes(*end));
            }
            AddrReport::Confirm { nonce } => {
                out.push(CONFIRM);
                out.extend_from_slice(&nonce.to_be_bytes());
            }
        }
        out
    }
}

/// The body of ADDR_REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddrReply {
    /// The addresses have arrived.
    Addresses,
    /// The path may be a link, if this comes.
    Join {
        /// The request's.
        nonce: u64,
        /// To be repeated in the confirmation.
        own_nonce: u64,
        /// The answerer's end.
        end: LinkLimits,
    },
    /// The path is a link.
    Confirm {
        /// The request's.
        nonce: u64,
    },
}

impl AddrReply {
    /// Reads the unsealed body.
    ///
    /// # Errors
    /// [`Malformed`] for unknown kinds.
    pub fn read(body: &[u8]) -> Result<AddrReply, Malformed> {
        let mut reader = Reader::new(body);
        match reader.u8()? {
            ADDRESSES => Ok(AddrReply::Addresses),
            JOIN => {
                let (nonce, own_nonce) = (reader.u64()?, reader.u64()?);
                Ok(AddrReply::Join { nonce, own_nonce, end: read_end(&mut reader)? })
            }
            CONFIRM => Ok(AddrReply::Confirm { nonce: reader.u64()? }),
            _ => Err(Malformed::Field("kind of ADDR_REPLY")),
        }
    }

    /// The body.
    #[must_use]
    pub fn write(self) -> Vec<u8> {
        match self {
            AddrReply::Addresses => vec![ADDRESSES],
            AddrReply::Join { nonce, own_nonce, end } => {
                [&[JOIN][..], &nonce.to_be_bytes(), &own_nonce.to_be_bytes(), &end_bytes(end)].concat()
            }
            AddrReply::Confirm { nonce } => [&[CONFIRM][..], &nonce.to_be_bytes()].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_survive_the_wire() {
        let address = |peer| Address { peer, packet_max_bytes: 9000, speed_mbit: 10_000 };
        let addresses = vec![
            address(Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, 1]))),
            address(Peer::Udp("192.0.2.1:5674".parse().unwrap())),
            address(Peer::Udp("[2001:db8::1]:5674".parse().unwrap())),
        ];
        let end = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 1 << 31 };
        for report in [
            AddrReport::Addresses(addresses),
            AddrReport::Join { nonce: 1 << 60, end },
            AddrReport::Confirm { nonce: 7 },
        ] {
            assert_eq!(AddrReport::read(&report.write()), Ok(report));
        }
        for reply in [
            AddrReply::Addresses,
            AddrReply::Join { nonce: 1, own_nonce: u64::MAX, end },
            AddrReply::Confirm { nonce: 7 },
        ] {
            assert_eq!(AddrReply::read(&reply.write()), Ok(reply));
        }
    }

    #[test]
    fn more_addresses_than_links_are_refused() {
        let body: Vec<u8> = [&[1, 9][..], &[0; 200]].concat();
        assert!(AddrReport::read(&body).is_err() && AddrReport::read(&[1, 1, 5]).is_err());
    }
}
