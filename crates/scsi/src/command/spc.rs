//! The commands that every logical unit has (SPC-5).

use super::fields::Fields;
use super::{LogSense, ModeForm, ModeSense, PageControl, ReportedLuns, ReportedOperations};
use crate::operation::{AS_WRITER, Operation, code};
use crate::reservation::{OrderAction, ReservationQuery};
use crate::sense::Sense;
use crate::task::Cdb;
use crate::vpd::page;

/// A command of SPC, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the fields are those of the command, explained at their types")]
pub enum PrimaryCommand {
    TestUnitReady,
    RequestSense { descriptor: bool, allocation_bytes: u32 },
    Inquiry { page: Option<u8>, allocation_bytes: u32, as_writer: bool },
    ReportLuns { reported: ReportedLuns, allocation_bytes: u32 },
    ReportSupportedOperations { reported: ReportedOperations, timeouts: bool, allocation_bytes: u32 },
    ReportTaskManagementFunctions { extended: bool, allocation_bytes: u32 },
    ModeSense(ModeSense),
    LogSense(LogSense),
    ModeSelect { form: ModeForm, page_format: bool, parameter_bytes: u16 },
    ReportTargetPortGroups { extended_header: bool, allocation_bytes: u32 },
    SetTargetPortGroups { parameter_bytes: u32 },
    PersistentReserveIn { query: ReservationQuery, allocation_bytes: u32 },
    PersistentReserveOut { action: OrderAction, scope_and_type: u8, parameter_bytes: u32 },
    Reserve,
    Release,
}

impl PrimaryCommand {
    /// Reads the CDB of this operation, one of [`crate::CommandStandard::Primary`].
    ///
    /// # Errors
    /// The sense data to answer when a field has a value that is not supported.
    pub fn parse(operation: &Operation, cdb: &Cdb) -> Result<PrimaryCommand, Sense> {
        Fields(cdb).primary(operation.code)
    }

    /// How much data it takes from the initiator, in bytes.
    #[must_use]
    pub fn data_out_bytes(&self) -> u64 {
        match self {
            PrimaryCommand::ModeSelect { parameter_bytes, .. } => u64::from(*parameter_bytes),
            PrimaryCommand::SetTargetPortGroups { parameter_bytes }
            | PrimaryCommand::PersistentReserveOut { parameter_bytes, .. } => u64::from(*parameter_bytes),
            _ => 0,
        }
    }
}

impl Fields<'_> {
    fn primary(&self, code: u8) -> Result<PrimaryCommand, Sense> {
        Ok(match code {
            code::TEST_UNIT_READY => PrimaryCommand::TestUnitReady,
            code::REQUEST_SENSE => {
                PrimaryCommand::RequestSense { descriptor: self.bit(1, 0), allocation_bytes: self.byte(4).into() }
            }
            code::INQUIRY => self.inquiry()?,
            code::REPORT_LUNS => self.report_luns()?,
            code::MAINTENANCE_IN => self.maintenance_in()?,
            code::MAINTENANCE_OUT => PrimaryCommand::SetTargetPortGroups { parameter_bytes: self.u32(6) },
            code::MODE_SENSE_6 => PrimaryCommand::ModeSense(self.mode_sense(ModeForm::Six, self.byte(4).into())),
            code::MODE_SENSE_10 => PrimaryCommand::ModeSense(self.mode_sense(ModeForm::Ten, self.u16(7).into())),
            code::LOG_SENSE => PrimaryCommand::LogSense(self.log_sense()?),
            code::MODE_SELECT_6 => self.mode_select(ModeForm::Six, self.byte(4).into()),
            code::MODE_SELECT_10 => self.mode_select(ModeForm::Ten, self.u16(7)),
            _ => return self.reservation_command(code),
        })
    }

    fn reservation_command(&self, code: u8) -> Result<PrimaryCommand, Sense> {
        let unknown_action = Sense::invalid_field_in_cdb(1, Some(4));
        let action = self.action();
        Ok(match code {
            code::RESERVE_6 | code::RESERVE_10 => PrimaryCommand::Reserve,
            code::RELEASE_6 | code::RELEASE_10 => PrimaryCommand::Release,
            code::PERSISTENT_RESERVE_IN => PrimaryCommand::PersistentReserveIn {
                query: ReservationQuery::from_code(action).ok_or(unknown_action)?,
                allocation_bytes: self.u16(7).into(),
            },
            code::PERSISTENT_RESERVE_OUT => PrimaryCommand::PersistentReserveOut {
                action: OrderAction::from_code(action).ok_or(unknown_action)?,
                scope_and_type: self.byte(2),
                parameter_bytes: self.u32(5),
            },
            _ => return Err(Sense::invalid_field_in_cdb(0, None)),
        })
    }

    fn inquiry(&self) -> Result<PrimaryCommand, Sense> {
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
        Ok(PrimaryCommand::Inquiry { page, allocation_bytes: self.u16(3).into(), as_writer })
    }

    fn report_luns(&self) -> Result<PrimaryCommand, Sense> {
        let reported = match self.byte(2) {
            0x00 | 0x02 => ReportedLuns::All,
            0x01 => ReportedLuns::WellKnown,
            _ => return Err(Sense::invalid_field_in_cdb(2, None)),
        };
        Ok(PrimaryCommand::ReportLuns { reported, allocation_bytes: self.u32(6) })
    }

    fn maintenance_in(&self) -> Result<PrimaryCommand, Sense> {
        match self.action() {
            code::TARGET_PORT_GROUPS_ACTION => self.report_target_port_groups(),
            code::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS_ACTION => {
                let (extended, allocation_bytes) = (self.bit(2, 7), self.u32(6));
                // SPC-4 6.36.2: the answer is not cut below its first four bytes.
                if allocation_bytes < 4 {
                    return Err(Sense::invalid_field_in_cdb(6, None));
                }
                Ok(PrimaryCommand::ReportTaskManagementFunctions { extended, allocation_bytes })
            }
            _ => self.report_operations(),
        }
    }

    fn report_target_port_groups(&self) -> Result<PrimaryCommand, Sense> {
        let extended_header = match self.byte(1) >> 5 {
            0 => false,
            1 => true,
            _ => return Err(Sense::invalid_field_in_cdb(1, Some(7))),
        };
        Ok(PrimaryCommand::ReportTargetPortGroups { extended_header, allocation_bytes: self.u32(6) })
    }

    fn report_operations(&self) -> Result<PrimaryCommand, Sense> {
        let (code, action) = (self.byte(3), self.u16(4));
        let reported = match self.byte(2) & 0x07 {
            0 => ReportedOperations::All,
            1 => ReportedOperations::Code(code),
            2 => ReportedOperations::CodeAndAction(code, action),
            3 => ReportedOperations::Either(code, action),
            _ => return Err(Sense::invalid_field_in_cdb(2, Some(2))),
        };
        let (timeouts, allocation_bytes) = (self.bit(2, 7), self.u32(6));
        Ok(PrimaryCommand::ReportSupportedOperations { reported, timeouts, allocation_bytes })
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

    fn mode_select(&self, form: ModeForm, parameter_bytes: u16) -> PrimaryCommand {
        PrimaryCommand::ModeSelect { form, page_format: self.bit(1, 4), parameter_bytes }
    }
}
