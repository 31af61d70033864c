//! A copy to another server as it goes on: several commands at a time, in stages of a few seconds, at whose ends all is stable.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sanwire_buffer::Slices;
use sanwire_device::{LogicalUnit, LogicalUnits};
use sanwire_scsi::{Reply, Status, Task};

use super::initiator::{End, Pair, RESERVED, next_end};
use super::room::RoomWatch;
use super::{Stop, check_goes_on};
use crate::front::copies::{CopySession, Dropped};
use crate::manage::course::{CopyProgress, Course};

/// Commands at a time.
const DEPTH: usize = 8;

/// What is copied by one command; less, so that the end of one that is to end is near.
const PIECE_BYTES: u64 = 4 << 20;
/// What is given no space by one command.
const HOLE_BYTES: u64 = 256 << 20;
/// What is read and compared at once.
const COMPARED_BYTES: u64 = 256 << 10;
/// Blocks of one command.
const BLOCKS_MAX: u64 = 0xffff;

/// How long commands are begun before all is made stable.
const STAGE_TIME: Duration = Duration::from_secs(2);

/// How often what was written may be lost before it was stable, one time after the other.
const LOSSES_MAX: u32 = 8;

/// How long a command is given again that a unit has no time for.
const BUSY_MAX: Duration = Duration::from_secs(60);
const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// How long the commands under way of a copy that is to end are waited for.
const SETTLING_MAX: Duration = Duration::from_secs(10);

/// How often it is told that something is copied again: a place that fails now and then would fill the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Attentions of a unit that follow one another, at the most.
const ATTENTIONS_MAX: u32 = 32;

/// What is done with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// It is copied.
    Copy,
    /// It is compared, and copied where that differs.
    Update,
    /// It must be the same.
    Verify,
}

/// A command under way.
struct Piece {
    range: Range<u64>,
    is_hole: bool,
    step: PieceStep,
    /// How often it met an attention, and since when it finds its unit busy.
    attentions: u32,
    busy_since: Option<Instant>,
}

enum PieceStep {
    Copying,
    Reading,
    Comparing(Slices),
}

/// A copy under way.
pub(super) struct Copying<'a> {
    pub(super) pair: &'a Pair,
    pub(super) session: CopySession,
    pub(super) course: &'a Course,
    /// The volume, and where it must be found: it may be removed meanwhile.
    pub(super) source: (&'a str, &'a Arc<LogicalUnit>, &'a LogicalUnits),
    pub(super) cap_bytes_per_second: Option<u64>,
    /// What ends it where its snapshot is to go.
    pub(super) room: Option<RoomWatch>,
    under_way: BTreeMap<u64, Piece>,
    /// What has ended while something else was waited for.
    ended: VecDeque<(u64, Option<Reply>)>,
    /// Runs of the source that are known, by their ends.
    runs: VecDeque<(u64, bool)>,
    /// Whether the source tells where it has space.
    tells_runs: bool,
    /// What was begun, for the cap.
    begun: (Instant, u64),
    warned_at: Option<Instant>,
}

impl<'a> Copying<'a> {
    pub(super) fn new(
        (pair, session, course): (&'a Pair, CopySession, &'a Course),
        source: (&'a str, &'a Arc<LogicalUnit>, &'a LogicalUnits),
        cap_bytes_per_second: Option<u64>,
    ) -> Self {
        Copying {
            pair,
            session,
            course,
            source,
            cap_bytes_per_second,
            room: None,
            under_way: BTreeMap::new(),
            ended: VecDeque::new(),
            runs: VecDeque::new(),
            tells_runs: true,
            begun: (Instant::now(), 0),
            warned_at: None,
        }
    }

    /// Goes through a range, stage by stage.
    pub(super) fn run(&mut self, mode: Mode, range: Range<u64>) -> Result<(), Stop> {
        let (mut place, mut losses) = (range.start, 0);
        while place < range.end {
            let before = self.course.look();
            self.check_reservations()?;
            let end = self.stage(mode, place..range.end)?;
            if mode == Mode::Verify {
                place = end;
                continue;
            }
            match self.flush() {
                Ok(()) => {
                    (place, losses) = (end, 0);
                    self.course.change(|progress| progress.stable_bytes = progress.stable_bytes.max(end));
                }
                Err(Stop::Failed(reason)) if losses < LOSSES_MAX => {
                    losses += 1;
                    self.warn_of_loss(&reason);
                    // The place may be there again soon.
                    thread::sleep(BUSY_INTERVAL);
                    self.course.change(|progress| {
                        let way = progress.way.take();
                        *progress = CopyProgress { way, ..before };
                    });
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn warn_of_loss(&mut self, reason: &str) {
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            let volume = self.source.0;
            tracing::warn!("the copy of volume {volume}: what was not stable there yet is copied again: {reason}");
        }
    }

    /// Waits for what is under way, for a while; gives how many commands may still be done.
    pub(super) fn settle(&mut self) -> usize {
        let begun_at = Instant::now();
        loop {
            for (number, _) in self.ended.drain(..) {
                self.under_way.remove(&number);
            }
            let left = SETTLING_MAX.saturating_sub(begun_at.elapsed());
            if self.under_way.is_empty() || left.is_zero() {
                return self.under_way.len();
            }
            match self.session.wait(left) {
                Ok(ended) => self.ended.extend(ended),
                // It is aborted; what is at the other end by then is done there.
                Err(Dropped) => return self.under_way.len(),
            }
        }
    }

    /// Works on a range until the time is over and everything under way has ended; gives where.
    fn stage(&mut self, mode: Mode, range: Range<u64>) -> Result<u64, Stop> {
        let begun_at = Instant::now();
        self.runs.clear();
        let mut place = range.start;
        loop {
            while self.under_way.len() < DEPTH
                && place < range.end
                && (place == range.start || begun_at.elapsed() < STAGE_TIME)
                && self.may_begin()
            {
                let piece = self.piece(mode, place..range.end)?;
                place = piece.range.end;
                self.begun.1 += if piece.is_hole { 0 } else { piece.range.end - piece.range.start };
                self.begin(piece);
            }
            if self.under_way.is_empty() {
                if place > range.start || place >= range.end {
                    return Ok(place);
                }
                // The cap lets nothing begin now.
                self.look()?;
                thread::sleep(BUSY_INTERVAL);
                continue;
            }
            let (number, reply) = self.next_end()?;
            self.ended(mode, number, reply)?;
        }
    }

    /// Whether the cap lets more be begun.
    fn may_begin(&self) -> bool {
        let Some(cap) = self.cap_bytes_per_second else { return true };
        let (since, bytes) = self.begun;
        bytes as f64 <= since.elapsed().as_secs_f64() * cap as f64
    }

    /// The next piece of a range.
    fn piece(&mut self, mode: Mode, range: Range<u64>) -> Result<Piece, Stop> {
        let (run_end, has_space) = self.run_at(range.start)?;
        let is_hole = !has_space;
        let longest = match (mode, is_hole) {
            (Mode::Copy, true) => HOLE_BYTES,
            (Mode::Copy, false) => PIECE_BYTES,
            (Mode::Update | Mode::Verify, _) => COMPARED_BYTES,
        };
        let longest = longest.min(BLOCKS_MAX * u64::from(self.pair.block_bytes));
        let end = range.end.min(run_end).min(range.start.saturating_add(longest));
        let step = if mode == Mode::Copy { PieceStep::Copying } else { PieceStep::Reading };
        Ok(Piece { range: range.start..end, is_hole, step, attentions: 0, busy_since: None })
    }

    /// The run of the source at a place: where it ends, and whether it has space.
    fn run_at(&mut self, place: u64) -> Result<(u64, bool), Stop> {
        while self.runs.front().is_some_and(|(end, _)| *end <= place) {
            self.runs.pop_front();
        }
        if self.runs.is_empty() && self.tells_runs {
            match self.ask(&|pair| pair.runs(place))? {
                End::Good(data) => {
                    self.runs = self.pair.runs_of(&data.map(|data| data.to_vec()).unwrap_or_default());
                    self.runs.retain(|(end, _)| *end > place);
                }
                End::Failed(_) | End::Unknown => self.tells_runs = false,
                _ => {}
            }
        }
        Ok(self.runs.front().copied().unwrap_or((u64::MAX, true)))
    }

    fn begin(&mut self, piece: Piece) {
        let (offset_bytes, length_bytes) = (piece.range.start, piece.range.end - piece.range.start);
        let task = match &piece.step {
            PieceStep::Copying => self.pair.copy(offset_bytes, length_bytes),
            PieceStep::Reading => self.pair.read(offset_bytes, length_bytes),
            PieceStep::Comparing(data) => self.pair.compare(offset_bytes, data.clone()),
        };
        let number = self.session.begin(task);
        self.under_way.insert(number, piece);
    }

    /// Goes on with a piece of which a command has ended.
    fn ended(&mut self, mode: Mode, number: u64, reply: Option<Reply>) -> Result<(), Stop> {
        let Some(mut piece) = self.under_way.remove(&number) else { return Ok(()) };
        match End::of(reply) {
            End::Again if piece.attentions < ATTENTIONS_MAX => piece.attentions += 1,
            End::Again => return Err(Stop::Failed("a volume has something to say again and again".to_owned())),
            End::Later => {
                let since = *piece.busy_since.get_or_insert_with(Instant::now);
                if since.elapsed() > BUSY_MAX {
                    return Err(Stop::Failed(format!("a volume has been busy for {} s", BUSY_MAX.as_secs())));
                }
                thread::sleep(BUSY_INTERVAL);
            }
            End::Good(data) => match (&piece.step, data) {
                (PieceStep::Reading, Some(data)) => piece.step = PieceStep::Comparing(data),
                (PieceStep::Reading, None) => return Err(Stop::Failed("a read gave no data".to_owned())),
                _ => {
                    self.done(mode, &piece);
                    return Ok(());
                }
            },
            End::Differs if mode == Mode::Update => piece.step = PieceStep::Copying,
            End::Differs => {
                let Range { start, end } = piece.range;
                return Err(Stop::Failed(format!("it differs between the bytes {start} and {end}: copy it again")));
            }
            End::Unknown => return Err(Stop::Failed("a volume does not know a command of it".to_owned())),
            End::Failed(reason) => return Err(Stop::Failed(reason)),
        }
        self.begin(piece);
        Ok(())
    }

    fn done(&self, mode: Mode, piece: &Piece) {
        let bytes = piece.range.end - piece.range.start;
        let is_copied = matches!(piece.step, PieceStep::Copying);
        self.course.change(|progress| {
            if mode == Mode::Verify {
                progress.verified_bytes += bytes;
                return;
            }
            progress.done_bytes += bytes;
            match (is_copied, piece.is_hole) {
                (false, _) => progress.resumed_bytes += bytes,
                (true, true) => progress.zero_bytes += bytes,
                (true, false) => progress.data_bytes += bytes,
            }
        });
    }

    fn flush(&mut self) -> Result<(), Stop> {
        match self.ask(&|pair| pair.flush())? {
            End::Good(_) => Ok(()),
            End::Failed(reason) => Err(Stop::Failed(reason)),
            _ => Err(Stop::Failed("the other volume cannot be flushed".to_owned())),
        }
    }

    /// Gives a command by itself, again as long as it is to be.
    fn ask(&mut self, task: &dyn Fn(&Pair) -> Task) -> Result<End, Stop> {
        let begun_at = Instant::now();
        let mut attentions = 0;
        loop {
            match End::of(self.reply_to(task(self.pair))?) {
                End::Again if attentions < ATTENTIONS_MAX => attentions += 1,
                End::Later if begun_at.elapsed() < BUSY_MAX => thread::sleep(BUSY_INTERVAL),
                end => return Ok(end),
            }
        }
    }

    /// The reply to a command that is given by itself; what else ends meanwhile is kept.
    fn reply_to(&mut self, task: Task) -> Result<Option<Reply>, Stop> {
        let number = self.session.begin(task);
        loop {
            let (ended, reply) = next_end(&self.session, || self.look())?;
            if ended == number {
                return Ok(reply);
            }
            self.ended.push_back((ended, reply));
        }
    }

    /// What is copied may be a snapshot, which has no reservations: those of its volume hold for it.
    fn check_reservations(&mut self) -> Result<(), Stop> {
        for _ in 0..ATTENTIONS_MAX {
            let Some(probe) = self.pair.probe() else { return Ok(()) };
            match self.reply_to(probe)?.map(|reply| reply.status) {
                // It has something to say first.
                Some(Status::CheckCondition) => {}
                Some(Status::ReservationConflict) => return Err(Stop::Failed(RESERVED.to_owned())),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn next_end(&mut self) -> Result<(u64, Option<Reply>), Stop> {
        match self.ended.pop_front() {
            Some(ended) => Ok(ended),
            None => next_end(&self.session, || self.look()),
        }
    }

    /// Whether it may go on.
    fn look(&self) -> Result<(), Stop> {
        check_goes_on(self.course)?;
        self.room.as_ref().map_or(Ok(()), RoomWatch::check)?;
        let (name, unit, units) = self.source;
        match units.find_named(name) {
            Some((_, served)) if Arc::ptr_eq(&served, unit) => Ok(()),
            _ => Err(Stop::Failed("the volume that is copied is not served any more".to_owned())),
        }
    }
}
