//! Whether a command of a derived unit is executed, and as what: by its operations, its blocks and its programs.

mod subject;

use std::borrow::Cow;
use std::time::Duration;

use sanwire_buffer::Slices;
use sanwire_core::Instant;
use sanwire_scsi::{Cdb, CommandSet, Extent, Operation, OperationClass, OperationClasses, Task, build};
use sanwire_store::{ExtentMap, Geometry};

use crate::command_program::{BlockRange, JudgedCommand, Verdict};
use crate::derived::{Derived, Guest, Judge, Refused};
use crate::fault::ACCESS_DENIED;
use crate::judged::Judged;
use crate::refusal::Refusal;

use subject::{Found, Subject, Unfit, is_written_as_sent};

/// Not at once, or nothing else would have its turn.
const DEFER_STEP_MIN: Duration = Duration::from_millis(1);
/// A program that defers a command is asked again after so long at the latest.
const DEFER_STEP_MAX: Duration = Duration::from_secs(1);
/// For so long a command is deferred in all: initiators wait for some 30 seconds.
const DEFER_MAX: Duration = Duration::from_secs(10);

/// Who asks for something of a derived unit, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judging<'a> {
    pub(crate) derived: &'a Derived,
    pub(crate) guest: &'a Guest,
    pub(crate) geometry: &'a Geometry,
    /// The operations of the unit's type.
    pub(crate) commands: CommandSet,
    pub(crate) now: Instant,
    /// Since when the command is deferred.
    pub(crate) deferred_since: Option<Instant>,
}

/// What a program has a command changed to.
enum Change {
    Moved { lba: u64 },
    Rewritten(Cdb),
}

/// A command that may be executed.
pub(crate) struct Passed {
    pub(crate) operation: &'static Operation,
    /// It is another one than its initiator has given.
    pub(crate) is_changed: bool,
}

impl Judging<'_> {
    /// Whether a command may be executed that has not been judged yet. It may be another one afterwards. What must be kept of what programs
    /// have said is in `judged` then.
    ///
    /// This is done for every command: what was found out of it stays where it is, since moving what has just been written takes longer
    /// than all that is done with it.
    pub(crate) fn judge(
        &self,
        task: &mut Task,
        is_judged: bool,
        judged: &mut Option<Box<Judged>>,
    ) -> Result<Passed, Refusal> {
        let data = task.data_out.as_ref();
        let mut read = self.read(&task.cdb, data);
        let found = match &mut read {
            Ok(found) => found,
            Err(unfit) => return Err(self.refused(*unfit)),
        };
        let mut changed = None::<Cdb>;
        if !is_judged {
            for judge in self.asked_about(found.subject.classes) {
                let cdb = changed.as_ref().unwrap_or(&task.cdb);
                match self.ask(judge, (cdb, &found.subject), data, judged) {
                    Ok(None) => {}
                    Ok(Some(next)) => {
                        *found = self.read(&next, data).map_err(|_| self.nonsense())?;
                        changed = Some(next);
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        let operation = found.operation;
        let is_changed = changed.as_ref().is_some_and(|cdb| *cdb != task.cdb);
        if let Some(cdb) = changed
            && is_changed
        {
            task.cdb = cdb;
            judged.get_or_insert_default().cdb = Some(cdb);
        }
        Ok(Passed { operation, is_changed })
    }

    /// Whether a copy may read or write these blocks, or others of its unit in their place: the first of them.
    pub(crate) fn judge_copy(
        &self,
        direction: OperationClass,
        range: BlockRange,
        judged: &mut Option<Box<Judged>>,
    ) -> Result<u64, Refusal> {
        let classes = OperationClasses::of(direction);
        let blocks = u32::try_from(range.blocks).map_err(|_| self.nonsense())?;
        let cdb = |lba| match direction {
            OperationClass::CopyTarget => build::write_16(Extent { lba, blocks }, false),
            _ => build::read_16(Extent { lba, blocks }),
        };
        let mut lba = range.lba;
        for judge in self.asked_about(classes) {
            let subject = Subject::of_copy(classes, BlockRange { lba, ..range });
            if let Some(changed) = self.ask(judge, (&cdb(lba), &subject), None, judged)? {
                let moved =
                    subject::named(&changed, self.commands).map(|range| range.lba).filter(|lba| cdb(*lba) == changed);
                let is_within = |lba: &u64| lba.checked_add(range.blocks).is_some_and(|end| end <= self.blocks());
                lba = moved.filter(is_within).ok_or_else(|| self.nonsense())?;
            }
        }
        Ok(lba)
    }

    fn read(&self, cdb: &Cdb, data: Option<&Slices>) -> Result<Found, Unfit> {
        Found::read(cdb, self.derived, (self.commands, self.geometry), data)
    }

    /// The programs that are asked about a command which does this.
    fn asked_about(&self, classes: OperationClasses) -> impl Iterator<Item = &Judge> {
        self.derived.judges.iter().filter(move |judge| judge.classes.intersects(classes))
    }

    /// Asks a program: what is executed in the place of the command, if anything else is.
    #[inline(always)]
    fn ask(
        &self,
        judge: &Judge,
        (cdb, subject): (&Cdb, &Subject),
        data: Option<&Slices>,
        judged: &mut Option<Box<Judged>>,
    ) -> Result<Option<Cdb>, Refusal> {
        if let Some(map) = &judge.map {
            return self.ask_below(judge, map, (cdb, subject), data, judged);
        }
        // Few look at data.
        let head = (judge.head_bytes > 0).then(|| head(data, 0, judge.head_bytes));
        let (number, head) = (self.guest.number(), head.as_deref().unwrap_or(&[]));
        match self.ask_once(judge, number, (cdb, subject.classes), subject.ranges(), head, judged) {
            Ok(None) => Ok(None),
            Ok(Some(Change::Rewritten(cdb))) => Ok(Some(cdb)),
            Ok(Some(Change::Moved { lba })) => subject.moved(cdb, lba).map(Some).ok_or_else(|| self.nonsense()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Asks a program of a unit from which this one is derived: about the same command, by the numbers of that unit.
    #[inline(never)]
    fn ask_below(
        &self,
        judge: &Judge,
        map: &ExtentMap,
        (cdb, subject): (&Cdb, &Subject),
        data: Option<&Slices>,
        judged: &mut Option<Box<Judged>>,
    ) -> Result<Option<Cdb>, Refusal> {
        let number = judge.users.number_of(&self.guest.principal);
        let of_command = (cdb, subject.classes);
        let pieces: Vec<BlockRange> = subject.ranges().iter().flat_map(|range| self.pieces(map, *range)).collect();
        let change = match (subject.ranges(), &pieces[..]) {
            ([], _) => {
                let head = head(data, 0, judge.head_bytes);
                self.ask_once(judge, number, of_command, &[], &head, judged)?
            }
            // Of no blocks.
            (_, []) => None,
            ([_], [piece]) => {
                let cdb = Subject::placed(cdb, *piece).ok_or_else(|| self.nonsense())?;
                let head = head(data, 0, judge.head_bytes);
                let change = self.ask_once(judge, number, (&cdb, subject.classes), &[*piece], &head, judged)?;
                return match change {
                    None => Ok(None),
                    Some(change) => self.back(map, &cdb, *piece, change).map(Some),
                };
            }
            ([range], pieces) => {
                let mut from_blocks = 0;
                for piece in pieces {
                    let cdb = Subject::placed(cdb, *piece).ok_or_else(|| self.nonsense())?;
                    // Where its data is that of its blocks one after the other, each piece has its own.
                    let has_own = from_blocks == 0 || is_written_as_sent(&cdb);
                    let at_bytes = from_blocks * u64::from(self.geometry.block_bytes);
                    let head = head(data.filter(|_| has_own), at_bytes, judge.head_bytes);
                    let change = self.ask_once(judge, number, (&cdb, subject.classes), &[*piece], &head, judged)?;
                    if change.is_some() {
                        return Err(self.nonsense());
                    }
                    from_blocks += piece.blocks;
                }
                debug_assert_eq!(from_blocks, range.blocks, "all of it lies in the unit below");
                None
            }
            (_, pieces) => {
                let head = head(data, 0, judge.head_bytes);
                self.ask_once(judge, number, of_command, pieces, &head, judged)?
            }
        };
        match change {
            None => Ok(None),
            Some(Change::Rewritten(cdb)) if subject.ranges().is_empty() && !cdb.has_lba() => Ok(Some(cdb)),
            Some(_) => Err(self.nonsense()),
        }
    }

    fn ask_once(
        &self,
        judge: &Judge,
        principal_number: u32,
        (cdb, classes): (&Cdb, OperationClasses),
        ranges: &[BlockRange],
        data_out: &[u8],
        judged: &mut Option<Box<Judged>>,
    ) -> Result<Option<Change>, Refusal> {
        let waited = self.deferred_since.map_or(Duration::ZERO, |since| self.now - since);
        if let Some(delay) = judge.budget.delay(self.now) {
            return Err(self.put_off(waited, delay));
        }
        let judgement = judge.program.judge(&JudgedCommand {
            cdb,
            classes,
            ranges,
            capacity_blocks: judge.length_bytes / u64::from(self.geometry.block_bytes),
            block_bytes: self.geometry.block_bytes,
            principal: &self.guest.principal,
            principal_number,
            unix_ms: self.derived.unix_ms(self.now),
            waited_ms: u32::try_from(waited.as_millis()).unwrap_or(u32::MAX),
            data_out,
        });
        judge.budget.charge(judgement.fuel, self.now);
        Judged::note(judged, &judge.program, &judgement);
        match judgement.verdict {
            Verdict::Allow => Ok(None),
            Verdict::Redirect { lba } => Ok(Some(Change::Moved { lba })),
            Verdict::Rewrite(cdb) => Ok(Some(Change::Rewritten(cdb))),
            Verdict::Refuse(sense) => {
                self.guest.note_refused(Refused::Program);
                Err(sense.into())
            }
            Verdict::Defer { milliseconds } => Err(self.put_off(waited, Duration::from_millis(milliseconds.into()))),
        }
    }

    /// The command is to wait for so long, and has waited for so long already.
    fn put_off(&self, waited: Duration, delay: Duration) -> Refusal {
        if waited >= DEFER_MAX {
            self.guest.note_refused(Refused::Program);
            return Refusal::Busy;
        }
        Refusal::Defer(delay.clamp(DEFER_STEP_MIN, DEFER_STEP_MAX))
    }

    /// By the numbers of this unit, what a program of one below has had changed by its own.
    fn back(&self, map: &ExtentMap, asked: &Cdb, piece: BlockRange, change: Change) -> Result<Cdb, Refusal> {
        let (cdb, place) = match change {
            Change::Moved { lba } => (*asked, BlockRange { lba, ..piece }),
            Change::Rewritten(cdb) if !cdb.has_lba() => return Ok(cdb),
            Change::Rewritten(cdb) => (cdb, subject::named(&cdb, self.commands).ok_or_else(|| self.nonsense())?),
        };
        let block_bytes = u64::from(self.geometry.block_bytes);
        let bytes = |blocks: u64| blocks.checked_mul(block_bytes);
        let own = bytes(place.lba).zip(bytes(place.blocks)).and_then(|(from, length)| {
            let number = map.numbers_of(from..from.checked_add(length)?)?;
            let blocks = u32::try_from(place.blocks).ok()?;
            cdb.with_extent(Extent { lba: number.start / block_bytes, blocks })
        });
        own.ok_or_else(|| self.nonsense())
    }

    /// Where the blocks of a range lie.
    fn pieces(&self, map: &ExtentMap, range: BlockRange) -> Vec<BlockRange> {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let bytes = range.lba * block_bytes..(range.lba + range.blocks) * block_bytes;
        let in_blocks = |place: std::ops::Range<u64>| BlockRange {
            lba: place.start / block_bytes,
            blocks: (place.end - place.start) / block_bytes,
        };
        map.pieces(bytes).map(in_blocks).collect()
    }

    fn blocks(&self) -> u64 {
        self.geometry.length_bytes / u64::from(self.geometry.block_bytes)
    }

    fn refused(&self, Unfit { sense, why }: Unfit) -> Refusal {
        why.into_iter().for_each(|why| self.guest.note_refused(why));
        sense.into()
    }

    /// A program has said what cannot be done, or must not.
    fn nonsense(&self) -> Refusal {
        self.guest.note_refused(Refused::Program);
        ACCESS_DENIED.into()
    }
}

/// The data from there on, as far as it is here and wanted.
fn head(data: Option<&Slices>, from_bytes: u64, most_bytes: usize) -> Cow<'_, [u8]> {
    let Some(data) = data.filter(|_| most_bytes > 0) else { return Cow::Borrowed(&[]) };
    let from = usize::try_from(from_bytes).unwrap_or(usize::MAX).min(data.len());
    data.bytes(from..data.len().min(from.saturating_add(most_bytes)))
}
