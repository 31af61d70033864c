//! A store that keeps nothing, to measure what everything around a store costs.

use sanwire_core::limits::TRANSFER_MAX_BYTES;

use crate::completion::CompletionQueue;
use crate::request::{Allocation, Capabilities, Geometry, Outcome, Request, Started, Store};
use crate::resize::{GrowingGeometry, ResizeError};

/// Reads as zeroes, forgets what is written.
///
/// A frame comes with the bytes of its last owner, perhaps another client's, and this store cannot tell a clean
/// frame from a used one. So each read clears its frame: some tens of nanoseconds for 4 KiB, the least that leaks nothing.
#[derive(Debug)]
pub struct NullStore {
    geometry: GrowingGeometry,
}

impl NullStore {
    /// A store of `length_bytes`, cut down to whole blocks of `block_bytes`.
    #[must_use]
    pub fn new(length_bytes: u64, block_bytes: u32) -> Self {
        let block_bytes = block_bytes.max(1);
        let geometry = Geometry {
            length_bytes: length_bytes - length_bytes % u64::from(block_bytes),
            block_bytes,
            physical_block_bytes: block_bytes,
            read_only: false,
            discards: true,
            // What nobody keeps nobody sees in part.
            atomic_write_bytes: TRANSFER_MAX_BYTES as u32,
        };
        NullStore { geometry: GrowingGeometry::new(geometry) }
    }
}

impl Store for NullStore {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { grows: true, ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        Started::Done(self.geometry.get().check(&request).map(|()| match request {
            Request::Read { mut buffer, .. } => {
                buffer.fill(0);
                Outcome::Read(buffer)
            }
            Request::Allocation { length_bytes, .. } => {
                Outcome::Allocated(Allocation { is_mapped: false, length_bytes })
            }
            _ => Outcome::Done,
        }))
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.geometry.check(length_bytes)?;
        self.geometry.grow(length_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::run_pure;

    #[test]
    fn a_read_shows_nothing_of_the_frame_s_last_owner() {
        let store = NullStore::new(1 << 20, 512);
        let read =
            |offset_bytes, length| run_pure(&store, Request::Read { offset_bytes, buffer: vec![7; length].into() });
        let Ok(Outcome::Read(frame)) = read(512, 1024) else {
            panic!("a read answers at once");
        };
        assert_eq!(*frame, [0; 1024]);
        assert!(matches!(read(1 << 20, 512), Err(error) if error.kind == crate::ErrorKind::OutOfRange));
    }
}
