//! Media that come and go.

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
