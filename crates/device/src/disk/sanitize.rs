//! SANITIZE (SBC-4 4.11 and 5.29): all of the medium is overwritten or given back, in bounded steps between other work.
//!
//! From its beginning to its end the disk refuses nearly everything. Neither a reset nor the loss of the nexus that asked for it
//! ends it; what ends it early leaves the disk failed, until a sanitize succeeds or, where that was allowed, an
//! initiator gives up on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sanwire_buffer::{Region, Slice};
use sanwire_scsi::{AdditionalSense, Sanitize, SanitizeMethod, Sense, SenseKey, Task};
use sanwire_store::{Completion, Geometry, Request};

use crate::beginning::Beginning;
use crate::data::{SHORT_LIST, frame, parameter_list};
use crate::disk::start_stop::Load;
use crate::disk::write_same::DISCARD_BYTES;
use crate::exclusion::{Access, Claim};
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::{CommandState, Ongoing, Step};
use crate::unit_state::UnitState;

/// One request of an overwrite.
const WRITE_BYTES: u64 = 256 << 10;

const HEADER_BYTES: usize = 4;

/// Where a disk stands with it; shared by all that ask.
#[derive(Default, Debug)]
pub(crate) struct SanitizeState(AtomicU32);

const IDLE: u32 = 0;
/// With the progress indication in the lower half.
const RUNNING: u32 = 1 << 16;
const FAILED: u32 = 2 << 16;
/// Failed, and only a sanitize that succeeds may end that.
const FAILED_RESTRICTED: u32 = 3 << 16;
const KIND: u32 = 0xffff << 16;

impl SanitizeState {
    /// What nearly every command is refused with meanwhile.
    pub(crate) fn check_not_running(&self) -> Result<(), Sense> {
        let state = self.0.load(Ordering::Acquire);
        if state & KIND != RUNNING {
            return Ok(());
        }
        let sense = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_SANITIZE_IN_PROGRESS);
        Err(sense.with_progress(state as u16))
    }

    /// What access to the medium is refused with after a failure.
    pub(crate) fn check_not_failed(&self) -> Result<(), Sense> {
        let is_failed = matches!(self.0.load(Ordering::Acquire) & KIND, FAILED | FAILED_RESTRICTED);
        if is_failed { Err(COMMAND_FAILED) } else { Ok(()) }
    }

    /// Begins, unless another one is under way.
    fn begin(&self) -> Result<(), Sense> {
        let begun = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| (state & KIND != RUNNING).then_some(RUNNING));
        begun.map(drop).or_else(|_| self.check_not_running())
    }

    fn set_progress(&self, progress: u16) {
        self.0.store(RUNNING | u32::from(progress), Ordering::Release);
    }

    fn end(&self) {
        self.0.store(IDLE, Ordering::Release);
    }

    /// What was under way will not be done.
    fn fail(&self, may_be_given_up: bool) {
        self.0.store(if may_be_given_up { FAILED } else { FAILED_RESTRICTED }, Ordering::Release);
    }

    fn give_up(&self) -> Result<(), Sense> {
        match self.0.load(Ordering::Acquire) & KIND {
            FAILED_RESTRICTED => Err(Sense::invalid_field_in_cdb(1, Some(4))),
            FAILED => {
                self.end();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

const COMMAND_FAILED: Sense = Sense::new(SenseKey::MediumError, AdditionalSense::SANITIZE_COMMAND_FAILED);

/// A sanitize under way.
#[derive(Debug)]
pub(crate) struct Sanitizing {
    method: Erasure,
    length_bytes: u64,
    /// What is left of this pass.
    rest: Range,
    run: Run,
    is_flushing: bool,
}

/// A sanitize that is not over. What ends it early leaves the disk failed.
#[derive(Debug)]
struct Run {
    state: Arc<SanitizeState>,
    may_be_given_up: bool,
    is_over: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.is_over {
            self.state.fail(self.may_be_given_up);
        }
    }
}

#[derive(Debug)]
enum Erasure {
    Discard,
    Overwrite {
        /// As long as one request.
        pattern: Slice,
        /// The same with all bits the other way round, for every second pass.
        inverse: Option<Slice>,
        pass: u64,
        passes: u64,
    },
}

pub(crate) fn sanitize(
    asked: Sanitize,
    (states, load): (&Arc<SanitizeState>, &Load),
    begun: &Beginning<'_>,
    task: &Task,
) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    if asked.method != SanitizeMethod::Overwrite && asked.parameter_bytes != 0 {
        return Err(Sense::invalid_field_in_cdb(7, None).into());
    }
    if asked.method == SanitizeMethod::ExitFailureMode {
        states.give_up()?;
        return Ok(Step::Good);
    }
    begun.unit.check_ancestors_ready()?;
    load.check_present(geometry)?;
    begun.unit.check_writable(geometry)?;
    let method = match asked.method {
        SanitizeMethod::Overwrite => overwrite(asked.parameter_bytes, geometry, task, begun.memory)?,
        SanitizeMethod::BlockErase | SanitizeMethod::ExitFailureMode => Erasure::Discard,
    };
    states.begin()?;
    let rest = Range { offset_bytes: 0, length_bytes: geometry.length_bytes };
    let run = Run { state: Arc::clone(states), may_be_given_up: asked.unrestricted_exit, is_over: false };
    let all = Box::new(Sanitizing { method, length_bytes: geometry.length_bytes, rest, run, is_flushing: false });
    let (state, request) = all.advance();
    Ok(if asked.immediate { Step::Detached(state, request) } else { Step::Store(state, request) })
}

/// The parameter list of OVERWRITE (SBC-4 table 117).
fn overwrite(parameter_bytes: u16, geometry: &Geometry, task: &Task, memory: &Region) -> Result<Erasure, Refusal> {
    let block_bytes = geometry.block_bytes as usize;
    let parameter_bytes = usize::from(parameter_bytes);
    if !(HEADER_BYTES + 1..=HEADER_BYTES + block_bytes).contains(&parameter_bytes) {
        return Err(Sense::invalid_field_in_cdb(7, None).into());
    }
    let list = parameter_list(task, parameter_bytes)?;
    let [flags, _, high, low, rest @ ..] = &*list else { return Err(SHORT_LIST.into()) };
    let (passes, length) = (u64::from(flags & 0x1f), usize::from(u16::from_be_bytes([*high, *low])));
    if flags & 0x60 != 0 {
        return Err(Sense::invalid_field_in_parameters(0, Some(6)).into());
    }
    if passes == 0 {
        return Err(Sense::invalid_field_in_parameters(0, Some(4)).into());
    }
    if length == 0 || length > block_bytes {
        return Err(Sense::invalid_field_in_parameters(2, None).into());
    }
    let seed = rest.get(..length).ok_or(SHORT_LIST)?;
    let pattern = repeated(seed, 0, block_bytes, geometry, memory)?;
    let is_inverting = flags & 0x80 != 0 && passes > 1;
    let inverse = if is_inverting { Some(repeated(seed, 0xff, block_bytes, geometry, memory)?) } else { None };
    Ok(Erasure::Overwrite { pattern, inverse, pass: 0, passes })
}

/// Blocks that each begin with the pattern and repeat it to their end.
fn repeated(seed: &[u8], mask: u8, block_bytes: usize, geometry: &Geometry, memory: &Region) -> Result<Slice, Refusal> {
    let mut bytes = frame(memory, geometry.length_bytes.min(WRITE_BYTES) as usize)?;
    for block in bytes.chunks_mut(block_bytes) {
        block.iter_mut().zip(seed.iter().cycle()).for_each(|(place, byte)| *place = byte ^ mask);
    }
    Ok(bytes.freeze())
}

impl Ongoing for Sanitizing {
    /// It waits for every write that came before.
    fn claim(&self, _first: &Request) -> Option<Claim> {
        Some(Claim { range: Range { offset_bytes: 0, length_bytes: u64::MAX }, access: Access::Alone })
    }

    fn outlives_its_task(&self) -> bool {
        true
    }

    fn next(mut self: Box<Self>, _: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        if completion.is_err() {
            return Err(COMMAND_FAILED);
        }
        if self.is_flushing {
            self.run.state.end();
            self.run.is_over = true;
            return Ok(Step::Good);
        }
        if self.rest.length_bytes == 0
            && let Erasure::Overwrite { pass, passes, .. } = &mut self.method
            && *pass + 1 < *passes
        {
            *pass += 1;
            self.rest = Range { offset_bytes: 0, length_bytes: self.length_bytes };
        }
        self.run.state.set_progress(self.progress());
        let (state, request) = self.advance();
        Ok(Step::Later(state, request))
    }
}

impl Sanitizing {
    fn advance(mut self: Box<Self>) -> (CommandState, Request) {
        if self.rest.length_bytes == 0 {
            self.is_flushing = true;
            return (CommandState::Ongoing(self), Request::Flush);
        }
        let request = match &self.method {
            Erasure::Discard => {
                let Range { offset_bytes, length_bytes } = self.rest.split_front(DISCARD_BYTES);
                Request::Discard { offset_bytes, length_bytes }
            }
            Erasure::Overwrite { pattern, inverse, pass, .. } => {
                let pattern = inverse.as_ref().filter(|_| pass % 2 == 1).unwrap_or(pattern);
                let Range { offset_bytes, length_bytes } = self.rest.split_front(pattern.len() as u64);
                Request::Write { offset_bytes, data: pattern.slice(0..length_bytes as usize).into() }
            }
        };
        (CommandState::Ongoing(self), request)
    }

    /// In parts of 65,536 of all passes.
    fn progress(&self) -> u16 {
        let (pass, passes) = match &self.method {
            Erasure::Discard => (0, 1),
            Erasure::Overwrite { pass, passes, .. } => (*pass, *passes),
        };
        let length = u128::from(self.length_bytes.max(1));
        let done = u128::from(self.length_bytes - self.rest.length_bytes) + length * u128::from(pass);
        u16::try_from((done << 16) / (length * u128::from(passes))).unwrap_or(u16::MAX)
    }
}
