//! From a command to what executes it, with the checks that come before.

use std::cell::Cell;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, NexusId, Principal};
use sanwire_scsi::port_groups::AccessState;
use sanwire_scsi::vpd::{Designator, TargetPort, page};
use sanwire_scsi::{
    AdditionalSense, CommandSet, CommandStandard, Operation, PrimaryCommand, Receipt, Reply, Sense, SenseKey, Status,
    Task, inquiry, log, operation_code, report,
};
use sanwire_store::Completion;

use crate::beginning::{Account, Beginning, Surroundings};
use crate::copy_targets::CopyTargetUnit;
use crate::data::cut;
use crate::derived::Refused;
use crate::execution::Execution;
use crate::fault::{LBA_OUT_OF_RANGE, MEDIUM_CHANGED, NOT_SUPPORTED, REPLACED, check_condition};
use crate::judging::{Judging, Passed};
use crate::logical_unit::LogicalUnit;
use crate::progress::{Given, Progress};
use crate::refusal::Refusal;
use crate::reservation::command::persistent_reserve_out;
use crate::step::Step;
use crate::submission::Submission;
use crate::unit_state::UnitState;
use crate::units::LogicalUnits;
use crate::waiting::Waiting;
use crate::{control, piece, port_groups};

impl LogicalUnits {
    /// Begins a task. Frames for its data come from `memory`.
    pub fn begin(&self, nexus: NexusId, submission: impl Into<Submission>, memory: &Region, now: Instant) -> Progress {
        let Submission { mut task, deferred_since, is_judged, judged } = submission.into();
        let inventory = self.inventory();
        let Some((unit, present)) = task.lun.and_then(|lun| self.unit_for(nexus, lun, &inventory, now)) else {
            return Progress::Done(self.answer_for_nobody(&task, nexus, now));
        };
        if let Some(cdb) = judged.as_ref().and_then(|judged| judged.cdb) {
            task.cdb = cdb;
        }
        unit.tokens().look(now);
        let room_bytes = task.data_in_max_bytes as usize;
        let mut geometry = unit.store().geometry();
        geometry.read_only |= self.is_read_only();
        let (account, judged) = (Cell::new(Account::Even), Cell::new(judged));
        let begun = Beginning {
            target: self,
            unit: unit.state(),
            geometry,
            nexus,
            guest: present.as_deref(),
            memory,
            account,
            judged,
            deferred_since,
            now,
        };
        let commands = unit.server().commands(unit, &begun.geometry);
        let dispatch = Dispatch { units: self, unit, begun, is_judged: Cell::new(is_judged), receipt: Cell::new(None) };
        let is_bulk_read = commands.is_bulk_read(&task.cdb);
        let step = dispatch.step(commands, &mut task);
        let judged = dispatch.begun.judged.take();
        let step = match step {
            Ok(step) => Ok(step),
            Err(Refusal::Sense(sense)) => {
                dispatch.note_refused(&sense);
                Err(sense)
            }
            Err(Refusal::Conflict) => {
                return Progress::Done(Reply::bare(Status::ReservationConflict));
            }
            Err(Refusal::Busy) => return Progress::Done(Reply::bare(Status::Busy)),
            Err(Refusal::NoMemory) => {
                let is_judged = dispatch.is_judged.get();
                return Progress::NoMemory(Box::new(Submission { task, deferred_since, is_judged, judged }));
            }
            Err(Refusal::Defer(delay)) => {
                let deferred_since = deferred_since.or(Some(now));
                let submission = Submission { task, deferred_since, is_judged: false, judged: None };
                return Progress::Deferred(Box::new(submission), delay);
            }
        };
        let guest = dispatch.begun.guest;
        let given = Given { nexus, guest, judged, receipts: task.receipts, is_bulk_read };
        let (account, receipt) = (dispatch.begun.account.get(), dispatch.receipt.take());
        match Progress::begin(unit.state(), step, room_bytes, account, given, memory) {
            Progress::Done(reply) => Progress::Done(Reply { receipt, ..reply }),
            progress => progress,
        }
    }

    /// Asks again whether a command may go on.
    pub fn retry(&self, waiting: Waiting, memory: &Region) -> Progress {
        waiting.retry(memory)
    }

    /// Goes on with a command after its store has done what was asked.
    pub fn resume(&self, execution: Execution, completion: Completion, memory: &Region) -> Progress {
        execution.resume(completion, memory)
    }

    /// What a target says in the name of a logical unit that is not there (SAM-5 4.7.1, SPC-5 4.5.1).
    fn answer_for_nobody(&self, task: &Task, nexus: NexusId, now: Instant) -> Reply {
        let nobody = NOT_SUPPORTED;
        let (bytes, allocation_bytes) = match CommandSet::primary()
            .find(&task.cdb)
            .and_then(|operation| PrimaryCommand::parse(operation, &task.cdb))
        {
            Ok(PrimaryCommand::Inquiry { page: None, allocation_bytes, .. }) => {
                (inquiry::absent_inquiry().to_vec(), allocation_bytes)
            }
            Ok(PrimaryCommand::RequestSense { descriptor, allocation_bytes }) => {
                (control::sense_bytes(&nobody, descriptor), allocation_bytes)
            }
            Ok(PrimaryCommand::ReportLuns { reported, allocation_bytes }) if task.lun == Some(Lun::default()) => {
                (self.report_luns(reported, nexus, now), allocation_bytes)
            }
            _ => return check_condition(&nobody, false),
        };
        let room_bytes = allocation_bytes.min(task.data_in_max_bytes) as usize;
        let bytes = cut(bytes, room_bytes);
        Reply::good((!bytes.is_empty()).then(|| bytes.into()))
    }
}

impl Surroundings for LogicalUnits {
    fn copy_target(&self, nexus: NexusId, designator: &Designator, now: Instant) -> Option<CopyTargetUnit> {
        LogicalUnits::copy_target(self, nexus, designator, now)
    }

    fn principal(&self, nexus: NexusId) -> Principal {
        LogicalUnits::principal(self, nexus)
    }

    fn port(&self, nexus: NexusId) -> TargetPort {
        LogicalUnits::port(self, nexus)
    }

    fn may_disturb(&self, unit: &UnitState, by: NexusId, now: Instant) -> bool {
        LogicalUnits::may_disturb(self, std::iter::once(unit), by, now)
    }
}

/// A command on its way to its handler.
struct Dispatch<'a> {
    units: &'a LogicalUnits,
    unit: &'a LogicalUnit,
    begun: Beginning<'a>,
    /// Programs have let the command pass.
    is_judged: Cell<bool>,
    /// Of the answer, if it is one at once and must be known to have arrived.
    receipt: Cell<Option<Receipt>>,
}

impl Dispatch<'_> {
    fn step(&self, commands: CommandSet, task: &mut Task) -> Result<Step, Refusal> {
        self.check_seen(task)?;
        let mut found = None;
        // An attention, a reset or another's reservation between two pieces is for the commands after this one.
        if !task.is_further_piece() {
            let ends_attention = !commands.ends_no_attention(&task.cdb);
            self.check_resets(ends_attention)?;
            self.begun.unit.reservations.check(&task.cdb, commands, self.begun.nexus)?;
            self.check_attention(ends_attention, task.receipts)?;
            self.check_access_state(task)?;
            found = self.check_derivation(commands, task)?;
        } else if task.piece.is_some_and(|piece| piece.medium != self.begun.unit.medium()) {
            return Err(if task.data_out.is_some() { REPLACED } else { MEDIUM_CHANGED }.into());
        }
        let operation = found.map_or_else(|| commands.find(&task.cdb), Ok)?;
        self.check_read_only(operation)?;
        match operation.standard {
            CommandStandard::Primary => {
                let command = PrimaryCommand::parse(operation, &task.cdb)?;
                self.begun.takes(command.data_out_bytes(), task);
                // SBC-4 4.11.3: what is answered whatever the unit does.
                if !asks_who_is_there(task) {
                    self.begun.unit.check_not_busy()?;
                }
                self.primary(command, commands, task)
            }
            _ => {
                self.begun.unit.check_not_busy()?;
                self.unit.server().begin(operation, &self.begun, task)
            }
        }
    }

    /// A unit that was added while the nexus existed stays hidden from it until the nexus has asked for its identity.
    fn check_seen(&self, task: &Task) -> Result<(), Sense> {
        let is_hidden = !asks_who_is_there(task) && self.begun.unit.nexuses.is_unseen(self.begun.nexus);
        if is_hidden { Err(NOT_SUPPORTED) } else { Ok(()) }
    }

    /// SPC-5 table 52 (and SAM-5 5.14.3): all but a few commands end with a pending unit attention.
    fn check_attention(&self, ends_attention: bool, receipts: u64) -> Result<(), Sense> {
        let told = ends_attention.then(|| self.begun.unit.nexuses.tell(self.begun.nexus, receipts)).flatten();
        let Some((sense, receipt)) = told else { return Ok(()) };
        self.receipt.set(receipt);
        Err(sense)
    }

    /// SAM-5 5.3.3: that the unit was reset is told before a reservation conflict, other attentions are told after it.
    fn check_resets(&self, ends_attention: bool) -> Result<(), Sense> {
        if ends_attention { self.begun.unit.nexuses.take_reset(self.begun.nexus).map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// SPC-5 5.17.2: what the ports of a group do not pass while they are not active.
    fn check_access_state(&self, task: &Task) -> Result<(), Sense> {
        if self.units.port_groups().is_limited() { port_groups::check(self.access_state(), &task.cdb) } else { Ok(()) }
    }

    /// What the owner of a derived unit allows, and his programs. The command may be another one afterwards. Which one, if that had to be
    /// found out.
    fn check_derivation(&self, commands: CommandSet, task: &mut Task) -> Result<Option<&'static Operation>, Refusal> {
        let (Some(derived), Some(guest)) = (self.begun.unit.derived(), self.begun.guest) else { return Ok(None) };
        if asks_who_is_there(task) || task.cdb.operation_code() == operation_code::TEST_UNIT_READY {
            return Ok(None);
        }
        let Beginning { geometry, deferred_since, now, .. } = &self.begun;
        let is_judged = self.is_judged.get();
        if !is_judged && deferred_since.is_none() {
            guest.note_command();
        }
        if derived.is_free(&task.cdb) {
            self.is_judged.set(true);
            return Ok(None);
        }
        let judging = Judging { derived, guest, geometry, commands, now: *now, deferred_since: *deferred_since };
        let mut judged = None;
        let Passed { operation, is_changed } = judging.judge(task, is_judged, &mut judged)?;
        if let Some(judged) = judged {
            self.begun.judged.set(Some(judged));
        }
        self.is_judged.set(true);
        if is_changed {
            // What is executed is what counts.
            self.begun.unit.reservations.check(&task.cdb, commands, self.begun.nexus)?;
            self.check_access_state(task)?;
        }
        Ok(Some(operation))
    }

    /// Counts a command that was refused because there are no such blocks, where nobody has looked at that before.
    fn note_refused(&self, sense: &Sense) {
        let (Some(derived), Some(guest)) = (self.begun.unit.derived(), self.begun.guest) else { return };
        if *sense == LBA_OUT_OF_RANGE && derived.is_unrestricted {
            guest.note_refused(Refused::Region);
        }
    }

    /// What other commands are refused with, because of the state of the port's group.
    fn not_accessible(&self) -> Option<Sense> {
        port_groups::not_accessible(self.access_state())
    }

    fn access_state(&self) -> AccessState {
        self.units.port_groups().state(self.units.port(self.begun.nexus).group)
    }

    /// An initiator that may only read changes nothing else either: no state of the unit that others would notice. Writes themselves are
    /// refused where those to a read-only store are.
    fn check_read_only(&self, operation: &Operation) -> Result<(), Sense> {
        let is_refused = operation.changes_unit && self.units.is_read_only();
        if is_refused { Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED)) } else { Ok(()) }
    }

    /// The commands that every unit has; they work also on one that is stopped, but for the first.
    fn primary(&self, command: PrimaryCommand, commands: CommandSet, task: &Task) -> Result<Step, Refusal> {
        let answer = |bytes, allocation_bytes: u32| Step::Answer(cut(bytes, allocation_bytes as usize));
        let (unit, geometry) = (self.unit, &self.begun.geometry);
        Ok(match command {
            PrimaryCommand::TestUnitReady => {
                unit.check_ready(geometry)?;
                control::test_unit_ready(unit)?;
                Step::Good
            }
            PrimaryCommand::Inquiry { page, allocation_bytes, as_writer } => {
                answer(self.inquiry(page, as_writer, task)?, allocation_bytes)
            }
            PrimaryCommand::RequestSense { descriptor, allocation_bytes } => answer(
                control::request_sense(descriptor, unit, self.begun.nexus, self.not_accessible()),
                allocation_bytes,
            ),
            PrimaryCommand::ReportLuns { reported, allocation_bytes } => {
                answer(self.units.report_luns(reported, self.begun.nexus, self.begun.now), allocation_bytes)
            }
            PrimaryCommand::ReportSupportedOperations { reported, timeouts, allocation_bytes } => {
                let timeouts = timeouts.then_some(geometry.length_bytes);
                let had = unit.derived().map_or(commands, |derived| derived.commands(commands));
                answer(report::operations(reported, timeouts, had)?, allocation_bytes)
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
                unit.server().mode_select(form, &list, &self.begun)?
            }
            PrimaryCommand::ReportTargetPortGroups { extended_header, allocation_bytes } => {
                answer(self.units.port_groups().report(extended_header), allocation_bytes)
            }
            PrimaryCommand::SetTargetPortGroups { parameter_bytes } => {
                self.units.set_port_states(parameter_bytes, task, self.begun.nexus)?;
                Step::Good
            }
            PrimaryCommand::Reserve => {
                unit.reservations.reserve(self.begun.nexus)?;
                Step::Good
            }
            PrimaryCommand::Release => {
                unit.reservations.release(self.begun.nexus)?;
                Step::Good
            }
            PrimaryCommand::PersistentReserveIn { query, allocation_bytes } => {
                answer(unit.reservations.answer(query)?, allocation_bytes)
            }
            PrimaryCommand::PersistentReserveOut { action, scope_and_type, parameter_bytes } => persistent_reserve_out(
                (action, scope_and_type, parameter_bytes),
                self.begun.unit,
                self.begun.nexus,
                task,
            )?,
        })
    }

    fn inquiry(&self, page: Option<u8>, as_writer: bool, task: &Task) -> Result<Vec<u8>, Sense> {
        let unit = self.unit;
        if matches!(page, Some(page::UNIT_SERIAL_NUMBER | page::DEVICE_IDENTIFICATION)) {
            unit.nexuses.see(self.begun.nexus);
        }
        if page == Some(page::WRITE_VERIFIER) {
            let (verifier, receipt) = self.units.write_verifier(self.begun.nexus, unit, as_writer);
            self.receipt.set(receipt);
            return Ok(verifier.to_page());
        }
        control::inquiry(
            page,
            unit,
            &self.units.port(self.begun.nexus),
            &self.begun.geometry,
            piece::transfer_max_bytes(task),
        )
    }
}

/// What is answered also by a unit that is hidden, or busy.
fn asks_who_is_there(task: &Task) -> bool {
    use operation_code::{INQUIRY, REPORT_LUNS, REQUEST_SENSE};
    matches!(task.cdb.operation_code(), INQUIRY | REPORT_LUNS | REQUEST_SENSE)
}
