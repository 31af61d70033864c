//! Requests that are done in parts, side by side: what a store does whose blocks lie in several places.

use sanwire_buffer::{Frame, Slices};

use crate::completion::CompletionQueue;
use crate::error::{ErrorKind, StoreError};
use crate::request::{Completion, Outcome, Started};

/// Reads into `buffer`, which belongs to `offset_bytes`, by parts of so many bytes one after the other, which fill it together. `begin`
/// begins one of them.
///
/// # Errors
/// The first part's that fails; [`ErrorKind::Full`] when there is no memory for the parts.
pub fn read<P>(
    (offset_bytes, mut buffer): (u64, Frame),
    parts: Vec<(P, usize)>,
    completions: &CompletionQueue,
    mut begin: impl FnMut(P, Frame) -> Started,
) -> Started {
    if parts.len() == 1 {
        return parts.into_iter().next().map_or(Started::Done(Ok(Outcome::Done)), |(part, _)| begin(part, buffer));
    }
    let mut begun = Vec::with_capacity(parts.len());
    for (part, length_bytes) in parts {
        let Some(frame) = Frame::zeroed(length_bytes) else {
            begun.push(Started::Done(Err(StoreError::new(ErrorKind::Full, offset_bytes))));
            break;
        };
        begun.push(begin(part, frame));
    }
    Started::join(begun, completions, move |ends, _| {
        let mut at = 0;
        for end in ends {
            match end {
                Ok(Outcome::Read(part)) => {
                    buffer[at..at + part.len()].copy_from_slice(&part);
                    at += part.len();
                }
                Ok(_) => {}
                Err(error) => return Started::Done(Err(error)),
            }
        }
        Started::Done(Ok(Outcome::Read(buffer)))
    })
}

/// Writes data by parts of so many bytes one after the other, which are all of it together. `begin` begins one of them.
///
/// # Errors
/// The first part's that fails.
pub fn write<P>(
    data: &Slices,
    parts: Vec<(P, usize)>,
    completions: &CompletionQueue,
    mut begin: impl FnMut(P, Slices) -> Started,
) -> Started {
    let mut at = 0;
    let writes = parts.into_iter().map(|(part, length_bytes)| {
        let end = at + length_bytes;
        begin(part, data.slice(std::mem::replace(&mut at, end)..end))
    });
    all(writes.collect(), completions)
}

/// Waits for all of these.
///
/// # Errors
/// The first one's that fails.
#[must_use]
pub fn all(mut parts: Vec<Started>, completions: &CompletionQueue) -> Started {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    Started::join(parts, completions, |ends: Vec<Completion>, _| {
        Started::Done(ends.into_iter().find_map(Result::err).map_or(Ok(Outcome::Done), Err))
    })
}
