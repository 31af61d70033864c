//! What a client is asked, and what it answers.

use std::ops::Range;

use sanwire_buffer::{Frame, Slices};

/// The number of an order of one [`crate::Client`], never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OrderId(pub u64);

/// One operation on the export. Offsets and lengths are bytes, multiples of [`crate::BlockSizes::min_bytes`], within the export.
#[derive(Debug)]
pub enum Order {
    /// Fill the frame.
    Read {
        /// From where.
        offset_bytes: u64,
        /// It comes back in [`Answer::Read`].
        frame: Frame,
    },
    /// Write all of the data.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What, piece after piece.
        data: Slices,
    },
    /// Make every answered write stable.
    Flush,
    /// Make a range read as zeroes.
    Zero {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
        /// Whether the space behind it stays allocated; else it may be given back.
        keeps_space: bool,
    },
    /// Tell how the beginning of a range stands.
    Extent {
        /// Where.
        offset_bytes: u64,
        /// How far to look.
        length_bytes: u64,
    },
}

impl Order {
    /// The range that it is about; a flush has an empty one.
    pub(crate) fn range(&self) -> Range<u64> {
        let (offset, length) = match self {
            Order::Read { offset_bytes, frame } => (*offset_bytes, frame.len() as u64),
            Order::Write { offset_bytes, data } => (*offset_bytes, data.len() as u64),
            Order::Zero { offset_bytes, length_bytes, .. } | Order::Extent { offset_bytes, length_bytes } => {
                (*offset_bytes, *length_bytes)
            }
            Order::Flush => (0, 0),
        };
        offset..offset.saturating_add(length)
    }

    /// Whether they have bytes in common.
    pub(crate) fn overlaps(&self, other: &Order) -> bool {
        let (one, other) = (self.range(), other.range());
        one.start < other.end && other.start < one.end
    }

    /// Whether it changes what the export holds.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Order::Write { .. } | Order::Zero { .. })
    }
}

/// How an order ended well.
#[derive(Debug)]
pub enum Answer {
    /// The frame of a read, filled.
    Read(Frame),
    /// How the beginning of a range stands.
    Extent(Extent),
    /// Anything else.
    Done,
}

/// The first run of one kind in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Whether no space stands behind it and it reads as zeroes.
    pub is_hole: bool,
    /// Its length, from the order's offset on: at least one byte, and no more than was asked about.
    pub length_bytes: u64,
}

/// Why an order failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The server said so.
    #[error("the NBD server says: {}{}", errno_text(*errno), if text.is_empty() { String::new() } else { format!(" ({text})") })]
    Server {
        /// Its number of the error; those of Linux, of which NBD knows a few.
        errno: u32,
        /// Where in the export, when it tells.
        offset_bytes: Option<u64>,
        /// Its explanation, at most [`crate::wire::TEXT_MAX_BYTES`] bytes of it.
        text: String,
    },
    /// The server could not be reached for longer than the client waits. Whether the order was carried out is not known.
    #[error("the NBD server cannot be reached: {reason}")]
    Gone {
        /// What the last attempt ended with.
        reason: String,
    },
}

fn errno_text(errno: u32) -> String {
    let text = match errno {
        1 => "operation not permitted",
        5 => "input/output error",
        12 => "out of memory",
        22 => "invalid request",
        28 => "no space left",
        75 => "the request is too large",
        95 => "operation not supported",
        108 => "it is shutting down",
        _ => return format!("error {errno}"),
    };
    text.to_owned()
}
