//! Whether a command of a derived unit is executed, and as what: by its operations, its blocks and its programs.

mod subject;

use std::borrow::Cow;
use std::time::Duration;

use sanwire_buffer::Slices;
use sanwire_core::Instant;
use sanwire_scsi::{Cdb, CommandSet, Extent, OperationClass, OperationClasses, Task, build};
use sanwire_store::{ExtentMap, Geometry};

use crate::command_program::{BlockRange, JudgedCommand, Verdict};
use crate::derived::{Derived, Guest, Judge, Refused};
use crate::fault::ACCESS_DENIED;
use crate::judged::Judged;
use crate::refusal::Refusal;

use subject::{Subject, Unfit};

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

impl Judging<'_> {
    /// Whether a command may be executed that has not been judged yet. It may be another one afterwards. What must be kept of that
    /// comes back, if anything must.
    pub(crate) fn judge(&self, task: &mut Task, is_judged: bool) -> Result<Option<Box<Judged>>, Refusal> {
        let data = task.data_out.as_ref();
        let mut subject = self.subject(task.cdb, data).map_err(|unfit| self.refused(unfit))?;
        if is_judged || self.derived.judges.is_empty() {
            return Ok(None);
        }
        let mut judged = Judged::default();
        for judge in self.asked_about(subject.classes) {
            if let Some(changed) = self.ask(judge, &subject, data, &mut judged)? {
                subject = self.subject(changed, data).map_err(|_| self.nonsense())?;
            }
        }
        if subject.cdb != task.cdb {
            task.cdb = subject.cdb;
            judged.cdb = Some(subject.cdb);
        }
        Ok((!judged.is_empty()).then(|| Box::new(judged)))
    }

    /// Whether a copy may read or write these blocks, or others of its unit in their place: the first of them.
    pub(crate) fn judge_copy(
        &self,
        direction: OperationClass,
        range: BlockRange,
        judged: &mut Judged,
    ) -> Result<u64, Refusal> {
        let classes = OperationClasses::of(direction);
        let blocks = u32::try_from(range.blocks).map_err(|_| self.nonsense())?;
        let cdb = |lba| match direction {
            OperationClass::CopyTarget => build::write_16(Extent { lba, blocks }, false),
            _ => build::read_16(Extent { lba, blocks }),
        };
        let mut lba = range.lba;
        for judge in self.asked_about(classes) {
            let subject = Subject::of_copy(cdb(lba), classes, BlockRange { lba, ..range });
            if let Some(changed) = self.ask(judge, &subject, None, judged)? {
                let moved =
                    subject::named(&changed, self.commands).map(|range| range.lba).filter(|lba| cdb(*lba) == changed);
                let is_within = |lba: &u64| lba.checked_add(range.blocks).is_some_and(|end| end <= self.blocks());
                lba = moved.filter(is_within).ok_or_else(|| self.nonsense())?;
            }
        }
        Ok(lba)
    }

    fn subject(&self, cdb: Cdb, data: Option<&Slices>) -> Result<Subject, Unfit> {
        Subject::read(cdb, self.derived, (self.commands, self.geometry), data)
    }

    /// The programs that are asked about a command which does this.
    fn asked_about(&self, classes: OperationClasses) -> impl Iterator<Item = &Judge> {
        self.derived.judges.iter().filter(move |judge| judge.classes.intersects(classes))
    }

    /// Asks a program: what is executed in the place of the command, if anything else is.
    fn ask(
        &self,
        judge: &Judge,
        subject: &Subject,
        data: Option<&Slices>,
        judged: &mut Judged,
    ) -> Result<Option<Cdb>, Refusal> {
        let Some(map) = &judge.map else {
            let head = head(data, 0, judge.head_bytes);
            let number = self.guest.number();
            let change =
                self.ask_once(judge, number, (&subject.cdb, subject.classes), subject.ranges(), &head, judged)?;
            return match change {
                None => Ok(None),
                Some(Change::Rewritten(cdb)) => Ok(Some(cdb)),
                Some(Change::Moved { lba }) => subject.moved(lba).map(Some).ok_or_else(|| self.nonsense()),
            };
        };
        self.ask_below(judge, map, subject, data, judged)
    }

    /// Asks a program of a unit from which this one is derived: about the same command, by the numbers of that unit.
    fn ask_below(
        &self,
        judge: &Judge,
        map: &ExtentMap,
        subject: &Subject,
        data: Option<&Slices>,
        judged: &mut Judged,
    ) -> Result<Option<Cdb>, Refusal> {
        let number = judge.users.number_of(&self.guest.principal);
        let of_command = (&subject.cdb, subject.classes);
        let pieces: Vec<BlockRange> = subject.ranges().iter().flat_map(|range| self.pieces(map, *range)).collect();
        let change = match (subject.ranges(), &pieces[..]) {
            ([], _) => {
                let head = head(data, 0, judge.head_bytes);
                self.ask_once(judge, number, of_command, &[], &head, judged)?
            }
            // Of no blocks.
            (_, []) => None,
            ([_], [piece]) => {
                let cdb = subject.placed(*piece).ok_or_else(|| self.nonsense())?;
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
                    let cdb = subject.placed(*piece).ok_or_else(|| self.nonsense())?;
                    // Where its data is that of its blocks one after the other, each piece has its own.
                    let has_own = from_blocks == 0 || subject.is_written_as_sent();
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
        judged: &mut Judged,
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
        judged.note(&judge.program, &judgement);
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
