//! A store that gives no space back, over one that would.

use std::sync::Arc;

use super::Layer;
use crate::completion::CompletionQueue;
use crate::error::{ErrorKind, StoreError};
use crate::request::{Allocation, Capabilities, Geometry, Outcome, Request, Started, Store};

/// Hides that the store below is thin: what is written stays allocated, and all of it counts as such.
#[derive(Debug)]
pub struct ThickLayer;

impl Layer for ThickLayer {
    fn narrow(&self, below: Capabilities) -> Capabilities {
        Capabilities { geometry: Geometry { discards: false, ..below.geometry }, tells_space: false, ..below }
    }

    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        match request {
            Request::Discard { offset_bytes, .. } => {
                Started::Done(Err(StoreError::new(ErrorKind::Unsupported, offset_bytes)))
            }
            Request::Allocation { length_bytes, .. } => Started::Done(
                below
                    .geometry()
                    .check(&request)
                    .map(|()| Outcome::Allocated(Allocation { is_mapped: true, length_bytes })),
            ),
            request => below.start(request, completions),
        }
    }
}
