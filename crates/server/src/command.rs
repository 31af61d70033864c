//! What this server calls commands, whatever wire they came by.

use sanwire_core::NexusId;
use sanwire_engine::Handle;

/// Which command of which protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommandHandle {
    HyperScsi(sanwire_hyperscsi::CommandHandle),
    Iscsi(sanwire_iscsi::CommandHandle),
}

impl Handle for CommandHandle {
    fn nexus(&self) -> NexusId {
        match self {
            CommandHandle::HyperScsi(handle) => handle.nexus(),
            CommandHandle::Iscsi(handle) => handle.nexus(),
        }
    }
}

/// Which commands are to be ended.
pub(crate) type Selection = sanwire_engine::Selection<CommandHandle>;
