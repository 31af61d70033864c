//! The commands of block devices (SBC-4), and of the copies between them (SPC-3).

use super::fields::Fields;
use super::{ByteCheck, Extent, ReadDefectData, Sanitize, SanitizeMethod, StartStop};
use crate::copy::CopyResults;
use crate::operation::{Operation, code};
use crate::rod::RodCommand;
use crate::sense::Sense;
use crate::task::Cdb;

/// A command of a disk, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the fields are those of the command, explained at their types")]
pub enum BlockCommand {
    ReadCapacity10,
    ReadCapacity16 { allocation_bytes: u32 },
    Read { extent: Extent },
    Write { extent: Extent, force_unit_access: bool },
    WriteAndVerify { extent: Extent, check: ByteCheck },
    Verify { extent: Extent, check: ByteCheck },
    SynchronizeCache { extent: Extent, immediate: bool },
    WriteSame { extent: Extent, unmap: bool, no_data: bool },
    Unmap { parameter_bytes: u16 },
    CompareAndWrite { extent: Extent, force_unit_access: bool },
    WriteAtomic { extent: Extent, force_unit_access: bool },
    Sanitize(Sanitize),
    OrWrite { extent: Extent, force_unit_access: bool },
    PreFetch { extent: Extent, immediate: bool },
    GetLbaStatus { lba: u64, allocation_bytes: u32 },
    ReadDefectData(ReadDefectData),
    StartStopUnit(StartStop),
    PreventAllowMediumRemoval { prevent: bool },
    ExtendedCopy { parameter_bytes: u32 },
    ReceiveCopyResults { asked: CopyResults, list_id: u8, allocation_bytes: u32 },
    Rod(RodCommand),
}

impl BlockCommand {
    /// Reads the CDB of this operation, one of [`crate::CommandStandard::Block`].
    ///
    /// # Errors
    /// The sense data to answer when a field has a value that is not supported.
    pub fn parse(operation: &Operation, cdb: &Cdb) -> Result<BlockCommand, Sense> {
        Fields(cdb).block(operation.code)
    }

    /// How much data it takes from the initiator, in bytes, on a disk with blocks of so many.
    #[must_use]
    pub fn data_out_bytes(&self, block_bytes: u32) -> u64 {
        let of_blocks = |extent: &Extent| u64::from(extent.blocks) * u64::from(block_bytes);
        match self {
            BlockCommand::Write { extent, .. }
            | BlockCommand::WriteAtomic { extent, .. }
            | BlockCommand::OrWrite { extent, .. } => of_blocks(extent),
            BlockCommand::CompareAndWrite { extent, .. } => 2 * of_blocks(extent),
            BlockCommand::WriteAndVerify { extent, .. } | BlockCommand::Verify { extent, check: ByteCheck::Data } => {
                of_blocks(extent)
            }
            BlockCommand::Verify { extent, check: ByteCheck::OneBlock } if extent.blocks > 0 => u64::from(block_bytes),
            BlockCommand::WriteSame { no_data: false, .. } => u64::from(block_bytes),
            BlockCommand::Unmap { parameter_bytes } => u64::from(*parameter_bytes),
            BlockCommand::Sanitize(Sanitize { parameter_bytes, .. }) => u64::from(*parameter_bytes),
            BlockCommand::ExtendedCopy { parameter_bytes } => u64::from(*parameter_bytes),
            BlockCommand::Rod(command) => u64::from(command.data_out_bytes()),
            _ => 0,
        }
    }
}

impl Fields<'_> {
    fn block(&self, code: u8) -> Result<BlockCommand, Sense> {
        Ok(match code {
            code::READ_6 | code::READ_10 | code::READ_12 | code::READ_16 => {
                BlockCommand::Read { extent: self.extent(code) }
            }
            code::WRITE_6 => BlockCommand::Write { extent: self.extent(code), force_unit_access: false },
            code::WRITE_10 | code::WRITE_12 | code::WRITE_16 => {
                BlockCommand::Write { extent: self.extent(code), force_unit_access: self.force_unit_access() }
            }
            code::COMPARE_AND_WRITE => {
                let extent = Extent { blocks: self.byte(13).into(), ..self.extent(code) };
                BlockCommand::CompareAndWrite { extent, force_unit_access: self.bit(1, 3) }
            }
            code::WRITE_ATOMIC_16 => {
                let extent = Extent { blocks: self.u16(12).into(), ..self.extent(code) };
                BlockCommand::WriteAtomic { extent, force_unit_access: self.bit(1, 3) }
            }
            code::SANITIZE => BlockCommand::Sanitize(self.sanitize()),
            code::ORWRITE_16 => BlockCommand::OrWrite { extent: self.extent(code), force_unit_access: self.bit(1, 3) },
            code::PRE_FETCH_10 | code::PRE_FETCH_16 => {
                BlockCommand::PreFetch { extent: self.extent(code), immediate: self.bit(1, 1) }
            }
            code::WRITE_AND_VERIFY_10 | code::WRITE_AND_VERIFY_12 | code::WRITE_AND_VERIFY_16 => {
                BlockCommand::WriteAndVerify { extent: self.extent(code), check: self.byte_check()? }
            }
            code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => {
                BlockCommand::Verify { extent: self.extent(code), check: self.byte_check()? }
            }
            code::SYNCHRONIZE_CACHE_10 | code::SYNCHRONIZE_CACHE_16 => {
                BlockCommand::SynchronizeCache { extent: self.extent(code), immediate: self.bit(1, 1) }
            }
            code::WRITE_SAME_10 | code::WRITE_SAME_16 => {
                BlockCommand::WriteSame { extent: self.extent(code), unmap: self.bit(1, 3), no_data: self.bit(1, 0) }
            }
            code::UNMAP => BlockCommand::Unmap { parameter_bytes: self.u16(7) },
            _ => return self.block_control(code),
        })
    }

    fn block_control(&self, code: u8) -> Result<BlockCommand, Sense> {
        Ok(match code {
            code::EXTENDED_COPY => self.extended_copy(),
            code::RECEIVE_COPY_RESULTS => self.receive_copy_results()?,
            code::READ_CAPACITY_10 => BlockCommand::ReadCapacity10,
            code::SERVICE_ACTION_IN_16 => self.service_action_in(),
            code::READ_DEFECT_DATA_10 | code::READ_DEFECT_DATA_12 => {
                BlockCommand::ReadDefectData(self.read_defect_data(code))
            }
            code::START_STOP_UNIT => BlockCommand::StartStopUnit(self.start_stop()),
            code::PREVENT_ALLOW_MEDIUM_REMOVAL => BlockCommand::PreventAllowMediumRemoval { prevent: self.bit(4, 0) },
            _ => return Err(Sense::invalid_field_in_cdb(0, None)),
        })
    }

    fn sanitize(&self) -> Sanitize {
        let method = match self.action() {
            code::SANITIZE_OVERWRITE_ACTION => SanitizeMethod::Overwrite,
            code::SANITIZE_BLOCK_ERASE_ACTION => SanitizeMethod::BlockErase,
            _ => SanitizeMethod::ExitFailureMode,
        };
        let (immediate, unrestricted_exit) = (self.bit(1, 7), self.bit(1, 5));
        Sanitize { method, immediate, unrestricted_exit, parameter_bytes: self.u16(7) }
    }

    fn service_action_in(&self) -> BlockCommand {
        let allocation_bytes = self.u32(10);
        match self.action() {
            code::GET_LBA_STATUS_ACTION => BlockCommand::GetLbaStatus { lba: self.u64(2), allocation_bytes },
            _ => BlockCommand::ReadCapacity16 { allocation_bytes },
        }
    }

    fn read_defect_data(&self, code: u8) -> ReadDefectData {
        if code == code::READ_DEFECT_DATA_12 {
            ReadDefectData { is_long: true, request: self.byte(1), allocation_bytes: self.u32(6) }
        } else {
            ReadDefectData { is_long: false, request: self.byte(2), allocation_bytes: self.u16(7).into() }
        }
    }

    /// FUA; FUA_NV asks for less, which here is the same (SBC-2 5.25: no cache is non-volatile).
    fn force_unit_access(&self) -> bool {
        self.bit(1, 3) || self.bit(1, 1)
    }

    fn extended_copy(&self) -> BlockCommand {
        let (list_id, parameter_bytes) = (self.u32(6), self.u32(10));
        BlockCommand::Rod(match self.action() {
            code::POPULATE_TOKEN_ACTION => RodCommand::Populate { list_id, parameter_bytes },
            code::WRITE_USING_TOKEN_ACTION => RodCommand::Write { list_id, parameter_bytes },
            code::COPY_OPERATION_ABORT_ACTION => RodCommand::Abort { list_id: self.u32(2) },
            _ => return BlockCommand::ExtendedCopy { parameter_bytes },
        })
    }

    fn receive_copy_results(&self) -> Result<BlockCommand, Sense> {
        let (list_id, allocation_bytes) = (self.u32(2), self.u32(10));
        let asked = match self.action() {
            code::COPY_STATUS_LID4_ACTION => {
                return Ok(BlockCommand::Rod(RodCommand::Status { list_id, allocation_bytes }));
            }
            code::ROD_TOKEN_INFORMATION_ACTION => {
                return Ok(BlockCommand::Rod(RodCommand::Information { list_id, allocation_bytes }));
            }
            code::COPY_STATUS_ACTION => CopyResults::Status,
            code::COPY_HELD_DATA_ACTION => CopyResults::HeldData,
            code::COPY_OPERATING_PARAMETERS_ACTION => CopyResults::OperatingParameters,
            code::COPY_FAILED_SEGMENT_DETAILS_ACTION => CopyResults::FailedSegmentDetails,
            _ => return Err(Sense::invalid_field_in_cdb(1, Some(4))),
        };
        Ok(BlockCommand::ReceiveCopyResults { asked, list_id: self.byte(2), allocation_bytes })
    }

    fn byte_check(&self) -> Result<ByteCheck, Sense> {
        match (self.byte(1) >> 1) & 0x03 {
            0 => Ok(ByteCheck::Medium),
            1 => Ok(ByteCheck::Data),
            3 => Ok(ByteCheck::OneBlock),
            _ => Err(Sense::invalid_field_in_cdb(1, Some(2))),
        }
    }
}
