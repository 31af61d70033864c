//! Wire formats: MPA's frames of setup and FPDUs, DDP's segments, RDMAP's headers. All numbers are big-endian.

mod ddp;
mod field;
mod mpa;
mod rdmap;
mod terminate;

pub use ddp::{DDP_VERSION, HEADER_MAX_BYTES, Segment, TAGGED_BYTES, Target, UNTAGGED_BYTES};
pub use field::Stag;
pub use mpa::{
    CRC_BYTES, DEPTH_ANY, Enhanced, LENGTH_BYTES, PRIVATE_DATA_MAX_BYTES, Rtr, STARTUP_BYTES, Startup, fpdu_bytes,
    padding_bytes,
};
pub use rdmap::{Opcode, Queue, RDMAP_VERSION, READ_REQUEST_BYTES, ReadRequest};
pub use terminate::{TERMINATE_MAX_BYTES, Terminate};
