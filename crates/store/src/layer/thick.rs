//! A store that gives no space back, over one that would.

use std::sync::Arc;

use sanwire_buffer::Slices;

use crate::completion::CompletionQueue;
use crate::error::{ErrorKind, StoreError};
use crate::request::{Allocation, Geometry, Outcome, Request, Started, Store};
use crate::resize::ResizeError;

/// Hides that the store below is thin: what is written stays allocated, and all of it counts as such.
#[derive(Debug)]
pub struct ThickLayer {
    below: Arc<dyn Store>,
}

impl ThickLayer {
    /// `below`, without discards.
    #[must_use]
    pub fn new(below: Arc<dyn Store>) -> Self {
        ThickLayer { below }
    }
}

impl Store for ThickLayer {
    fn geometry(&self) -> Geometry {
        Geometry { discards: false, ..self.below.geometry() }
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        self.below.share(offset_bytes, length_bytes)
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.below.resize(length_bytes)
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match request {
            Request::Discard { offset_bytes, .. } => {
                Started::Done(Err(StoreError::new(ErrorKind::Unsupported, offset_bytes)))
            }
            Request::Allocation { length_bytes, .. } => Started::Done(
                self.geometry()
                    .check(&request)
                    .map(|()| Outcome::Allocated(Allocation { is_mapped: true, length_bytes })),
            ),
            request => self.below.start(request, completions),
        }
    }
}
