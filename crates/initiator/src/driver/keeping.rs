//! What the driver does about writes that were acknowledged and are not stable: see [`crate::keeper`].

use sanwire_scsi::{AdditionalSense, Sense, SenseKey, Status};

use super::flushing::Flushing;
use super::rewriting::Rewriting;
use super::{Driver, Trust, VolumeId, Waiting};
use crate::inventory::VolumeFingerprint;
use crate::keeper::{Fate, Keeper, Word};
use crate::session::Answer;
use crate::translate::{Again, Request, Task};
use crate::volume::{BufferPool, VolumeError};

/// Memory that a kept write takes besides its data, and the grain of its data.
const COST_BYTES: u64 = 256;
const GRAIN_BYTES: u64 = 4096;

/// The acknowledged writes of one volume, whichever handles gave them.
pub(super) struct Kept {
    mark: VolumeFingerprint,
    pub(super) keeper: Keeper<Request>,
    pub(super) flushing: Flushing,
    /// They are being given again.
    pub(super) rewriting: Option<Rewriting>,
}

impl Driver {
    /// Keeps so much of each volume at the most; `buffers` has the frames in which the data is.
    pub(crate) fn keep_writes(&mut self, bound_bytes: u64, buffers: BufferPool) {
        (self.keep_bytes, self.buffers) = (bound_bytes, Some(buffers));
    }

    /// The place of what is kept of the volume; all its handles have one.
    pub(super) fn keeper_of(&mut self, mark: &VolumeFingerprint, word: Word) -> usize {
        let is_its = |kept: &Option<Kept>| kept.as_ref().is_some_and(|kept| !mark.is_empty() && kept.mark == *mark);
        if let Some(at) = self.keepers.iter().position(is_its) {
            return at;
        }
        let keeper = Keeper::new(self.keep_bytes, word);
        let kept = Kept { mark: mark.clone(), keeper, flushing: Flushing::default(), rewriting: None };
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
        if again.request.task == Task::Flush {
            let kept = self.served(again.volume).and_then(|served| self.keepers.get(served.keeper)?.as_ref());
            again.flushes_below = kept.map_or(0, |kept| kept.keeper.flush_given());
        }
    }

    /// What was given last of an operation was done: notes what that means, and gives what must be told instead.
    pub(super) fn note_done(&mut self, again: &Again) -> Result<(), VolumeError> {
        let (now, volume) = (self.session.now(), again.volume);
        match again.request.task {
            Task::Read | Task::Allocation | Task::Check => return Ok(()),
            task @ (Task::Write { .. } | Task::Discard | Task::WriteZeroes | Task::Copy(_)) => {
                let is_stable = task == Task::Write { is_stable: true };
                let Some(kept) = self.kept_mut(volume).filter(|kept| kept.keeper.is_needed()) else { return Ok(()) };
                let written = again.part();
                // By the time that it would be given again there may be other data where it was copied from.
                if again.is_unordered || matches!(task, Task::Copy(_)) {
                    kept.keeper.not_kept();
                } else if is_stable {
                    kept.keeper.overwritten(COST_BYTES, |before| before.outside(&written));
                } else {
                    let cost_bytes = written.data_bytes().next_multiple_of(GRAIN_BYTES) + COST_BYTES;
                    kept.keeper.acknowledged(cost_bytes, || written);
                }
                let is_silent = kept.keeper.word() == Word::Silent && !is_stable;
                let is_first = is_silent && kept.flushing.wrote_silently(now);
                let wants_flush = kept.keeper.wants_flush();
                self.wants_flush |= wants_flush;
                if is_first {
                    self.log_silence(volume);
                }
                self.note_order(again);
                if !is_stable {
                    return Ok(());
                }
            }
            Task::Flush => {
                if let Some(kept) = self.kept_mut(volume) {
                    kept.keeper.flushed(again.flushes_below);
                }
            }
        }
        self.tell_losses(volume)
    }

    /// A write was acknowledged. With those of the same blocks that are under way beside it nobody knows which comes last at the
    /// device: none of them may be given again over the other.
    fn note_order(&mut self, again: &Again) {
        let volumes = &self.volumes;
        let served = |id: VolumeId| volumes.get(id.index)?.as_ref().filter(|served| served.id == id);
        let keeper = |id| served(id).map(|served| served.keeper);
        let own = keeper(again.volume);
        for waiting in self.waiting.values_mut() {
            if let Waiting::Operation { again: other, .. } = waiting
                && other.request.is_write()
                && other.request.overlaps(&again.request)
                && keeper(other.volume) == own
            {
                other.is_unordered = true;
            }
        }
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

    /// The caller is told that it has failed, and it may have been done all the same, now or before it was held. What it has
    /// overwritten must not come over it, and cannot be left out: a flush would not say that it is lost. So nothing is given
    /// again before the next flush.
    pub(super) fn note_in_doubt(&mut self, again: &Again) {
        let Some(at) = self.served(again.volume).map(|served| served.keeper).filter(|_| again.request.is_write())
        else {
            return;
        };
        let Some(kept) = self.keepers.get(at).and_then(Option::as_ref) else { return };
        if kept.keeper.writes().any(|write| write.outside(&again.request).is_some()) {
            self.forget_kept(at);
            self.wants_flush = true;
        }
    }

    /// Nothing of it is given again.
    pub(super) fn forget_kept(&mut self, at: usize) {
        let Some(kept) = self.keepers.get_mut(at).and_then(Option::as_mut) else { return };
        kept.keeper.forget();
        if kept.rewriting.is_some() {
            self.doubt_kept(at);
        }
    }

    /// What had to become stable did not, and its handle is told: the others have not been.
    pub(super) fn note_failed(&mut self, again: &Again, answer: &Answer) {
        if !may_have_lost(answer) {
            return;
        }
        self.note_in_doubt(again);
        let Some(kept) = self.kept_mut(again.volume) else { return };
        match again.request.task {
            Task::Flush => kept.keeper.lose(),
            // Perhaps only its own blocks could not be written: a device that has a verifier tells what else was lost.
            Task::Write { is_stable: true } if kept.keeper.word() == Word::Silent => kept.keeper.lose(),
            _ => return,
        }
        let losses = kept.keeper.losses();
        self.served_mut(again.volume).into_iter().for_each(|served| served.told_losses = losses);
    }

    /// The unit that the volume is says this of its writes; gives whether its handles are served at once, or must wait until
    /// what it has lost is written again.
    pub(super) fn heed(&mut self, id: VolumeId, word: Word) -> Trust {
        let now = self.session.now();
        let Some(at) = self.served(id).map(|served| served.keeper) else { return Trust::Known };
        let mut has_lost_power = false;
        for served in self.volumes.iter_mut().flatten().filter(|served| served.keeper == at) {
            has_lost_power |= std::mem::take(&mut served.has_lost_power);
        }
        let Some(kept) = self.keepers.get_mut(at).and_then(Option::as_mut) else { return Trust::Known };
        match kept.keeper.heard(word, has_lost_power) {
            Fate::WriteAgain => {
                // What is there again stays there while the unit says the same.
                kept.rewriting = kept.rewriting.take().filter(|begun| begun.is_for(word));
                kept.rewriting.get_or_insert_with(|| Rewriting::new(word, now));
                return Trust::Rewriting;
            }
            Fate::Lost => self.log_loss(at, "they were not kept, or others may have written since"),
            Fate::Kept => {}
        }
        self.keepers[at].iter_mut().for_each(|kept| kept.rewriting = None);
        Trust::Known
    }

    fn log_silence(&self, volume: VolumeId) {
        let name = self.served(volume).map(|served| served.info.get().name).unwrap_or_default();
        tracing::warn!(
            "server {} does not say which writes it has lost: if its connection is lost before writes to volume {name} are flushed, \
             the next flush fails",
            self.server_name
        );
    }

    /// What people call the volume whose writes are kept there.
    pub(super) fn name_of_kept(&self, at: usize) -> std::sync::Arc<str> {
        let handle = self.volumes.iter().flatten().find(|served| served.keeper == at);
        handle.map(|served| served.info.get().name).unwrap_or_default()
    }

    pub(super) fn log_loss(&self, at: usize, why: &str) {
        let name = self.name_of_kept(at);
        tracing::error!(
            "server {} may have lost writes to volume {name} that were not flushed ({why}): the next flush fails",
            self.server_name
        );
    }
}

/// Whether a device that could not make something stable may have dropped what it had acknowledged: it reports that once. Where it
/// has not tried, nothing is lost.
pub(super) fn may_have_lost(answer: &Answer) -> bool {
    let has_tried = |sense: Sense| match sense.key {
        SenseKey::UnitAttention | SenseKey::IllegalRequest => false,
        SenseKey::DataProtect => sense.additional == AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
        _ => true,
    };
    answer.status == Status::CheckCondition && Sense::parse(&answer.sense).is_none_or(has_tried)
}

/// Whether a device says by this that it had no power, or has forgotten what it had.
pub(crate) fn tells_of_power(told: AdditionalSense) -> bool {
    matches!((told.code, told.qualifier), (0x29, 0x00 | 0x01 | 0x04))
}
