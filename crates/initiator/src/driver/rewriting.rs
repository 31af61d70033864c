//! Writes that a device has lost are given again, one after the other, while the other volumes are served: nothing else is given
//! to theirs before all of them are there.

use std::time::Duration;

use sanwire_core::Instant;
use sanwire_scsi::{Sense, SenseKey, Status};

use super::{BUSY_WAIT, Driver, Trust, Waiting};
use crate::keeper::Word;
use crate::session::{Answer, Failure, Order, OrderId};

/// How long one of them is given again to a device that is busy.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// Who waits for memory does not wait for longer than this for one of them.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// How far the writes of one volume are.
pub(super) struct Rewriting {
    /// What the unit has said.
    word: Word,
    /// So many are there again.
    done: usize,
    /// The next one is on its way.
    order: Option<OrderId>,
    /// The device is busy with it: not before this again.
    not_before: Option<Instant>,
    /// Since when the next one is.
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
        Rewriting { word, done: 0, order: None, not_before: None, since: now }
    }

    pub(super) fn is_for(&self, word: Word) -> bool {
        self.word == word
    }

    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        now >= self.since + STUCK_AFTER
    }

    fn has_done_one(&mut self, now: Instant) {
        (self.done, self.not_before, self.since) = (self.done + 1, None, now);
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
        let Some(kept) = &self.keepers[at] else { return false };
        let Some(Rewriting { word, done, order: None, not_before, .. }) = kept.rewriting else { return false };
        let is_its = |served: &&super::Served| served.keeper == at && self.is_open(served, Trust::Rewriting);
        let Some(lun) = self.volumes.iter().flatten().find(is_its).map(|served| served.lun) else { return false };
        if not_before.is_some_and(|at| now < at) {
            return false;
        }
        let Some((cdb, data_out)) = kept.keeper.writes().nth(done).cloned() else {
            self.all_written_again(at, word, done);
            return true;
        };
        let Ok(id) = self.session.order(Order { lun, cdb, data_out, data_in: None }, now) else { return false };
        self.waiting.insert(id, Waiting::Again { keeper: at });
        self.keepers[at].iter_mut().filter_map(|kept| kept.rewriting.as_mut()).for_each(|own| own.order = Some(id));
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
        let Some(kept) = self.keepers.get_mut(at).and_then(Option::as_mut) else { return };
        let Some(rewriting) = kept.rewriting.as_mut().filter(|rewriting| rewriting.order == Some(id)) else { return };
        rewriting.order = None;
        let word = rewriting.word;
        match step(answer) {
            Step::Done => rewriting.has_done_one(now),
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
