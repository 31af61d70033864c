//! Operation codes and service actions (SPC-5 annex F.3).
#![allow(missing_docs, reason = "each is named by its command")]

pub const TEST_UNIT_READY: u8 = 0x00;
pub const REQUEST_SENSE: u8 = 0x03;
pub const READ_6: u8 = 0x08;
pub const WRITE_6: u8 = 0x0a;
pub const INQUIRY: u8 = 0x12;
pub const MODE_SELECT_6: u8 = 0x15;
pub const RESERVE_6: u8 = 0x16;
pub const RELEASE_6: u8 = 0x17;
pub const MODE_SENSE_6: u8 = 0x1a;
pub const START_STOP_UNIT: u8 = 0x1b;
pub const PREVENT_ALLOW_MEDIUM_REMOVAL: u8 = 0x1e;
pub const READ_FORMAT_CAPACITIES: u8 = 0x23;
pub const READ_CAPACITY_10: u8 = 0x25;
pub const READ_10: u8 = 0x28;
pub const WRITE_10: u8 = 0x2a;
pub const SEEK_10: u8 = 0x2b;
pub const WRITE_AND_VERIFY_10: u8 = 0x2e;
pub const VERIFY_10: u8 = 0x2f;
pub const PRE_FETCH_10: u8 = 0x34;
pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
pub const READ_DEFECT_DATA_10: u8 = 0x37;
pub const WRITE_SAME_10: u8 = 0x41;
pub const UNMAP: u8 = 0x42;
pub const READ_TOC_PMA_ATIP: u8 = 0x43;
pub const GET_CONFIGURATION: u8 = 0x46;
pub const SANITIZE: u8 = 0x48;
pub const GET_EVENT_STATUS_NOTIFICATION: u8 = 0x4a;
pub const LOG_SENSE: u8 = 0x4d;
pub const READ_DISC_INFORMATION: u8 = 0x51;
pub const READ_TRACK_INFORMATION: u8 = 0x52;
pub const MODE_SELECT_10: u8 = 0x55;
pub const RESERVE_10: u8 = 0x56;
pub const RELEASE_10: u8 = 0x57;
pub const MODE_SENSE_10: u8 = 0x5a;
pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
pub const EXTENDED_COPY: u8 = 0x83;
pub const RECEIVE_COPY_RESULTS: u8 = 0x84;
pub const READ_16: u8 = 0x88;
pub const COMPARE_AND_WRITE: u8 = 0x89;
pub const WRITE_16: u8 = 0x8a;
pub const ORWRITE_16: u8 = 0x8b;
pub const WRITE_AND_VERIFY_16: u8 = 0x8e;
pub const VERIFY_16: u8 = 0x8f;
pub const PRE_FETCH_16: u8 = 0x90;
pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
pub const WRITE_SAME_16: u8 = 0x93;
pub const WRITE_ATOMIC_16: u8 = 0x9c;
pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
pub const REPORT_LUNS: u8 = 0xa0;
pub const MAINTENANCE_IN: u8 = 0xa3;
pub const MAINTENANCE_OUT: u8 = 0xa4;
pub const READ_12: u8 = 0xa8;
pub const WRITE_12: u8 = 0xaa;
pub const READ_DISC_STRUCTURE: u8 = 0xad;
pub const WRITE_AND_VERIFY_12: u8 = 0xae;
pub const VERIFY_12: u8 = 0xaf;
pub const READ_DEFECT_DATA_12: u8 = 0xb7;
pub const READ_CD_MSF: u8 = 0xb9;
pub const SET_CD_SPEED: u8 = 0xbb;
pub const MECHANISM_STATUS: u8 = 0xbd;
pub const READ_CD: u8 = 0xbe;
/// Service action of SERVICE ACTION IN (16).
pub const READ_CAPACITY_16_ACTION: u8 = 0x10;
/// Service action of SERVICE ACTION IN (16).
pub const GET_LBA_STATUS_ACTION: u8 = 0x12;
/// Service action of EXTENDED COPY, for lists with an identifier of one byte.
pub const EXTENDED_COPY_LID1_ACTION: u8 = 0x00;
/// Service action of EXTENDED COPY, which makes another command of it.
pub const POPULATE_TOKEN_ACTION: u8 = 0x10;
/// Service action of EXTENDED COPY, which makes another command of it.
pub const WRITE_USING_TOKEN_ACTION: u8 = 0x11;
/// Service action of EXTENDED COPY, which makes another command of it.
pub const COPY_OPERATION_ABORT_ACTION: u8 = 0x1c;
/// Service action of RECEIVE COPY RESULTS.
pub const COPY_STATUS_ACTION: u8 = 0x00;
/// Service action of RECEIVE COPY RESULTS.
pub const COPY_HELD_DATA_ACTION: u8 = 0x01;
/// Service action of RECEIVE COPY RESULTS.
pub const COPY_OPERATING_PARAMETERS_ACTION: u8 = 0x03;
/// Service action of RECEIVE COPY RESULTS.
pub const COPY_FAILED_SEGMENT_DETAILS_ACTION: u8 = 0x04;
/// Service action of RECEIVE COPY RESULTS, for list identifiers of four bytes.
pub const COPY_STATUS_LID4_ACTION: u8 = 0x05;
/// Service action of RECEIVE COPY RESULTS.
pub const ROD_TOKEN_INFORMATION_ACTION: u8 = 0x07;
/// Service action of MAINTENANCE IN and OUT: REPORT and SET.
pub const TARGET_PORT_GROUPS_ACTION: u8 = 0x0a;
/// Service action of SANITIZE.
pub const SANITIZE_OVERWRITE_ACTION: u8 = 0x01;
/// Service action of SANITIZE.
pub const SANITIZE_BLOCK_ERASE_ACTION: u8 = 0x02;
/// Service action of SANITIZE.
pub const SANITIZE_EXIT_FAILURE_MODE_ACTION: u8 = 0x1f;
/// Service action of MAINTENANCE IN.
pub const REPORT_SUPPORTED_OPERATION_CODES_ACTION: u8 = 0x0c;
/// Service action of MAINTENANCE IN.
pub const REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS_ACTION: u8 = 0x0d;
