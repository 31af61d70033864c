//! What an ATA disk answers to questions that it is asked as a SCSI unit.

use sanwire_scsi::vpd::{BlockCharacteristics, BlockLimits, Provisioning, ProvisioningType, page, unit_serial_number};
use sanwire_scsi::{Capacity, Identity, ModeSense};

use crate::identify::IdentifyDevice;

/// Sectors of one TRIM: a block of ranges, each as long as it can be.
const TRIM_SECTORS_MAX: u32 = 64 * 0xffff;

/// The pages that it has.
const PAGES: [u8; 6] = [
    page::SUPPORTED_PAGES,
    page::UNIT_SERIAL_NUMBER,
    page::DEVICE_IDENTIFICATION,
    page::BLOCK_LIMITS,
    page::BLOCK_DEVICE_CHARACTERISTICS,
    page::LOGICAL_BLOCK_PROVISIONING,
];

/// Standard INQUIRY data: vendor and product are those of the disk, as SAT-3 8.1.2 has them.
pub(super) fn standard_inquiry(disk: &IdentifyDevice) -> Vec<u8> {
    let padded =
        |text: &str, length: usize| -> Vec<u8> { text.bytes().chain(std::iter::repeat(b' ')).take(length).collect() };
    let mut data = vec![0, 0, 0x06, 0x12, 31, 0, 0, 0x02];
    data.extend(padded("ATA", 8));
    data.extend(padded(&disk.model, 16));
    data.extend(padded(&disk.firmware, 4));
    data
}

pub(super) fn capacity(disk: &IdentifyDevice) -> Capacity {
    Capacity {
        blocks: disk.sectors,
        block_bytes: disk.sector_bytes,
        physical_block_exponent: disk.physical_sector_exponent,
        provisioning_management: disk.trim.is_some(),
        reads_zeroes: disk.trim.is_some_and(|trim| trim.reads_zeroes),
    }
}

/// A page of vital product data; `None` where it has none such.
pub(super) fn vital(disk: &IdentifyDevice, identity: &Identity, code: u8) -> Option<Vec<u8>> {
    Some(match code {
        page::SUPPORTED_PAGES => [&[0, page::SUPPORTED_PAGES, 0, PAGES.len() as u8], &PAGES[..]].concat(),
        page::UNIT_SERIAL_NUMBER => unit_serial_number(&disk.serial),
        page::DEVICE_IDENTIFICATION => identity.to_page(&Default::default()),
        page::BLOCK_LIMITS => {
            let (maximum_unmap, maximum_unmap_descriptors) = disk.trim.map_or((0, 0), |_| (TRIM_SECTORS_MAX, 64));
            BlockLimits { maximum_unmap, maximum_unmap_descriptors, ..BlockLimits::default() }.to_page()
        }
        page::BLOCK_DEVICE_CHARACTERISTICS => {
            let medium_rotation_rate = disk.rotation_rate;
            BlockCharacteristics { medium_rotation_rate, ..BlockCharacteristics::default() }.to_page()
        }
        page::LOGICAL_BLOCK_PROVISIONING => Provisioning {
            unmap: disk.trim.is_some(),
            reads_zeroes: disk.trim.is_some_and(|trim| trim.reads_zeroes),
            kind: if disk.trim.is_some() { ProvisioningType::Thin } else { ProvisioningType::Full },
            ..Provisioning::default()
        }
        .to_page(),
        _ => return None,
    })
}

/// MODE SENSE (6) data with the caching page, if that is asked for. A disk that does not say whether it has a write cache may have one.
pub(super) fn mode(disk: &IdentifyDevice, asked: &ModeSense) -> Option<Vec<u8>> {
    use sanwire_scsi::mode::page::{ALL, CACHING};
    let is_ours = matches!(asked.page, CACHING | ALL) && asked.subpage == 0;
    if !is_ours || asked.form != sanwire_scsi::ModeForm::Six {
        return None;
    }
    let is_cached = disk.abilities.write_cache != Some(false);
    let forced = if disk.abilities.has_forced_writes { 0x10 } else { 0 };
    let mut data = vec![0, 0, forced, 0, CACHING, 18, if is_cached { 0x04 } else { 0 }];
    data.resize(4 + 20, 0);
    data[0] = (data.len() - 1) as u8;
    Some(data)
}
