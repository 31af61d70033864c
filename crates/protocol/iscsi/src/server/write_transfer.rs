//! The data of a command that comes in: unsolicited, solicited, in pieces, and not always as it should.

use sanwire_buffer::Frame;
use sanwire_core::Instant;
use sanwire_scsi::AdditionalSense;

use super::data_timeout::RECEPTION_MAX;
use crate::wire::{DataOut, TAG_NONE};

/// Gaps within one sequence that are kept account of; a sequence in more pieces has failed.
const ISLANDS_MAX: usize = 64;

/// R2Ts of one command that ask again for what was lost.
const REPEATS_MAX: u32 = 64;

/// How often in a row data may be waited for in vain.
const SILENCES_MAX: u32 = 3;

/// What is wrong with a Data-Out, or with a command's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The command fails, with this sense data (RFC 7143 11.4.7.2).
    Sense(AdditionalSense),
    /// The command's transfer is longer than the target takes.
    TooLong,
    /// There is no memory for it: TASK SET FULL.
    Full,
}

/// Data that nobody asked for (RFC 7143 11.4.7.2).
pub(super) const UNEXPECTED: Fault = Fault::Sense(AdditionalSense::UNEXPECTED_UNSOLICITED_DATA);
/// More or less data than there should be.
pub(super) const AMOUNT: Fault = Fault::Sense(AdditionalSense::NOT_ENOUGH_UNSOLICITED_DATA);
/// Data was damaged or lost on the way.
pub(super) const DAMAGED: Fault = Fault::Sense(AdditionalSense::PROTOCOL_SERVICE_CRC_ERROR);
/// Data did not come.
const SILENT: Fault = Fault::Sense(AdditionalSense::INITIATOR_RESPONSE_TIMEOUT);

/// What becomes of a Data-Out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Its data belongs into the frame.
    Take,
    /// It was there before, or belongs to a command that has failed: read and forgotten.
    Skip,
    /// It answers no R2T of this command: it is rejected.
    Stray,
    /// The command fails.
    Fail(Fault),
}

/// How strictly data must come in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Strictness {
    /// Offsets rise within a sequence, without gaps (DataPDUInOrder, and nothing lost may come again).
    pub(super) in_order: bool,
    /// What is lost may be asked for again: error recovery level 1 or 2.
    pub(super) recovers: bool,
}

/// An R2T that is not answered in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unanswered {
    pub(super) transfer_tag: u32,
    /// Its number among the R2Ts of the command.
    pub(super) number: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// One sequence of Data-Out: the unsolicited one, or the answer to one R2T.
#[derive(Debug)]
struct Burst {
    r2t: Unanswered,
    /// The number of the next Data-Out.
    data_number: u32,
    /// Since when nothing of it has arrived.
    since: Instant,
    /// All from `start` to here has arrived.
    reached: u32,
    /// What has arrived beyond, sorted and disjoint.
    islands: Vec<(u32, u32)>,
}

/// The data of one command that comes in.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Where it is put; not there while it waits for memory, after a fault, and while it is lent.
    pub(super) frame: Option<Frame>,
    /// A connection receives into the frame.
    pub(super) is_lent: bool,
    /// Which bytes of the command's data these are: all of it, or a piece.
    start: u32,
    length: u32,
    bursts: Vec<Burst>,
    /// Up to here everything has arrived or is asked for.
    asked: u32,
    /// Ranges that are asked for again.
    lost: Vec<(u32, u32)>,
    repeats: u32,
    /// How often in a row data did not come in time.
    silences: u32,
    fault: Option<Fault>,
    /// It waits for memory before it may be asked for.
    pub(super) is_starved: bool,
    /// It is not to be asked for now: others that wait for the same store keep too much memory.
    pub(super) is_withheld: bool,
}

impl Gathering {
    /// `immediate` bytes have arrived with the command. If `unsolicited_end` is given, Data-Outs up to there follow unasked.
    pub(super) fn new(
        frame: Option<Frame>,
        length: u32,
        immediate: u32,
        unsolicited_end: Option<u32>,
        now: Instant,
    ) -> Self {
        let unsolicited =
            unsolicited_end.map(|end| Unanswered { transfer_tag: TAG_NONE, number: 0, start: immediate, end });
        let bursts = unsolicited.into_iter().map(|unsolicited| Burst::new(unsolicited, now)).collect();
        Gathering {
            frame,
            is_lent: false,
            start: 0,
            length,
            bursts,
            asked: unsolicited_end.unwrap_or(immediate),
            lost: Vec::new(),
            repeats: 0,
            silences: 0,
            fault: None,
            is_starved: false,
            is_withheld: false,
        }
    }

    /// All of it from `start` to `end`, of a command of which the data before was executed. Nothing of it has arrived.
    pub(super) fn piece(start: u32, end: u32, now: Instant) -> Self {
        Gathering { start, asked: start, ..Gathering::new(None, end, start, None, now) }
    }

    /// Where what is gathered begins in the command's data.
    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// What is on its way, or should be, to the memory that it has.
    pub(super) fn awaited_bytes(&self) -> u64 {
        let has_memory = self.frame.is_some() || self.is_lent;
        let bursts = self.bursts.iter().filter(|_| has_memory);
        bursts.map(|burst| u64::from(burst.r2t.end.saturating_sub(burst.reached))).sum()
    }

    /// How much memory it takes.
    pub(super) fn frame_bytes(&self) -> u32 {
        self.length - self.start
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Gives the command up; the first fault counts. Its memory goes home at once.
    pub(super) fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
        self.frame = None;
        self.lost.clear();
    }

    /// The same, and nothing of what was asked for will come.
    pub(super) fn give_up(&mut self, fault: Fault) {
        self.bursts.clear();
        self.fail(fault);
    }

    /// Whether nothing more is to come.
    pub(super) fn is_over(&self) -> bool {
        self.bursts.is_empty() && (self.fault.is_some() || self.asked >= self.length && self.lost.is_empty())
    }

    /// What is to be asked for next, as offset and length, when at most `outstanding_max` R2Ts may be unanswered and
    /// one asks for at most `burst_max` bytes. Then call [`Gathering::ask`].
    pub(super) fn wanted(&self, outstanding_max: u16, burst_max: u32) -> Option<(u32, u32)> {
        let is_unsolicited_over = self.bursts.first().is_none_or(|burst| burst.r2t.transfer_tag != TAG_NONE);
        let has_room = self.bursts.len() < usize::from(outstanding_max.max(1));
        if self.fault.is_some() || !is_unsolicited_over || !has_room {
            return None;
        }
        let (start, end) = match self.lost.last() {
            Some(&lost) => lost,
            None => (self.asked, self.length),
        };
        let length = (end - start).min(burst_max.max(1));
        (length > 0).then_some((start, length))
    }

    /// An R2T asks for what [`Gathering::wanted`] said.
    pub(super) fn ask(&mut self, r2t: Unanswered, now: Instant) {
        let end = r2t.end;
        match self.lost.last_mut() {
            Some(lost) if lost.1 > end => lost.0 = end,
            Some(_) => {
                self.lost.pop();
            }
            None => self.asked = end,
        }
        self.bursts.push(Burst::new(r2t, now));
    }

    /// The R2Ts that are not answered in full.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = Unanswered> {
        self.bursts.iter().map(|burst| burst.r2t).filter(|r2t| r2t.transfer_tag != TAG_NONE)
    }

    /// Starts again: all data is to be asked for.
    pub(super) fn restart(&mut self) {
        self.frame = None;
        self.is_lent = false;
        self.bursts.clear();
        self.lost.clear();
        self.asked = self.start;
    }

    /// What becomes of a Data-Out of so many bytes.
    pub(super) fn judge(&self, data: &DataOut, bytes: u32, strictness: Strictness) -> Verdict {
        let Some(burst) = self.bursts.iter().find(|burst| burst.r2t.transfer_tag == data.transfer_tag) else {
            return match data.transfer_tag {
                // What was given up may come late.
                TAG_NONE if self.silences > 0 => Verdict::Skip,
                TAG_NONE => Verdict::Fail(UNEXPECTED),
                _ => Verdict::Stray,
            };
        };
        if self.fault.is_some() {
            return Verdict::Skip;
        }
        if data.data_number != burst.data_number {
            // RFC 7143 7.9: a gap means that something was lost; a number that was seen comes again.
            let is_behind = (data.data_number.wrapping_sub(burst.data_number) as i32) < 0;
            match (strictness.recovers, is_behind) {
                (true, true) => return Verdict::Skip,
                (true, false) => {}
                (false, _) => return Verdict::Fail(DAMAGED),
            }
        }
        let Some(end) = data.offset_bytes.checked_add(bytes) else { return Verdict::Fail(AMOUNT) };
        if data.offset_bytes < burst.r2t.start || end > burst.r2t.end {
            return Verdict::Fail(AMOUNT);
        }
        let is_in_order = !strictness.in_order || strictness.recovers || data.offset_bytes == burst.reached;
        let is_new = bytes == 0 || !burst.overlaps(data.offset_bytes, end);
        if is_in_order && is_new { Verdict::Take } else { Verdict::Fail(AMOUNT) }
    }

    /// A Data-Out has arrived. `taken`: its data is in the frame; if not, it was damaged, or is not wanted.
    pub(super) fn arrived(&mut self, data: &DataOut, bytes: u32, taken: bool, strictness: Strictness, now: Instant) {
        let Some(at) = self.bursts.iter().position(|burst| burst.r2t.transfer_tag == data.transfer_tag) else { return };
        self.silences = 0;
        let burst = &mut self.bursts[at];
        (burst.data_number, burst.since) = (data.data_number.wrapping_add(1), now);
        let fits = !taken || burst.cover(data.offset_bytes, data.offset_bytes.saturating_add(bytes));
        if !fits {
            self.fail(AMOUNT);
        }
        if !data.is_final {
            return;
        }
        let burst = self.bursts.remove(at);
        if self.fault.is_some() || burst.is_complete() {
            return;
        }
        let was_short = !strictness.recovers;
        if was_short || self.repeats >= REPEATS_MAX {
            self.fail(if was_short { AMOUNT } else { DAMAGED });
            return;
        }
        self.repeats += 1;
        self.lost.extend(burst.gaps());
    }

    /// When the next sequence has stood still for too long, if no Data-Out comes on its connection after `data_at`.
    pub(super) fn due(&self, data_at: Instant) -> Option<Instant> {
        self.bursts.iter().map(|burst| burst.due(data_at)).min()
    }

    /// Gives up the sequences that have stood still for too long: what has not come is to be asked for again. Without
    /// recovery they are waited for again. After some times the command fails. Tells whether anything was given up.
    pub(super) fn stop_silent(&mut self, data_at: Instant, recovers: bool, now: Instant) -> bool {
        let is_silent = |burst: &Burst| burst.due(data_at) <= now;
        if !self.bursts.iter().any(is_silent) {
            return false;
        }
        self.silences += 1;
        if self.silences > SILENCES_MAX || self.fault.is_some() {
            self.give_up(SILENT);
            return true;
        }
        if recovers {
            let stopped = self.bursts.extract_if(.., |burst| is_silent(burst));
            self.lost.extend(stopped.flat_map(|burst| burst.gaps()));
        } else {
            self.bursts.iter_mut().filter(|burst| is_silent(burst)).for_each(|burst| burst.since = now);
        }
        recovers
    }
}

impl Burst {
    fn new(r2t: Unanswered, now: Instant) -> Self {
        Burst { r2t, data_number: 0, since: now, reached: r2t.start, islands: Vec::new() }
    }

    /// A sequence of which nothing has arrived may stand behind others of its connection.
    fn due(&self, data_at: Instant) -> Instant {
        let since = if self.data_number == 0 { self.since.max(data_at) } else { self.since };
        since + RECEPTION_MAX
    }

    fn is_complete(&self) -> bool {
        self.reached >= self.r2t.end
    }

    fn overlaps(&self, from: u32, to: u32) -> bool {
        from < self.reached && from >= self.r2t.start
            || self.islands.iter().any(|&(start, end)| from < end && start < to)
    }

    /// Notes what has arrived; `false` when it came in too many pieces.
    fn cover(&mut self, from: u32, to: u32) -> bool {
        if from == to {
            return true;
        }
        if from != self.reached {
            let at = self.islands.partition_point(|island| island.0 < from);
            self.islands.insert(at, (from, to));
            self.islands.dedup_by(|next, before| {
                let touches = before.1 == next.0;
                if touches {
                    before.1 = next.1;
                }
                touches
            });
            return self.islands.len() <= ISLANDS_MAX;
        }
        self.reached = to;
        while self.islands.first().is_some_and(|island| island.0 == self.reached) {
            self.reached = self.islands.remove(0).1;
        }
        true
    }

    /// What has not come.
    fn gaps(&self) -> Vec<(u32, u32)> {
        let mut gaps = Vec::new();
        let mut from = self.reached;
        for &(start, end) in self.islands.iter().chain(&[(self.r2t.end, self.r2t.end)]) {
            if from < start {
                gaps.push((from, start));
            }
            from = end;
        }
        gaps
    }
}
