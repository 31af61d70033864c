//! Where a server listens, as people write it: `hs-eth:IF`, `hs-ip:ADDR[:5674]` or `iscsi:ADDR[:3260][,TAG]`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use sanwire_hyperscsi::UDP_PORT as HS_IP_PORT;
use sanwire_iscsi::{ISCSI_PORT, IscsiName};
use sanwire_scsi::vpd::TargetPort;

use crate::front;

/// The longest name of a network interface (Linux, IFNAMSIZ less the final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;

/// The target port of all HyperSCSI wires: a session goes over any of them, so they are one port.
pub(crate) const HYPERSCSI_PORT: TargetPort =
    TargetPort { relative_id: 1, group: 1, port_name: None, device_name: None };

/// The target port that a portal group is to an iSCSI target (RFC 7143 4.4.1), in a target port group of its own: states are
/// those of portal groups. Numbers begin behind that of HyperSCSI.
pub(crate) fn iscsi_port(target: &IscsiName, group_tag: u16) -> TargetPort {
    TargetPort {
        relative_id: iscsi_port_id(group_tag),
        group: group_tag,
        port_name: Some(format!("{target},t,0x{group_tag:04x}")),
        device_name: Some(target.to_string()),
    }
}

/// The relative identifier of the port that a portal group is.
pub(crate) fn iscsi_port_id(group_tag: u16) -> u16 {
    group_tag.saturating_add(1)
}

/// The portal group of a portal for which none is said.
const GROUP_TAG_DEFAULT: u16 = 1;

/// One wire of a server. Made from `hs-eth:IF`, `hs-ip:ADDR[:5674]` or `iscsi:ADDR[:3260][,TAG]` by `parse`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wire {
    /// HyperSCSI on raw Ethernet.
    HsEth {
        /// The network interface.
        interface: String,
    },
    /// HyperSCSI over UDP.
    HsIp {
        /// What to bind.
        address: SocketAddr,
    },
    /// iSCSI over TCP: a network portal.
    Iscsi {
        /// What to bind.
        address: SocketAddr,
        /// The tag of the portal's group (RFC 7143 4.3.1): portals through which one session may have connections.
        group_tag: u16,
    },
}

impl Wire {
    /// Where it listens and the tag of its group, if it is an iSCSI portal.
    #[must_use]
    pub fn portal(&self) -> Option<(SocketAddr, u16)> {
        match self {
            Wire::Iscsi { address, group_tag } => Some((*address, *group_tag)),
            Wire::HsEth { .. } | Wire::HsIp { .. } => None,
        }
    }
}

impl Wire {
    /// The place of its front end in each shard.
    pub(crate) fn front(&self) -> u8 {
        match self {
            Wire::HsEth { .. } | Wire::HsIp { .. } => front::HYPERSCSI,
            Wire::Iscsi { .. } => front::ISCSI,
        }
    }
}

impl Default for Wire {
    /// HyperSCSI over UDP on this host alone: what needs no root.
    fn default() -> Self {
        Wire::HsIp { address: (Ipv4Addr::LOCALHOST, HS_IP_PORT).into() }
    }
}

/// Why a text is not a wire.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// Not one of the wires.
    #[error(
        "'{0}' is no wire: use hs-eth:IF (like hs-eth:eth0), hs-ip:ADDR[:{HS_IP_PORT}] (like hs-ip:0.0.0.0) or \
         iscsi:ADDR[:{ISCSI_PORT}] (like iscsi:0.0.0.0)"
    )]
    Unknown(String),
    /// Not the name of an interface.
    #[error("'{0}' is no network interface: use its name as `ip link` shows it, like eth0")]
    Interface(String),
    /// Not an address.
    #[error("'{0}' is no address to listen on: use an IPv4 address, or IPv6 in brackets, and perhaps :PORT")]
    Address(String),
    /// Not the tag of a portal group.
    #[error("'{0}' is no tag of a portal group: use a number from 1 to 65535, as in iscsi:192.0.2.1,2")]
    GroupTag(String),
}

impl FromStr for Wire {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        match text.split_once(':') {
            Some(("hs-eth", interface)) => parse_interface(interface),
            Some(("hs-ip", address)) => Ok(Wire::HsIp { address: parse_address(address, HS_IP_PORT)? }),
            Some(("iscsi", portal)) => parse_portal(portal),
            _ => Err(WireError::Unknown(text.into())),
        }
    }
}

fn parse_interface(text: &str) -> Result<Wire, WireError> {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    if (1..=INTERFACE_NAME_MAX_BYTES).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(Wire::HsEth { interface: text.into() })
    } else {
        Err(WireError::Interface(text.into()))
    }
}

fn parse_portal(text: &str) -> Result<Wire, WireError> {
    let (address, tag) = text.split_once(',').map_or((text, None), |(address, tag)| (address, Some(tag)));
    let address = parse_address(address, ISCSI_PORT)?;
    let group_tag = match tag {
        None => GROUP_TAG_DEFAULT,
        Some(tag) => tag.parse().ok().filter(|tag| *tag != 0).ok_or_else(|| WireError::GroupTag(tag.into()))?,
    };
    Ok(Wire::Iscsi { address, group_tag })
}

/// `1.2.3.4`, `1.2.3.4:5`, `[::1]` or `[::1]:5`.
fn parse_address(text: &str, port: u16) -> Result<SocketAddr, WireError> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let alone = match bracketed {
        Some(inside) => inside.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    };
    let address = alone.map(|ip| SocketAddr::new(ip, port)).or_else(|| text.parse().ok());
    address.filter(|address| address.port() != 0).ok_or_else(|| WireError::Address(text.into()))
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wire::HsEth { interface } => write!(f, "hs-eth:{interface}"),
            Wire::HsIp { address } => write!(f, "hs-ip:{address}"),
            Wire::Iscsi { address, group_tag: GROUP_TAG_DEFAULT } => write!(f, "iscsi:{address}"),
            Wire::Iscsi { address, group_tag } => write!(f, "iscsi:{address},{group_tag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_are_read_and_written_again() {
        for (text, canonical) in [
            ("hs-eth:eth0", "hs-eth:eth0"),
            ("hs-ip:127.0.0.1", "hs-ip:127.0.0.1:5674"),
            ("hs-ip:0.0.0.0:99", "hs-ip:0.0.0.0:99"),
            ("hs-ip:[::1]", "hs-ip:[::1]:5674"),
            ("hs-ip:[::]:7", "hs-ip:[::]:7"),
            ("iscsi:10.0.0.1", "iscsi:10.0.0.1:3260"),
            ("iscsi:[::1],1", "iscsi:[::1]:3260"),
            ("iscsi:[::]:99,2", "iscsi:[::]:99,2"),
        ] {
            assert_eq!(text.parse::<Wire>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, part) in [
            ("eth0", "use hs-eth:IF (like hs-eth:eth0), hs-ip:ADDR[:5674] (like hs-ip:0.0.0.0) or iscsi:ADDR[:3260]"),
            ("tcp:1.2.3.4", "'tcp:1.2.3.4' is no wire"),
            ("hs-eth:", "'' is no network interface"),
            ("hs-eth:much-too-long-name", "is no network interface"),
            ("hs-ip:", "'' is no address to listen on"),
            ("hs-ip:localhost", "IPv6 in brackets"),
            ("hs-ip:::1", "IPv6 in brackets"),
            ("hs-ip:1.2.3.4:0", "is no address"),
            ("hs-ip:1.2.3.4:x", "is no address"),
            ("iscsi:localhost", "IPv6 in brackets"),
            ("iscsi:1.2.3.4,0", "'0' is no tag of a portal group"),
            ("iscsi:1.2.3.4,x", "a number from 1 to 65535"),
        ] {
            let message = text.parse::<Wire>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
