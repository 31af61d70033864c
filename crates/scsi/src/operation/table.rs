//! The operations of a disk, with the bits of their CDBs that are evaluated.

use super::code::*;
use super::{AS_WRITER, Effort, Need, Operation};

const fn operation(code: u8, effort: Effort, usage: &'static [u8]) -> Operation {
    let evaluated = evaluated(usage, 0);
    Operation { code, service_action: None, usage, evaluated, effort, need: Need::Nothing }
}

const fn action(code: u8, service_action: u8, usage: &'static [u8]) -> Operation {
    let evaluated = evaluated(usage, 0x1f);
    let service_action = Some(service_action);
    Operation { code, service_action, usage, evaluated, effort: Effort::Control, need: Need::Nothing }
}

const fn evaluated(usage: &[u8], action_bits: u8) -> u128 {
    let mut bytes = [0; 16];
    bytes.split_at_mut(usage.len()).0.copy_from_slice(usage);
    bytes[0] = 0xff;
    bytes[1] |= action_bits;
    u128::from_be_bytes(bytes)
}

impl Operation {
    /// The same, taking more time.
    const fn taking(self, effort: Effort) -> Operation {
        Operation { effort, ..self }
    }

    /// The same, for units that have what it needs.
    const fn needing(self, need: Need) -> Operation {
        Operation { need, ..self }
    }
}

/// RECEIVE COPY RESULTS: list identifier and allocation length.
const COPY_RESULTS: &[u8] = &[0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];

/// Ascending by code, then by service action. Bytes 0 are the operation codes; the last byte of each, CONTROL, is zero but for a
/// vendor specific bit of INQUIRY: NACA is not supported (SAM-5 5.2).
pub(super) static OPERATIONS: &[Operation] = {
    use Effort::{Control, Medium, Range, Transfer};
    const F: u8 = 0xff;
    const RESERVE_IN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, F, F, 0];
    const RESERVE_OUT: &[u8] = &[0, 0, F, 0, 0, F, F, F, F, 0];
    &[
        operation(TEST_UNIT_READY, Control, &[0, 0, 0, 0, 0, 0]),
        operation(REQUEST_SENSE, Control, &[0, 1, 0, 0, F, 0]),
        operation(READ_6, Transfer, &[0, 0x1f, F, F, F, 0]),
        operation(WRITE_6, Transfer, &[0, 0x1f, F, F, F, 0]),
        operation(INQUIRY, Control, &[0, 1, F, F, F, AS_WRITER]),
        operation(MODE_SELECT_6, Control, &[0, 0x10, 0, 0, F, 0]),
        operation(RESERVE_6, Control, &[0, 0, 0, 0, 0, 0]),
        operation(RELEASE_6, Control, &[0, 0, 0, 0, 0, 0]),
        operation(MODE_SENSE_6, Control, &[0, 0x08, F, F, F, 0]),
        operation(START_STOP_UNIT, Range, &[0, 1, 0, 0, 0xf7, 0]),
        operation(PREVENT_ALLOW_MEDIUM_REMOVAL, Control, &[0, 0, 0, 0, 1, 0]),
        operation(READ_CAPACITY_10, Control, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        operation(READ_10, Transfer, &[0, 0x1a, F, F, F, F, 0, F, F, 0]),
        operation(WRITE_10, Transfer, &[0, 0x1a, F, F, F, F, 0, F, F, 0]),
        operation(WRITE_AND_VERIFY_10, Transfer, &[0, 0x16, F, F, F, F, 0, F, F, 0]),
        operation(VERIFY_10, Transfer, &[0, 0x16, F, F, F, F, 0, F, F, 0]),
        operation(PRE_FETCH_10, Transfer, &[0, 0x02, F, F, F, F, 0x3f, F, F, 0]),
        operation(SYNCHRONIZE_CACHE_10, Range, &[0, 0x06, F, F, F, F, 0, F, F, 0]),
        operation(READ_DEFECT_DATA_10, Control, &[0, 0, 0x1f, 0, 0, 0, 0, F, F, 0]),
        operation(WRITE_SAME_10, Medium, &[0, 0x08, F, F, F, F, 0, F, F, 0]),
        operation(UNMAP, Range, &[0, 0, 0, 0, 0, 0, 0, F, F, 0]).needing(Need::Thin),
        action(SANITIZE, SANITIZE_OVERWRITE_ACTION, &[0, 0xa0, 0, 0, 0, 0, 0, F, F, 0]).taking(Medium),
        action(SANITIZE, SANITIZE_BLOCK_ERASE_ACTION, &[0, 0xa0, 0, 0, 0, 0, 0, F, F, 0])
            .taking(Medium)
            .needing(Need::Thin),
        action(SANITIZE, SANITIZE_EXIT_FAILURE_MODE_ACTION, &[0, 0xa0, 0, 0, 0, 0, 0, F, F, 0]),
        operation(LOG_SENSE, Control, &[0, 0, F, F, 0, F, F, F, F, 0]),
        operation(MODE_SELECT_10, Control, &[0, 0x10, 0, 0, 0, 0, 0, F, F, 0]),
        operation(RESERVE_10, Control, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        operation(RELEASE_10, Control, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        operation(MODE_SENSE_10, Control, &[0, 0x18, F, F, 0, 0, 0, F, F, 0]),
        action(PERSISTENT_RESERVE_IN, 0, RESERVE_IN),
        action(PERSISTENT_RESERVE_IN, 1, RESERVE_IN),
        action(PERSISTENT_RESERVE_IN, 2, RESERVE_IN),
        action(PERSISTENT_RESERVE_IN, 3, RESERVE_IN),
        action(PERSISTENT_RESERVE_OUT, 0, RESERVE_OUT),
        action(PERSISTENT_RESERVE_OUT, 1, RESERVE_OUT),
        action(PERSISTENT_RESERVE_OUT, 2, RESERVE_OUT),
        action(PERSISTENT_RESERVE_OUT, 3, RESERVE_OUT),
        action(PERSISTENT_RESERVE_OUT, 4, RESERVE_OUT),
        action(PERSISTENT_RESERVE_OUT, 5, RESERVE_OUT),
        action(PERSISTENT_RESERVE_OUT, 6, RESERVE_OUT),
        action(PERSISTENT_RESERVE_OUT, 7, RESERVE_OUT),
        action(EXTENDED_COPY, EXTENDED_COPY_LID1_ACTION, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0])
            .taking(Range),
        action(RECEIVE_COPY_RESULTS, COPY_STATUS_ACTION, COPY_RESULTS),
        action(RECEIVE_COPY_RESULTS, COPY_HELD_DATA_ACTION, COPY_RESULTS),
        action(RECEIVE_COPY_RESULTS, COPY_OPERATING_PARAMETERS_ACTION, COPY_RESULTS),
        action(RECEIVE_COPY_RESULTS, COPY_FAILED_SEGMENT_DETAILS_ACTION, COPY_RESULTS),
        operation(READ_16, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(COMPARE_AND_WRITE, Transfer, &[0, 0x18, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0, 0]),
        operation(WRITE_16, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(ORWRITE_16, Transfer, &[0, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(WRITE_AND_VERIFY_16, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(VERIFY_16, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(PRE_FETCH_16, Transfer, &[0, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]),
        operation(SYNCHRONIZE_CACHE_16, Range, &[0, 0x06, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(WRITE_SAME_16, Medium, &[0, 0x09, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(WRITE_ATOMIC_16, Transfer, &[0, 0x18, F, F, F, F, F, F, F, F, 0, 0, F, F, 0, 0])
            .needing(Need::Atomic),
        action(SERVICE_ACTION_IN_16, READ_CAPACITY_16_ACTION, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
        action(SERVICE_ACTION_IN_16, GET_LBA_STATUS_ACTION, &[0, 0, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(REPORT_LUNS, Control, &[0, 0, F, 0, 0, 0, F, F, F, F, 0, 0]),
        action(MAINTENANCE_IN, TARGET_PORT_GROUPS_ACTION, &[0, 0xe0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
        action(MAINTENANCE_IN, REPORT_SUPPORTED_OPERATION_CODES_ACTION, &[0, 0, 0x87, F, F, F, F, F, F, F, 0, 0]),
        action(
            MAINTENANCE_IN,
            REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS_ACTION,
            &[0, 0, 0x80, 0, 0, 0, F, F, F, F, 0, 0],
        ),
        action(MAINTENANCE_OUT, TARGET_PORT_GROUPS_ACTION, &[0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
        operation(READ_12, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, 0, 0]),
        operation(WRITE_12, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, 0, 0]),
        operation(WRITE_AND_VERIFY_12, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, 0, 0]),
        operation(VERIFY_12, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, 0, 0]),
        operation(READ_DEFECT_DATA_12, Control, &[0, 0x1f, F, F, F, F, F, F, F, F, 0, 0]),
    ]
};
