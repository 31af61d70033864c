//! EXTENDED COPY with list identifiers of one byte (LID1), and what RECEIVE COPY RESULTS tells of it (SPC-3 6.3 and
//! 6.17; SPC-4 6.4).

mod list;
mod request;
pub(crate) mod results;

pub use list::{CopyAmount, CopyList, CopySegment, CopyTarget};
pub use request::BlockCopy;
pub use results::{CopyResults, CopyState, CopyStatus, failed_segment_details, held_data, operating_parameters};

/// The most copy targets of one command.
pub const TARGETS_MAX: usize = 16;
/// The most segments of one command.
pub const SEGMENTS_MAX: usize = 16;
/// The most bytes of target and segment descriptors together: some more than the counts allow, so that too many of
/// one kind are told as what they are.
pub const DESCRIPTORS_MAX_BYTES: usize = 2048;
/// The most data of one segment, in bytes.
pub const SEGMENT_MAX_BYTES: u32 = 64 << 20;
/// Copies with a list identifier that one logical unit remembers, under way or done.
pub const COPIES_MAX: u8 = 64;
/// The most of them of one nexus, so that there is room for those of others.
pub const COPIES_OF_NEXUS_MAX: u8 = 32;

/// Descriptor type codes that are understood, ascending (SPC-3 6.3.5).
pub(crate) const DESCRIPTOR_TYPES: [u8; 3] = [BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_WITH_OFFSET, IDENTIFICATION];

/// Segment: from block device to block device.
const BLOCK_TO_BLOCK: u8 = 0x02;
/// Segment: from block device to block device, counted in bytes.
const BLOCK_TO_BLOCK_WITH_OFFSET: u8 = 0x0a;
/// Target: named by a designator.
const IDENTIFICATION: u8 = 0xe4;
