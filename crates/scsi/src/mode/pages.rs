//! The pages of a disk, byte by byte.

use super::{CountedResources, ModeValues, Settings, Threshold, Thresholds, page};
use crate::bytes::{put, u32_at};

/// Which page; without subpages it is subpage 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageId {
    pub(super) code: u8,
    pub(super) subpage: u8,
}

const fn id(code: u8, subpage: u8) -> PageId {
    PageId { code, subpage }
}

const READ_WRITE_ERROR_RECOVERY: PageId = id(page::READ_WRITE_ERROR_RECOVERY, 0);
const CACHING: PageId = id(page::CACHING, 0);
const CONTROL: PageId = id(page::CONTROL, 0);
const CONTROL_EXTENSION: PageId = id(page::CONTROL, 1);
const INFORMATIONAL_EXCEPTIONS: PageId = id(page::INFORMATIONAL_EXCEPTIONS, 0);
const LOGICAL_BLOCK_PROVISIONING: PageId = id(page::INFORMATIONAL_EXCEPTIONS, 2);

/// Ascending.
const PAGES: [PageId; 6] = [
    READ_WRITE_ERROR_RECOVERY,
    CACHING,
    CONTROL,
    CONTROL_EXTENSION,
    INFORMATIONAL_EXCEPTIONS,
    LOGICAL_BLOCK_PROVISIONING,
];

/// Where the threshold descriptors begin, and how long each is.
const THRESHOLDS_AT: usize = 16;
const THRESHOLD_BYTES: usize = 8;

/// The values with every bit set that may be changed.
const CHANGEABLE: ModeValues = {
    let threshold = Threshold { is_enabled: true, count: u32::MAX };
    ModeValues {
        settings: Settings { write_cache: true, descriptor_sense: true, software_write_protect: true },
        thresholds: Thresholds { is_reporting: true, available: threshold, used: threshold },
    }
};

impl PageId {
    pub(super) const CONTROL: PageId = CONTROL;

    /// The pages of a unit that counts these resources.
    pub(super) fn of(counted: CountedResources) -> impl Iterator<Item = PageId> {
        PAGES.into_iter().filter(move |id| *id != LOGICAL_BLOCK_PROVISIONING || counted.any())
    }

    /// Whether these are the bytes of it.
    pub(super) fn is_of(self, page: &[u8]) -> bool {
        let subpage = if page[0] & 0x40 != 0 { page[1] } else { 0 };
        (page[0] & 0x3f, subpage) == (self.code, self.subpage)
    }

    /// Bytes before the first field: code, subpage and length.
    pub(super) fn header_bytes(self) -> usize {
        if self.subpage == 0 { 2 } else { 4 }
    }

    fn length(self, counted: CountedResources) -> usize {
        match self {
            CACHING => 20,
            CONTROL_EXTENSION => 32,
            LOGICAL_BLOCK_PROVISIONING => {
                THRESHOLDS_AT + THRESHOLD_BYTES * (usize::from(counted.available) + usize::from(counted.used))
            }
            _ => 12,
        }
    }
}

/// A page with these values.
pub(super) fn page(id: PageId, values: &ModeValues, counted: CountedResources) -> Vec<u8> {
    let mut bytes = vec![0; id.length(counted)];
    let length = bytes.len() - id.header_bytes();
    match id.subpage {
        0 => put(&mut bytes, 0, [id.code, length as u8]),
        subpage => put(&mut bytes, 0, [id.code | 0x40, subpage, 0, length as u8]),
    }
    let settings = values.settings;
    match id {
        READ_WRITE_ERROR_RECOVERY => {
            bytes[2] = 0xc0; // AWRE, ARRE: the medium looks after itself
            bytes[7] = u8::from(values.thresholds.is_reporting && counted.any()) << 7; // LBPERE
        }
        CACHING => bytes[2] = u8::from(settings.write_cache) << 2,
        CONTROL => {
            bytes[2] = u8::from(settings.descriptor_sense) << 2;
            bytes[3] = 0x10; // unrestricted reordering: initiators order by waiting
            bytes[4] = u8::from(settings.software_write_protect) << 3;
            bytes[5] = 0x40; // TAS: an initiator that loses a command to another one is told so
            put(&mut bytes, 8, 0xffff_u16.to_be_bytes()); // busy for as long as it takes
        }
        CONTROL_EXTENSION => bytes[4] = 0x01, // IALUAE: the owner may change the states of port groups
        LOGICAL_BLOCK_PROVISIONING => put_thresholds(&mut bytes, &values.thresholds, counted),
        _ => {}
    }
    bytes
}

/// SBC-4 6.5.9: SITUA is zero, all initiators are told.
fn put_thresholds(bytes: &mut [u8], thresholds: &Thresholds, counted: CountedResources) {
    // THRESHOLD ARMING (decreasing, increasing) and THRESHOLD RESOURCE; THRESHOLD TYPE 000b is a soft one.
    let available = counted.available.then_some((thresholds.available, 0b000, 0x01));
    let used = counted.used.then_some((thresholds.used, 0b001, 0x02));
    let descriptors = bytes[THRESHOLDS_AT..].chunks_exact_mut(THRESHOLD_BYTES);
    for (descriptor, (threshold, arming, resource)) in descriptors.zip(available.into_iter().chain(used)) {
        put(descriptor, 0, [u8::from(threshold.is_enabled) << 7 | arming, resource]);
        put(descriptor, 4, threshold.count.to_be_bytes());
    }
}

/// The bits of a page that MODE SELECT may change.
pub(super) fn changeable(id: PageId, counted: CountedResources) -> Vec<u8> {
    let (all, none) = (page(id, &CHANGEABLE, counted), page(id, &ModeValues::default(), counted));
    let mut bytes: Vec<u8> = all.iter().zip(&none).map(|(all, none)| all ^ none).collect();
    bytes[..id.header_bytes()].copy_from_slice(&all[..id.header_bytes()]);
    bytes
}

/// Takes the values over from a page that was checked, and is as long as [`page`] makes it.
pub(super) fn take(id: PageId, bytes: &[u8], values: &mut ModeValues, counted: CountedResources) {
    let bit = |at: usize, bit: u8| bytes.get(at).is_some_and(|byte| byte >> bit & 1 != 0);
    match id {
        READ_WRITE_ERROR_RECOVERY => values.thresholds.is_reporting = bit(7, 7),
        CACHING => values.settings.write_cache = bit(2, 2),
        CONTROL => {
            values.settings.descriptor_sense = bit(2, 2);
            values.settings.software_write_protect = bit(4, 3);
        }
        LOGICAL_BLOCK_PROVISIONING => {
            let threshold = |at| Threshold { is_enabled: bit(at, 7), count: u32_at(bytes, at + 4).unwrap_or_default() };
            let mut at = THRESHOLDS_AT;
            if counted.available {
                values.thresholds.available = threshold(at);
                at += THRESHOLD_BYTES;
            }
            if counted.used {
                values.thresholds.used = threshold(at);
            }
        }
        _ => {}
    }
}

/// The byte of the logical block provisioning page at which its threshold descriptor with this number, from 0, begins.
#[must_use]
pub fn threshold_at(descriptor: u8) -> u16 {
    (THRESHOLDS_AT + THRESHOLD_BYTES * usize::from(descriptor)) as u16
}
