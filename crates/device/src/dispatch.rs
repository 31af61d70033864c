//! From a command to what executes it, with the checks that come before.

use std::cell::Cell;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_scsi::port_groups::AccessState;
use sanwire_scsi::vpd::page;
use sanwire_scsi::{
    AdditionalSense, CommandSet, CommandStandard, Operation, PrimaryCommand, Receipt, Rest, Sense, SenseKey, Task, log,
    operation_code, report,
};
use sanwire_store::Geometry;

use crate::execution::Account;
use crate::logical_unit::LogicalUnit;
use crate::piece::Part;
use crate::refusal::Refusal;
use crate::reservation::persistent_reserve_out;
use crate::step::Step;
use crate::units::{LogicalUnits, NOT_SUPPORTED};
use crate::{control, piece, port_groups};

/// A task that has found its unit.
pub(crate) struct Beginning<'a> {
    pub(crate) units: &'a LogicalUnits,
    pub(crate) unit: &'a Arc<LogicalUnit>,
    pub(crate) geometry: Geometry,
    pub(crate) nexus: NexusId,
    pub(crate) memory: &'a Region,
    /// What its reply will say of its data.
    pub(crate) account: Cell<Account>,
    /// Of the answer, if it is one at once and must be known to have arrived.
    pub(crate) receipt: Cell<Option<Receipt>>,
    pub(crate) now: Instant,
}

impl Beginning<'_> {
    pub(crate) fn step(&self, commands: CommandSet, task: &mut Task) -> Result<Step, Refusal> {
        self.check_seen(task)?;
        // An attention, a reset or another's reservation between two pieces is for the commands after this one.
        if !task.is_further_piece() {
            let ends_attention = !commands.ends_no_attention(&task.cdb);
            self.check_resets(ends_attention)?;
            self.unit.reservations.check(&task.cdb, commands, self.nexus)?;
            self.check_attention(ends_attention)?;
            self.check_access_state(task)?;
        }
        let operation = commands.find(&task.cdb)?;
        self.check_read_only(operation)?;
        match operation.standard {
            CommandStandard::Primary => {
                let command = PrimaryCommand::parse(operation, &task.cdb)?;
                self.takes(command.data_out_bytes(), task);
                // SBC-4 4.11.3: what is answered whatever the unit does.
                if !asks_who_is_there(task) {
                    self.unit.check_not_busy()?;
                }
                self.primary(command, commands, task)
            }
            _ => {
                self.unit.check_not_busy()?;
                self.unit.server().begin(operation, self, task)
            }
        }
    }

    /// Notes how much data the command takes from its initiator.
    pub(crate) fn takes(&self, taken_bytes: u64, task: &Task) {
        let is_even = taken_bytes == task.data_out_bytes();
        self.account.set(if is_even { Account::Even } else { Account::Takes(taken_bytes) });
    }

    /// A unit that was added while the nexus existed stays hidden from it until the nexus has asked for its identity.
    fn check_seen(&self, task: &Task) -> Result<(), Sense> {
        let is_hidden = !asks_who_is_there(task) && self.unit.nexuses.is_unseen(self.nexus);
        if is_hidden { Err(NOT_SUPPORTED) } else { Ok(()) }
    }

    /// SPC-5 table 52 (and SAM-5 5.14.3): all but a few commands end with a pending unit attention.
    fn check_attention(&self, ends_attention: bool) -> Result<(), Sense> {
        if ends_attention { self.unit.nexuses.take(self.nexus).map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// SAM-5 5.3.3: that the unit was reset is told before a reservation conflict, other attentions are told after it.
    fn check_resets(&self, ends_attention: bool) -> Result<(), Sense> {
        if ends_attention { self.unit.nexuses.take_reset(self.nexus).map_or(Ok(()), Err) } else { Ok(()) }
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
    fn check_read_only(&self, operation: &Operation) -> Result<(), Sense> {
        let is_refused = operation.changes_unit && self.units.is_read_only();
        if is_refused { Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED)) } else { Ok(()) }
    }

    /// Whether something may be done now that the unit's other initiators are told of.
    pub(crate) fn check_quiet(&self) -> Result<(), Refusal> {
        let may_disturb = self.units.may_disturb(std::slice::from_ref(self.unit), self.nexus, self.now);
        if may_disturb { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// The commands that every unit has; they work also on one that is stopped, but for the first.
    fn primary(&self, command: PrimaryCommand, commands: CommandSet, task: &Task) -> Result<Step, Refusal> {
        let answer = |bytes, allocation_bytes: u32| Step::Answer(cut(bytes, allocation_bytes as usize));
        let (unit, geometry) = (&**self.unit, &self.geometry);
        Ok(match command {
            PrimaryCommand::TestUnitReady => {
                unit.check_ready(geometry)?;
                control::test_unit_ready(unit)?
            }
            PrimaryCommand::Inquiry { page, allocation_bytes, as_writer } => {
                answer(self.inquiry(page, as_writer, task)?, allocation_bytes)
            }
            PrimaryCommand::RequestSense { descriptor, allocation_bytes } => {
                answer(control::request_sense(descriptor, unit, self.nexus, self.not_accessible()), allocation_bytes)
            }
            PrimaryCommand::ReportLuns { reported, allocation_bytes } => {
                answer(self.units.report_luns(reported, self.nexus), allocation_bytes)
            }
            PrimaryCommand::ReportSupportedOperations { reported, timeouts, allocation_bytes } => {
                let timeouts = timeouts.then_some(geometry.length_bytes);
                answer(report::operations(reported, timeouts, commands)?, allocation_bytes)
            }
            PrimaryCommand::ReportTaskManagementFunctions { extended, allocation_bytes } => {
                answer(report::task_management_functions(extended), allocation_bytes)
            }
            PrimaryCommand::ModeSense(asked) => {
                answer(unit.server().mode_sense(&asked, unit, geometry)?, asked.allocation_bytes)
            }
            PrimaryCommand::LogSense(asked) => {
                answer(log::sense(&asked, unit.server().resource_counts(unit))?, asked.allocation_bytes)
            }
            PrimaryCommand::ModeSelect { form, page_format, parameter_bytes } => {
                let list = control::mode_parameters(page_format, parameter_bytes, task)?;
                unit.server().mode_select(form, list, self)?
            }
            PrimaryCommand::ReportTargetPortGroups { extended_header, allocation_bytes } => {
                answer(self.units.port_groups().report(extended_header), allocation_bytes)
            }
            PrimaryCommand::SetTargetPortGroups { parameter_bytes } => {
                self.units.set_port_states(parameter_bytes, task, self.nexus)?
            }
            PrimaryCommand::Reserve => {
                unit.reservations.reserve(self.nexus)?;
                Step::Good
            }
            PrimaryCommand::Release => {
                unit.reservations.release(self.nexus)?;
                Step::Good
            }
            PrimaryCommand::PersistentReserveIn { query, allocation_bytes } => {
                answer(unit.reservations.answer(query)?, allocation_bytes)
            }
            PrimaryCommand::PersistentReserveOut { action, scope_and_type, parameter_bytes } => {
                persistent_reserve_out((action, scope_and_type, parameter_bytes), self.unit, self.nexus, task)?
            }
        })
    }

    fn inquiry(&self, page: Option<u8>, as_writer: bool, task: &Task) -> Result<Vec<u8>, Sense> {
        let unit = &**self.unit;
        if matches!(page, Some(page::UNIT_SERIAL_NUMBER | page::DEVICE_IDENTIFICATION)) {
            unit.nexuses.see(self.nexus);
        }
        if page == Some(page::WRITE_VERIFIER) {
            let (verifier, receipt) = self.units.write_verifier(self.nexus, unit, as_writer);
            self.receipt.set(receipt);
            return Ok(verifier.to_page());
        }
        control::inquiry(page, unit, &self.units.port(self.nexus), &self.geometry, piece::transfer_max_bytes(task))
    }

    /// Notes what comes after a part of a command, on the medium of its first part.
    pub(crate) fn part(&self, part: Part) -> Part {
        let medium = if part.from_bytes == 0 { Some(self.unit.server().medium()) } else { None };
        let on_medium = |rest: Rest| Rest { medium: medium.unwrap_or(rest.medium), ..rest };
        part.rest.into_iter().for_each(|rest| self.account.set(Account::Left(on_medium(rest))));
        part
    }
}

/// What is answered also by a unit that is hidden, or busy.
fn asks_who_is_there(task: &Task) -> bool {
    use operation_code::{INQUIRY, REPORT_LUNS, REQUEST_SENSE};
    matches!(task.cdb.operation_code(), INQUIRY | REPORT_LUNS | REQUEST_SENSE)
}

/// No more of an answer than there is room for.
pub(crate) fn cut(mut bytes: Vec<u8>, allocation_bytes: usize) -> Vec<u8> {
    bytes.truncate(allocation_bytes);
    bytes
}
