//! Snapshots and clones of volumes, by layers over any store.
//!
//! What a volume holds is a *base*, any store, and a chain of *layers* over it, each in a store of its own, as a rule a sparse file.
//! The last layer takes the writes; those below never change, so that a snapshot is a new layer over what there is, and clones share
//! what they have in common. [`SnapshotStore`] is what is served: it finds each block where it was written last, by one look however
//! many layers there are.
//!
//! A block comes to a layer by its first write there. The layer's map says so from the next flush on: first its data is made stable,
//! then the map, so after a loss of power each block that was not flushed holds what it held before or what was written, as of a disk.
//! What a failed flush has lost may read as what its place in the layer held before, or as zeroes, until the volume is opened again or a
//! snapshot is taken.
//!
//! Nothing here does I/O, knows a clock, or starts a thread.
#![forbid(unsafe_code)]

mod catalogue;
mod error;
mod family;
mod format;
mod gate;
mod hold;
mod index;
mod kept;
mod layer;
mod losses;
mod map;
mod merge;
mod moving;
mod opening;
mod page;
mod pieces;
mod reserving;
mod room;
mod settling;
mod shelf;
mod store;
mod taking;
mod telling;
mod tidying;
mod tree;
mod turns;
mod view;

use serde::{Deserialize, Serialize};

pub use catalogue::{CatalogueError, Snapshot};
pub use error::SnapshotError;
pub use format::Damage;
pub use hold::{Hold, Release};
pub use kept::Kept;
pub use layer::Perform;
pub use merge::Progress;
pub use settling::Settling;
pub use shelf::Shelf;
pub use store::SnapshotStore;
pub use taking::{Prepared, Rollback};
pub use telling::LayerSpace;
pub use tree::{Base, Origin, Tree};

/// What tells a layer from all others, for ever: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LayerId(pub [u8; 16]);

impl LayerId {
    /// What is below all layers.
    pub const BASE: LayerId = LayerId([0; 16]);
}

impl std::fmt::Display for LayerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from(*self))
    }
}

impl From<LayerId> for String {
    fn from(layer: LayerId) -> Self {
        data_encoding::HEXLOWER.encode(&layer.0)
    }
}

impl TryFrom<String> for LayerId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(LayerId).ok_or("a layer is 32 hexadecimal digits")
    }
}

impl std::fmt::Debug for LayerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LayerId({self})")
    }
}
