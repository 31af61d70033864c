//! A store that takes no writes, over one that would.

use std::sync::Arc;

use sanwire_buffer::Slices;

use crate::completion::CompletionQueue;
use crate::request::{Geometry, Request, Space, Started, Store};
use crate::resize::ResizeError;

/// Refuses whatever would change the store below.
#[derive(Debug)]
pub struct ReadOnlyLayer {
    below: Arc<dyn Store>,
}

impl ReadOnlyLayer {
    /// `below`, for reading only.
    #[must_use]
    pub fn new(below: Arc<dyn Store>) -> Self {
        ReadOnlyLayer { below }
    }
}

impl Store for ReadOnlyLayer {
    fn geometry(&self) -> Geometry {
        Geometry { read_only: true, ..self.below.geometry() }
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        self.below.share(offset_bytes, length_bytes)
    }

    fn space(&self) -> Option<Space> {
        self.below.space()
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.below.resize(length_bytes)
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match self.geometry().check(&request) {
            Ok(()) => self.below.start(request, completions),
            Err(error) => Started::Done(Err(error)),
        }
    }
}
