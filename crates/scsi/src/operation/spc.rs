//! The operations that every logical unit has (SPC-5), with the bits of their CDBs that are evaluated.

use super::code::*;
use super::row::{action, operation};
use super::{AS_WRITER, CommandStandard, Effort, Operation};

const SPC: CommandStandard = CommandStandard::Primary;

/// Ascending by code, then by service action. Bytes 0 are the operation codes; the last byte of each, CONTROL, is zero but for a
/// vendor specific bit of INQUIRY: NACA is not supported (SAM-5 5.2).
pub(super) const OPERATIONS: &[Operation] = {
    use Effort::Control;
    const F: u8 = 0xff;
    const RESERVE_IN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, F, F, 0];
    const RESERVE_OUT: &[u8] = &[0, 0, F, 0, 0, F, F, F, F, 0];
    &[
        operation(SPC, TEST_UNIT_READY, Control, &[0, 0, 0, 0, 0, 0]),
        operation(SPC, REQUEST_SENSE, Control, &[0, 1, 0, 0, F, 0]).ending_no_attention(),
        operation(SPC, INQUIRY, Control, &[0, 1, F, F, F, AS_WRITER]).ending_no_attention(),
        operation(SPC, MODE_SELECT_6, Control, &[0, 0x10, 0, 0, F, 0]).changing_unit(),
        operation(SPC, RESERVE_6, Control, &[0, 0, 0, 0, 0, 0]).changing_unit(),
        operation(SPC, RELEASE_6, Control, &[0, 0, 0, 0, 0, 0]),
        operation(SPC, MODE_SENSE_6, Control, &[0, 0x08, F, F, F, 0]),
        operation(SPC, LOG_SENSE, Control, &[0, 0, F, F, 0, F, F, F, F, 0]),
        operation(SPC, MODE_SELECT_10, Control, &[0, 0x10, 0, 0, 0, 0, 0, F, F, 0]).changing_unit(),
        operation(SPC, RESERVE_10, Control, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).changing_unit(),
        operation(SPC, RELEASE_10, Control, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        operation(SPC, MODE_SENSE_10, Control, &[0, 0x18, F, F, 0, 0, 0, F, F, 0]),
        action(SPC, PERSISTENT_RESERVE_IN, 0, RESERVE_IN),
        action(SPC, PERSISTENT_RESERVE_IN, 1, RESERVE_IN),
        action(SPC, PERSISTENT_RESERVE_IN, 2, RESERVE_IN),
        action(SPC, PERSISTENT_RESERVE_IN, 3, RESERVE_IN),
        action(SPC, PERSISTENT_RESERVE_OUT, 0, RESERVE_OUT).changing_unit(),
        action(SPC, PERSISTENT_RESERVE_OUT, 1, RESERVE_OUT).changing_unit(),
        action(SPC, PERSISTENT_RESERVE_OUT, 2, RESERVE_OUT).changing_unit(),
        action(SPC, PERSISTENT_RESERVE_OUT, 3, RESERVE_OUT).changing_unit(),
        action(SPC, PERSISTENT_RESERVE_OUT, 4, RESERVE_OUT).changing_unit(),
        action(SPC, PERSISTENT_RESERVE_OUT, 5, RESERVE_OUT).changing_unit(),
        action(SPC, PERSISTENT_RESERVE_OUT, 6, RESERVE_OUT).changing_unit(),
        action(SPC, PERSISTENT_RESERVE_OUT, 7, RESERVE_OUT).changing_unit(),
        operation(SPC, REPORT_LUNS, Control, &[0, 0, F, 0, 0, 0, F, F, F, F, 0, 0]).ending_no_attention(),
    ]
};

/// Where these codes mean something else, as on optical drives, there are no such operations.
pub(super) const MAINTENANCE: &[Operation] = {
    const F: u8 = 0xff;
    &[
        action(SPC, MAINTENANCE_IN, TARGET_PORT_GROUPS_ACTION, &[0, 0xe0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
        action(SPC, MAINTENANCE_IN, REPORT_SUPPORTED_OPERATION_CODES_ACTION, &[0, 0, 0x87, F, F, F, F, F, F, F, 0, 0]),
        action(
            SPC,
            MAINTENANCE_IN,
            REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS_ACTION,
            &[0, 0, 0x80, 0, 0, 0, F, F, F, F, 0, 0],
        ),
        action(SPC, MAINTENANCE_OUT, TARGET_PORT_GROUPS_ACTION, &[0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]).changing_unit(),
    ]
};
