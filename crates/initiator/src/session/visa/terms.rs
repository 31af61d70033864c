//! What a session by VISA begins with.

use sanwire_core::Path;
use sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX;
use sanwire_visa::{ClientConfig, LinkLimits};

use crate::endpoint::ConnectError;
use crate::options::{ClientOptions, no_randomness};
use crate::random;

/// Ports are numbered by one byte; all are alike.
const LINKS: usize = 256;

pub(super) fn config(
    options: &ClientOptions,
    link: LinkLimits,
    places: Vec<Path>,
) -> Result<ClientConfig, ConnectError> {
    Ok(ClientConfig {
        identity: options.identity.clone(),
        psk: options.psk,
        server_key: options.server_key,
        places,
        server_name: String::new(),
        links: vec![link; LINKS],
        wishes: options.visa,
        commands_max: COMMANDS_IN_TRANSIT_MAX as u16,
        protection_min: options.protection_min,
        connect_patience: options.connect_patience,
        reconnect_patience: options.reconnect_patience,
        seed: random::bytes().map_err(no_randomness)?,
    })
}
