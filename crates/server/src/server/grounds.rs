//! What a server has for itself, before it opens anything else.

use crate::config::ServerConfig;
use crate::error::StartError;
use crate::kept::StateLock;
use crate::pools::Pools;

/// No other server has this meanwhile.
#[derive(Default)]
pub(crate) struct Grounds {
    /// Of its files in the state directory.
    pub(crate) lock: Option<StateLock>,
    pub(crate) pools: Pools,
}

impl Grounds {
    /// Takes it, and says of the volumes that are in pools where they are.
    ///
    /// # Errors
    /// [`StartError`]: another server has it, or a pool cannot be used.
    pub(crate) fn take(config: &mut ServerConfig) -> Result<Grounds, StartError> {
        let grounds = Grounds { lock: config.lock()?, pools: config.open_pools()? };
        grounds.pools.place_all(&mut config.volumes)?;
        Ok(grounds)
    }
}
