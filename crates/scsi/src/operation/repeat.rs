//! Which commands do the same when they are done again: those may be given again when it is not known whether they were done.
//!
//! What a code means depends on the type of the unit, and so does this: READ (6) of a tape moves it on, and 34h, which prefetches
//! blocks on a disk, is READ POSITION there. For types without a list here only the commands of SPC count, which move no medium.

use super::code::*;

pub(super) const PRIMARY: &[u8] = &[
    TEST_UNIT_READY,
    REQUEST_SENSE,
    INQUIRY,
    MODE_SELECT_6,
    MODE_SENSE_6,
    LOG_SENSE,
    MODE_SELECT_10,
    MODE_SENSE_10,
    REPORT_LUNS,
];

/// MAINTENANCE IN, whose code is another command's on optical drives.
pub(super) const MAINTENANCE: &[u8] = &[MAINTENANCE_IN];

pub(super) const BLOCK: &[u8] = &[
    READ_6,
    WRITE_6,
    START_STOP_UNIT,
    PREVENT_ALLOW_MEDIUM_REMOVAL,
    READ_CAPACITY_10,
    READ_10,
    WRITE_10,
    WRITE_AND_VERIFY_10,
    VERIFY_10,
    PRE_FETCH_10,
    SYNCHRONIZE_CACHE_10,
    WRITE_SAME_10,
    UNMAP,
    READ_16,
    WRITE_16,
    WRITE_AND_VERIFY_16,
    VERIFY_16,
    PRE_FETCH_16,
    SYNCHRONIZE_CACHE_16,
    WRITE_SAME_16,
    SERVICE_ACTION_IN_16,
    READ_12,
    WRITE_12,
    WRITE_AND_VERIFY_12,
    VERIFY_12,
];

/// Of drives that only read. GET EVENT STATUS NOTIFICATION is not among them: an event is told once.
pub(super) const MULTIMEDIA: &[u8] = &[
    START_STOP_UNIT,
    PREVENT_ALLOW_MEDIUM_REMOVAL,
    READ_FORMAT_CAPACITIES,
    READ_CAPACITY_10,
    READ_10,
    SEEK_10,
    READ_TOC_PMA_ATIP,
    GET_CONFIGURATION,
    READ_DISC_INFORMATION,
    READ_TRACK_INFORMATION,
    READ_12,
    READ_DISC_STRUCTURE,
    READ_CD_MSF,
    SET_CD_SPEED,
    MECHANISM_STATUS,
    READ_CD,
];

/// What tells of thousands of registrations.
pub(super) const BULK_PRIMARY: &[u8] = &[PERSISTENT_RESERVE_IN];

pub(super) const BULK_BLOCK: &[u8] = &[READ_6, READ_10, READ_16, READ_12];

pub(super) const BULK_MULTIMEDIA: &[u8] = &[READ_10, READ_12, READ_CD, READ_CD_MSF];
