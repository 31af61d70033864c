//! What the model says of a command before it is given.

use sanwire_scsi::{AdditionalSense, OperationClasses, Sense, SenseKey};

use super::super::super::tokens::{CANCELLED, UNKNOWN};
use super::super::{DENIED, NOT_THERE, OUT_OF_RANGE, PROTECTED};
use super::plan::{Deed, READ_16, WRITE_16};
use super::rules::{REFUSED, Rule, Said};
use super::{Twins, Unit};
use crate::BlockRange;

const COPIES: OperationClasses = OperationClasses::COPY_SOURCE.with(OperationClasses::COPY_TARGET);
const NO_SUCH_OPERATION: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
/// How long a program may defer a command in all, and at once.
const DEFER_MAX_MS: u64 = 10_000;
const DEFER_STEP_MAX_MS: u64 = 1000;

/// A command that is not done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Undone {
    Refused(Sense),
    /// Another nexus has reserved the unit.
    Conflict,
    /// It was deferred for too long.
    Busy,
    /// It is asked about again after so many milliseconds.
    Deferred(u64),
}

impl From<Sense> for Undone {
    fn from(sense: Sense) -> Self {
        Undone::Refused(sense)
    }
}

/// Blocks of a unit: from where on, and how many.
pub(super) type Blocks = (u64, u64);

/// Who gives a command, when, and for how long it was deferred, in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Asking {
    nexus: u64,
    now_ms: u64,
    waited_ms: u64,
}

impl Unit {
    /// These blocks of it, by the numbers of the disk.
    pub(super) fn places(&self, (lba, count): Blocks) -> Option<&[u64]> {
        self.map.get(lba as usize..lba.checked_add(count)? as usize)
    }

    pub(super) fn has_code(&self, code: u8) -> bool {
        let class = if code == READ_16 { OperationClasses::READ } else { OperationClasses::WRITE };
        class.is_subset_of(self.classes) || self.codes.contains(&code)
    }

    pub(super) fn is_there(&self, asking: Asking) -> bool {
        let is_over = self.until_ms.is_some_and(|until| asking.now_ms >= until);
        !self.is_revoked && !is_over && self.admitted & 1 << asking.nexus != 0
    }

    /// Whether a nexus is kept out by what another one has reserved.
    pub(super) fn is_reserved_from(&self, asking: Asking) -> bool {
        self.reserved_by.is_some_and(|by| by != asking.nexus)
    }

    /// Whether its own classes and operations allow something.
    fn check_operation(&self, deed: Deed) -> Result<(), Undone> {
        let (read, write, discard) = (OperationClasses::READ, OperationClasses::WRITE, OperationClasses::DISCARD);
        let code = match deed {
            Deed::Read => Some(READ_16),
            Deed::Write(_) => Some(WRITE_16),
            _ => None,
        };
        if code.is_some_and(|code| self.codes.contains(&code)) {
            return Ok(());
        }
        let needed = match deed {
            Deed::Read | Deed::Verify => read,
            Deed::Write(_) | Deed::Same(_, false) => write,
            Deed::Same(_, true) => write | discard,
            Deed::Swap(..) => read | write,
            Deed::Unmap if !discard.is_subset_of(self.classes) => return Err(NO_SUCH_OPERATION.into()),
            Deed::Unmap | Deed::Revoke => discard,
            Deed::Populate => OperationClasses::COPY_SOURCE,
            Deed::Use(_) => OperationClasses::COPY_TARGET,
            // What it does to each unit is looked at there.
            Deed::Copy(..) if self.classes.intersects(COPIES) => return Ok(()),
            Deed::Copy(..) => COPIES,
            Deed::Reserve | Deed::Release => OperationClasses::RESERVATIONS,
            Deed::Ask => return Ok(()),
        };
        if needed.is_subset_of(self.classes) {
            return Ok(());
        }
        let changes = write | discard | OperationClasses::COPY_TARGET;
        let has_changes = self.classes.intersects(changes) || self.codes.contains(&WRITE_16);
        let is_protected = !has_changes && needed.intersects(write | discard);
        Err(if is_protected { PROTECTED } else { DENIED }.into())
    }
}

impl Twins {
    /// The blocks of the unit for which a command is done in the end, or why it is not; and when that is known.
    pub(super) fn foresee(&self, at: usize, nexus: u64, deed: Deed, blocks: Blocks) -> (Result<Blocks, Undone>, u64) {
        self.when_known(nexus, |asking| self.judge(at, deed, blocks, asking))
    }

    /// What is judged in the end, after it was deferred as often as that was wanted; and when.
    pub(super) fn when_known<T>(
        &self,
        nexus: u64,
        judge: impl Fn(Asking) -> Result<T, Undone>,
    ) -> (Result<T, Undone>, u64) {
        let mut now_ms = self.now_ms;
        loop {
            match judge(Asking { nexus, now_ms, waited_ms: now_ms - self.now_ms }) {
                Err(Undone::Deferred(milliseconds)) => now_ms += milliseconds,
                done => return (done, now_ms),
            }
        }
    }

    /// Whether the unit takes the command, whatever blocks it is about.
    pub(super) fn judge_command(&self, at: usize, deed: Deed, asking: Asking) -> Result<(), Undone> {
        let unit = &self.units[at];
        if !unit.is_there(asking) {
            return Err(NOT_THERE.into());
        }
        if unit.is_reserved_from(asking) && !matches!(deed, Deed::Ask | Deed::Reserve | Deed::Release) {
            return Err(Undone::Conflict);
        }
        unit.check_operation(deed)?;
        if deed.names_no_blocks() {
            for judge in self.judges(at) {
                self.ask(judge, at, None, true, asking)?;
            }
        }
        let is_late = matches!(deed, Deed::Reserve) && unit.is_reserved_from(asking);
        if is_late { Err(Undone::Conflict) } else { Ok(()) }
    }

    /// The blocks of a unit with which something is done in the place of these, as its programs want it.
    pub(super) fn moved(&self, at: usize, deed: Deed, mut blocks: Blocks, asking: Asking) -> Result<Blocks, Undone> {
        for judge in self.judges(at) {
            let changed = self.ask(judge, at, Some(blocks), !matches!(deed, Deed::Unmap), asking)?.unwrap_or(blocks);
            if deed.is_copy() && changed.1 != blocks.1 {
                return Err(DENIED.into());
            }
            blocks = changed;
        }
        Ok(blocks)
    }

    fn judge(&self, at: usize, deed: Deed, blocks: Blocks, asking: Asking) -> Result<Blocks, Undone> {
        let unit = &self.units[at];
        self.judge_command(at, deed, asking)?;
        if matches!(deed, Deed::Ask | Deed::Reserve | Deed::Release) {
            return Ok(blocks);
        }
        unit.places(blocks).ok_or(OUT_OF_RANGE)?;
        if let Deed::Use(which) = deed {
            self.check_token(which, asking)?;
        }
        let blocks = self.moved(at, deed, blocks, asking)?;
        if let Deed::Use(which) = deed {
            let own = &self.tokens[which].map;
            if unit.places(blocks).into_iter().flatten().any(|block| own.contains(block)) {
                return Err(illegal(AdditionalSense::INVALID_OPERATION_FOR_COPY_SOURCE_OR_DESTINATION));
            }
        }
        Ok(blocks)
    }

    fn check_token(&self, which: usize, asking: Asking) -> Result<(), Undone> {
        let token = &self.tokens[which];
        match () {
            () if !self.units[token.unit].is_there(asking) => {
                Err(illegal(AdditionalSense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED))
            }
            () if token.nexus != asking.nexus => Err(UNKNOWN.into()),
            () if !token.is_valid => Err(CANCELLED.into()),
            () if self.units[token.unit].is_reserved_from(asking) => {
                Err(Sense::new(SenseKey::CopyAborted, AdditionalSense::THIRD_PARTY_DEVICE_FAILURE).into())
            }
            () => Ok(()),
        }
    }

    /// The units with programs that are asked: it itself, and those from which it is derived.
    fn judges(&self, at: usize) -> Vec<usize> {
        let up = std::iter::successors(Some(at), |at| (*at != 0).then(|| self.units[*at].parent));
        up.filter(|at| self.units[*at].rule != Rule::None).collect()
    }

    /// What the program of a unit has these blocks of another one changed to. `has_address`: the command names them itself.
    fn ask(
        &self,
        judge: usize,
        at: usize,
        blocks: Option<Blocks>,
        has_address: bool,
        asking: Asking,
    ) -> Result<Option<Blocks>, Undone> {
        let say = |ranges: &[BlockRange]| {
            let waited_ms = asking.waited_ms as u32;
            match self.units[judge].rule.says(ranges, asking.nexus, waited_ms) {
                Said::Refuse => Err(Undone::Refused(REFUSED)),
                Said::Defer(_) if asking.waited_ms >= DEFER_MAX_MS => Err(Undone::Busy),
                Said::Defer(milliseconds) => Err(Undone::Deferred(DEFER_STEP_MAX_MS.min(milliseconds.into()))),
                said => Ok(said),
            }
        };
        let Some(blocks) = blocks else {
            return match say(&[])? {
                Said::Allow => Ok(None),
                _ => Err(DENIED.into()),
            };
        };
        let pieces = self.pieces(judge, at, blocks);
        for piece in &pieces {
            let changed = match say(&[*piece])? {
                Said::Allow => continue,
                Said::First if !has_address => continue,
                Said::First => (piece.lba, 1),
                Said::Move(lba) => (lba, piece.blocks),
                _ => return Err(DENIED.into()),
            };
            let is_one = has_address && pieces.len() == 1;
            let back = if is_one { self.back(judge, at, changed) } else { None };
            return back.map(Some).ok_or(DENIED.into());
        }
        Ok(None)
    }

    /// Where blocks of a unit lie in one from which it is derived.
    fn pieces(&self, judge: usize, at: usize, blocks: Blocks) -> Vec<BlockRange> {
        let below = &self.units[judge].map;
        let mut pieces: Vec<BlockRange> = Vec::new();
        for place in self.units[at].places(blocks).unwrap() {
            let lba = below.iter().position(|block| block == place).unwrap() as u64;
            match pieces.last_mut().filter(|last| last.lba + last.blocks == lba) {
                Some(last) => last.blocks += 1,
                None => pieces.push(BlockRange { lba, blocks: 1 }),
            }
        }
        pieces
    }

    /// The numbers in a unit of blocks of one from which it is derived, if it has them all one after the other.
    fn back(&self, judge: usize, at: usize, blocks: Blocks) -> Option<Blocks> {
        let places = self.units[judge].places(blocks)?;
        let own = &self.units[at].map;
        let first = own.iter().position(|block| block == places.first().unwrap())?;
        own[first..].starts_with(places).then_some((first as u64, blocks.1))
    }
}

fn illegal(additional: AdditionalSense) -> Undone {
    Sense::new(SenseKey::IllegalRequest, additional).into()
}
