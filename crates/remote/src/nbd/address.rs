//! Where an NBD server is.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use sanwire_io::tcp::Stream;
use sanwire_nbd::NBD_PORT;

/// Where an NBD server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// At a unix socket.
    Path(PathBuf),
    /// At a TCP port.
    Host {
        /// A name, or an address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Address {
    /// Reads `PATH`, `HOST:PORT[/EXPORT]` or `//HOST[:PORT][/EXPORT]`; a path begins with `/`, `./` or `../`. The export comes with it,
    /// where one is written.
    #[must_use]
    pub fn read(text: &str) -> Option<(Address, Option<String>)> {
        let (place, needs_port) = match text.strip_prefix("//") {
            Some(place) => (place, false),
            None if text.starts_with(['/', '.']) => return Some((Address::Path(text.into()), None)),
            None => (text, true),
        };
        let (authority, export) = match place.split_once('/') {
            Some((authority, export)) => (authority, Some(export.to_owned())),
            None => (place, None),
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0)?,
            None if needs_port => return None,
            None => NBD_PORT,
        };
        let is_host = !host.is_empty() && (authority.starts_with('[') || !host.contains(':'));
        let export = export.filter(|export| !export.is_empty());
        is_host.then(|| (Address::Host { host: host.to_owned(), port }, export))
    }

    /// Where to connect to, in the order in which to try. It may block for a name.
    pub(crate) fn places(&self) -> io::Result<VecDeque<Place>> {
        match self {
            Address::Path(path) => Ok([Place::Path(path.clone())].into()),
            Address::Host { host, port } => {
                let addresses = (host.as_str(), *port).to_socket_addrs()?;
                let places: VecDeque<_> = addresses.map(Place::Socket).collect();
                let missing = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                if places.is_empty() { Err(missing()) } else { Ok(places) }
            }
        }
    }
}

/// One place at which a server may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Path(PathBuf),
    Socket(SocketAddr),
}

impl Place {
    /// Begins to connect.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Place::Path(path) => Stream::connect_local(path).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::other("it accepts no more connections now"),
                _ => error,
            }),
            Place::Socket(address) => Stream::connect(*address),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Path(path) => write!(f, "{}", path.display()),
            Address::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Host { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_hosts_and_exports_are_told_apart() {
        let read =
            |text| Address::read(text).map(|(address, export)| (address.to_string(), export.unwrap_or_default()));
        for (text, address, export) in [
            ("/run/nbd.sock", "/run/nbd.sock", ""),
            ("./a:1", "./a:1", ""),
            ("host:10809", "host:10809", ""),
            ("host:1/disk/a", "host:1", "disk/a"),
            ("[::1]:2/x", "[::1]:2", "x"),
            ("//host/x", "host:10809", "x"),
            ("//host:5", "host:5", ""),
            ("//[fe80::1]/", "[fe80::1]:10809", ""),
        ] {
            assert_eq!(read(text), Some((address.to_owned(), export.to_owned())), "{text}");
        }
        for text in ["", "host", "host:", "host:0", "host:99999", "::1:5", "//", ":5", "[::1]5", "[]:5"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
