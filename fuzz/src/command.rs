//! What fuzz targets call the commands that they give to engines.

use sanwire_core::NexusId;
use sanwire_engine::Handle;

/// A command of a nexus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Command {
    /// Whose.
    pub nexus: NexusId,
    /// Which.
    pub number: u32,
}

impl Handle for Command {
    fn nexus(&self) -> NexusId {
        self.nexus
    }
}
