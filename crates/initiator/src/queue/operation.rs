//! What a volume is asked, and answers.

use sanwire_buffer::{Frame, Slice};

/// What a driver is asked to do. Offsets and lengths are bytes, checked against the volume's size and block.
#[derive(Debug)]
pub enum OpKind {
    /// Fill the whole of `buffer`; it comes back in [`OpOutput::Frame`].
    Read {
        /// Where.
        offset_bytes: u64,
        /// Where to put it, and how much.
        buffer: Frame,
    },
    /// Write all of `data`.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What.
        data: Slice,
        /// Whether it must be on stable storage before it is complete (FUA).
        stable: bool,
    },
    /// Make every completed write stable.
    Flush,
    /// Give space back.
    Discard {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
    },
    /// Write zeroes.
    WriteZeroes {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
    },
    /// Have the server copy from another of its volumes, of the same block length.
    Copy {
        /// The NAA names of that volume and of this one.
        naa: [u64; 2],
        /// From where.
        source_offset_bytes: u64,
        /// To where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
    },
    /// Tell what has space behind it; the answer may end before the range does.
    Allocation {
        /// Where.
        offset_bytes: u64,
        /// How much, not nothing.
        length_bytes: u64,
    },
    /// Ask whether there is news of the volume: a device tells it with the answer to a command only.
    Check,
}

/// A run of bytes of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocatedRun {
    /// How long it is.
    pub length_bytes: u64,
    /// Whether space stands behind it, or nobody knows. The others read as zeroes.
    pub is_mapped: bool,
}

/// How an operation ended well.
#[derive(Debug)]
pub enum OpOutput {
    /// The frame of a read, filled.
    Frame(Frame),
    /// The runs from the start of the range that was asked about.
    Allocation(Vec<AllocatedRun>),
    /// Anything else.
    Done,
}
