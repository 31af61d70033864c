//! Where a volume is, as people write it: `hs+ip://HOST[:5674]/VOLUME`, `hs+eth://[IF]/SERVER/VOLUME`,
//! `iscsi://[USER@]HOST[:3260]/TARGET/LUN`, `iser://[USER@]HOST[:3260]/TARGET/LUN`, `aoe://[IF]/SHELF.SLOT`, `hdsp://[IF]/SERVER/VOLUME`
//! or `visa://HOST[:5675]/VOLUME`.

mod parser;

use std::fmt;
use std::str::FromStr;

use sanwire_core::MacAddress;
use sanwire_scsi::IscsiName;

use crate::session::table::{AoeAddress, HS_IP_PORT, ISCSI_PORT, SCHEMES, Scheme, VISA_PORT};
use crate::volume::VolumeInfo;
pub(crate) use parser::Parser;

/// A server, and one of its volumes unless the whole server is meant. Made from text by `parse`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Who serves it, and over which wire.
    pub server: Server,
    /// The volume's name, or by iSCSI its LUN; without it the URL means the server.
    pub volume: Option<String>,
}

/// Who serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Server {
    /// By HyperSCSI.
    HyperScsi(HyperScsiServer),
    /// By iSCSI, over plain TCP or as iSER.
    Iscsi(IscsiServer),
    /// By ATA over Ethernet.
    Aoe(AoeServer),
    /// By HDSP.
    Hdsp(HdspServer),
    /// By VISA.
    Visa(VisaServer),
}

/// A server that speaks VISA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisaServer {
    /// An address (IPv6 without its brackets) or a name to look up.
    pub host: String,
    /// The port, of UDP or TCP.
    pub port: u16,
    /// TCP carries the packets.
    pub is_stream: bool,
}

/// A server that speaks HDSP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HdspServer {
    /// Our network interface; `None`: every Ethernet on which the server is found.
    pub interface: Option<String>,
    /// Which of the servers that answer there.
    pub server: Station,
}

/// An AoE target, or all that there are on an Ethernet. A target has one volume, which is called as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AoeServer {
    /// Our network interface; `None`: every Ethernet on which the target is found.
    pub interface: Option<String>,
    /// Its shelf and slot; without them, all that are there are meant.
    pub address: Option<AoeAddress>,
}

/// A server that speaks HyperSCSI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HyperScsiServer {
    /// On raw Ethernet.
    Ethernet {
        /// Our network interface; `None`: every Ethernet on which the server is found.
        interface: Option<String>,
        /// Which of the servers that answer there.
        server: Station,
    },
    /// Over UDP.
    Ip {
        /// An address (IPv6 without its brackets) or a name to look up.
        host: String,
        /// The UDP port.
        port: u16,
    },
}

/// A host that has iSCSI targets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IscsiServer {
    /// Whom to show to be, by CHAP.
    pub user: Option<String>,
    /// An address (IPv6 without its brackets) or a name to look up.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// RDMA carries it: iSER.
    pub is_iser: bool,
    /// The target; without one, all that the host has are meant.
    pub target: Option<IscsiName>,
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
    #[error("'{url}' is no volume URL: expected {shapes}", shapes = shapes())]
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
    #[error("'{url}' names no volume: add {missing} (`sanwire ls {url}` lists them)")]
    NoVolume {
        /// What was written.
        url: String,
        /// The parts that are to be added.
        missing: &'static str,
    },
}

impl Url {
    /// Whether the text is meant as a URL and not as a file's path: it has `://` in it.
    #[must_use]
    pub fn is_meant_by(text: &str) -> bool {
        text.contains("://")
    }

    /// The URL of a volume of the same server.
    #[must_use]
    pub fn with_volume(&self, volume: &VolumeInfo) -> Url {
        let name = match &self.server {
            Server::HyperScsi(_) => volume.name.to_string(),
            Server::Iscsi(_) => volume.lun.to_string(),
            Server::Aoe(_) | Server::Hdsp(_) | Server::Visa(_) => volume.name.to_string(),
        };
        Url { server: self.server.clone(), volume: Some(name) }
    }

    /// The volume's name.
    ///
    /// # Errors
    /// [`UrlError::NoVolume`] when the URL means a whole server.
    pub fn volume(&self) -> Result<&str, UrlError> {
        let missing = match &self.server {
            Server::Hdsp(server) if server.is_everybody() => "/SERVER/VOLUME",
            Server::HyperScsi(_) | Server::Hdsp(_) | Server::Visa(_) => "/VOLUME",
            Server::Iscsi(IscsiServer { target: Some(_), .. }) => "/LUN",
            Server::Iscsi(_) => "/TARGET/LUN",
            Server::Aoe(_) => "/SHELF.SLOT",
        };
        self.volume.as_deref().ok_or_else(|| UrlError::NoVolume { url: self.to_string(), missing })
    }
}

impl HdspServer {
    /// Everybody on the Ethernet of an interface, or of all of them.
    #[must_use]
    pub fn everybody(interface: Option<String>) -> Self {
        HdspServer { interface, server: Station::Mac(MacAddress::BROADCAST) }
    }

    /// Whether all servers on the Ethernet are meant.
    #[must_use]
    pub fn is_everybody(&self) -> bool {
        self.server == Station::Mac(MacAddress::BROADCAST)
    }

    /// The server's name, when it is sought by that; else empty.
    pub(crate) fn name(&self) -> &str {
        match &self.server {
            Station::Name(name) => name,
            Station::Mac(_) => "",
        }
    }
}

impl HyperScsiServer {
    /// Everybody on the Ethernet of an interface, or of all of them.
    #[must_use]
    pub fn everybody(interface: Option<String>) -> Self {
        HyperScsiServer::Ethernet { interface, server: Station::Mac(MacAddress::BROADCAST) }
    }

    /// The server's name, when it is sought by that; else empty.
    pub(crate) fn name(&self) -> &str {
        match self {
            HyperScsiServer::Ethernet { server: Station::Name(name), .. } => name,
            _ => "",
        }
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest_of = |scheme: &Scheme| text.strip_prefix(scheme.name)?.strip_prefix("://");
        let found = SCHEMES.iter().find_map(|scheme| Some((scheme, rest_of(scheme)?)));
        let (scheme, rest) = found.ok_or_else(|| UrlError::Scheme { url: text.into() })?;
        (scheme.parse)(&Parser::new(text), rest)
    }
}

/// The shapes of URLs, for messages.
fn shapes() -> String {
    let [others @ .., last] = SCHEMES.map(|scheme| scheme.shape);
    format!("{} or {last}", others.join(", "))
}

impl fmt::Display for Url {
    /// The canonical text, which parses to the same URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)?;
        // The target's own URL is that of its volume.
        let volume = self.volume.iter().filter(|_| !matches!(self.server, Server::Aoe(_)));
        volume.into_iter().try_for_each(|volume| write!(f, "/{volume}"))
    }
}

impl fmt::Display for Server {
    /// The URL of the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::HyperScsi(server) => server.fmt(f),
            Server::Iscsi(server) => server.fmt(f),
            Server::Aoe(server) => server.fmt(f),
            Server::Hdsp(server) => server.fmt(f),
            Server::Visa(server) => server.fmt(f),
        }
    }
}

impl fmt::Display for AoeServer {
    /// The URL of the target, or of the Ethernet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aoe://{}", self.interface.as_deref().unwrap_or_default())?;
        self.address.iter().try_for_each(|address| write!(f, "/{address}"))
    }
}

impl fmt::Display for HdspServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hdsp://{}", self.interface.as_deref().unwrap_or_default())?;
        if self.is_everybody() { Ok(()) } else { write!(f, "/{}", self.server) }
    }
}

impl fmt::Display for HyperScsiServer {
    /// The URL of the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HyperScsiServer::Ethernet { interface, server } => {
                write!(f, "hs+eth://{}/{server}", interface.as_deref().unwrap_or_default())
            }
            HyperScsiServer::Ip { host, port } => {
                f.write_str("hs+ip://")?;
                write_authority(f, host, *port, HS_IP_PORT)
            }
        }
    }
}

impl fmt::Display for VisaServer {
    /// The URL of the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_stream { "visa+tcp://" } else { "visa://" })?;
        write_authority(f, &self.host, self.port, VISA_PORT)
    }
}

impl fmt::Display for IscsiServer {
    /// The URL of the target, or of the host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_iser { "iser://" } else { "iscsi://" })?;
        self.user.iter().try_for_each(|user| write!(f, "{user}@"))?;
        write_authority(f, &self.host, self.port, ISCSI_PORT)?;
        self.target.iter().try_for_each(|target| write!(f, "/{target}"))
    }
}

fn write_authority(f: &mut fmt::Formatter<'_>, host: &str, port: u16, usual_port: u16) -> fmt::Result {
    if host.contains(':') { write!(f, "[{host}]") } else { f.write_str(host) }?;
    if port == usual_port { Ok(()) } else { write!(f, ":{port}") }
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
mod tests;
