//! Ranges of any length, over a store that takes them up to some length only.

use std::sync::Arc;

use super::Layer;
use crate::completion::CompletionQueue;
use crate::request::{Capabilities, Completion, Outcome, Request, Started, Store};

/// So many parts of a range are done side by side; then come the next.
const PARTS_MAX: usize = 16;

/// Cuts what is discarded, or written with zeroes, into parts that the store below takes at once
/// ([`Capabilities::range_max_bytes`]). The first failure ends it.
#[derive(Debug)]
pub struct SplitLayer;

/// What is left of a range.
struct Rest {
    request: fn(u64, u64) -> Request,
    offset_bytes: u64,
    length_bytes: u64,
    part_max_bytes: u64,
}

impl Layer for SplitLayer {
    fn narrow(&self, below: Capabilities) -> Capabilities {
        Capabilities { range_max_bytes: None, ..below }
    }

    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        let make: fn(u64, u64) -> Request = match &request {
            Request::Discard { .. } => |offset_bytes, length_bytes| Request::Discard { offset_bytes, length_bytes },
            Request::WriteZeroes { .. } => {
                |offset_bytes, length_bytes| Request::WriteZeroes { offset_bytes, length_bytes }
            }
            _ => return below.start(request, completions),
        };
        let Capabilities { geometry, range_max_bytes, .. } = below.capabilities();
        let (offset_bytes, length_bytes) = request.range_bytes();
        match range_max_bytes.filter(|most| length_bytes > *most) {
            None => below.start(request, completions),
            Some(part_max_bytes) => match geometry.check(&request) {
                Ok(()) => Rest { request: make, offset_bytes, length_bytes, part_max_bytes }.go_on(below, completions),
                Err(error) => Started::Done(Err(error)),
            },
        }
    }
}

impl Rest {
    /// Begins the next parts, each up to a multiple of the longest one.
    fn go_on(mut self, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        let mut parts = Vec::new();
        while self.length_bytes > 0 && parts.len() < PARTS_MAX {
            let room_bytes = self.part_max_bytes - self.offset_bytes % self.part_max_bytes;
            let part_bytes = room_bytes.min(self.length_bytes);
            let part = below.start((self.request)(self.offset_bytes, part_bytes), completions);
            self.offset_bytes += part_bytes;
            self.length_bytes -= part_bytes;
            match part {
                // What is done at once is not collected: it could be much.
                Started::Done(Ok(_)) => {}
                failure @ Started::Done(Err(_)) => {
                    self.length_bytes = 0;
                    parts.push(failure);
                }
                part => parts.push(part),
            }
        }
        let below = Arc::clone(below);
        Started::join(parts, completions, move |ends: Vec<Completion>, completions: &CompletionQueue| {
            match ends.into_iter().find(Result::is_err) {
                Some(failure) => Started::Done(failure),
                None if self.length_bytes == 0 => Started::Done(Ok(Outcome::Done)),
                None => self.go_on(&below, completions),
            }
        })
    }
}
