//! A store that takes no writes, over one that would.

use std::sync::Arc;

use super::Layer;
use crate::completion::CompletionQueue;
use crate::request::{Capabilities, Geometry, Request, Started, Store};

/// Refuses whatever would change the store below.
#[derive(Debug)]
pub struct ReadOnlyLayer;

impl Layer for ReadOnlyLayer {
    fn narrow(&self, below: Capabilities) -> Capabilities {
        Capabilities { geometry: Geometry { read_only: true, ..below.geometry }, ..below }
    }

    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        match self.narrow(below.capabilities()).geometry.check(&request) {
            Ok(()) => below.start(request, completions),
            Err(error) => Started::Done(Err(error)),
        }
    }
}
