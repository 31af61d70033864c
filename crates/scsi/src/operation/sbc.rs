//! The operations of block devices (SBC-4), and the copies between them, with the bits of their CDBs that are evaluated.

use super::code::*;
use super::row::{action, operation};
use super::{CommandStandard, Effort, Need, Operation};

const SBC: CommandStandard = CommandStandard::Block;

/// RECEIVE COPY RESULTS: list identifier and allocation length.
const COPY_RESULTS: &[u8] = &[0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];

/// The same with list identifiers of four bytes.
const COPY_RESULTS_LID4: &[u8] = &[0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];

/// POPULATE TOKEN and WRITE USING TOKEN: list identifier and parameter list length.
const TOKEN_LIST: &[u8] = &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];

/// Ascending by code, then by service action.
pub(super) const OPERATIONS: &[Operation] = {
    use Effort::{Control, Medium, Range, Transfer};
    const F: u8 = 0xff;
    &[
        operation(SBC, READ_6, Transfer, &[0, 0x1f, F, F, F, 0]),
        operation(SBC, WRITE_6, Transfer, &[0, 0x1f, F, F, F, 0]),
        operation(SBC, START_STOP_UNIT, Range, &[0, 1, 0, 0, 0xf7, 0]).changing_unit(),
        operation(SBC, PREVENT_ALLOW_MEDIUM_REMOVAL, Control, &[0, 0, 0, 0, 1, 0]).changing_unit(),
        operation(SBC, READ_CAPACITY_10, Control, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        operation(SBC, READ_10, Transfer, &[0, 0x1a, F, F, F, F, 0, F, F, 0]),
        operation(SBC, WRITE_10, Transfer, &[0, 0x1a, F, F, F, F, 0, F, F, 0]),
        operation(SBC, WRITE_AND_VERIFY_10, Transfer, &[0, 0x16, F, F, F, F, 0, F, F, 0]),
        operation(SBC, VERIFY_10, Transfer, &[0, 0x16, F, F, F, F, 0, F, F, 0]),
        operation(SBC, PRE_FETCH_10, Transfer, &[0, 0x02, F, F, F, F, 0x3f, F, F, 0]),
        operation(SBC, SYNCHRONIZE_CACHE_10, Range, &[0, 0x06, F, F, F, F, 0, F, F, 0]),
        operation(SBC, READ_DEFECT_DATA_10, Control, &[0, 0, 0x1f, 0, 0, 0, 0, F, F, 0]),
        operation(SBC, WRITE_SAME_10, Medium, &[0, 0x08, F, F, F, F, 0, F, F, 0]),
        operation(SBC, UNMAP, Range, &[0, 0, 0, 0, 0, 0, 0, F, F, 0]).needing(Need::Thin),
        action(SBC, SANITIZE, SANITIZE_OVERWRITE_ACTION, &[0, 0xa0, 0, 0, 0, 0, 0, F, F, 0]).taking(Medium),
        action(SBC, SANITIZE, SANITIZE_BLOCK_ERASE_ACTION, &[0, 0xa0, 0, 0, 0, 0, 0, F, F, 0])
            .taking(Medium)
            .needing(Need::Thin),
        action(SBC, SANITIZE, SANITIZE_EXIT_FAILURE_MODE_ACTION, &[0, 0xa0, 0, 0, 0, 0, 0, F, F, 0]),
        action(SBC, EXTENDED_COPY, EXTENDED_COPY_LID1_ACTION, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0])
            .taking(Range)
            .changing_unit(),
        action(SBC, EXTENDED_COPY, POPULATE_TOKEN_ACTION, TOKEN_LIST).taking(Range).needing(Need::Tokens),
        action(SBC, EXTENDED_COPY, WRITE_USING_TOKEN_ACTION, TOKEN_LIST)
            .taking(Range)
            .needing(Need::Tokens)
            .changing_unit(),
        action(SBC, EXTENDED_COPY, COPY_OPERATION_ABORT_ACTION, &[0, 0, F, F, F, F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .needing(Need::Tokens),
        action(SBC, RECEIVE_COPY_RESULTS, COPY_STATUS_ACTION, COPY_RESULTS),
        action(SBC, RECEIVE_COPY_RESULTS, COPY_HELD_DATA_ACTION, COPY_RESULTS),
        action(SBC, RECEIVE_COPY_RESULTS, COPY_OPERATING_PARAMETERS_ACTION, COPY_RESULTS),
        action(SBC, RECEIVE_COPY_RESULTS, COPY_FAILED_SEGMENT_DETAILS_ACTION, COPY_RESULTS),
        action(SBC, RECEIVE_COPY_RESULTS, COPY_STATUS_LID4_ACTION, COPY_RESULTS_LID4).needing(Need::Tokens),
        action(SBC, RECEIVE_COPY_RESULTS, ROD_TOKEN_INFORMATION_ACTION, COPY_RESULTS_LID4).needing(Need::Tokens),
        operation(SBC, READ_16, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, COMPARE_AND_WRITE, Transfer, &[0, 0x18, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0, 0]),
        operation(SBC, WRITE_16, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, ORWRITE_16, Transfer, &[0, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, WRITE_AND_VERIFY_16, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, VERIFY_16, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, PRE_FETCH_16, Transfer, &[0, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 0]),
        operation(SBC, SYNCHRONIZE_CACHE_16, Range, &[0, 0x06, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, WRITE_SAME_16, Medium, &[0, 0x09, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, WRITE_ATOMIC_16, Transfer, &[0, 0x18, F, F, F, F, F, F, F, F, 0, 0, F, F, 0, 0])
            .needing(Need::Atomic),
        action(SBC, SERVICE_ACTION_IN_16, READ_CAPACITY_16_ACTION, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
        action(SBC, SERVICE_ACTION_IN_16, GET_LBA_STATUS_ACTION, &[0, 0, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, READ_12, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, WRITE_12, Transfer, &[0, 0x1a, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, WRITE_AND_VERIFY_12, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, VERIFY_12, Transfer, &[0, 0x16, F, F, F, F, F, F, F, F, 0, 0]),
        operation(SBC, READ_DEFECT_DATA_12, Control, &[0, 0x1f, F, F, F, F, F, F, F, F, 0, 0]),
    ]
};
