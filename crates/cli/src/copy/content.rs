//! Whether a destination holds something that a copy would destroy.

use std::ops::Range;

use futures_util::stream::{FuturesOrdered, TryStreamExt};
use sanwire_buffer::Frame;

use super::end::End;
use super::parts::{Part, Parts};
use super::stage::is_zero;

/// Gives the chunk of the range that is not all zeroes and comes first, by its start.
///
/// # Errors
/// When the destination cannot be read.
pub(crate) async fn find_data(end: &End, range: Range<u64>, depth: u16) -> anyhow::Result<Option<u64>> {
    let whole = range.start..range.end.next_multiple_of(end.block_bytes()).min(end.size_bytes());
    let mut parts = Parts::new(end, whole, end.chunk_bytes());
    let mut flying = FuturesOrdered::new();
    loop {
        while flying.len() < usize::from(depth.max(1)) {
            let Some(part) = parts.next().await? else { break };
            if !part.is_hole {
                flying.push_back(has_data(end, part));
            }
        }
        match flying.try_next().await? {
            Some(None) => {}
            Some(found) => return Ok(found),
            None => return Ok(None),
        }
    }
}

async fn has_data(end: &End, part: Part) -> anyhow::Result<Option<u64>> {
    let length = usize::try_from(part.length_bytes())?;
    let frame = end.buffer(length).await?.unwrap_or_else(|| Frame::from(vec![0; length]));
    let frame = end.read(part.range.start, frame).await?;
    Ok(if is_zero(&frame) { None } else { Some(part.range.start) })
}
