//! A base that is no file: a disk that gives nothing back, does not tell what is written, and that its owner makes longer.

use std::sync::Arc;

use sanwire_store::{
    Allocation, Capabilities, CompletionQueue, ErrorKind, Geometry, Outcome, Request, ResizeError, Started, Store,
    StoreError,
};

use super::disk::{SECTOR_BYTES, SectorDisk};
use super::model::content;

/// What stands behind the end of a disk when it becomes longer: nothing that was ever written to a volume.
pub(super) const FOREIGN: u64 = 1;

/// The disk below the volumes of a world.
#[derive(Clone, Debug)]
pub(super) struct Device(pub(super) Arc<SectorDisk>);

impl Device {
    /// Its owner makes it longer, by so many bytes that hold something.
    pub(super) fn lengthen(&self, length_bytes: u64) {
        let first = self.0.geometry().length_bytes / SECTOR_BYTES as u64;
        let sectors = first..first + length_bytes / SECTOR_BYTES as u64;
        self.0.append(sectors.map(|sector| content(FOREIGN, sector)));
    }
}

impl Store for Device {
    fn geometry(&self) -> Geometry {
        Geometry { discards: false, ..self.0.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { grows: true, ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match request {
            Request::Discard { offset_bytes, .. } => {
                Started::Done(Err(StoreError::new(ErrorKind::Unsupported, offset_bytes)))
            }
            Request::Allocation { length_bytes, .. } => {
                Started::Done(Ok(Outcome::Allocated(Allocation { is_mapped: true, length_bytes })))
            }
            request => self.0.start(request, completions),
        }
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.0.resize(length_bytes)
    }
}
