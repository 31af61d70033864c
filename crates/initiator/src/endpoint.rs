//! From a URL to open ports and the places at which the server may be.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use sanwire_core::{MacAddress, Path, Peer};
use sanwire_io::{RING_BYTES_DEFAULT, interface};

use crate::options::ClientOptions;
use crate::ports::{Door, PORTS_MAX, Ports};
use crate::resolve::{self, Service};
use crate::session::table::{ETHERTYPE, HYPERSCSI};
use crate::session::{self, Failure, Lookup};
use crate::url::{HyperScsiServer, Station};

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
    /// There is no RDMA adapter, and iSER is to go by one.
    #[error("{source}; without an adapter iSER goes by TCP: leave --iser-path out")]
    NoRdma {
        /// What is missing.
        source: io::Error,
    },
    /// There is no Ethernet on which anybody could be.
    #[error("no Ethernet interface is up: set one up (`ip link set IF up`), or use IP")]
    NoEthernet,
    /// More than one server has the name.
    #[error(
        "{count} servers are called {name}: {places}; name the one that is meant by its address, as it stands here"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// How many have it.
        count: usize,
        /// A URL of each.
        places: String,
    },
    /// The handshake did not come to an end.
    #[error("cannot connect to {server}: {failure}{}", advice(failure, server))]
    Handshake {
        /// The server.
        server: String,
        /// Why.
        failure: Failure,
    },
    /// Its wire carries no management.
    #[error(
        "{server} cannot be managed over iSCSI, AoE or HDSP: use its hs+ip://, hs+eth:// or visa:// URL, or `sanwire ctl` on its host"
    )]
    NotManaged {
        /// The server.
        server: String,
    },
    /// The URL names a host, or an Ethernet, only.
    #[error("{host} names no target or server: add one (`sanwire ls {host}` lists them)")]
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
    /// Another client has the volume for itself.
    #[error(
        "volume {volume} of {server} is reserved by {holder}, which alone may write to it: have it detached there, or, if that host is gone for \
         good, take it over with --preempt"
    )]
    Held {
        /// The server.
        server: String,
        /// The volume.
        volume: String,
        /// Who has it.
        holder: String,
    },
    /// Another program of this host, with the same key, has the volume for itself.
    #[error(
        "volume {volume} of {server} is in use by another program of this host with the same client key{}: end that, or detach the volume there; \
         each of the two would overwrite what the other writes", process.map(|process| format!(" (process {process})")).unwrap_or_default()
    )]
    InUse {
        /// The server.
        server: String,
        /// The volume.
        volume: String,
        /// Which program, if it is known.
        process: Option<u32>,
    },
    /// It cannot be known whether another program of this host has the volume for itself.
    #[error("cannot keep other programs of this host away from the volume, by {}: {source}; make that writable", path.display())]
    Claim {
        /// The file of a lock, or the directory of locks.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A volume cannot be had for one client alone.
    #[error("volume {volume} of {server} knows no persistent reservations: it cannot be attached --exclusive")]
    NoReservations {
        /// The server.
        server: String,
        /// The volume.
        volume: String,
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

/// What to do where the key of this server has changed.
fn advice(failure: &Failure, server: &str) -> String {
    match failure {
        Failure::OtherServer { .. } => format!(": `sanwire key pin {server} --key KEY --replace`"),
        _ => String::new(),
    }
}

/// Open ports, and where to seek the server through them.
pub(crate) struct Endpoint {
    pub(crate) ports: Ports,
    /// In the order in which they are to be tried; at least one.
    pub(crate) places: Vec<Path>,
    /// Who is asked where else it may be, when it is known by a name.
    pub(crate) lookup: Option<Lookup>,
}

impl Endpoint {
    /// Opens the ports by which the server can be reached. A server on Ethernet that is known by its name is asked for first:
    /// more than one of that name is an error, not a matter of luck.
    pub(crate) fn open(server: &HyperScsiServer, options: &ClientOptions) -> Result<Endpoint, ConnectError> {
        match server {
            HyperScsiServer::Ethernet { interface: Some(interface), server: Station::Mac(mac) } => {
                Endpoint::ethernet(std::slice::from_ref(interface), ETHERTYPE, *mac, RING_BYTES_DEFAULT)
            }
            HyperScsiServer::Ethernet { server: station, .. } => {
                let interfaces = session::locate(server, options)?;
                Endpoint::ethernet(&interfaces, ETHERTYPE, station.address(), RING_BYTES_DEFAULT)
            }
            HyperScsiServer::Ip { host, port } => {
                Endpoint::ip((host, *port), (HYPERSCSI, Door::udp), &options.name_servers)
            }
        }
    }

    /// Opens ports for asking who is there.
    pub(crate) fn open_for_questions(
        server: &HyperScsiServer,
        options: &ClientOptions,
    ) -> Result<Endpoint, ConnectError> {
        /// Room for the answers of some thousand servers.
        const RING_BYTES: usize = 1 << 20;
        match server {
            HyperScsiServer::Ethernet { interface, server } => {
                Endpoint::ethernet(&meant(interface.as_deref())?, ETHERTYPE, server.address(), RING_BYTES)
            }
            HyperScsiServer::Ip { host, port } => {
                Endpoint::ip((host, *port), (HYPERSCSI, Door::udp), &options.name_servers)
            }
        }
    }

    /// Opens ports towards everybody on an Ethernet, or on all of them, by a protocol that has no names.
    pub(crate) fn of_stations(interface: Option<&str>, ethertype: u16) -> Result<Endpoint, ConnectError> {
        Endpoint::ethernet(&meant(interface)?, ethertype, MacAddress::BROADCAST, RING_BYTES_DEFAULT)
    }

    /// Opens ports towards a station on an Ethernet, or on all of them; one that is known by its name is any of them.
    pub(crate) fn of_station(
        interface: Option<&str>,
        station: &Station,
        ethertype: u16,
    ) -> Result<Endpoint, ConnectError> {
        Endpoint::ethernet(&meant(interface)?, ethertype, station.address(), RING_BYTES_DEFAULT)
    }

    fn ethernet(
        interfaces: &[String],
        ethertype: u16,
        mac: MacAddress,
        ring_bytes: usize,
    ) -> Result<Endpoint, ConnectError> {
        let peer = Peer::Ethernet(mac);
        let doors = interfaces.iter().map(|interface| {
            let door = Door::Ethernet { interface: interface.clone(), ethertype, ring_bytes };
            (Ok(door), peer, format!("raw Ethernet on {interface}"))
        });
        Endpoint::through(doors, |source| match source.kind() {
            io::ErrorKind::PermissionDenied => "; raw Ethernet needs root or the capability CAP_NET_RAW",
            io::ErrorKind::NotFound => "; `ip link` lists the interfaces",
            _ => "",
        })
    }

    /// Opens ports towards a host's service over UDP whose datagrams IP may take apart.
    pub(crate) fn fragmenting_ip(
        place: (&str, u16),
        service: Service,
        name_servers: &[SocketAddr],
    ) -> Result<Endpoint, ConnectError> {
        Endpoint::ip(place, (service, Door::fragmenting_udp), name_servers)
    }

    fn ip(
        (host, port): (&str, u16),
        (service, door): (Service, fn(SocketAddr) -> io::Result<Door>),
        name_servers: &[SocketAddr],
    ) -> Result<Endpoint, ConnectError> {
        let doors = addresses(host, port, service, name_servers)?
            .into_iter()
            .map(|address| (door(address), Peer::Udp(address), format!("a UDP socket towards {address}")));
        let endpoint = Endpoint::through(doors, |_| "; check that there is a route (`ip route get ADDRESS`)")?;
        Ok(Endpoint { lookup: Lookup::of(host, port, service, name_servers), ..endpoint })
    }

    /// What cannot be opened is left out; when nothing can, the first failure counts.
    fn through(
        doors: impl Iterator<Item = (io::Result<Door>, Peer, String)>,
        hint: impl Fn(&io::Error) -> &'static str,
    ) -> Result<Endpoint, ConnectError> {
        let (mut ports, mut places, mut failure) = (Ports::new(), Vec::new(), None);
        for (door, peer, what) in doors {
            match door.and_then(|door| ports.add(door)) {
                Ok(link) => places.push(Path { link, peer }),
                Err(source) => {
                    tracing::debug!("cannot open {what}: {source}");
                    failure.get_or_insert((source, what));
                }
            }
        }
        match failure {
            _ if !ports.is_empty() => Ok(Endpoint { ports, places, lookup: None }),
            Some((source, what)) => Err(ConnectError::Open { hint: hint(&source), what, source }),
            None => Err(ConnectError::NoEthernet),
        }
    }

    /// The wire, in words for people.
    pub(crate) fn wire(&self) -> String {
        let interfaces: Vec<&str> = self.places.iter().filter_map(|place| self.ports.interface(place.link)).collect();
        if interfaces.is_empty() { "HS/IP".to_owned() } else { format!("HS/eth on {}", interfaces.join(", ")) }
    }
}

impl Station {
    /// Where to send questions to.
    fn address(&self) -> MacAddress {
        match self {
            Station::Mac(mac) => *mac,
            Station::Name(_) => MacAddress::BROADCAST,
        }
    }
}

/// This interface, or all Ethernets.
fn meant(interface: Option<&str>) -> Result<Vec<String>, ConnectError> {
    interface.map_or_else(ethernets, |interface| Ok(vec![interface.to_owned()]))
}

/// The interfaces that are an Ethernet and up; those with a carrier first.
fn ethernets() -> Result<Vec<String>, ConnectError> {
    let list = interface::list().map_err(|source| ConnectError::Resource { what: "the list of interfaces", source })?;
    let is_meant =
        |interface: &interface::Interface| interface.is_up && !interface.is_loopback && interface.mac_address.is_some();
    let mut meant: Vec<_> = list.into_iter().filter(is_meant).collect();
    meant.sort_by_key(|interface| !interface.is_running);
    if meant.len() > PORTS_MAX {
        tracing::warn!("searching only {PORTS_MAX} of {} interfaces: name one in the URL", meant.len());
        meant.truncate(PORTS_MAX);
    }
    Ok(meant.into_iter().map(|interface| interface.name).collect())
}

/// The addresses of a host, at least one, in the order in which they are to be tried.
pub(crate) fn addresses(
    host: &str,
    port: u16,
    service: Service,
    name_servers: &[SocketAddr],
) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |source| ConnectError::Resolve { host: host.to_owned(), source };
    resolve::addresses(host, port, service, name_servers).map_err(failed)
}
