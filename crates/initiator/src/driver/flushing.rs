//! Background flushes: the copies that are kept of acknowledged writes are dropped once these are stable.

use std::time::Duration;

use sanwire_core::Instant;
use sanwire_scsi::{Sense, SenseKey, Status};

use super::keeping::{Kept, tells_of_power};
use super::{BUSY_WAIT, ConnectionState, Driver, Served, VolumeId, Waiting};
use crate::session::Order;
use crate::translate::is_gone;
use crate::volume::BufferPool;

/// The longest pause after a flush that the device would not do.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A device that does not say what it has lost is not flushed more often: what is lost with a connection is what was written since.
const SILENT_PAUSE: Duration = Duration::from_secs(1);

/// Who waits for memory does not wait for more refusals than this: for a third of a second.
const REFUSALS_MAX: u32 = 6;

/// How far the flushes of one volume are.
#[derive(Default)]
pub(super) struct Flushing {
    is_under_way: bool,
    /// How often the device would not do it, one after the other.
    refusals: u32,
    not_before: Option<Instant>,
    /// It was told that the device does not say what it has lost.
    was_silent: bool,
}

impl Flushing {
    fn may_begin(&self, now: Instant) -> bool {
        !self.is_under_way && self.not_before.is_none_or(|at| at <= now)
    }

    /// Something was written to a device that does not say what it has lost; whether that is the first time.
    pub(super) fn wrote_silently(&mut self, now: Instant) -> bool {
        if !self.is_under_way {
            self.not_before.get_or_insert(now + SILENT_PAUSE);
        }
        !std::mem::replace(&mut self.was_silent, true)
    }

    /// The device has done it.
    fn done(&mut self) {
        *self = Flushing { was_silent: self.was_silent, ..Flushing::default() };
    }

    fn refused(&mut self, now: Instant) {
        self.not_before = Some(now + (BUSY_WAIT * (1 << self.refusals.min(16))).min(PAUSE_MAX));
        self.refusals += 1;
    }
}

impl Driver {
    /// Gives flushes where much is kept, or somebody waits for memory that is kept.
    pub(super) fn flush_in_background(&mut self, now: Instant) {
        if self.buffers.as_ref().is_some_and(BufferPool::is_waited_for) {
            self.relieve(now);
        }
        if !std::mem::take(&mut self.wants_flush) {
            return;
        }
        for at in 0..self.keepers.len() {
            self.flush_kept(at, false, now);
        }
    }

    /// When a flush is given that was not done at once.
    pub(super) fn next_flush_at(&self, now: Instant) -> Option<Instant> {
        let pauses = self.keepers.iter().flatten().filter_map(|kept| kept.flushing.not_before);
        // What could be given already waits for something else.
        pauses.filter(|at| *at > now).min()
    }

    /// Somebody waits for memory: what is kept goes as soon as it is stable, at once while nobody makes it so.
    fn relieve(&mut self, now: Instant) {
        let is_down = matches!(self.link, ConnectionState::Down(_));
        for at in 0..self.keepers.len() {
            let is_in_vain = |kept: &Kept| {
                let is_stuck = kept.rewriting.as_ref().is_some_and(|rewriting| rewriting.is_stuck(now));
                is_down || is_stuck || kept.flushing.refusals > REFUSALS_MAX
            };
            if self.keepers[at].as_ref().is_some_and(|kept| is_in_vain(kept) && !kept.keeper.is_empty()) {
                self.forget_kept(at);
            }
            self.flush_kept(at, true, now);
        }
    }

    fn flush_kept(&mut self, at: usize, is_urgent: bool, now: Instant) {
        let Some(kept) = self.keepers[at].as_ref().filter(|kept| !kept.flushing.is_under_way) else { return };
        if !(kept.keeper.wants_flush() || (is_urgent && !kept.keeper.is_empty())) {
            return;
        }
        let is_its = |served: &&Served| served.keeper == at && self.is_served(served);
        let may_begin = kept.flushing.may_begin(now) && self.room() > 0;
        let served = self.volumes.iter().flatten().find(is_its).filter(|_| may_begin);
        let Some((lun, cdb)) = served.map(|served| (served.lun, served.form.flush())) else {
            self.wants_flush = true;
            return;
        };
        let below = kept.keeper.flush_given();
        match self.session.order(Order::of_disk(lun, cdb), now) {
            Ok(id) => {
                self.waiting.insert(id, Waiting::Background { keeper: at, below });
                self.keepers[at].iter_mut().for_each(|kept| kept.flushing.is_under_way = true);
            }
            Err(_) => self.wants_flush = true,
        }
    }

    /// A flush of our own has ended so, or was not done.
    pub(super) fn flushed_in_background(
        &mut self,
        at: usize,
        below: u64,
        answer: Option<(Status, &[u8])>,
        now: Instant,
    ) {
        self.wants_flush = true;
        let is_doubted = self.volumes.iter().flatten().any(|served| served.keeper == at && !self.is_served(served));
        let Some(kept) = self.keepers.get_mut(at).and_then(Option::as_mut) else { return };
        kept.flushing.is_under_way = false;
        match answer {
            Some((Status::Good, _)) => {
                kept.flushing.done();
                if !is_doubted {
                    kept.keeper.flushed(below);
                }
            }
            Some((Status::CheckCondition, sense)) => match Sense::parse(sense) {
                // Another number may be the volume's now.
                Some(sense) if sense.key == SenseKey::UnitAttention || is_gone(&sense) => {
                    kept.flushing.refused(now);
                    self.doubt_kept(at);
                    for served in self.volumes.iter_mut().flatten().filter(|served| served.keeper == at) {
                        served.has_lost_power |= tells_of_power(sense.additional);
                    }
                }
                // It has not tried.
                Some(sense) if sense.key == SenseKey::IllegalRequest => kept.flushing.refused(now),
                // A device tells of a failure once.
                _ => kept.keeper.lose(),
            },
            // Busy, or somebody else's by a reservation.
            Some(_) => kept.flushing.refused(now),
            None => {}
        }
    }

    /// The number of this volume may not be its own any more.
    pub(super) fn doubt_kept(&mut self, at: usize) {
        let id: Option<VolumeId> =
            self.volumes.iter().flatten().find(|served| served.keeper == at).map(|served| served.id);
        id.into_iter().for_each(|id| self.doubt(id));
    }
}
