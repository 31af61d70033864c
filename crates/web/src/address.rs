//! Where the API is reached.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The port when none is said: that of HyperSCSI, which is UDP.
pub const PORT: u16 = 5674;

/// Where the API is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WebAddress {
    /// At this address and port.
    Tcp(SocketAddr),
    /// At a unix socket, by its owner and root alone.
    Unix(PathBuf),
}

/// The text names no such place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no place for HTTP: use ADDR, ADDR:PORT, [ADDR6]:PORT or unix:PATH, like 127.0.0.1:{PORT}")]
pub struct NoWebAddress(String);

impl FromStr for WebAddress {
    type Err = NoWebAddress;

    fn from_str(text: &str) -> Result<Self, NoWebAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(WebAddress::Unix(path)) } else { Err(NoWebAddress(text.to_owned())) };
        }
        let address: Option<IpAddr> = text.trim_start_matches('[').trim_end_matches(']').parse().ok();
        let address = address.map(|address| SocketAddr::new(address, PORT)).or_else(|| text.parse().ok());
        address.map(WebAddress::Tcp).ok_or_else(|| NoWebAddress(text.to_owned()))
    }
}

impl fmt::Display for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebAddress::Tcp(address) => address.fmt(f),
            WebAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl WebAddress {
    /// Where a client finds it.
    #[must_use]
    pub fn url(&self, is_encrypted: bool) -> String {
        match self {
            WebAddress::Tcp(address) if is_encrypted => format!("https://{address}"),
            WebAddress::Tcp(address) => format!("http://{address}"),
            WebAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Whether only this host can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            WebAddress::Tcp(address) => address.ip().to_canonical().is_loopback(),
            WebAddress::Unix(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_socket() {
        for (text, shown) in [
            ("127.0.0.1", "127.0.0.1:5674"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("::1", "[::1]:5674"),
            ("[::1]", "[::1]:5674"),
            ("[::1]:80", "[::1]:80"),
            ("unix:/run/x", "unix:/run/x"),
        ] {
            assert_eq!(text.parse::<WebAddress>().unwrap().to_string(), shown);
        }
        for text in ["", "localhost", "unix:x", "unix:", "1.2.3.4:99999", "http://1.2.3.4"] {
            assert!(text.parse::<WebAddress>().is_err(), "{text}");
        }
        let is_local = |text: &str| text.parse::<WebAddress>().unwrap().is_local();
        assert!(is_local("127.0.0.2") && is_local("::1") && is_local("::ffff:127.0.0.1") && is_local("unix:/x"));
        assert!(!is_local("0.0.0.0") && !is_local("10.0.0.1"));
    }
}
