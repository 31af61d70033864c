//! A few seconds of copying, with several operations in flight.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use sanwire_buffer::Frame;

use super::end::End;

/// How long operations are started before the stage is brought to its end.
const STAGE_TIME: Duration = Duration::from_secs(2);
/// Bytes of a hole that are cleared by one operation at the most, so that the progress is seen.
const HOLE_MAX_BYTES: u64 = 1 << 30;

/// One stage.
pub(super) struct Stage<'a> {
    from: &'a End,
    to: &'a End,
    size_bytes: u64,
    place_bytes: u64,
    /// The rest of the extent that the place is in.
    extent: Option<super::end::Extent>,
    depth: usize,
    pub(super) data_bytes: u64,
    pub(super) zero_bytes: u64,
}

/// One operation.
struct Part {
    range: Range<u64>,
    is_hole: bool,
}

/// What an operation did.
struct Done {
    length_bytes: u64,
    was_zero: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(from: &'a End, to: &'a End, place_bytes: u64, depth: u16) -> Self {
        let size_bytes = from.size_bytes();
        let depth = usize::from(depth.max(1));
        Stage { from, to, size_bytes, place_bytes, extent: None, depth, data_bytes: 0, zero_bytes: 0 }
    }

    /// Copies until the time is over and everything in flight has ended; gives the new place.
    pub(super) async fn run(&mut self, progress: &impl Fn(u64)) -> anyhow::Result<u64> {
        let start_bytes = self.place_bytes;
        let deadline = Instant::now() + STAGE_TIME;
        let mut flying = FuturesUnordered::new();
        let (from, to) = (self.from, self.to);
        loop {
            while flying.len() < self.depth && Instant::now() < deadline {
                let Some(part) = self.next_part()? else { break };
                flying.push(copy_part(from, to, part));
            }
            let Some(done) = flying.try_next().await? else { return Ok(self.place_bytes) };
            *(if done.was_zero { &mut self.zero_bytes } else { &mut self.data_bytes }) += done.length_bytes;
            progress(start_bytes + self.zero_bytes + self.data_bytes);
        }
    }

    /// The next operation, or `None` at the end. Only the last one may end within a block.
    fn next_part(&mut self) -> anyhow::Result<Option<Part>> {
        if self.place_bytes >= self.size_bytes {
            return Ok(None);
        }
        let known = self.extent.take().filter(|extent| extent.range.contains(&self.place_bytes));
        let extent = known.map_or_else(|| self.from.extent_at(self.place_bytes), Ok)?;
        let max_bytes = match extent.is_hole {
            true => HOLE_MAX_BYTES,
            false => self.from.chunk_bytes().min(self.to.chunk_bytes()),
        };
        let end_bytes = extent.range.end.min(self.place_bytes.saturating_add(max_bytes)).min(self.size_bytes);
        let part = Part { range: self.place_bytes..end_bytes, is_hole: extent.is_hole };
        self.place_bytes = end_bytes;
        self.extent = Some(extent);
        Ok(Some(part))
    }
}

async fn copy_part(from: &End, to: &End, part: Part) -> anyhow::Result<Done> {
    let length_bytes = part.range.end - part.range.start;
    if part.is_hole && to.zero(part.range.clone()).await? {
        return Ok(Done { length_bytes, was_zero: true });
    }
    let step_bytes = from.chunk_bytes().min(to.chunk_bytes());
    let mut done = Done { length_bytes, was_zero: true };
    let mut start_bytes = part.range.start;
    while start_bytes < part.range.end {
        let end_bytes = part.range.end.min(start_bytes + step_bytes);
        done.was_zero &= copy_chunk(from, to, start_bytes..end_bytes).await?;
        start_bytes = end_bytes;
    }
    Ok(done)
}

/// Copies one operation's worth of bytes; says whether they were zero and needed no writing.
async fn copy_chunk(from: &End, to: &End, range: Range<u64>) -> anyhow::Result<bool> {
    let wanted_bytes = range.end - range.start;
    let block_bytes = to.block_bytes().max(from.block_bytes());
    let length_bytes = wanted_bytes.next_multiple_of(block_bytes);
    let length = usize::try_from(length_bytes)?;
    let frame = match from.buffer(length).await? {
        Some(frame) => frame,
        None => to.buffer(length).await?.unwrap_or_else(|| Frame::from(vec![0; length])),
    };
    let mut frame = from.read(range.start, frame).await?;
    if is_zero(&frame) && to.zero(range.start..range.start + length_bytes).await? {
        return Ok(true);
    }
    if to.block_bytes() == 1 {
        frame.truncate(usize::try_from(wanted_bytes)?);
    }
    to.write(range.start, frame.freeze()).await?;
    Ok(false)
}

fn is_zero(bytes: &[u8]) -> bool {
    // Whole rows first: the compiler makes wide instructions of them.
    bytes.chunks(64).all(|row| row.iter().fold(0, |sum, byte| sum | byte) == 0)
}
