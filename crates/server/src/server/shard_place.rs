//! Where a shard is to be.

use std::sync::mpsc::Receiver;

use sanwire_buffer::Region;
use sanwire_core::limits::HYPERSCSI_TRANSFER_MAX_BYTES;
use sanwire_io::{Waker, interface};

use super::waker;
use crate::config::ServerConfig;
use crate::error::StartError;
use crate::messages::{Mailbox, ShardMessage};

/// Memory of a shard, at least: what is guaranteed to each of two clients is there at once.
const SHARD_MEMORY_MIN_BYTES: usize = 4 * HYPERSCSI_TRANSFER_MAX_BYTES;

/// Where a shard is to be, and how it is reached.
pub(crate) struct ShardPlace {
    pub(crate) memory: Region,
    /// Of the thread that drives it.
    pub(crate) waker: Waker,
    /// The way to it, and where it reads what came.
    pub(crate) mailbox: Mailbox,
    pub(crate) mail: Receiver<ShardMessage>,
}

impl ShardPlace {
    /// Those of the shards of a server.
    pub(super) fn of(config: &ServerConfig) -> Result<Vec<ShardPlace>, StartError> {
        let shards = config.shards.max(1);
        let memory_bytes = (config.memory_bytes / shards as usize).max(SHARD_MEMORY_MIN_BYTES);
        let place = |_| {
            let memory = Region::new(memory_bytes).map_err(|source| StartError::Resource { what: "memory", source })?;
            let waker = waker()?;
            // It looks after its links when something wakes it.
            interface::watch().wake(&waker);
            let (mailbox, mail) = Mailbox::new(waker.clone());
            Ok(ShardPlace { memory, waker, mailbox, mail })
        };
        (0..shards).map(place).collect()
    }
}
