//! Which VISA servers are there, and where?

use std::time::Duration;

use sanwire_core::Peer;
use sanwire_visa::{discovery, found};

use crate::endpoint::{ConnectError, Endpoint};
use crate::options::{ClientOptions, no_randomness};
use crate::random;
use crate::session::asking::ask;
use crate::session::table::VISA;
use crate::url::VisaServer;

/// A server that has answered at one of the addresses that were asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisaFound {
    /// Its name.
    pub name: String,
    /// What it drew when it started: servers of one name differ in it.
    instance: u64,
    /// Where it has answered.
    pub peer: Peer,
    /// The largest packet that its end takes, in bytes.
    pub packet_max_bytes: u16,
}

impl VisaFound {
    /// Whether both are one server.
    #[must_use]
    pub fn is_same_server(&self, other: &VisaFound) -> bool {
        (&self.name, self.instance) == (&other.name, other.instance)
    }

    /// The server at this place and no other.
    #[must_use]
    pub fn server(&self) -> Option<VisaServer> {
        match self.peer {
            Peer::Udp(at) => Some(VisaServer { host: at.ip().to_string(), port: at.port(), is_stream: false }),
            Peer::Ethernet(_) => None,
        }
    }
}

/// Asks a host, at all of its addresses, and collects who answers within `patience`. A server that does not serve this client keeps silent.
///
/// # Errors
/// [`ConnectError`] when no port can be opened or used.
pub fn visa_servers(
    server: &VisaServer,
    options: &ClientOptions,
    patience: Duration,
) -> Result<Vec<VisaFound>, ConnectError> {
    let mut endpoint = Endpoint::fragmenting_ip((&server.host, server.port), VISA, &options.name_servers)?;
    let number = u64::from_be_bytes(random::bytes().map_err(no_randomness)?).max(1);
    let question = discovery(options.identity.client_id(), "", number);
    let answers = ask(&mut endpoint, &question, (patience, patience), |_, bytes| found(bytes, number))?;
    let found = answers.into_iter().map(|(path, found)| VisaFound {
        name: found.name,
        instance: found.instance,
        peer: path.peer,
        packet_max_bytes: found.packet_max_bytes,
    });
    Ok(found.collect())
}
