//! What this server calls commands, whichever wire they arrived by.

use sanwire_core::NexusId;
use sanwire_engine::Handle;

/// A command of a front end, or a request to it for task management or administration. Only that front end knows what the number
/// means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CommandRef {
    /// The place of the front end in its shard.
    pub(crate) front: u8,
    /// The I_T nexus that gave the command.
    pub(crate) nexus: NexusId,
    /// What the front end calls it, in its nexus.
    pub(crate) number: u64,
}

impl Handle for CommandRef {
    fn nexus(&self) -> NexusId {
        self.nexus
    }
}

/// Which commands are to be ended.
pub(crate) type Selection = sanwire_engine::Selection<CommandRef>;
