//! From a command to what executes it, with the checks that come before.

use std::cell::Cell;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_scsi::port_groups::AccessState;
use sanwire_scsi::vpd::page;
use sanwire_scsi::{AdditionalSense, ByteCheck, Command, Extent, Sense, SenseKey, Task, log, operation_code, report};
use sanwire_store::Geometry;

use crate::disk::{compare_and_write, copy, lba_status, sanitize, unmap, verify, write_same};
use crate::execution::Account;
use crate::logical_unit::{LogicalUnit, features};
use crate::piece::{self, Part};
use crate::step::{Refusal, Step};
use crate::units::{LogicalUnits, NOT_SUPPORTED};
use crate::{control, port_groups, transfer};

const UNKNOWN_COMMAND: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);

/// A task that has found its disk.
pub(crate) struct Beginning<'a> {
    pub(crate) units: &'a LogicalUnits,
    pub(crate) disk: &'a Arc<LogicalUnit>,
    pub(crate) geometry: Geometry,
    pub(crate) nexus: NexusId,
    pub(crate) memory: &'a Region,
    /// What its reply will say of its data.
    pub(crate) account: Cell<Account>,
    pub(crate) now: Instant,
}

impl Beginning<'_> {
    pub(crate) fn step(&self, task: &mut Task) -> Result<Step, Refusal> {
        self.check_seen(task)?;
        // An attention, a reset or another's reservation between two pieces is for the commands after this one.
        if !task.is_further_piece() {
            self.check_resets(task)?;
            self.disk.reservations.check(&task.cdb, self.nexus)?;
            self.check_attention(task)?;
            self.check_access_state(task)?;
        }
        let command = Command::parse(&task.cdb, features(&self.geometry))?;
        self.check_read_only(&command)?;
        let taken = command.data_out_bytes(self.geometry.block_bytes);
        let sent = task.data_out_bytes();
        self.account.set(if taken == sent { Account::Even } else { Account::Takes(taken) });
        self.check_sanitize(&command)?;
        if let Some(step) = self.disk.reservation(&command, self.nexus, task) {
            return step;
        }
        match self.control(&command, task) {
            Some(step) => step,
            None => {
                if let Command::Sanitize(asked) = command {
                    // It looks at the disk itself: it is what ends the state that refuses all others.
                    return sanitize::sanitize(asked, self.disk, &self.geometry, task, self.memory);
                }
                self.disk.check_ready(&self.geometry)?;
                self.access(&command, task)
            }
        }
    }

    /// A unit that was added while the nexus existed stays hidden from it until the nexus has asked for its identity.
    fn check_seen(&self, task: &Task) -> Result<(), Sense> {
        let is_hidden = !ends_no_attention(task) && self.disk.nexuses.is_unseen(self.nexus);
        if is_hidden { Err(NOT_SUPPORTED) } else { Ok(()) }
    }

    /// SPC-5 table 52 (and SAM-5 5.14.3): all but three commands end with a pending unit attention.
    fn check_attention(&self, task: &Task) -> Result<(), Sense> {
        if ends_no_attention(task) { Ok(()) } else { self.disk.nexuses.take(self.nexus).map_or(Ok(()), Err) }
    }

    /// SAM-5 5.3.3: that the unit was reset is told before a reservation conflict, other attentions are told after it.
    fn check_resets(&self, task: &Task) -> Result<(), Sense> {
        if ends_no_attention(task) { Ok(()) } else { self.disk.nexuses.take_reset(self.nexus).map_or(Ok(()), Err) }
    }

    /// SPC-5 5.17.2: what the ports of a group do not pass while they are not active.
    fn check_access_state(&self, task: &Task) -> Result<(), Sense> {
        if self.units.port_groups().is_limited() { port_groups::check(self.access_state(), &task.cdb) } else { Ok(()) }
    }

    /// What other commands are refused with, because of the state of the port's group.
    fn not_accessible(&self) -> Option<Sense> {
        port_groups::not_accessible(self.access_state())
    }

    fn access_state(&self) -> AccessState {
        self.units.port_groups().state(self.units.port(self.nexus).group)
    }

    /// Who may only read changes nothing else either: no state of the unit that others would notice. Writes themselves are
    /// refused where those to a read-only store are.
    fn check_read_only(&self, command: &Command) -> Result<(), Sense> {
        match command {
            Command::ModeSelect { .. }
            | Command::StartStopUnit(_)
            | Command::PreventAllowMediumRemoval { .. }
            | Command::ExtendedCopy { .. }
            | Command::SetTargetPortGroups { .. }
            | Command::PersistentReserveOut { .. }
            | Command::Reserve
                if self.units.is_read_only() =>
            {
                Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED))
            }
            _ => Ok(()),
        }
    }

    /// SBC-4 4.11.3: what is answered while all of the medium is being made unreadable.
    fn check_sanitize(&self, command: &Command) -> Result<(), Sense> {
        match command {
            Command::Inquiry { .. } | Command::RequestSense { .. } | Command::ReportLuns { .. } => Ok(()),
            _ => self.disk.sanitize.check_not_running(),
        }
    }

    /// Whether something may be done now that the unit's other initiators are told of.
    pub(crate) fn check_quiet(&self) -> Result<(), Refusal> {
        let may_disturb = self.units.may_disturb(std::slice::from_ref(self.disk), self.nexus, self.now);
        if may_disturb { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// The commands that work also on a unit that is stopped; `None` for all others.
    fn control(&self, command: &Command, task: &Task) -> Option<Result<Step, Refusal>> {
        if let Command::ModeSelect { form, page_format, parameter_bytes } = *command {
            return Some(control::mode_select(form, page_format, parameter_bytes, self, task));
        }
        let answer = |bytes, allocation_bytes: u32| Step::Answer(cut(bytes, allocation_bytes as usize));
        let (disk, geometry) = (&**self.disk, &self.geometry);
        let step = match *command {
            Command::Inquiry { page, allocation_bytes, as_writer } => {
                if matches!(page, Some(page::UNIT_SERIAL_NUMBER | page::DEVICE_IDENTIFICATION)) {
                    disk.nexuses.see(self.nexus);
                }
                let bytes = if page == Some(page::WRITE_VERIFIER) {
                    Ok(self.units.write_verifier(self.nexus, disk, as_writer).to_page())
                } else {
                    let transfer_max_bytes = piece::transfer_max_bytes(task);
                    control::inquiry(page, disk, &self.units.port(self.nexus), geometry, transfer_max_bytes)
                };
                bytes.map(|bytes| answer(bytes, allocation_bytes))
            }
            Command::RequestSense { descriptor, allocation_bytes } => Ok(answer(
                control::request_sense(descriptor, disk, self.nexus, self.not_accessible()),
                allocation_bytes,
            )),
            Command::ReportLuns { reported, allocation_bytes } => {
                Ok(answer(self.units.report_luns(reported, self.nexus), allocation_bytes))
            }
            Command::ReportSupportedOperations { reported, timeouts, allocation_bytes } => {
                let timeouts = timeouts.then_some(geometry.length_bytes);
                report::operations(reported, timeouts, features(geometry)).map(|bytes| answer(bytes, allocation_bytes))
            }
            Command::ReportTaskManagementFunctions { extended, allocation_bytes } => {
                Ok(answer(report::task_management_functions(extended), allocation_bytes))
            }
            Command::ModeSense(asked) => {
                control::mode_sense(&asked, disk, geometry).map(|bytes| answer(bytes, asked.allocation_bytes))
            }
            Command::LogSense(asked) => {
                log::sense(&asked, disk.resource_counts()).map(|bytes| answer(bytes, asked.allocation_bytes))
            }
            Command::StartStopUnit(asked) => control::start_stop(asked, disk, self.nexus),
            Command::PreventAllowMediumRemoval { prevent } => {
                disk.nexuses.set_prevent(self.nexus, prevent);
                Ok(Step::Good)
            }
            Command::ReceiveCopyResults { asked, list_id, allocation_bytes } => {
                copy::receive_copy_results(asked, list_id, allocation_bytes, self)
            }
            Command::ReportTargetPortGroups { extended_header, allocation_bytes } => {
                Ok(answer(self.units.port_groups().report(extended_header), allocation_bytes))
            }
            Command::SetTargetPortGroups { parameter_bytes } => {
                self.units.set_port_states(parameter_bytes, task, self.nexus)
            }
            _ => return None,
        };
        Some(step.map_err(Refusal::from))
    }

    /// Notes what comes after a part of a command.
    fn part(&self, part: Part) -> Part {
        part.rest.into_iter().for_each(|rest| self.account.set(Account::Left(rest)));
        part
    }

    fn write(&self, extent: Extent, force_unit_access: bool, task: &mut Task) -> Result<Step, Refusal> {
        let part = self.part(piece::of_write(extent, &self.geometry, task)?);
        let stable = (force_unit_access, part.rest.is_none());
        Ok(transfer::write(part.extent, stable, self.disk, &self.geometry, task)?)
    }

    fn verify(&self, extent: Extent, check: ByteCheck, task: &mut Task) -> Result<Step, Refusal> {
        let part = self.part(match check {
            ByteCheck::Data => piece::of_check(extent, &self.geometry, task)?,
            ByteCheck::Medium => piece::of_read(extent, &self.geometry, task)?,
            ByteCheck::OneBlock => Part::whole(extent),
        });
        verify::verify(part, check, &self.geometry, task, self.memory)
    }

    /// The commands that need the medium.
    fn access(&self, command: &Command, task: &mut Task) -> Result<Step, Refusal> {
        let (disk, geometry, memory) = (&**self.disk, &self.geometry, self.memory);
        match *command {
            Command::Read { extent } => {
                let part = self.part(piece::of_read(extent, geometry, task)?);
                transfer::read(part.extent, disk, geometry, task, memory)
            }
            Command::Write { extent, force_unit_access } => self.write(extent, force_unit_access, task),
            Command::WriteAtomic { extent, force_unit_access } => {
                Ok(transfer::write_atomic(extent, force_unit_access, disk, geometry, task)?)
            }
            Command::GetLbaStatus { lba, allocation_bytes } => {
                Ok(lba_status::get_lba_status(lba, allocation_bytes, geometry, task)?)
            }
            Command::SynchronizeCache { extent, immediate } => {
                Ok(transfer::synchronize_cache(extent, immediate, geometry)?)
            }
            Command::PreFetch { extent, immediate } => transfer::pre_fetch(extent, immediate, geometry, memory),
            Command::CompareAndWrite { extent, force_unit_access } => {
                compare_and_write::compare_and_write(extent, force_unit_access, disk, geometry, task, memory)
            }
            Command::OrWrite { extent, force_unit_access } => {
                compare_and_write::or_write(extent, force_unit_access, disk, geometry, task, memory)
            }
            Command::ReadDefectData(asked) => {
                Ok(Step::Answer(cut(report::no_defects(&asked), asked.allocation_bytes as usize)))
            }
            Command::Verify { extent, check } => self.verify(extent, check, task),
            Command::WriteAndVerify { extent, check } => {
                let part = self.part(piece::of_write(extent, geometry, task)?);
                verify::write_and_verify(part, check, disk, geometry, task, memory)
            }
            Command::WriteSame { extent, unmap, no_data } => {
                write_same::write_same(extent, (unmap, no_data), disk, geometry, task, memory)
            }
            Command::Unmap { parameter_bytes } => Ok(unmap::unmap(parameter_bytes, disk, geometry, task)?),
            Command::ExtendedCopy { parameter_bytes } => copy::extended_copy(parameter_bytes, self, task),
            Command::ReadCapacity10 => Ok(Step::Answer(crate::logical_unit::capacity(geometry).to_ten().to_vec())),
            Command::ReadCapacity16 { allocation_bytes } => {
                let bytes = crate::logical_unit::capacity(geometry).to_sixteen().to_vec();
                Ok(Step::Answer(cut(bytes, allocation_bytes as usize)))
            }
            Command::TestUnitReady => Ok(control::test_unit_ready(disk)?),
            // What does not need the medium was executed before. Named one by one, so that no command of the table gets
            // here without anybody who executes it.
            Command::Inquiry { .. }
            | Command::RequestSense { .. }
            | Command::ReportLuns { .. }
            | Command::ReportSupportedOperations { .. }
            | Command::ReportTaskManagementFunctions { .. }
            | Command::ModeSense(_)
            | Command::LogSense(_)
            | Command::ModeSelect { .. }
            | Command::StartStopUnit(_)
            | Command::PreventAllowMediumRemoval { .. }
            | Command::ReceiveCopyResults { .. }
            | Command::ReportTargetPortGroups { .. }
            | Command::SetTargetPortGroups { .. }
            | Command::Sanitize(_)
            | Command::PersistentReserveIn { .. }
            | Command::PersistentReserveOut { .. }
            | Command::Reserve
            | Command::Release => Err(UNKNOWN_COMMAND.into()),
        }
    }
}

fn ends_no_attention(task: &Task) -> bool {
    use operation_code::{INQUIRY, REPORT_LUNS, REQUEST_SENSE};
    matches!(task.cdb.operation_code(), INQUIRY | REPORT_LUNS | REQUEST_SENSE)
}

/// No more of an answer than there is room for.
pub(crate) fn cut(mut bytes: Vec<u8>, allocation_bytes: usize) -> Vec<u8> {
    bytes.truncate(allocation_bytes);
    bytes
}
