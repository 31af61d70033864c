//! Writes that a device has lost are given again, one after the other, while the other volumes are served: nothing else is given
//! to theirs before all of them are there.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_scsi::{Sense, SenseKey, Status};

use super::keeping::Kept;
use super::{BUSY_WAIT, Driver, Trust, Waiting};
use crate::keeper::{Keeper, Word};
use crate::session::{Answer, Failure, OrderId};
use crate::translate::{Progress, Request};

/// How long one of them is given again to a device that is busy.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// Who waits for memory does not wait for longer than this for one of them.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// How far the writes of one volume are.
pub(super) struct Rewriting {
    /// What the unit has said.
    word: Word,
    /// So many are there again, but for what is left of the last of them.
    begun: usize,
    left: VecDeque<Request>,
    /// How far the first of that is.
    progress: Progress,
    /// It is on its way.
    order: Option<OrderId>,
    /// The device is busy with it: not before this again.
    not_before: Option<Instant>,
    /// Since when it is.
    since: Instant,
}

/// How one of them ended.
enum Step {
    Done,
    Busy,
    Failed(String),
    /// The unit has something to say, or the connection was lost.
    LookAgain,
}

impl Rewriting {
    pub(super) fn new(word: Word, now: Instant) -> Self {
        let (left, progress) = (VecDeque::new(), Progress::default());
        Rewriting { word, begun: 0, left, progress, order: None, not_before: None, since: now }
    }

    pub(super) fn is_for(&self, word: Word) -> bool {
        self.word == word
    }

    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        now >= self.since + STUCK_AFTER
    }

    fn begin(&mut self, left: VecDeque<Request>, now: Instant) {
        (self.begun, self.left, self.since) = (self.begun + 1, left, now);
    }

    fn has_done_one(&mut self, now: Instant) {
        self.left.pop_front();
        (self.progress, self.not_before, self.since) = (Progress::default(), None, now);
    }

    /// Whether the next one, or the next part of it, may be given now.
    fn may_go_on(&self, now: Instant) -> bool {
        self.order.is_none() && self.not_before.is_none_or(|at| now >= at)
    }

    /// Whether there is patience left with a device that is busy.
    fn wait(&mut self, now: Instant) -> bool {
        self.not_before = Some(now + BUSY_WAIT);
        now < self.since + BUSY_MAX
    }
}

impl Driver {
    /// Gives what is next, of each volume whose writes are given again; gives how many.
    pub(super) fn write_again(&mut self, now: Instant) -> usize {
        if self.keepers.iter().flatten().all(|kept| kept.rewriting.is_none()) {
            return 0;
        }
        // One after the other: the device refuses those that come after the write of somebody else, until it has said so.
        (0..self.keepers.len()).filter(|at| self.room() > 0 && self.write_next_again(*at, now)).count()
    }

    fn write_next_again(&mut self, at: usize, now: Instant) -> bool {
        let is_its = |served: &&super::Served| served.keeper == at && self.is_open(served, Trust::Rewriting);
        let served = self.volumes.iter().flatten().find(is_its);
        let Some((lun, limits)) = served.map(|served| (served.lun, self.limits(served))) else { return false };
        let Some(Kept { keeper, rewriting, .. }) = &mut self.keepers[at] else { return false };
        let Some(rewriting) = rewriting.as_mut().filter(|begun| begun.may_go_on(now)) else { return false };
        let Some(write) = rewriting.left.front() else {
            match visible(keeper, rewriting.begun) {
                Some(left) => rewriting.begin(left, now),
                None => {
                    let (word, count) = (rewriting.word, rewriting.begun);
                    self.all_written_again(at, word, count);
                }
            }
            return true;
        };
        rewriting.progress.give(write, limits);
        let Ok(id) = self.session.order(rewriting.progress.part(write).order(lun, None), now) else { return false };
        rewriting.order = Some(id);
        self.waiting.insert(id, Waiting::Again { keeper: at });
        true
    }

    /// When a write is given again to a device that was busy, or is no longer waited for.
    pub(super) fn next_again_at(&self, now: Instant) -> Option<Instant> {
        let begun = self.keepers.iter().flatten().filter_map(|kept| kept.rewriting.as_ref());
        let times = begun.flat_map(|rewriting| [rewriting.not_before, Some(rewriting.since + STUCK_AFTER)]);
        times.flatten().filter(|at| *at > now).min()
    }

    /// One that was given again has ended so.
    pub(super) fn wrote_again(&mut self, at: usize, id: OrderId, answer: Result<Answer, Failure>, now: Instant) {
        let served = self.volumes.iter().flatten().find(|served| served.keeper == at);
        let limits = served.map(|served| self.limits(served));
        let Some(kept) = self.keepers.get_mut(at).and_then(Option::as_mut) else { return };
        let Some(rewriting) = kept.rewriting.as_mut().filter(|rewriting| rewriting.order == Some(id)) else { return };
        let Some((write, limits)) = rewriting.left.front().zip(limits) else { return };
        rewriting.order = None;
        let word = rewriting.word;
        // In a session that takes less at once it goes in smaller parts.
        let is_too_large = answer.as_ref().is_err_and(|failure| *failure == Failure::TooLarge);
        if is_too_large && rewriting.progress.exceeds(write, limits) {
            return;
        }
        match step(answer) {
            Step::Done if rewriting.progress.done(write) => rewriting.has_done_one(now),
            Step::Done => {}
            Step::Busy if rewriting.wait(now) => {}
            Step::LookAgain => self.doubt_kept(at),
            Step::Busy => self.not_written_again(at, word, "the device has been busy for too long"),
            Step::Failed(why) => self.not_written_again(at, word, &why),
        }
    }

    fn all_written_again(&mut self, at: usize, word: Word, count: usize) {
        let Some(kept) = &mut self.keepers[at] else { return };
        kept.rewriting = None;
        kept.keeper.written_again(word);
        self.wants_flush = true;
        self.serve_again(at);
        tracing::warn!(
            "server {} has lost unflushed writes to volume {}: {count} were written again",
            self.server_name,
            self.name_of_kept(at)
        );
    }

    fn not_written_again(&mut self, at: usize, word: Word, why: &str) {
        if let Some(kept) = &mut self.keepers[at] {
            kept.rewriting = None;
            kept.keeper.lost(word);
        }
        self.serve_again(at);
        self.log_loss(at, why);
    }

    fn serve_again(&mut self, at: usize) {
        let waiting = self.volumes.iter_mut().flatten().filter(|served| served.keeper == at);
        waiting.filter(|served| served.trust == Trust::Rewriting).for_each(|served| served.trust = Trust::Known);
    }

    /// Takes the commands of the driver's own out of a session that has begun anew, where they are held: their units may not be
    /// the volumes' any more.
    pub(super) fn withdraw_own(&mut self, now: Instant) {
        let own = self
            .waiting
            .iter()
            .filter(|(_, waiting)| matches!(waiting, Waiting::Background { .. } | Waiting::Again { .. }));
        let ids: Vec<OrderId> = own.map(|(id, _)| *id).collect();
        for id in ids {
            self.session.withdraw(id);
            self.failed(id, Failure::Closed, None, now);
        }
    }
}

/// What of a kept write no later one covers, `None` behind the last: the device may have that one still, and others may have read it.
/// What a discard leaves may be anything, also what was there before.
fn visible(keeper: &Keeper<Request>, at: usize) -> Option<VecDeque<Request>> {
    let mut writes = keeper.writes().skip(at);
    let mut left = VecDeque::from([writes.next()?.clone()]);
    for later in writes.filter(|later| later.is_write()) {
        if left.is_empty() {
            break;
        }
        if left.iter().any(|part| part.outside(later).is_some()) {
            left = left.into_iter().flat_map(|part| part.outside(later).unwrap_or_else(|| vec![part])).collect();
        }
    }
    Some(left)
}

fn step(answer: Result<Answer, Failure>) -> Step {
    let Answer { status, sense } = match answer {
        Ok(answer) => answer,
        // Given again they would fail again.
        Err(failure @ (Failure::TimedOut { .. } | Failure::TooLarge | Failure::Protocol(_))) => {
            return Step::Failed(failure.to_string());
        }
        Err(_) => return Step::LookAgain,
    };
    match (status, Sense::parse(&sense)) {
        (Status::Good, _) => Step::Done,
        (Status::Busy | Status::TaskSetFull | Status::TaskAborted, _) => Step::Busy,
        (_, Some(sense)) if sense.key == SenseKey::UnitAttention => Step::LookAgain,
        (_, Some(sense)) => Step::Failed(sense.to_string()),
        (status, None) => Step::Failed(format!("status {status:?}")),
    }
}
