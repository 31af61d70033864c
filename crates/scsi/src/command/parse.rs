//! From the bytes of a CDB to its command.

use super::{
    ByteCheck, Command, Extent, LogSense, ModeForm, ModeSense, PageControl, ReadDefectData, ReportedLuns,
    ReportedOperations, Sanitize, SanitizeMethod, StartStop,
};
use crate::bytes::{u16_at, u24_at, u32_at, u64_at};
use crate::copy::CopyResults;
use crate::operation::{AS_WRITER, Features, Operation, code};
use crate::reservation::{OrderAction, ReservationQuery};
use crate::sense::Sense;
use crate::task::Cdb;
use crate::vpd::page;

impl Command {
    /// Reads a CDB.
    ///
    /// # Errors
    /// The sense data to answer when the operation is unknown or a field has a value that is not supported.
    pub fn parse(cdb: &Cdb, features: Features) -> Result<Command, Sense> {
        let operation = Operation::find(cdb, features)?;
        // `find` has checked the length: a field that lies outside cannot be.
        Fields(cdb).command(operation.code)
    }
}

/// A CDB whose length has been checked.
struct Fields<'a>(&'a Cdb);

impl Fields<'_> {
    fn command(&self, code: u8) -> Result<Command, Sense> {
        Ok(match code {
            code::READ_6 | code::READ_10 | code::READ_12 | code::READ_16 => Command::Read { extent: self.extent(code) },
            code::WRITE_6 => Command::Write { extent: self.extent(code), force_unit_access: false },
            code::WRITE_10 | code::WRITE_12 | code::WRITE_16 => {
                Command::Write { extent: self.extent(code), force_unit_access: self.force_unit_access() }
            }
            code::COMPARE_AND_WRITE => {
                let extent = Extent { blocks: self.byte(13).into(), ..self.extent(code) };
                Command::CompareAndWrite { extent, force_unit_access: self.bit(1, 3) }
            }
            code::WRITE_ATOMIC_16 => {
                let extent = Extent { blocks: self.u16(12).into(), ..self.extent(code) };
                Command::WriteAtomic { extent, force_unit_access: self.bit(1, 3) }
            }
            code::SANITIZE => Command::Sanitize(self.sanitize()),
            code::ORWRITE_16 => Command::OrWrite { extent: self.extent(code), force_unit_access: self.bit(1, 3) },
            code::PRE_FETCH_10 | code::PRE_FETCH_16 => {
                Command::PreFetch { extent: self.extent(code), immediate: self.bit(1, 1) }
            }
            code::WRITE_AND_VERIFY_10 | code::WRITE_AND_VERIFY_12 | code::WRITE_AND_VERIFY_16 => {
                Command::WriteAndVerify { extent: self.extent(code), check: self.byte_check()? }
            }
            code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => {
                Command::Verify { extent: self.extent(code), check: self.byte_check()? }
            }
            code::SYNCHRONIZE_CACHE_10 | code::SYNCHRONIZE_CACHE_16 => {
                Command::SynchronizeCache { extent: self.extent(code), immediate: self.bit(1, 1) }
            }
            code::WRITE_SAME_10 | code::WRITE_SAME_16 => {
                Command::WriteSame { extent: self.extent(code), unmap: self.bit(1, 3), no_data: self.bit(1, 0) }
            }
            code::UNMAP => Command::Unmap { parameter_bytes: self.u16(7) },
            _ => return self.control_command(code),
        })
    }

    fn control_command(&self, code: u8) -> Result<Command, Sense> {
        Ok(match code {
            code::TEST_UNIT_READY => Command::TestUnitReady,
            code::REQUEST_SENSE => {
                Command::RequestSense { descriptor: self.bit(1, 0), allocation_bytes: self.byte(4).into() }
            }
            code::INQUIRY => self.inquiry()?,
            code::REPORT_LUNS => self.report_luns()?,
            code::MAINTENANCE_IN => self.maintenance_in()?,
            code::MAINTENANCE_OUT => Command::SetTargetPortGroups { parameter_bytes: self.u32(6) },
            code::EXTENDED_COPY => Command::ExtendedCopy { parameter_bytes: self.u32(10) },
            code::RECEIVE_COPY_RESULTS => self.receive_copy_results()?,
            code::READ_CAPACITY_10 => Command::ReadCapacity10,
            code::SERVICE_ACTION_IN_16 => self.service_action_in(),
            code::READ_DEFECT_DATA_10 | code::READ_DEFECT_DATA_12 => {
                Command::ReadDefectData(self.read_defect_data(code))
            }
            code::MODE_SENSE_6 => Command::ModeSense(self.mode_sense(ModeForm::Six, self.byte(4).into())),
            code::MODE_SENSE_10 => Command::ModeSense(self.mode_sense(ModeForm::Ten, self.u16(7).into())),
            code::LOG_SENSE => Command::LogSense(self.log_sense()?),
            code::MODE_SELECT_6 => self.mode_select(ModeForm::Six, self.byte(4).into()),
            code::MODE_SELECT_10 => self.mode_select(ModeForm::Ten, self.u16(7)),
            code::START_STOP_UNIT => Command::StartStopUnit(self.start_stop()),
            code::PREVENT_ALLOW_MEDIUM_REMOVAL => Command::PreventAllowMediumRemoval { prevent: self.bit(4, 0) },
            _ => return self.reservation_command(code),
        })
    }

    fn reservation_command(&self, code: u8) -> Result<Command, Sense> {
        let unknown_action = Sense::invalid_field_in_cdb(1, Some(4));
        let action = self.byte(1) & 0x1f;
        Ok(match code {
            code::RESERVE_6 | code::RESERVE_10 => Command::Reserve,
            code::RELEASE_6 | code::RELEASE_10 => Command::Release,
            code::PERSISTENT_RESERVE_IN => Command::PersistentReserveIn {
                query: ReservationQuery::from_code(action).ok_or(unknown_action)?,
                allocation_bytes: self.u16(7).into(),
            },
            code::PERSISTENT_RESERVE_OUT => Command::PersistentReserveOut {
                action: OrderAction::from_code(action).ok_or(unknown_action)?,
                scope_and_type: self.byte(2),
                parameter_bytes: self.u32(5),
            },
            _ => return Err(Sense::invalid_field_in_cdb(0, None)),
        })
    }

    fn inquiry(&self) -> Result<Command, Sense> {
        let page = self.bit(1, 0).then_some(self.byte(2));
        if page.is_none() && self.byte(2) != 0 {
            // SPC-5 6.6.1: a page code without EVPD.
            return Err(Sense::invalid_field_in_cdb(2, None));
        }
        let as_writer = self.byte(5) & AS_WRITER != 0;
        // No other page says anything of writes.
        if as_writer && page != Some(page::WRITE_VERIFIER) {
            return Err(Sense::invalid_field_in_cdb(5, Some(7)));
        }
        Ok(Command::Inquiry { page, allocation_bytes: self.u16(3).into(), as_writer })
    }

    fn report_luns(&self) -> Result<Command, Sense> {
        let reported = match self.byte(2) {
            0x00 | 0x02 => ReportedLuns::All,
            0x01 => ReportedLuns::WellKnown,
            _ => return Err(Sense::invalid_field_in_cdb(2, None)),
        };
        Ok(Command::ReportLuns { reported, allocation_bytes: self.u32(6) })
    }

    fn start_stop(&self) -> StartStop {
        StartStop {
            power_condition: self.byte(4) >> 4,
            no_flush: self.bit(4, 2),
            load_eject: self.bit(4, 1),
            start: self.bit(4, 0),
        }
    }

    fn sanitize(&self) -> Sanitize {
        let method = match self.byte(1) & 0x1f {
            code::SANITIZE_OVERWRITE_ACTION => SanitizeMethod::Overwrite,
            code::SANITIZE_BLOCK_ERASE_ACTION => SanitizeMethod::BlockErase,
            _ => SanitizeMethod::ExitFailureMode,
        };
        let (immediate, unrestricted_exit) = (self.bit(1, 7), self.bit(1, 5));
        Sanitize { method, immediate, unrestricted_exit, parameter_bytes: self.u16(7) }
    }

    fn service_action_in(&self) -> Command {
        let allocation_bytes = self.u32(10);
        match self.byte(1) & 0x1f {
            code::GET_LBA_STATUS_ACTION => {
                Command::GetLbaStatus { lba: u64_at(self.0, 2).unwrap_or(0), allocation_bytes }
            }
            _ => Command::ReadCapacity16 { allocation_bytes },
        }
    }

    fn read_defect_data(&self, code: u8) -> ReadDefectData {
        if code == code::READ_DEFECT_DATA_12 {
            ReadDefectData { is_long: true, request: self.byte(1), allocation_bytes: self.u32(6) }
        } else {
            ReadDefectData { is_long: false, request: self.byte(2), allocation_bytes: self.u16(7).into() }
        }
    }

    fn maintenance_in(&self) -> Result<Command, Sense> {
        match self.byte(1) & 0x1f {
            code::TARGET_PORT_GROUPS_ACTION => self.report_target_port_groups(),
            code::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS_ACTION => {
                let (extended, allocation_bytes) = (self.bit(2, 7), self.u32(6));
                // SPC-4 6.36.2: the answer is not cut below its first four bytes.
                if allocation_bytes < 4 {
                    return Err(Sense::invalid_field_in_cdb(6, None));
                }
                Ok(Command::ReportTaskManagementFunctions { extended, allocation_bytes })
            }
            _ => self.report_operations(),
        }
    }

    /// FUA; FUA_NV asks for less, which here is the same (SBC-2 5.25: no cache is non-volatile).
    fn force_unit_access(&self) -> bool {
        self.bit(1, 3) || self.bit(1, 1)
    }

    fn report_target_port_groups(&self) -> Result<Command, Sense> {
        let extended_header = match self.byte(1) >> 5 {
            0 => false,
            1 => true,
            _ => return Err(Sense::invalid_field_in_cdb(1, Some(7))),
        };
        Ok(Command::ReportTargetPortGroups { extended_header, allocation_bytes: self.u32(6) })
    }

    fn receive_copy_results(&self) -> Result<Command, Sense> {
        let asked = match self.byte(1) & 0x1f {
            code::COPY_STATUS_ACTION => CopyResults::Status,
            code::COPY_HELD_DATA_ACTION => CopyResults::HeldData,
            code::COPY_OPERATING_PARAMETERS_ACTION => CopyResults::OperatingParameters,
            code::COPY_FAILED_SEGMENT_DETAILS_ACTION => CopyResults::FailedSegmentDetails,
            _ => return Err(Sense::invalid_field_in_cdb(1, Some(4))),
        };
        Ok(Command::ReceiveCopyResults { asked, list_id: self.byte(2), allocation_bytes: self.u32(10) })
    }

    fn report_operations(&self) -> Result<Command, Sense> {
        let (code, action) = (self.byte(3), self.u16(4));
        let reported = match self.byte(2) & 0x07 {
            0 => ReportedOperations::All,
            1 => ReportedOperations::Code(code),
            2 => ReportedOperations::CodeAndAction(code, action),
            3 => ReportedOperations::Either(code, action),
            _ => return Err(Sense::invalid_field_in_cdb(2, Some(2))),
        };
        let (timeouts, allocation_bytes) = (self.bit(2, 7), self.u32(6));
        Ok(Command::ReportSupportedOperations { reported, timeouts, allocation_bytes })
    }

    fn mode_sense(&self, form: ModeForm, allocation_bytes: u32) -> ModeSense {
        let control = match self.byte(2) >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ => PageControl::Saved,
        };
        ModeSense {
            form,
            no_descriptors: self.bit(1, 3),
            long_lba: self.bit(1, 4),
            control,
            page: self.byte(2) & 0x3f,
            subpage: self.byte(3),
            allocation_bytes,
        }
    }

    fn log_sense(&self) -> Result<LogSense, Sense> {
        // SPC-5 6.8: 01b asks for cumulative values; no parameter has thresholds or defaults of its own.
        if self.byte(2) >> 6 != 1 {
            return Err(Sense::invalid_field_in_cdb(2, Some(7)));
        }
        let (page, subpage) = (self.byte(2) & 0x3f, self.byte(3));
        Ok(LogSense { page, subpage, parameter_pointer: self.u16(5), allocation_bytes: self.u16(7).into() })
    }

    fn mode_select(&self, form: ModeForm, parameter_bytes: u16) -> Command {
        Command::ModeSelect { form, page_format: self.bit(1, 4), parameter_bytes }
    }

    fn byte_check(&self) -> Result<ByteCheck, Sense> {
        match (self.byte(1) >> 1) & 0x03 {
            0 => Ok(ByteCheck::Medium),
            1 => Ok(ByteCheck::Data),
            3 => Ok(ByteCheck::OneBlock),
            _ => Err(Sense::invalid_field_in_cdb(1, Some(2))),
        }
    }

    /// LBA and length, whose places follow from the group of the code (SPC-5 4.2.2).
    fn extent(&self, code: u8) -> Extent {
        match code >> 5 {
            0 => {
                let lba = u24_at(self.0, 1).unwrap_or(0);
                // SBC-4 5.15: zero means 256 blocks, in the six-byte commands only.
                let blocks = if self.byte(4) == 0 { 256 } else { self.byte(4).into() };
                Extent { lba: lba.into(), blocks }
            }
            1 | 2 => Extent { lba: self.u32(2).into(), blocks: self.u16(7).into() },
            4 => Extent { lba: u64_at(self.0, 2).unwrap_or(0), blocks: self.u32(10) },
            _ => Extent { lba: self.u32(2).into(), blocks: self.u32(6) },
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn bit(&self, at: usize, bit: u8) -> bool {
        self.byte(at) & (1 << bit) != 0
    }

    fn u16(&self, at: usize) -> u16 {
        u16_at(self.0, at).unwrap_or(0)
    }

    fn u32(&self, at: usize) -> u32 {
        u32_at(self.0, at).unwrap_or(0)
    }
}
