//! The CDBs that an initiator sends. Each is what [`crate::Command::parse`] reads.

use crate::bytes::put;
use crate::command::{Extent, PageControl};
use crate::operation::{AS_WRITER, code};
use crate::reservation::{OrderAction, ReservationQuery, ReservationType};
use crate::task::Cdb;
use crate::vpd::page;

/// TEST UNIT READY.
#[must_use]
pub fn test_unit_ready() -> Cdb {
    Cdb::from([code::TEST_UNIT_READY, 0, 0, 0, 0, 0])
}

/// REQUEST SENSE, for the fixed format.
#[must_use]
pub fn request_sense(allocation_bytes: u8) -> Cdb {
    Cdb::from([code::REQUEST_SENSE, 0, 0, 0, allocation_bytes, 0])
}

/// INQUIRY: standard data, or a vital product data page.
#[must_use]
pub fn inquiry(page: Option<u8>, allocation_bytes: u16) -> Cdb {
    let [high, low] = allocation_bytes.to_be_bytes();
    Cdb::from([code::INQUIRY, page.is_some().into(), page.unwrap_or(0), high, low, 0])
}

/// INQUIRY for the write verifier page, by an initiator that heeds what it says: it wants to be told by that page of writes that are
/// lost, and not by its next flush.
#[must_use]
pub fn write_verifier(allocation_bytes: u16) -> Cdb {
    let [high, low] = allocation_bytes.to_be_bytes();
    Cdb::from([code::INQUIRY, 1, page::WRITE_VERIFIER, high, low, AS_WRITER])
}

/// REPORT LUNS, for all addressable units.
#[must_use]
pub fn report_luns(allocation_bytes: u32) -> Cdb {
    let mut bytes = [0; 12];
    bytes[0] = code::REPORT_LUNS;
    put(&mut bytes, 6, allocation_bytes.to_be_bytes());
    Cdb::from(bytes)
}

/// READ CAPACITY (16).
#[must_use]
pub fn read_capacity_16(allocation_bytes: u32) -> Cdb {
    let mut bytes = [0; 16];
    bytes[0] = code::SERVICE_ACTION_IN_16;
    bytes[1] = code::READ_CAPACITY_16_ACTION;
    put(&mut bytes, 10, allocation_bytes.to_be_bytes());
    Cdb::from(bytes)
}

/// GET LBA STATUS, from a block on.
#[must_use]
pub fn get_lba_status(lba: u64, allocation_bytes: u32) -> Cdb {
    let mut bytes = [0; 16];
    bytes[0] = code::SERVICE_ACTION_IN_16;
    bytes[1] = code::GET_LBA_STATUS_ACTION;
    put(&mut bytes, 2, lba.to_be_bytes());
    put(&mut bytes, 10, allocation_bytes.to_be_bytes());
    Cdb::from(bytes)
}

/// READ CAPACITY (10).
#[must_use]
pub fn read_capacity_10() -> Cdb {
    Cdb::from([code::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// READ (10); `None` for an extent that only the longer form can say.
#[must_use]
pub fn read_10(extent: Extent) -> Option<Cdb> {
    ten(code::READ_10, 0, extent)
}

/// WRITE (10), as [`write_16`]; `None` for an extent that only the longer form can say.
#[must_use]
pub fn write_10(extent: Extent, force_unit_access: bool) -> Option<Cdb> {
    ten(code::WRITE_10, u8::from(force_unit_access) << 3, extent)
}

/// SYNCHRONIZE CACHE (10) of all blocks.
#[must_use]
pub fn synchronize_cache_10() -> Cdb {
    Cdb::from([code::SYNCHRONIZE_CACHE_10, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// MODE SENSE (6) without block descriptors.
#[must_use]
pub fn mode_sense_6(control: PageControl, page: u8, allocation_bytes: u8) -> Cdb {
    Cdb::from([code::MODE_SENSE_6, 0x08, (control as u8) << 6 | (page & 0x3f), 0, allocation_bytes, 0])
}

/// MODE SELECT (6) in page format, not saved.
#[must_use]
pub fn mode_select_6(parameter_bytes: u8) -> Cdb {
    Cdb::from([code::MODE_SELECT_6, 0x10, 0, 0, parameter_bytes, 0])
}

/// READ (16).
#[must_use]
pub fn read_16(extent: Extent) -> Cdb {
    sixteen(code::READ_16, 0, extent)
}

/// WRITE (16); with `force_unit_access` it is answered when the data is on stable storage.
#[must_use]
pub fn write_16(extent: Extent, force_unit_access: bool) -> Cdb {
    sixteen(code::WRITE_16, u8::from(force_unit_access) << 3, extent)
}

/// SYNCHRONIZE CACHE (16); an extent of no blocks means all from its LBA on.
#[must_use]
pub fn synchronize_cache_16(extent: Extent) -> Cdb {
    sixteen(code::SYNCHRONIZE_CACHE_16, 0, extent)
}

/// WRITE SAME (16): one block is sent unless `no_data`, which means zeroes.
#[must_use]
pub fn write_same_16(extent: Extent, unmap: bool, no_data: bool) -> Cdb {
    sixteen(code::WRITE_SAME_16, u8::from(unmap) << 3 | u8::from(no_data), extent)
}

/// VERIFY (16) without data: the blocks only have to be readable.
#[must_use]
pub fn verify_16(extent: Extent) -> Cdb {
    sixteen(code::VERIFY_16, 0, extent)
}

/// UNMAP with a parameter list of this length (see [`crate::unmap_parameters`]).
#[must_use]
pub fn unmap(parameter_bytes: u16) -> Cdb {
    let [high, low] = parameter_bytes.to_be_bytes();
    Cdb::from([code::UNMAP, 0, 0, 0, 0, 0, 0, high, low, 0])
}

/// EXTENDED COPY (LID1) with a parameter list of this length (see [`crate::copy::BlockCopy`]).
#[must_use]
pub fn extended_copy(parameter_bytes: u32) -> Cdb {
    let mut bytes = [0; 16];
    bytes[0] = code::EXTENDED_COPY;
    put(&mut bytes, 10, parameter_bytes.to_be_bytes());
    Cdb::from(bytes)
}

/// PERSISTENT RESERVE IN.
#[must_use]
pub fn persistent_reserve_in(query: ReservationQuery, allocation_bytes: u16) -> Cdb {
    let [high, low] = allocation_bytes.to_be_bytes();
    Cdb::from([code::PERSISTENT_RESERVE_IN, query as u8, 0, 0, 0, 0, 0, high, low, 0])
}

/// PERSISTENT RESERVE OUT with the basic parameter list (see [`crate::reservation::parameters`]), for the logical unit.
#[must_use]
pub fn persistent_reserve_out(action: OrderAction, kind: ReservationType) -> Cdb {
    Cdb::from([code::PERSISTENT_RESERVE_OUT, action as u8, kind as u8, 0, 0, 0, 0, 0, 24, 0])
}

/// START STOP UNIT.
#[must_use]
pub fn start_stop_unit(start: bool) -> Cdb {
    Cdb::from([code::START_STOP_UNIT, 0, 0, 0, start.into(), 0])
}

fn ten(code: u8, flags: u8, extent: Extent) -> Option<Cdb> {
    let mut bytes = [code, flags, 0, 0, 0, 0, 0, 0, 0, 0];
    put(&mut bytes, 2, u32::try_from(extent.lba).ok()?.to_be_bytes());
    put(&mut bytes, 7, u16::try_from(extent.blocks).ok()?.to_be_bytes());
    Some(Cdb::from(bytes))
}

fn sixteen(code: u8, flags: u8, extent: Extent) -> Cdb {
    let mut bytes = [0; 16];
    bytes[0] = code;
    bytes[1] = flags;
    put(&mut bytes, 2, extent.lba.to_be_bytes());
    put(&mut bytes, 10, extent.blocks.to_be_bytes());
    Cdb::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{Command, parse_with};
    use crate::command::{BlockCommand, ModeForm, ModeSense, PrimaryCommand, ReportedLuns, StartStop};
    use crate::operation::Features;

    #[test]
    fn the_parser_reads_what_is_built() {
        let extent = Extent { lba: 0x0102_0304_0506_0708, blocks: 0x090a_0b0c };
        const START: StartStop = StartStop { power_condition: 0, no_flush: false, load_eject: false, start: true };
        let mode_sense = ModeSense {
            form: ModeForm::Six,
            no_descriptors: true,
            long_lba: false,
            control: PageControl::Changeable,
            page: 8,
            subpage: 0,
            allocation_bytes: 64,
        };
        for (cdb, command) in [
            (test_unit_ready(), Command::Primary(PrimaryCommand::TestUnitReady)),
            (
                request_sense(18),
                Command::Primary(PrimaryCommand::RequestSense { descriptor: false, allocation_bytes: 18 }),
            ),
            (
                inquiry(None, 0x1234),
                Command::Primary(PrimaryCommand::Inquiry { page: None, allocation_bytes: 0x1234, as_writer: false }),
            ),
            (
                inquiry(Some(0x83), 255),
                Command::Primary(PrimaryCommand::Inquiry { page: Some(0x83), allocation_bytes: 255, as_writer: false }),
            ),
            (
                report_luns(1 << 20),
                Command::Primary(PrimaryCommand::ReportLuns { reported: ReportedLuns::All, allocation_bytes: 1 << 20 }),
            ),
            (read_capacity_16(32), Command::Block(BlockCommand::ReadCapacity16 { allocation_bytes: 32 })),
            (
                get_lba_status(1 << 40, 24),
                Command::Block(BlockCommand::GetLbaStatus { lba: 1 << 40, allocation_bytes: 24 }),
            ),
            (mode_sense_6(PageControl::Changeable, 8, 64), Command::Primary(PrimaryCommand::ModeSense(mode_sense))),
            (
                mode_select_6(24),
                Command::Primary(PrimaryCommand::ModeSelect {
                    form: ModeForm::Six,
                    page_format: true,
                    parameter_bytes: 24,
                }),
            ),
            (
                persistent_reserve_in(ReservationQuery::FullStatus, 4096),
                Command::Primary(PrimaryCommand::PersistentReserveIn {
                    query: ReservationQuery::FullStatus,
                    allocation_bytes: 4096,
                }),
            ),
            (
                persistent_reserve_out(OrderAction::PreemptAndAbort, ReservationType::WriteExclusive),
                Command::Primary(PrimaryCommand::PersistentReserveOut {
                    action: OrderAction::PreemptAndAbort,
                    scope_and_type: 1,
                    parameter_bytes: 24,
                }),
            ),
            (read_16(extent), Command::Block(BlockCommand::Read { extent })),
            (write_16(extent, true), Command::Block(BlockCommand::Write { extent, force_unit_access: true })),
            (write_16(extent, false), Command::Block(BlockCommand::Write { extent, force_unit_access: false })),
            (synchronize_cache_16(extent), Command::Block(BlockCommand::SynchronizeCache { extent, immediate: false })),
            (
                write_same_16(extent, true, false),
                Command::Block(BlockCommand::WriteSame { extent, unmap: true, no_data: false }),
            ),
            (
                write_same_16(extent, false, true),
                Command::Block(BlockCommand::WriteSame { extent, unmap: false, no_data: true }),
            ),
            (unmap(24), Command::Block(BlockCommand::Unmap { parameter_bytes: 24 })),
            (start_stop_unit(true), Command::Block(BlockCommand::StartStopUnit(START))),
        ] {
            assert_eq!(parse_with(&cdb, Features { thin: true, ..Features::default() }), Ok(command));
        }
    }
}
