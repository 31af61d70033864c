//! The VPD pages of a disk (SBC-4 6.6).

use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_scsi::mode::CountedResources;
use sanwire_scsi::vpd::{self, BlockCharacteristics, BlockLimits, Provisioning, ProvisioningType};
use sanwire_store::Geometry;

use crate::disk::compare_and_write::compare_and_write_max_blocks;
use crate::disk::provisioning_threshold;
use crate::disk::unmap::{DESCRIPTORS_MAX, UNMAP_MAX_BLOCKS};

/// Those besides the pages of every unit.
pub(super) const PAGES: &[u8] = &[
    vpd::page::THIRD_PARTY_COPY,
    vpd::page::BLOCK_LIMITS,
    vpd::page::BLOCK_DEVICE_CHARACTERISTICS,
    vpd::page::LOGICAL_BLOCK_PROVISIONING,
    vpd::page::SUPPORTED_BLOCK_LENGTHS,
];

pub(super) fn page(
    page: u8,
    (counted, has_tokens): (CountedResources, bool),
    geometry: &Geometry,
    transfer_max_bytes: usize,
) -> Option<Vec<u8>> {
    Some(match page {
        vpd::page::THIRD_PARTY_COPY => vpd::third_party_copy(geometry.block_bytes, has_tokens),
        vpd::page::BLOCK_LIMITS => block_limits(geometry, transfer_max_bytes).to_page(),
        vpd::page::BLOCK_DEVICE_CHARACTERISTICS => characteristics(geometry).to_page(),
        vpd::page::LOGICAL_BLOCK_PROVISIONING => provisioning(counted, geometry).to_page(),
        vpd::page::SUPPORTED_BLOCK_LENGTHS => vpd::supported_block_lengths(geometry.block_bytes),
        _ => return None,
    })
}

fn characteristics(geometry: &Geometry) -> BlockCharacteristics {
    BlockCharacteristics { reads_after_block_erase: geometry.discards, ..BlockCharacteristics::NON_ROTATING }
}

fn block_limits(geometry: &Geometry, transfer_max_bytes: usize) -> BlockLimits {
    let blocks = |bytes: u64| u32::try_from(bytes / u64::from(geometry.block_bytes.max(1))).unwrap_or(u32::MAX);
    let granularity = blocks(geometry.physical_block_bytes.into()).max(1);
    let mut limits = BlockLimits {
        optimal_transfer_granularity: u16::try_from(granularity).unwrap_or(0),
        maximum_transfer: blocks(transfer_max_bytes as u64),
        // Longer ones go in pieces.
        optimal_transfer: blocks(TRANSFER_MAX_BYTES as u64),
        maximum_compare_and_write: compare_and_write_max_blocks(geometry),
        maximum_atomic: blocks(geometry.atomic_write_bytes.into()),
        ..BlockLimits::default()
    };
    if geometry.discards {
        limits.maximum_unmap = UNMAP_MAX_BLOCKS;
        limits.maximum_unmap_descriptors = DESCRIPTORS_MAX as u32;
        limits.optimal_unmap_granularity = granularity;
        limits.unmap_alignment = Some(0);
    }
    limits
}

fn provisioning(counted: CountedResources, geometry: &Geometry) -> Provisioning {
    let thin = geometry.discards;
    let kind = if thin { ProvisioningType::Thin } else { ProvisioningType::Full };
    Provisioning {
        threshold_exponent: if counted.any() { provisioning_threshold::exponent(geometry.block_bytes) } else { 0 },
        unmap: thin,
        write_same_16: thin,
        write_same_10: thin,
        reads_zeroes: thin,
        kind,
    }
}
