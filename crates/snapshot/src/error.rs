//! Why a volume of layers cannot be opened or changed.

use std::io;

use sanwire_store::{ResizeError, StoreError};

use crate::catalogue::{CatalogueError, LAYERS_MAX};
use crate::{Damage, LayerId};

/// Why not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The store of a layer has failed.
    #[error("layer {layer}: {source}")]
    Store {
        /// Which layer.
        layer: LayerId,
        /// How.
        source: StoreError,
    },
    /// What a layer holds is not to be used.
    #[error(
        "layer {layer} cannot be used: {source}. Bring its file back from a backup; volumes and snapshots without that layer are not concerned"
    )]
    Damaged {
        /// Which layer.
        layer: LayerId,
        /// Why.
        source: Damage,
    },
    /// There is nothing where the catalogue should be.
    #[error("no layers of a volume were ever kept there")]
    Nothing,
    /// What says how layers belong together cannot be read.
    #[error("cannot read the catalogue of layers: {0}")]
    Load(io::Error),
    /// It cannot be used.
    #[error("the catalogue of layers cannot be used: {0}. Bring it back from a backup")]
    Catalogue(#[from] CatalogueError),
    /// A change cannot be kept.
    #[error("cannot keep the catalogue of layers: {0}")]
    Keep(io::Error),
    /// The store of a layer cannot be opened.
    #[error("cannot open layer {layer}: {source}")]
    Open {
        /// Which layer.
        layer: LayerId,
        /// Why.
        source: io::Error,
    },
    /// The store of a layer cannot be made.
    #[error("cannot make layer {layer}: {source}")]
    Make {
        /// Which layer.
        layer: LayerId,
        /// Why.
        source: io::Error,
    },
    /// A layer is not open that should be.
    #[error("layer {layer} is not there")]
    Missing {
        /// Which layer.
        layer: LayerId,
    },
    /// The base is another one, or was cut short.
    #[error(
        "what is below the layers is not that with which they began, or was cut short: bring it back from a backup"
    )]
    OtherBase,
    /// There is no such volume, or it is not open.
    #[error("there is no such volume of layers, or it is not open")]
    NoVolume,
    /// There is no such snapshot.
    #[error("the volume has no such snapshot")]
    NoSnapshot,
    /// The name is taken.
    #[error("there is one of that name already")]
    Exists,
    /// Something else changes it.
    #[error("the volume is being changed by somebody else: try again")]
    Busy,
    /// A flush of what is below all layers has failed, which is too much to be written once more.
    #[error(
        "a flush of the volume has failed, so nobody knows what its store holds on the medium: copy the volume to another one, and use that"
    )]
    Unsure,
    /// A flush of a layer has failed: it is written once more before there is a snapshot of it.
    #[error("a flush of the volume has failed, and what may be lost is being written once more: try again in a while")]
    Unsettled,
    /// Writes were given back before it was done.
    #[error("writes have waited too long for it, so nothing was changed: try again")]
    Late,
    /// There is no space to merge layers.
    #[error(
        "{available_bytes} bytes are available, which is too little to merge layer {upper} into what is below it: make some room"
    )]
    NoRoom {
        /// Which layer.
        upper: LayerId,
        /// How much there is.
        available_bytes: u64,
    },
    /// A chain has an end.
    #[error("there are {LAYERS_MAX} layers: remove snapshots first")]
    TooMany,
    /// A layer could not get the length of its volume.
    #[error("layer {layer}: {source}")]
    Resize {
        /// Which layer.
        layer: LayerId,
        /// Why.
        source: ResizeError,
    },
}

impl SnapshotError {
    pub(crate) fn at(layer: LayerId, source: StoreError) -> Self {
        SnapshotError::Store { layer, source }
    }
}
