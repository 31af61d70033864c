//! Which iSCSI targets does a host have?

use sanwire_io::{Clock, Waker};
use sanwire_iscsi::DiscoveredTarget;

use super::IscsiDiscovery;
use crate::endpoint::ConnectError;
use crate::options::ClientOptions;
use crate::url::IscsiServer;

/// Asks the host for the targets that this client may know of, with their addresses.
///
/// # Errors
/// [`ConnectError`] when it cannot be reached, refuses, or does not know who we are.
pub fn targets(server: &IscsiServer, options: &ClientOptions) -> Result<Vec<DiscoveredTarget>, ConnectError> {
    let waker = Waker::new().map_err(|source| ConnectError::Resource { what: "an event descriptor", source })?;
    let (config, way) = (options.iscsi(server, None)?, options.way(server)?);
    let mut discovery = IscsiDiscovery::new(config, way, Clock::new().now());
    loop {
        match discovery.turn(&waker) {
            Some(Ok(targets)) => return Ok(targets),
            Some(Err(failure)) => return Err(ConnectError::Handshake { server: server.to_string(), failure }),
            None => {}
        }
    }
}
