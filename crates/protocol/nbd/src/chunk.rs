//! What is in the chunks of an answer, but for data.

use std::ops::Range;

use crate::client::Orders;
use crate::connection::{Piece, Violation};
use crate::handshake::text;
use crate::order::Extent;
use crate::wire::*;

/// The first extent of a chunk about what is allocated.
pub(crate) fn take_extents(piece: &mut Piece, body: &[u8], context: Option<u32>) -> Result<(), Violation> {
    let context = context.ok_or("it tells what is allocated, which was not agreed on")?;
    let is_well_formed = body.len() >= 12 && (body.len() - 4).is_multiple_of(8) && be32(body, 0) == context;
    if piece.kind != CMD_BLOCK_STATUS || !is_well_formed {
        return Err("a malformed chunk about what is allocated");
    }
    let (length, flags) = (be32(body, 4), be32(body, 8));
    if length == 0 {
        return Err("it tells of an extent without length");
    }
    let is_hole = flags & (STATE_HOLE | STATE_ZERO) == STATE_HOLE | STATE_ZERO;
    // The last extent may reach beyond the range that was asked about.
    let length_bytes = u64::from(length.min(piece.length_bytes));
    piece.extent.get_or_insert(Extent { is_hole, length_bytes });
    Ok(())
}

/// Which bytes of a read's piece these are.
pub(crate) fn within(piece: &Piece, offset_bytes: u64, length: usize) -> Result<Range<u32>, Violation> {
    let start = offset_bytes.checked_sub(piece.offset_bytes).and_then(|start| u32::try_from(start).ok());
    let length = u32::try_from(length).ok();
    let range = start.zip(length).and_then(|(start, length)| Some(start..start.checked_add(length)?));
    match range {
        Some(range) if piece.kind == CMD_READ && !range.is_empty() && range.end <= piece.length_bytes => Ok(range),
        _ => Err("it sends data that was not asked for"),
    }
}

/// A part of a read that is zeroes.
pub(crate) fn take_hole(piece: &mut Piece, body: &[u8], orders: &mut Orders) -> Result<(), Violation> {
    let bytes = within(piece, be64(body, 0), be32(body, 8) as usize)?;
    let (start, end) = (piece.start + bytes.start as usize, piece.start + bytes.end as usize);
    if !piece.coverage.insert(bytes) {
        return Err("it sends some data of a read twice, or in too many parts");
    }
    orders.frame(piece.order)[start..end].fill(0);
    Ok(())
}

/// Why it failed.
pub(crate) fn take_error(piece: &mut Piece, kind: u16, body: &[u8]) -> Result<(), Violation> {
    const MALFORMED: Violation = "a malformed error";
    if body.len() < 6 || be32(body, 0) == 0 {
        return Err(MALFORMED);
    }
    let length = usize::from(be16(body, 4));
    let message = body.get(6..6 + length).ok_or(MALFORMED)?;
    let offset_bytes = match (kind, body.len() - 6 - length) {
        (CHUNK_ERROR_OFFSET, 8) => Some(be64(body, 6 + length)),
        (CHUNK_ERROR_OFFSET, _) => return Err(MALFORMED),
        _ => None,
    };
    let range = piece.offset_bytes..piece.offset_bytes.saturating_add(u64::from(piece.length_bytes));
    piece.fail(be32(body, 0), offset_bytes.filter(|at| range.contains(at)), text(message));
    Ok(())
}
