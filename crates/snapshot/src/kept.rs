//! What a family is, as it was kept, before anything of it is opened.

use crate::catalogue::{Catalogue, Snapshot};
use crate::{Shelf, SnapshotError};

/// A family that was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The logical block of its layers: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// Its volumes.
    pub volumes: Vec<String>,
    /// Its snapshots, in the order in which they were made.
    pub snapshots: Vec<Snapshot>,
    /// Whether there is a layer: without one all is in the store below.
    pub has_layers: bool,
}

impl Kept {
    /// That of a shelf; `None`: there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn of(shelf: &dyn Shelf) -> Result<Option<Kept>, SnapshotError> {
        shelf.load().map_err(SnapshotError::Load)?.as_deref().map(Kept::decode).transpose()
    }

    /// That of what a shelf has kept.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn decode(kept: &[u8]) -> Result<Kept, SnapshotError> {
        let Catalogue { block_bytes, volumes, snapshots, layers, .. } = Catalogue::decode(kept)?;
        let volumes = volumes.into_keys().collect();
        Ok(Kept { block_bytes, volumes, snapshots, has_layers: !layers.is_empty() })
    }
}
