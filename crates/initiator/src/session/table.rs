//! The wires of a client: the one place that names them all. Their schemes, the shapes of their URLs, how hosts offer them in DNS,
//! and what opens a session.

use std::sync::Arc;

pub use sanwire_aoe::Address as AoeAddress;
use sanwire_core::Instant;
pub(crate) use sanwire_hyperscsi::ETHERTYPE;
use sanwire_hyperscsi::UDP_PORT;
use sanwire_io::Waker;
pub(crate) use sanwire_iscsi::ISCSI_PORT;

pub use sanwire_visa::PORT as VISA_PORT;

use super::{Aoe, Hdsp, HyperScsi, Iscsi, Lookup, Session, Visa};
use crate::endpoint::{ConnectError, Endpoint};
use crate::options::ClientOptions;
use crate::resolve::Service;
use crate::url::{AoeServer, HdspServer, HyperScsiServer, IscsiServer, Parser, Server, Url, UrlError, VisaServer};

/// The UDP port of HyperSCSI over IP when the URL names none.
pub const HS_IP_PORT: u16 = UDP_PORT;

/// HyperSCSI over UDP, in DNS.
pub(crate) const HYPERSCSI: Service = Service { label: "_hyperscsi._udp", usual_port: UDP_PORT };

/// iSCSI, in DNS (registered by IANA under this name).
pub(crate) const ISCSI: Service = Service { label: "_iscsi-target._tcp", usual_port: ISCSI_PORT };

/// iSER, in DNS.
pub(crate) const ISER: Service = Service { label: "_iser-target._tcp", usual_port: ISCSI_PORT };

/// VISA over UDP, in DNS.
pub(crate) const VISA: Service = Service { label: "_visa._udp", usual_port: VISA_PORT };

/// VISA over TCP, in DNS.
pub(crate) const VISA_TCP: Service = Service { label: "_visa._tcp", usual_port: VISA_PORT };

/// The shapes of URLs, by wires.
pub(crate) const IP_SHAPE: &str = "hs+ip://HOST[:5674]/VOLUME";
pub(crate) const ETHERNET_SHAPE: &str = "hs+eth://[IF]/SERVER/VOLUME";
pub(crate) const ISCSI_SHAPE: &str = "iscsi://[USER@]HOST[:3260]/TARGET/LUN";
pub(crate) const ISER_SHAPE: &str = "iser://[USER@]HOST[:3260]/TARGET/LUN";

pub(crate) const AOE_SHAPE: &str = "aoe://[IF]/SHELF.SLOT";
pub(crate) const HDSP_SHAPE: &str = "hdsp://[IF]/SERVER/VOLUME";
pub(crate) const VISA_SHAPE: &str = "visa://HOST[:5675]/VOLUME";
pub(crate) const VISA_TCP_SHAPE: &str = "visa+tcp://HOST[:5675]/VOLUME";

/// How URLs of one wire are read.
pub(crate) struct Scheme {
    /// What stands before `://`.
    pub(crate) name: &'static str,
    pub(crate) shape: &'static str,
    /// Reads what stands behind it.
    pub(crate) parse: fn(&Parser<'_>, &str) -> Result<Url, UrlError>,
}

/// Those that there are.
pub(crate) const SCHEMES: [Scheme; 8] = [
    Scheme { name: "hs+ip", shape: IP_SHAPE, parse: |parser, rest| parser.ip(rest) },
    Scheme { name: "hs+eth", shape: ETHERNET_SHAPE, parse: |parser, rest| parser.ethernet(rest) },
    Scheme { name: "iscsi", shape: ISCSI_SHAPE, parse: |parser, rest| parser.iscsi(rest, false) },
    Scheme { name: "iser", shape: ISER_SHAPE, parse: |parser, rest| parser.iscsi(rest, true) },
    Scheme { name: "aoe", shape: AOE_SHAPE, parse: |parser, rest| parser.aoe(rest) },
    Scheme { name: "hdsp", shape: HDSP_SHAPE, parse: |parser, rest| parser.hdsp(rest) },
    Scheme { name: "visa", shape: VISA_SHAPE, parse: |parser, rest| parser.visa(rest, false) },
    Scheme { name: "visa+tcp", shape: VISA_TCP_SHAPE, parse: |parser, rest| parser.visa(rest, true) },
];

/// A session that seeks its server.
pub(crate) struct Opened {
    pub(crate) session: Box<dyn Session>,
    /// Its wire, for people.
    pub(crate) wire: Arc<str>,
    pub(crate) naming: Naming,
}

/// How URLs name the volumes of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Naming {
    /// By their own names.
    ByName,
    /// By their LUNs.
    ByLun,
    /// There is one: it was named when the session was opened, by another name than its own.
    Only,
}

/// Begins to seek a server, for this volume of it where a session has only one. Who learns of its addresses later wakes the driver.
pub(crate) fn open(
    (server, volume): (&Server, Option<&str>),
    options: &ClientOptions,
    waker: &Waker,
    now: Instant,
) -> Result<Opened, ConnectError> {
    match server {
        Server::HyperScsi(server) => open_hyperscsi(server, options, waker, now),
        Server::Iscsi(server) => open_iscsi(server, options, waker, now),
        Server::Aoe(server) => open_aoe(server, options, now),
        Server::Hdsp(server) => open_hdsp((server, volume), options, now),
        Server::Visa(server) => open_visa(server, options, waker, now),
    }
}

fn open_visa(
    server: &VisaServer,
    options: &ClientOptions,
    waker: &Waker,
    now: Instant,
) -> Result<Opened, ConnectError> {
    let session = Box::new(Visa::open(server, options, waker, now)?);
    let wire = Arc::from(if server.is_stream { "VISA over TCP" } else { "VISA" });
    Ok(Opened { session, wire, naming: Naming::ByName })
}

fn open_hdsp(
    (server, volume): (&HdspServer, Option<&str>),
    options: &ClientOptions,
    now: Instant,
) -> Result<Opened, ConnectError> {
    let session = Box::new(Hdsp::open(server, volume, options, now)?);
    let is_at_address = volume.is_some_and(|volume| volume.starts_with('@'));
    let naming = if is_at_address { Naming::Only } else { Naming::ByName };
    Ok(Opened { session, wire: Arc::from("HDSP"), naming })
}

fn open_aoe(server: &AoeServer, options: &ClientOptions, now: Instant) -> Result<Opened, ConnectError> {
    let session = Box::new(Aoe::open(server, options, now)?);
    Ok(Opened { session, wire: Arc::from("AoE"), naming: Naming::ByName })
}

fn open_hyperscsi(
    server: &HyperScsiServer,
    options: &ClientOptions,
    waker: &Waker,
    now: Instant,
) -> Result<Opened, ConnectError> {
    let mut endpoint = Endpoint::open(server, options)?;
    endpoint.lookup = endpoint.lookup.map(|lookup| lookup.waking(waker.clone()));
    let config = options.hyperscsi(server.name(), endpoint.ports.limits())?;
    let wire = Arc::from(endpoint.wire());
    let session = Box::new(HyperScsi::new(endpoint, config, options.links.clone(), now));
    Ok(Opened { session, wire, naming: Naming::ByName })
}

fn open_iscsi(
    server: &IscsiServer,
    options: &ClientOptions,
    waker: &Waker,
    now: Instant,
) -> Result<Opened, ConnectError> {
    let target = server.target.clone().ok_or_else(|| ConnectError::NoTarget { host: server.to_string() })?;
    let service = if server.is_iser { ISER } else { ISCSI };
    let lookup = Lookup::of(&server.host, server.port, service, &options.name_servers);
    let lookup = lookup.map(|lookup| lookup.waking(waker.clone()));
    let config = options.iscsi(server, Some(target))?;
    let session = Box::new(Iscsi::new(config, options.way(server)?, lookup, now));
    let wire = Arc::from(if server.is_iser { "iSER" } else { "iSCSI" });
    Ok(Opened { session, wire, naming: Naming::ByLun })
}
