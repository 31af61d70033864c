//! Where a volume is, as people write it: `hs+ip://HOST[:5674]/VOLUME` or `hs+eth://IF/SERVER/VOLUME`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use sanwire_core::MacAddress;
use sanwire_core::limits::VOLUME_NAME_MAX_BYTES;

/// The UDP port of HyperSCSI over IP when the URL names none.
pub const HS_IP_PORT: u16 = 5674;

/// The longest name of a network interface (Linux, IFNAMSIZ less the final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;
/// The longest name of a host (RFC 1035 2.3.4).
const HOST_NAME_MAX_BYTES: usize = 253;

/// A server, and one of its volumes unless the whole server is meant. Made from text by `parse`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Who serves it, and over which wire.
    pub server: Server,
    /// The volume's name; without it the URL means the server.
    pub volume: Option<String>,
}

/// Who serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Server {
    /// HyperSCSI on raw Ethernet.
    Ethernet {
        /// Our network interface.
        interface: String,
        /// Which of the servers that answer there.
        server: Station,
    },
    /// HyperSCSI over UDP.
    Ip {
        /// An address (IPv6 without its brackets) or a name to look up.
        host: String,
        /// The UDP port.
        port: u16,
    },
}

/// A server on an Ethernet: known by its name until discovery tells its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Station {
    /// The name that it gives in discovery.
    Name(String),
    /// Its address.
    Mac(MacAddress),
}

/// Why a text is not a URL of a volume or server. The messages say what was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// It does not begin with a known scheme.
    #[error("'{url}' is no volume URL: expected hs+ip://HOST[:5674]/VOLUME or hs+eth://IF/SERVER/VOLUME")]
    Scheme {
        /// What was written.
        url: String,
    },
    /// A part is missing or is one too many.
    #[error("'{url}' has {problem}: expected {expected}")]
    Shape {
        /// What was written.
        url: String,
        /// What is wrong.
        problem: &'static str,
        /// What the scheme wants.
        expected: &'static str,
    },
    /// A part is not what it should be.
    #[error("'{part}' in '{url}' is no {what}: expected {expected}")]
    Part {
        /// What was written.
        url: String,
        /// The part of it.
        part: String,
        /// What the part stands for.
        what: &'static str,
        /// What is allowed there.
        expected: &'static str,
    },
    /// The URL means a server where a volume is needed.
    #[error("'{url}' names no volume: add /VOLUME (`sanwire ls {url}` lists them)")]
    NoVolume {
        /// What was written.
        url: String,
    },
}

impl Url {
    /// Whether the text is meant as a URL and not as a file's path: it has `://` in it.
    #[must_use]
    pub fn is_meant_by(text: &str) -> bool {
        text.contains("://")
    }

    /// The volume's name.
    ///
    /// # Errors
    /// [`UrlError::NoVolume`] when the URL means a whole server.
    pub fn volume(&self) -> Result<&str, UrlError> {
        self.volume.as_deref().ok_or_else(|| UrlError::NoVolume { url: self.to_string() })
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let parser = Parser { url: text };
        if let Some(rest) = text.strip_prefix("hs+ip://") {
            parser.ip(rest)
        } else if let Some(rest) = text.strip_prefix("hs+eth://") {
            parser.ethernet(rest)
        } else {
            Err(UrlError::Scheme { url: text.into() })
        }
    }
}

/// Reads the parts; keeps the whole for messages.
struct Parser<'a> {
    url: &'a str,
}

impl Parser<'_> {
    const IP_SHAPE: &'static str = "hs+ip://HOST[:5674]/VOLUME";
    const ETHERNET_SHAPE: &'static str = "hs+eth://IF/SERVER/VOLUME";

    fn ip(&self, rest: &str) -> Result<Url, UrlError> {
        let mut parts = rest.split('/');
        let (host, port) = self.authority(parts.next().unwrap_or_default())?;
        let volume = self.volume(&mut parts, Self::IP_SHAPE)?;
        Ok(Url { server: Server::Ip { host, port }, volume })
    }

    fn ethernet(&self, rest: &str) -> Result<Url, UrlError> {
        let mut parts = rest.split('/');
        let interface = parts.next().unwrap_or_default();
        let is_interface = |text: &str| {
            (1..=INTERFACE_NAME_MAX_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !is_interface(interface) {
            return Err(self.part(interface, "network interface", "its name as `ip link` shows it, like eth0"));
        }
        let server = match parts.next().filter(|server| !server.is_empty()) {
            None => return Err(self.shape("no server", Self::ETHERNET_SHAPE)),
            Some(text) => self.station(text)?,
        };
        let volume = self.volume(&mut parts, Self::ETHERNET_SHAPE)?;
        Ok(Url { server: Server::Ethernet { interface: interface.into(), server }, volume })
    }

    fn station(&self, text: &str) -> Result<Station, UrlError> {
        if let Ok(mac) = text.parse() {
            Ok(Station::Mac(mac))
        } else if is_name(text, VOLUME_NAME_MAX_BYTES) {
            Ok(Station::Name(text.into()))
        } else {
            Err(self.part(text, "server", "its name as `sanwire discover` shows it, or a MAC like 02:00:5e:10:00:01"))
        }
    }

    /// `HOST`, `HOST:PORT`, `[IPv6]` or `[IPv6]:PORT`.
    fn authority(&self, text: &str) -> Result<(String, u16), UrlError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let split = bracketed.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok());
                split.ok_or_else(|| self.part(text, "host", "an IPv6 address in brackets, like [fe80::1]"))?
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        if !text.starts_with('[') && !is_name(host, HOST_NAME_MAX_BYTES) {
            return Err(self.part(host, "host", "a name, an IPv4 address or an IPv6 address in brackets"));
        }
        let port = match port.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|port| *port != 0),
            None if port.is_empty() => Some(HS_IP_PORT),
            None => None,
        };
        let expected = "a number from 1 to 65535 (an IPv6 address stands in brackets)";
        Ok((host.into(), port.ok_or_else(|| self.part(text, "host with a port", expected))?))
    }

    fn volume<'b>(
        &self,
        parts: &mut impl Iterator<Item = &'b str>,
        expected: &'static str,
    ) -> Result<Option<String>, UrlError> {
        let volume = parts.next().filter(|volume| !volume.is_empty());
        if parts.next().is_some() {
            return Err(self.shape("a part too many", expected));
        }
        match volume {
            Some(name) if !is_name(name, VOLUME_NAME_MAX_BYTES) => {
                Err(self.part(name, "volume name", "1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'"))
            }
            volume => Ok(volume.map(Into::into)),
        }
    }

    fn shape(&self, problem: &'static str, expected: &'static str) -> UrlError {
        UrlError::Shape { url: self.url.into(), problem, expected }
    }

    fn part(&self, part: &str, what: &'static str, expected: &'static str) -> UrlError {
        UrlError::Part { url: self.url.into(), part: part.into(), what, expected }
    }
}

fn is_name(text: &str, max_bytes: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=max_bytes).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl fmt::Display for Url {
    /// The canonical text, which parses to the same URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)?;
        self.volume.iter().try_for_each(|volume| write!(f, "/{volume}"))
    }
}

impl fmt::Display for Server {
    /// The URL of the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Ethernet { interface, server } => write!(f, "hs+eth://{interface}/{server}"),
            Server::Ip { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                write!(f, "hs+ip://{host}")?;
                if *port == HS_IP_PORT { Ok(()) } else { write!(f, ":{port}") }
            }
        }
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Station::Name(name) => f.write_str(name),
            Station::Mac(mac) => mac.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(host: &str, port: u16, volume: Option<&str>) -> Url {
        Url { server: Server::Ip { host: host.into(), port }, volume: volume.map(Into::into) }
    }

    fn ethernet(server: Station, volume: Option<&str>) -> Url {
        let server = Server::Ethernet { interface: "eth0.5".into(), server };
        Url { server, volume: volume.map(Into::into) }
    }

    #[test]
    fn reads_both_wires_and_writes_them_again() {
        let mac = MacAddress([2, 0, 0x5e, 0x10, 0, 1]);
        for (text, url) in [
            ("hs+ip://127.0.0.1/disk0", ip("127.0.0.1", 5674, Some("disk0"))),
            ("hs+ip://storage.example:7000/a.b-c_d", ip("storage.example", 7000, Some("a.b-c_d"))),
            ("hs+ip://[fe80::1]/disk0", ip("fe80::1", 5674, Some("disk0"))),
            ("hs+ip://[::1]:99", ip("::1", 99, None)),
            ("hs+eth://eth0.5/box/disk0", ethernet(Station::Name("box".into()), Some("disk0"))),
            ("hs+eth://eth0.5/02:00:5e:10:00:01/disk0", ethernet(Station::Mac(mac), Some("disk0"))),
            ("hs+eth://eth0.5/box", ethernet(Station::Name("box".into()), None)),
        ] {
            assert_eq!(text.parse(), Ok(url.clone()), "{text}");
            assert_eq!(url.to_string(), text);
        }
        assert_eq!("hs+ip://a:5674/".parse(), Ok(ip("a", 5674, None)), "a slash alone names no volume");
    }

    #[test]
    fn errors_say_what_is_expected() {
        for (text, part) in [
            ("disk0", "expected hs+ip://HOST[:5674]/VOLUME or hs+eth://IF/SERVER/VOLUME"),
            ("iscsi://a/b", "'iscsi://a/b' is no volume URL"),
            ("hs+ip://", "'' in 'hs+ip://' is no host"),
            ("hs+ip:///disk0", "is no host"),
            ("hs+ip://fe80::1/disk0", "an IPv6 address stands in brackets"),
            ("hs+ip://[fe80::1/disk0", "an IPv6 address in brackets, like [fe80::1]"),
            ("hs+ip://[::1]x/disk0", "a number from 1 to 65535"),
            ("hs+ip://a:0/disk0", "a number from 1 to 65535"),
            ("hs+ip://a:65536/disk0", "a number from 1 to 65535"),
            ("hs+ip://a/b/c", "has a part too many: expected hs+ip://HOST[:5674]/VOLUME"),
            ("hs+ip://a/b c", "'b c' in 'hs+ip://a/b c' is no volume name"),
            ("hs+eth://eth0", "has no server: expected hs+eth://IF/SERVER/VOLUME"),
            ("hs+eth:///box/disk0", "is no network interface"),
            ("hs+eth://interface-too-long/box/a", "is no network interface"),
            ("hs+eth://eth0/b:x/a", "or a MAC like"),
            ("hs+eth://eth0/box/a/b", "has a part too many"),
        ] {
            let message = text.parse::<Url>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_server_is_no_volume() {
        let url: Url = "hs+ip://box:99".parse().unwrap();
        let message = url.volume().unwrap_err().to_string();
        assert_eq!(message, "'hs+ip://box:99' names no volume: add /VOLUME (`sanwire ls hs+ip://box:99` lists them)");
        assert_eq!("hs+ip://box/a".parse::<Url>().unwrap().volume(), Ok("a"));
    }
}
