//! Where a server listens, as people write it: `hs-eth:IF` or `hs-ip:ADDR[:PORT]`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use sanwire_hyperscsi::UDP_PORT;

/// The longest name of a network interface (Linux, IFNAMSIZ less the final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;

/// One way to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wire {
    /// HyperSCSI on raw Ethernet, on this interface.
    HsEthernet {
        /// The interface's name.
        interface: String,
    },
    /// HyperSCSI over UDP, at this address.
    HsIp {
        /// Where to bind.
        address: SocketAddr,
    },
}

/// The text is no wire.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}' is no wire: expected hs-eth:INTERFACE (like hs-eth:eth0) or hs-ip:ADDRESS[:PORT] (like hs-ip:0.0.0.0 or hs-ip:[::1]:5674)"
)]
pub struct WireError {
    /// What was written.
    pub text: String,
}

impl FromStr for Wire {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let refused = || WireError { text: text.to_owned() };
        if let Some(interface) = text.strip_prefix("hs-eth:") {
            let is_name = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
            let fits = (1..=INTERFACE_NAME_MAX_BYTES).contains(&interface.len());
            let named = fits && interface.chars().all(is_name);
            return if named { Ok(Wire::HsEthernet { interface: interface.to_owned() }) } else { Err(refused()) };
        }
        let address = text.strip_prefix("hs-ip:").ok_or_else(refused)?;
        if let Ok(address) = address.parse::<SocketAddr>() {
            return Ok(Wire::HsIp { address });
        }
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let ip: IpAddr = bare.parse().map_err(|_| refused())?;
        Ok(Wire::HsIp { address: SocketAddr::new(ip, UDP_PORT) })
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wire::HsEthernet { interface } => write!(f, "hs-eth:{interface}"),
            Wire::HsIp { address } => write!(f, "hs-ip:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_are_read_as_people_write_them() {
        for (text, shown) in [
            ("hs-eth:eth0", "hs-eth:eth0"),
            ("hs-ip:10.0.0.1", "hs-ip:10.0.0.1:5674"),
            ("hs-ip:0.0.0.0:99", "hs-ip:0.0.0.0:99"),
            ("hs-ip:[::1]", "hs-ip:[::1]:5674"),
            ("hs-ip:::1", "hs-ip:[::1]:5674"),
            ("hs-ip:[::]:7", "hs-ip:[::]:7"),
        ] {
            assert_eq!(text.parse::<Wire>().unwrap().to_string(), shown);
        }
        for text in
            ["", "hs-eth:", "hs-eth:a b", "hs-eth:sixteen-bytes-it", "hs-ip:", "hs-ip:host", "hs-ip:1.2.3.4:x", "eth0"]
        {
            assert!(text.parse::<Wire>().is_err(), "{text}");
        }
    }
}
