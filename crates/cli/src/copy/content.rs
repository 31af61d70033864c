//! Whether a destination holds something that a copy would destroy.

use std::ops::Range;

use futures_util::stream::{FuturesOrdered, TryStreamExt};
use sanwire_buffer::Frame;

use super::end::End;
use super::parts::{Part, Parts};
use super::stage::runs;

/// Gives where in the range the first data is that is not all zeroes, as far as it is told apart.
///
/// # Errors
/// When the destination cannot be read.
pub(crate) async fn find_data(end: &End, range: Range<u64>, depth: u16) -> anyhow::Result<Option<u64>> {
    let whole = range.start..range.end.next_multiple_of(end.block_bytes()).min(end.size_bytes());
    let mut parts = Parts::new(end, whole, end.chunk_bytes(depth));
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
    let data = runs(&frame).into_iter().find(|run| !run.is_zero);
    Ok(data.map(|run| part.range.start + run.range.start as u64))
}
