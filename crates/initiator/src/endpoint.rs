//! From a URL to an open port and the way to the server.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use sanwire_core::{LinkId, MacAddress, Path, Peer};
use sanwire_hyperscsi::{ETHERTYPE, LinkLimits};
use sanwire_io::{PacketPort, Port, RING_BYTES_DEFAULT, UdpPort, interface};

use crate::session::Failure;
use crate::url::{HyperScsiServer, Station};

/// Packets by which receive buffers are measured: what most links take at the most. A wildcard address or the loopback takes
/// larger ones; then fewer fit, and the rest is recovered like any loss.
const JUMBO_BYTES: usize = 9000;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("cannot find the host {host}: {source}; check the name, or use an IP address")]
    Resolve {
        /// What was asked for.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The socket cannot be opened.
    #[error("cannot open {what}: {source}{hint}")]
    Open {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The handshake did not come to an end.
    #[error("cannot connect to {server}: {failure}")]
    Handshake {
        /// The server.
        server: String,
        /// Why.
        failure: Failure,
    },
    /// Only HyperSCSI carries management.
    #[error("{server} cannot be managed over iSCSI: use its hs+ip:// or hs+eth:// URL, or `sanwire ctl` on its host")]
    NotManaged {
        /// The server.
        server: String,
    },
    /// The URL names a host only.
    #[error("{host} names no target: add /TARGET (`sanwire ls {host}` lists them)")]
    NoTarget {
        /// The URL.
        host: String,
    },
    /// A user without a secret.
    #[error("the URL names the user {user}: give --password-file FILE with the CHAP secret")]
    NoSecret {
        /// The user.
        user: String,
    },
    /// The server has no such volume.
    #[error("{server} has no {what} '{volume}' for this client; it has: {available}")]
    NoVolume {
        /// The server.
        server: String,
        /// What it is named by.
        what: &'static str,
        /// What was asked for.
        volume: String,
        /// What there is.
        available: String,
    },
    /// A command that every disk knows failed.
    #[error("{server} answers {command} with {problem}")]
    Command {
        /// The server.
        server: String,
        /// Which command.
        command: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The machine refuses memory or randomness.
    #[error("cannot get {what}: {source}")]
    Resource {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// An open port and where to find the server through it.
pub(crate) struct Endpoint {
    pub(crate) port: Port,
    pub(crate) path: Path,
    /// The server's name, when the URL names it so.
    pub(crate) server_name: String,
    /// The wire, in words for people.
    pub(crate) wire: Arc<str>,
}

impl Endpoint {
    pub(crate) fn open(server: &HyperScsiServer) -> Result<Endpoint, ConnectError> {
        match server {
            HyperScsiServer::Ethernet { interface, server } => Endpoint::ethernet(interface, server),
            HyperScsiServer::Ip { host, port } => Endpoint::ip(host, *port),
        }
    }

    fn ethernet(interface: &str, station: &Station) -> Result<Endpoint, ConnectError> {
        let (mac, server_name) = match station {
            Station::Mac(mac) => (*mac, String::new()),
            Station::Name(name) => (MacAddress::BROADCAST, name.clone()),
        };
        let port = open_ethernet(interface).map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::PermissionDenied => "; raw Ethernet needs root or the capability CAP_NET_RAW",
                io::ErrorKind::NotFound => "; `ip link` lists the interfaces",
                _ => "",
            };
            ConnectError::Open { what: format!("raw Ethernet on {interface}"), source, hint }
        })?;
        let path = Path { link: LinkId(0), peer: Peer::Ethernet(mac) };
        Ok(Endpoint { port, path, server_name, wire: format!("HS/eth on {interface}").into() })
    }

    fn ip(host: &str, port: u16) -> Result<Endpoint, ConnectError> {
        let address = addresses(host, port)?[0];
        let open = |source| ConnectError::Open {
            what: format!("a UDP socket towards {address}"),
            source,
            hint: "; check that there is a route (`ip route get ADDRESS`)",
        };
        let port = open_udp(address).map_err(open)?;
        let path = Path { link: LinkId(0), peer: Peer::Udp(address) };
        Ok(Endpoint { port, path, server_name: String::new(), wire: "HS/IP".into() })
    }

    /// What the protocol negotiates by.
    pub(crate) fn limits(&self) -> LinkLimits {
        // HyperSCSI counts body bytes in 16 bits.
        let packet_max = self.port.payload_max_bytes().min(65_000);
        LinkLimits {
            packet_max_bytes: packet_max as u32,
            receive_capacity_packets: self.port.receive_capacity_packets(packet_max.min(JUMBO_BYTES)),
        }
    }
}

/// The addresses of a host, at least one. Of a name with both kinds IPv4 comes first: servers listen on that unless they
/// are told otherwise.
pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let resolve = |source| ConnectError::Resolve { host: host.to_owned(), source };
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(resolve)?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if addresses.is_empty() {
        return Err(resolve(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(addresses)
}

/// Opens a port to a server that was found already.
pub(crate) fn open_port(server: &HyperScsiServer, peer: Peer) -> io::Result<Port> {
    match (server, peer) {
        (HyperScsiServer::Ethernet { interface, .. }, _) => open_ethernet(interface),
        (HyperScsiServer::Ip { .. }, Peer::Udp(address)) => open_udp(address),
        (HyperScsiServer::Ip { .. }, Peer::Ethernet(_)) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn open_ethernet(interface: &str) -> io::Result<Port> {
    PacketPort::open(interface, ETHERTYPE, None, RING_BYTES_DEFAULT).map(Port::from)
}

fn open_udp(server: SocketAddr) -> io::Result<Port> {
    let route = interface::route_to(server)?;
    UdpPort::open(SocketAddr::new(route.source, 0), None).map(Port::from)
}
