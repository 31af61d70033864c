//! A source cut into the operations of a copy.

use std::collections::VecDeque;
use std::ops::Range;

use super::end::{End, Extent};

/// Bytes of a hole that are cleared by one operation at the most, so that the progress is seen.
const HOLE_MAX_BYTES: u64 = 1 << 30;

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) range: Range<u64>,
    pub(super) is_hole: bool,
}

impl Part {
    pub(super) fn length_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// What is left to do of a range of the source.
pub(super) struct Parts<'a> {
    from: &'a End,
    range: Range<u64>,
    chunk_bytes: u64,
    known: VecDeque<Extent>,
}

impl<'a> Parts<'a> {
    /// The parts of a range; those with data have `chunk_bytes` at the most.
    pub(super) fn new(from: &'a End, range: Range<u64>, chunk_bytes: u64) -> Self {
        Parts { from, range, chunk_bytes, known: VecDeque::new() }
    }

    /// Where the next part begins.
    pub(super) fn place_bytes(&self) -> u64 {
        self.range.start
    }

    /// The next part, or `None` at the end. Only the last one may end within a block.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Part>> {
        if self.range.is_empty() {
            return Ok(None);
        }
        let place_bytes = self.range.start;
        while self.known.front().is_some_and(|extent| extent.range.end <= place_bytes) {
            self.known.pop_front();
        }
        if self.known.is_empty() {
            self.known = self.from.extents_at(self.range.clone()).await?.into();
        }
        let (extent_end_bytes, is_hole) = match self.known.front() {
            Some(extent) if extent.range.contains(&place_bytes) => (extent.range.end, extent.is_hole),
            _ => (self.range.end, false),
        };
        let max_bytes = if is_hole { HOLE_MAX_BYTES } else { self.chunk_bytes };
        let end_bytes = extent_end_bytes.min(place_bytes.saturating_add(max_bytes)).min(self.range.end);
        self.range.start = end_bytes;
        Ok(Some(Part { range: place_bytes..end_bytes, is_hole }))
    }
}
