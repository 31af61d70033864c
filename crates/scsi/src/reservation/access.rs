//! Which commands are allowed in the presence of reservations (SPC-5 tables 67 and 68, SBC-4 table 13; SPC-2 table 9).

use crate::operation::code;
use crate::task::Cdb;

/// What a command does, as reservations see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Allowed whatever is reserved.
    Free,
    /// Allowed under every persistent reservation, but not while another has the unit by RESERVE.
    FreeUnlessReserved,
    /// As a read: refused to those outside an exclusive access reservation.
    Read,
    /// As a write: refused to all those outside.
    Write,
    /// A command of reservations: it has its own rules.
    Reservation,
}

impl Access {
    /// The kind of access of a command for an optical drive (MMC-6 table 21).
    pub(crate) fn of_optical_drive(cdb: &Cdb) -> Access {
        match cdb.operation_code() {
            code::GET_CONFIGURATION | code::GET_EVENT_STATUS_NOTIFICATION | code::MECHANISM_STATUS => Access::Free,
            code::READ_FORMAT_CAPACITIES | code::READ_DISC_INFORMATION | code::READ_TRACK_INFORMATION => Access::Free,
            code::READ_TOC_PMA_ATIP | code::READ_DISC_STRUCTURE | code::SEEK_10 => Access::Read,
            code::READ_CD | code::READ_CD_MSF => Access::Read,
            // PERSISTENT ALLOW, too (MMC-6 6.14): PREVENT is one bit here.
            code::PREVENT_ALLOW_MEDIUM_REMOVAL if cdb.get(4).is_none_or(|byte| byte & 0x01 == 0) => Access::Free,
            // Elsewhere they are other commands.
            code::MAINTENANCE_IN | code::SERVICE_ACTION_IN_16 => Access::Write,
            _ => Access::of_block_device(cdb),
        }
    }

    /// The kind of access of a command for a disk. What is not known to be harmless counts as a write.
    pub(crate) fn of_block_device(cdb: &Cdb) -> Access {
        let byte = |at: usize| cdb.get(at).copied().unwrap_or(0);
        match cdb.operation_code() {
            code::INQUIRY | code::REPORT_LUNS | code::REQUEST_SENSE | code::READ_CAPACITY_10 | code::LOG_SENSE => {
                Access::Free
            }
            code::TEST_UNIT_READY => Access::FreeUnlessReserved,
            // START with no power condition, and allowing removal, take nothing from anybody.
            code::START_STOP_UNIT if byte(4) & 0xf1 == 0x01 => Access::Free,
            code::PREVENT_ALLOW_MEDIUM_REMOVAL if byte(4) & 0x03 == 0 => Access::Free,
            code::EXTENDED_COPY => extended_copy(byte(1) & 0x1f),
            // How a copy stands is its initiator's own matter, and so is what stands for data that was read before.
            code::RECEIVE_COPY_RESULTS
                if matches!(byte(1) & 0x1f, code::COPY_STATUS_LID4_ACTION | code::ROD_TOKEN_INFORMATION_ACTION) =>
            {
                Access::Free
            }
            code::MAINTENANCE_IN => maintenance_in(byte(1) & 0x1f),
            code::SERVICE_ACTION_IN_16 if byte(1) & 0x1f == code::READ_CAPACITY_16_ACTION => Access::Free,
            code::SERVICE_ACTION_IN_16 if byte(1) & 0x1f == code::GET_LBA_STATUS_ACTION => Access::Read,
            code::PERSISTENT_RESERVE_IN | code::PERSISTENT_RESERVE_OUT => Access::Reservation,
            code::RESERVE_6 | code::RESERVE_10 | code::RELEASE_6 | code::RELEASE_10 => Access::Reservation,
            other if READS.contains(&other) => Access::Read,
            _ => Access::Write,
        }
    }
}

fn extended_copy(action: u8) -> Access {
    match action {
        code::POPULATE_TOKEN_ACTION => Access::Read,
        code::COPY_OPERATION_ABORT_ACTION => Access::Free,
        _ => Access::Write,
    }
}

fn maintenance_in(action: u8) -> Access {
    match action {
        // Identifying information, target port groups, aliases, priority, timestamp.
        0x05 | 0x0a | 0x0b | 0x0e | 0x0f => Access::Free,
        _ => Access::Read,
    }
}

/// The codes of which every command reads only; some are those of commands to come.
const READS: [u8; 18] = [
    code::READ_6,
    code::READ_10,
    code::READ_12,
    code::READ_16,
    code::VERIFY_10,
    code::VERIFY_12,
    code::VERIFY_16,
    code::MODE_SENSE_6,
    code::MODE_SENSE_10,
    code::PRE_FETCH_10,
    code::PRE_FETCH_16,
    code::READ_DEFECT_DATA_10,
    code::READ_DEFECT_DATA_12,
    0x3c, // READ BUFFER (10)
    0x9b, // READ BUFFER (16)
    0x1c, // RECEIVE DIAGNOSTIC RESULTS
    code::RECEIVE_COPY_RESULTS,
    0x8c, // READ ATTRIBUTE
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_what_the_standards_tables_say() {
        for (cdb, access) in [
            (&[0x12, 0, 0, 0, 0, 0][..], Access::Free),
            (&[0x00, 0, 0, 0, 0, 0], Access::FreeUnlessReserved),
            (&[0x1b, 0, 0, 0, 0x01, 0], Access::Free),
            (&[0x1b, 0, 0, 0, 0x00, 0], Access::Write),
            (&[0x1b, 0, 0, 0, 0x11, 0], Access::Write),
            (&[0x1e, 0, 0, 0, 0, 0], Access::Free),
            (&[0x1e, 0, 0, 0, 1, 0], Access::Write),
            (&[0xa3, 0x0a], Access::Free),
            (&[0xa3, 0x0c], Access::Read),
            (&[0x9e, 0x10], Access::Free),
            (&[0x9e, 0x12], Access::Read),
            (&[0x9e, 0x17], Access::Write),
            (&[0x28], Access::Read),
            (&[0x8a], Access::Write),
            (&[0x35], Access::Write),
            (&[0x89], Access::Write),
            (&[0x83], Access::Write),
            (&[0x83, 0x10], Access::Read),
            (&[0x83, 0x11], Access::Write),
            (&[0x83, 0x1c], Access::Free),
            (&[0x84, 0x00], Access::Read),
            (&[0x84, 0x05], Access::Free),
            (&[0x84, 0x07], Access::Free),
            (&[0x5f, 0], Access::Reservation),
            (&[0x17], Access::Reservation),
            (&[0xff], Access::Write),
        ] {
            assert_eq!(Access::of_block_device(&Cdb::new(cdb).unwrap()), access, "{cdb:02x?}");
        }
    }
}
