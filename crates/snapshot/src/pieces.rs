//! Reads of what lies in several layers.

use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_store::{CompletionQueue, ErrorKind, Outcome, Request, Started, StoreError};

use crate::view::{Piece, Table};

pub(crate) fn cleared(mut buffer: Frame) -> Frame {
    buffer.fill(0);
    buffer
}

/// Reads parts side by side, each into memory of its own, and then puts them together.
pub(crate) fn read_pieces(
    (table, pieces): (Arc<Table>, Vec<Piece>),
    mut buffer: Frame,
    completions: &CompletionQueue,
) -> Started {
    let (mut parts, mut places, mut place) = (Vec::new(), Vec::new(), 0);
    for Piece { source, offset_bytes, length_bytes } in pieces {
        // Not longer than the buffer.
        let length = length_bytes as usize;
        let range = place..place + length;
        place += length;
        let Some(source) = source else {
            buffer[range].fill(0);
            continue;
        };
        let Some(part) = Frame::zeroed(length) else {
            return Started::Done(Err(StoreError::new(ErrorKind::Full, offset_bytes)));
        };
        let read = |offset_bytes| Request::Read { offset_bytes, buffer: part };
        parts.push(source.start(offset_bytes, (completions, Arc::clone(&table)), read));
        places.push(range);
    }
    Started::join(parts, completions, move |ends, _| {
        for (end, range) in ends.into_iter().zip(places) {
            match end {
                Ok(Outcome::Read(part)) => buffer[range].copy_from_slice(&part),
                Ok(_) => {}
                Err(error) => return Started::Done(Err(error)),
            }
        }
        Started::Done(Ok(Outcome::Read(buffer)))
    })
}
