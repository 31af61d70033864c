//! What the driver does about writes that were acknowledged and are not stable: see [`crate::keeper`].

use sanwire_buffer::Slice;
use sanwire_core::Lun;
use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey, Status};

use super::{BUSY_WAIT, Driver, Link, Served, VolumeId, Waiting};
use crate::inventory::Mark;
use crate::keeper::{Fate, Keeper, Word};
use crate::session::{Failure, Order};
use crate::translate::{Again, Effect, is_gone};
use crate::volume::{BufferPool, VolumeError};

/// Memory that a kept write takes besides its data, and the grain of its data.
const COST_BYTES: u64 = 256;
const GRAIN_BYTES: u64 = 4096;

/// How often a write that is given again is tried while the device is busy.
const TRIES_MAX: u32 = 1000;

/// The acknowledged writes of one volume, whichever handles gave them.
pub(super) struct Kept {
    mark: Mark,
    keeper: Keeper<(Cdb, Option<Slice>)>,
    is_flushing: bool,
}

/// What became of writes that were given again.
pub(super) enum Rewritten {
    /// They are there again, or it was told that they are not.
    Done,
    /// The unit had something to say: look again.
    LookAgain,
    /// The connection was lost meanwhile.
    Interrupted(Failure),
}

/// How one of them ended.
enum Step {
    Done,
    Failed(String),
    LookAgain,
    Interrupted(Failure),
}

impl Driver {
    /// Keeps so much of each volume at the most; `buffers` has the frames in which the data is.
    pub(crate) fn keep_writes(&mut self, bound_bytes: u64, buffers: BufferPool) {
        (self.keep_bytes, self.buffers) = (bound_bytes, Some(buffers));
    }

    /// The place of what is kept of the volume; all its handles have one.
    pub(super) fn keeper_of(&mut self, mark: &Mark, word: Word) -> usize {
        let is_its = |kept: &Option<Kept>| kept.as_ref().is_some_and(|kept| !mark.is_empty() && kept.mark == *mark);
        if let Some(at) = self.keepers.iter().position(is_its) {
            return at;
        }
        let kept = Kept { mark: mark.clone(), keeper: Keeper::new(self.keep_bytes, word), is_flushing: false };
        match self.keepers.iter_mut().position(|place| place.is_none()) {
            Some(at) => {
                self.keepers[at] = Some(kept);
                at
            }
            None => {
                self.keepers.push(Some(kept));
                self.keepers.len() - 1
            }
        }
    }

    /// Nobody has a handle of the volume any more.
    pub(super) fn let_go_of_unused(&mut self) {
        for (at, place) in self.keepers.iter_mut().enumerate() {
            place.take_if(|_| self.volumes.iter().flatten().all(|served| served.keeper != at));
        }
    }

    fn kept_mut(&mut self, id: VolumeId) -> Option<&mut Kept> {
        let at = self.served(id)?.keeper;
        self.keepers.get_mut(at)?.as_mut()
    }

    pub(super) fn losses(&self, keeper: usize) -> u64 {
        self.keepers.get(keeper).and_then(Option::as_ref).map_or(0, |kept| kept.keeper.losses())
    }

    pub(super) fn word(&self, keeper: usize) -> Option<Word> {
        self.keepers.get(keeper).and_then(Option::as_ref).map(|kept| kept.keeper.word())
    }

    /// Notes on a flush what it makes stable.
    pub(super) fn note_given(&mut self, again: &mut Again) {
        if let Effect::Flush { below } = &mut again.effect {
            let kept = self.served(again.volume).and_then(|served| self.keepers.get(served.keeper)?.as_ref());
            *below = kept.map_or(0, |kept| kept.keeper.flush_given());
        }
    }

    /// An operation was done: notes what that means, and gives what must be told instead.
    pub(super) fn note_done(&mut self, again: Again) -> Result<(), VolumeError> {
        let Again { effect, cdb, data_out, volume, .. } = again;
        match effect {
            Effect::Nothing => return Ok(()),
            Effect::Write { is_stable } => {
                let Some(kept) = self.kept_mut(volume).filter(|kept| kept.keeper.is_needed()) else { return Ok(()) };
                let data_bytes = data_out.as_ref().map_or(0, |data| data.len() as u64);
                let cost_bytes = data_bytes.next_multiple_of(GRAIN_BYTES) + COST_BYTES;
                kept.keeper.acknowledged(cost_bytes, is_stable, || (cdb, data_out));
                let wants_flush = kept.keeper.wants_flush() && !kept.is_flushing;
                self.wants_flush |= wants_flush;
                if !is_stable {
                    return Ok(());
                }
            }
            Effect::Flush { below } => {
                if let Some(kept) = self.kept_mut(volume) {
                    kept.keeper.flushed(below);
                }
            }
        }
        self.tell_losses(volume)
    }

    /// Fails once for each handle that has not been told of all losses.
    fn tell_losses(&mut self, volume: VolumeId) -> Result<(), VolumeError> {
        let Some(losses) = self.served(volume).map(|served| self.losses(served.keeper)) else { return Ok(()) };
        let server = std::sync::Arc::clone(&self.server_name);
        match self.served_mut(volume) {
            Some(served) if served.told_losses < losses => {
                served.told_losses = losses;
                Err(VolumeError::WritesLost { server })
            }
            _ => Ok(()),
        }
    }

    /// Gives flushes where much is kept, or somebody waits for memory that is kept.
    pub(super) fn flush_in_background(&mut self) {
        if self.buffers.as_ref().is_some_and(BufferPool::is_waited_for) {
            self.relieve();
        }
        if !std::mem::take(&mut self.wants_flush) {
            return;
        }
        for at in 0..self.keepers.len() {
            self.flush_kept(at, false);
        }
    }

    /// Somebody waits for memory: what is kept goes as soon as it is stable, at once while there is no server.
    fn relieve(&mut self) {
        let is_down = matches!(self.link, Link::Down(_));
        for at in 0..self.keepers.len() {
            if is_down && let Some(kept) = self.keepers[at].as_mut().filter(|kept| !kept.keeper.is_empty()) {
                kept.keeper.forget();
            }
            self.flush_kept(at, true);
        }
    }

    fn flush_kept(&mut self, at: usize, is_urgent: bool) {
        let Some(kept) = self.keepers[at].as_ref().filter(|kept| !kept.is_flushing) else { return };
        if !(kept.keeper.wants_flush() || (is_urgent && !kept.keeper.is_empty())) {
            return;
        }
        let is_its = |served: &&Served| served.keeper == at && self.is_served(served);
        let served = self.volumes.iter().flatten().find(is_its).filter(|_| self.room() > 0);
        let Some((lun, cdb)) = served.map(|served| (served.lun, served.form.flush())) else {
            self.wants_flush = true;
            return;
        };
        let below = kept.keeper.flush_given();
        match self.session.order(Order { lun, cdb, data_out: None, data_in: None }, self.clock.now()) {
            Ok(id) => {
                self.waiting.insert(id, Waiting::Background { keeper: at, below });
                self.keepers[at].iter_mut().for_each(|kept| kept.is_flushing = true);
            }
            Err(_) => self.wants_flush = true,
        }
    }

    /// A flush of our own has ended so, or was not done.
    pub(super) fn flushed_in_background(&mut self, at: usize, below: u64, answer: Option<(Status, &[u8])>) {
        let is_doubted = self.volumes.iter().flatten().any(|served| served.keeper == at && !self.is_served(served));
        let Some(kept) = self.keepers.get_mut(at).and_then(Option::as_mut) else { return };
        kept.is_flushing = false;
        match answer {
            Some((Status::Good, _)) if !is_doubted => kept.keeper.flushed(below),
            Some((Status::CheckCondition, sense)) => match Sense::parse(sense) {
                // Another number may be the volume's now.
                Some(sense) if sense.key == SenseKey::UnitAttention || is_gone(&sense) => self.doubt_kept(at),
                // A device tells of a failure once.
                _ => kept.keeper.lose(),
            },
            _ => {}
        }
        self.wants_flush = true;
    }

    fn doubt_kept(&mut self, at: usize) {
        let ids: Vec<VolumeId> =
            self.volumes.iter().flatten().filter(|served| served.keeper == at).map(|served| served.id).collect();
        ids.into_iter().for_each(|id| self.doubt(id));
    }

    /// A flush has failed at the device, and its handle is told: the others have not been.
    pub(super) fn note_failed(&mut self, volume: VolumeId, effect: &Effect, error: &VolumeError) {
        if !matches!((effect, error), (Effect::Flush { .. }, VolumeError::Medium { .. })) {
            return;
        }
        let Some(kept) = self.kept_mut(volume) else { return };
        kept.keeper.lose();
        let losses = kept.keeper.losses();
        self.served_mut(volume).into_iter().for_each(|served| served.told_losses = losses);
    }

    /// The unit that the volume is says this of its writes. Gives again what must be, before anything else is given.
    pub(super) fn heed(&mut self, id: VolumeId, lun: Lun, word: Word) -> Rewritten {
        let Some(at) = self.served(id).map(|served| served.keeper) else { return Rewritten::Done };
        let mut has_lost_power = false;
        for served in self.volumes.iter_mut().flatten().filter(|served| served.keeper == at) {
            has_lost_power |= std::mem::take(&mut served.has_lost_power);
        }
        let Some(kept) = self.keepers.get_mut(at).and_then(Option::as_mut) else { return Rewritten::Done };
        match kept.keeper.heard(word, has_lost_power) {
            Fate::Kept => Rewritten::Done,
            Fate::Lost => {
                self.log_loss(id, "they were not kept, or others may have written since");
                Rewritten::Done
            }
            Fate::WriteAgain => self.write_again(id, at, lun, word),
        }
    }

    fn write_again(&mut self, id: VolumeId, at: usize, lun: Lun, word: Word) -> Rewritten {
        // One after the other: the device refuses those that come after the write of somebody else, until it has said so.
        let count = self.keepers[at].as_ref().map_or(0, |kept| kept.keeper.writes().count());
        // However little time those have who wait: what is on its way must have ended before anything else is given.
        let until = self.own_until.take();
        let mut result = Rewritten::Done;
        for index in 0..count {
            let write = self.keepers[at].as_ref().and_then(|kept| kept.keeper.writes().nth(index).cloned());
            let Some((cdb, data_out)) = write else { break };
            match self.write_one_again(lun, cdb, data_out) {
                Step::Done => continue,
                Step::Failed(why) => {
                    self.keepers[at].iter_mut().for_each(|kept| kept.keeper.lost(word));
                    self.log_loss(id, &why);
                }
                Step::LookAgain => result = Rewritten::LookAgain,
                Step::Interrupted(failure) => result = Rewritten::Interrupted(failure),
            }
            self.own_until = until;
            return result;
        }
        self.own_until = until;
        self.keepers[at].iter_mut().for_each(|kept| kept.keeper.written_again(word));
        self.wants_flush = true;
        let name = self.served(id).map(|served| served.info.get().name).unwrap_or_default();
        tracing::warn!(
            "server {} has lost unflushed writes to volume {name}: {count} were written again",
            self.server_name
        );
        result
    }

    fn write_one_again(&mut self, lun: Lun, cdb: Cdb, data_out: Option<Slice>) -> Step {
        for _ in 0..TRIES_MAX {
            let answer = match self.execute_with(lun, cdb, data_out.clone(), 0) {
                Ok(own) => own.answer,
                // Given again they would fail again.
                Err(failure @ (Failure::TimedOut { .. } | Failure::TooLarge | Failure::Protocol(_))) => {
                    return Step::Failed(failure.to_string());
                }
                Err(failure) => return Step::Interrupted(failure),
            };
            match (answer.status, Sense::parse(&answer.sense)) {
                (Status::Good, _) => return Step::Done,
                (Status::Busy | Status::TaskSetFull, _) => std::thread::sleep(BUSY_WAIT),
                (_, Some(sense)) if sense.key == SenseKey::UnitAttention => return Step::LookAgain,
                (_, Some(sense)) => return Step::Failed(sense.to_string()),
                (status, None) => return Step::Failed(format!("status {status:?}")),
            }
        }
        Step::Failed("the device has been busy for too long".to_owned())
    }

    fn log_loss(&self, id: VolumeId, why: &str) {
        let name = self.served(id).map(|served| served.info.get().name).unwrap_or_default();
        tracing::error!(
            "server {} may have lost writes to volume {name} that were not flushed ({why}): the next flush fails",
            self.server_name
        );
    }
}

/// Whether a device says by this that it had no power, or has forgotten what it had.
pub(super) fn tells_of_power(told: AdditionalSense) -> bool {
    matches!((told.code, told.qualifier), (0x29, 0x00 | 0x01 | 0x04))
}
