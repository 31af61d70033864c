//! The medium of a unit, as far as commands of any unit ask for it, and media that come and go.

use std::fmt::Debug;

use sanwire_scsi::Sense;
use sanwire_store::{Geometry, Store};

use crate::unit_attention::Nexuses;

/// What commands ask of the medium of a unit, whatever the type of the unit is: also commands of other units, which copy from and
/// to it.
pub(crate) trait Medium: Debug + Send + Sync {
    /// Refuses nearly every command while the unit does something that excludes them.
    fn check_not_busy(&self) -> Result<(), Sense> {
        Ok(())
    }

    /// Refuses access to the medium for whatever reason there is.
    fn check_ready(&self, geometry: &Geometry) -> Result<(), Sense>;

    /// A command has done something to the medium, which is in this store; these nexuses may have to be told.
    fn changed(&self, _store: &dyn Store, _nexuses: &Nexuses) {}

    /// Which medium is in: another number after each change. What began on another one is not done on this one.
    fn number(&self) -> u32 {
        0
    }
}

/// Why a medium cannot be taken out or put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MediumError {
    /// It is not removable, or there is no other one for it.
    #[error(
        "it has no such medium: one with type=optical has discs, one that is removable can be ejected and loaded again"
    )]
    Fixed,
    /// An initiator has locked it.
    #[error("an initiator has locked its medium: it was asked to let go; --force ejects it all the same")]
    Prevented,
    /// One is in.
    #[error("there is a medium in it: eject it first")]
    NotEjected,
    /// It has not one block.
    #[error("the image is shorter than one block of {} bytes", sanwire_scsi::mmc::BLOCK_BYTES)]
    Empty,
    /// It has more blocks than a drive can address.
    #[error("the image is longer than a disc can be")]
    TooLong,
    /// Its store has blocks that do not fit into those of a disc.
    #[error("a disc cannot be on a store with blocks of {0} bytes")]
    BlockSize(u32),
}
