//! The operations of optical drives that only read (MMC-6), with the bits of their CDBs that are evaluated.

use super::code::*;
use super::row::operation;
use super::{CommandStandard, Effort, Operation};

const MMC: CommandStandard = CommandStandard::Multimedia;

/// Ascending by code. CONTROL is zero but for two bits of READ TOC/PMA/ATIP, in which old drives have its format, and initiators
/// still send it.
pub(super) const OPERATIONS: &[Operation] = {
    use Effort::{Control, Range, Transfer};
    const F: u8 = 0xff;
    &[
        operation(MMC, START_STOP_UNIT, Range, &[0, 1, 0, 0, 0xf3, 0]).changing_unit(),
        operation(MMC, PREVENT_ALLOW_MEDIUM_REMOVAL, Control, &[0, 0, 0, 0, 3, 0]).changing_unit(),
        operation(MMC, READ_FORMAT_CAPACITIES, Control, &[0, 0, 0, 0, 0, 0, 0, F, F, 0]),
        operation(MMC, READ_CAPACITY_10, Control, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        operation(MMC, READ_10, Transfer, &[0, 0x18, F, F, F, F, 0, F, F, 0]),
        operation(MMC, SEEK_10, Control, &[0, 0, F, F, F, F, 0, 0, 0, 0]),
        operation(MMC, READ_TOC_PMA_ATIP, Control, &[0, 0x02, 0x0f, 0, 0, 0, F, F, F, 0xc0]),
        operation(MMC, GET_CONFIGURATION, Control, &[0, 0x03, F, F, 0, 0, 0, F, F, 0]).ending_no_attention(),
        operation(MMC, GET_EVENT_STATUS_NOTIFICATION, Control, &[0, 0x01, 0, 0, F, 0, 0, F, F, 0])
            .ending_no_attention(),
        operation(MMC, READ_DISC_INFORMATION, Control, &[0, 0x07, 0, 0, 0, 0, 0, F, F, 0]),
        operation(MMC, READ_TRACK_INFORMATION, Control, &[0, 0x03, F, F, F, F, 0, F, F, 0]),
        operation(MMC, READ_12, Transfer, &[0, 0x18, F, F, F, F, F, F, F, F, 0x80, 0]),
        operation(MMC, READ_DISC_STRUCTURE, Control, &[0, 0x0f, F, F, F, F, F, F, F, F, 0xc0, 0]),
        operation(MMC, READ_CD_MSF, Transfer, &[0, 0x1e, 0, F, F, F, F, F, F, F, 0x07, 0]),
        operation(MMC, SET_CD_SPEED, Control, &[0, 0x03, F, F, F, F, 0, 0, 0, 0, 0, 0]),
        operation(MMC, MECHANISM_STATUS, Control, &[0, 0, 0, 0, 0, 0, 0, 0, F, F, 0, 0]),
        operation(MMC, READ_CD, Transfer, &[0, 0x1e, F, F, F, F, F, F, F, F, 0x07, 0]),
    ]
};
