//! Where a server listens, as people write it: `hs-eth:IF` or `hs-ip:ADDR[:5674]`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use sanwire_hyperscsi::UDP_PORT as HS_IP_PORT;
use sanwire_scsi::vpd::TargetPort;

/// The longest name of a network interface (Linux, IFNAMSIZ less the final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;

/// The target port of all HyperSCSI wires: a session goes over any of them, so they are one port.
pub(crate) const HYPERSCSI_PORT: TargetPort =
    TargetPort { relative_id: 1, group: 1, port_name: None, device_name: None };

/// One wire of a server. Made from `hs-eth:IF` or `hs-ip:ADDR[:5674]` by `parse`.
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
    #[error("'{0}' is no wire: use hs-eth:IF (like hs-eth:eth0) or hs-ip:ADDR[:{HS_IP_PORT}] (like hs-ip:0.0.0.0)")]
    Unknown(String),
    /// Not the name of an interface.
    #[error("'{0}' is no network interface: use its name as `ip link` shows it, like eth0")]
    Interface(String),
    /// Not an address.
    #[error("'{0}' is no address to listen on: use an IPv4 address, or IPv6 in brackets, and perhaps :PORT")]
    Address(String),
}

impl FromStr for Wire {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        match text.split_once(':') {
            Some(("hs-eth", interface)) => parse_interface(interface),
            Some(("hs-ip", address)) => match parse_address(address) {
                Some(address) => Ok(Wire::HsIp { address }),
                None => Err(WireError::Address(address.into())),
            },
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

/// `1.2.3.4`, `1.2.3.4:5`, `[::1]` or `[::1]:5`.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let alone = match bracketed {
        Some(inside) => inside.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    };
    alone.map(|ip| SocketAddr::new(ip, HS_IP_PORT)).or_else(|| text.parse().ok()).filter(|address| address.port() != 0)
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wire::HsEth { interface } => write!(f, "hs-eth:{interface}"),
            Wire::HsIp { address } => write!(f, "hs-ip:{address}"),
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
        ] {
            assert_eq!(text.parse::<Wire>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, part) in [
            ("eth0", "use hs-eth:IF (like hs-eth:eth0) or hs-ip:ADDR[:5674]"),
            ("tcp:1.2.3.4", "'tcp:1.2.3.4' is no wire"),
            ("hs-eth:", "'' is no network interface"),
            ("hs-eth:much-too-long-name", "is no network interface"),
            ("hs-ip:", "'' is no address to listen on"),
            ("hs-ip:localhost", "IPv6 in brackets"),
            ("hs-ip:::1", "IPv6 in brackets"),
            ("hs-ip:1.2.3.4:0", "is no address"),
            ("hs-ip:1.2.3.4:x", "is no address"),
        ] {
            let message = text.parse::<Wire>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
