//! Who serves on a link?

use std::time::Duration;

use sanwire_core::{MacAddress, Peer};
use sanwire_hyperscsi::{announcement, discovery};
use sanwire_io::{Clock, Poller};

use crate::endpoint::{ConnectError, Endpoint};
use crate::options::ClientOptions;
use crate::url::{HyperScsiServer, Station};

/// The question is repeated this often, because it or its answers may get lost.
const ROUNDS: u32 = 3;

/// A server that answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub peer: Peer,
    /// The largest packet that its link takes, in bytes.
    pub packet_max_bytes: u32,
}

/// Asks everybody on an Ethernet, or the server at an address, and collects who answers within `patience`. Servers that
/// do not serve this client keep silent.
///
/// # Errors
/// [`ConnectError`] when the port cannot be opened or used.
pub fn discover(
    server: &HyperScsiServer,
    options: &ClientOptions,
    patience: Duration,
) -> Result<Vec<Found>, ConnectError> {
    let mut endpoint = Endpoint::open(server)?;
    let config = options.hyperscsi(&endpoint)?;
    let number = u64::from_be_bytes(*config.seed.first_chunk().unwrap_or(&[0; 8]));
    let question = discovery(&config, number);
    let broken = |source| ConnectError::Open { what: "the link for discovery".to_owned(), source, hint: "" };
    let (clock, mut poller) = (Clock::new(), Poller::new());
    let mut found: Vec<Found> = Vec::new();
    for _ in 0..ROUNDS {
        drop(endpoint.port.queue(endpoint.path.peer, question.clone()));
        endpoint.port.flush().map_err(broken)?;
        let round_end = clock.now() + patience / ROUNDS;
        while clock.now() < round_end {
            let received = endpoint.port.receive(64, &mut |peer, bytes| {
                if let Some((name, packet_max_bytes)) = announcement(bytes, number)
                    && !found.iter().any(|known| known.peer == peer)
                {
                    found.push(Found { name, peer, packet_max_bytes });
                }
            });
            if received.map_err(broken)? == 0 {
                let ports = std::slice::from_ref(&endpoint.port);
                poller.wait(ports, &[], None, Some(round_end), &clock).map_err(broken)?;
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name).then(a.peer.cmp(&b.peer)));
    Ok(found)
}

/// Everybody on the Ethernet of an interface.
#[must_use]
pub fn everybody_on(interface: &str) -> HyperScsiServer {
    HyperScsiServer::Ethernet { interface: interface.to_owned(), server: Station::Mac(MacAddress::BROADCAST) }
}
