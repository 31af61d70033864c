//! One logical unit: the state that SPC asks of every unit, and the server of its device type.

use std::ops::Deref;
use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::Identity;
use sanwire_store::Store;

use crate::device_server::DeviceServer;
use crate::medium::{Medium, MediumError};
use crate::reservation::KeptError;
use crate::unit_attention::UnitAttention;
use crate::unit_state::{Lineage, UnitOptions, UnitState};

/// A store on which no unit can stand.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnitError {
    /// Blocks have 512 or 4096 bytes.
    #[error("a disk cannot have blocks of {0} bytes: choose 512 or 4096")]
    BlockSize(u32),
    /// There is not one block.
    #[error("a disk must have at least one block: the store is shorter than {0} bytes")]
    Empty(u32),
    /// It is no disc.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// It cannot be known what is reserved.
    #[error(transparent)]
    Reservations(#[from] KeptError),
}

/// One logical unit: its state, which commands and administrators ask (it is what the unit dereferences to), and the server
/// that knows what its type does besides.
#[derive(Debug)]
pub struct LogicalUnit {
    state: Arc<UnitState>,
    server: Arc<dyn DeviceServer>,
}

impl Deref for LogicalUnit {
    type Target = UnitState;

    fn deref(&self) -> &UnitState {
        &self.state
    }
}

impl LogicalUnit {
    /// A unit of whatever type.
    pub(crate) fn of(
        identity: Identity,
        (store, server): Served,
        options: UnitOptions,
        lineage: Option<Box<Lineage>>,
    ) -> Result<Self, UnitError> {
        let medium = Arc::clone(&server) as Arc<dyn Medium>;
        Ok(LogicalUnit { state: Arc::new(UnitState::new(identity, store, medium, options, lineage)?), server })
    }

    /// Its state, which lives as long as a command of the unit does.
    #[must_use]
    pub fn state(&self) -> &Arc<UnitState> {
        &self.state
    }

    /// Whether it is a block device (SBC).
    pub(crate) fn is_disk(&self) -> bool {
        self.server.standard_inquiry().first().is_some_and(|first| first & 0x1f == 0)
    }

    /// What its type does.
    pub(crate) fn server(&self) -> &dyn DeviceServer {
        &*self.server
    }

    /// Takes the medium out, whether initiators have locked it or not if `is_forced`.
    ///
    /// # Errors
    /// [`MediumError`]: it stays in. Initiators that have locked it may have been asked to unlock it.
    pub fn eject(&self, is_forced: bool) -> Result<(), MediumError> {
        self.server.eject(&self.state, is_forced)
    }

    /// Whether such a medium could be put in.
    ///
    /// # Errors
    /// [`MediumError`]: why not.
    pub fn check_medium(&self, medium: &Arc<dyn Store>) -> Result<(), MediumError> {
        self.server.check_medium(medium)
    }

    /// Puts a medium in, or the one back that was taken out, and tells initiators.
    ///
    /// # Errors
    /// [`MediumError`]: it stays out.
    pub fn load(&self, medium: Option<Arc<dyn Store>>) -> Result<(), MediumError> {
        let is_other = medium.is_some();
        self.server.load(medium, &self.state)?;
        if is_other {
            // Nothing is known of its store yet.
            self.set_gone(false);
        }
        Ok(())
    }

    pub(crate) fn forget(&self, nexus: NexusId) {
        self.nexuses.forget(nexus);
        self.flushes.forget(nexus);
        self.tenures.forget(nexus);
        self.server.forget(nexus);
        self.reservations.forget(nexus);
        self.derived().iter().for_each(|derived| derived.users.forget(nexus));
    }

    pub(crate) fn reset(&self) {
        self.reservations.reset();
        self.set_settings(self.default_settings());
        self.server.reset();
        self.nexuses.allow_all();
        // SAM-5 6.3.3: every initiator is told, also the one that asked for it.
        self.nexuses.raise(UnitAttention::Reset, None);
    }
}

/// What a unit reads and writes, and what it does with that.
pub(crate) type Served = (Arc<dyn Store>, Arc<dyn DeviceServer>);
