//! How large a disk is (SBC-4 5.20 and 5.21).

use sanwire_scsi::Capacity;
use sanwire_store::Geometry;

pub(crate) fn capacity(geometry: &Geometry) -> Capacity {
    let block_bytes = geometry.block_bytes.max(1);
    let ratio = (geometry.physical_block_bytes / block_bytes).max(1);
    Capacity {
        blocks: geometry.length_bytes / u64::from(block_bytes),
        block_bytes,
        physical_block_exponent: ratio.ilog2().min(15) as u8,
        provisioning_management: geometry.discards,
        reads_zeroes: geometry.discards,
    }
}
