//! Operations of volumes on their way into the protocol, as far as it has room.

use sanwire_core::Instant;

use super::{BUSY_WAIT, ConnectionState, Driver, Served, Stalled, Trust, Verifying, VolumeId, VolumeSummary, Waiting};
use crate::queue::{Completer, OpQueue};
use crate::session::Answer;
use crate::translate::{Again, Limits};
use crate::volume::{InfoCell, VolumeError};
use sanwire_buffer::Frame;

/// Places that operations leave free: a restarted server is asked whether its volumes are still the same by commands of
/// the driver's own, while those of the volumes wait for the answer.
const OWN_COMMANDS: usize = 2;

/// Numbers between the oldest command without an answer and the newest. The protocol takes 1024; the rest is for commands of
/// the driver's own.
const SPAN_MAX: u64 = 448;

/// How often one command is given again because of a unit attention.
const ATTENTIONS_MAX: u32 = 100;

/// How often one command is given again to a device that is busy: a minute.
const BUSY_MAX: u32 = 12_000;

impl Driver {
    /// Serves one more volume.
    pub(crate) fn serve(&mut self, summary: &VolumeSummary, queue: OpQueue, info: InfoCell) {
        let index = self.volumes.iter().position(Option::is_none).unwrap_or(self.volumes.len());
        self.next_volume += 1;
        let keeper = self.keeper_of(&summary.mark, summary.word);
        queue.set_lacks_fua(summary.lacks_fua);
        let is_news = self.word(keeper) != Some(summary.word);
        let served = Served {
            id: VolumeId { index, number: self.next_volume },
            trust: Trust::Known,
            lun: summary.lun,
            mark: summary.mark.clone(),
            form: summary.form,
            block_bytes: summary.block_bytes,
            limits: summary.limits,
            queue,
            info,
            keeper,
            told_losses: self.losses(keeper),
            has_lost_power: false,
        };
        let id = served.id;
        match self.volumes.get_mut(index) {
            Some(place) => *place = Some(served),
            None => self.volumes.push(Some(served)),
        }
        if is_news {
            self.doubt(id);
        }
    }

    pub(super) fn served(&self, id: VolumeId) -> Option<&Served> {
        self.volumes.get(id.index)?.as_ref().filter(|served| served.id == id)
    }

    pub(super) fn served_mut(&mut self, id: VolumeId) -> Option<&mut Served> {
        self.volumes.get_mut(id.index)?.as_mut().filter(|served| served.id == id)
    }

    /// Whether commands of the volume may be given now, as far as there is room.
    pub(super) fn is_served(&self, served: &Served) -> bool {
        self.is_open(served, Trust::Known)
    }

    pub(super) fn is_open(&self, served: &Served, trust: Trust) -> bool {
        served.trust == trust && self.quiet != Some(served.lun)
    }

    /// How much one command of the volume may be about, as its unit and the server have it.
    pub(super) fn limits(&self, served: &Served) -> Limits {
        let ConnectionState::Up(server) = &self.link else { return served.limits };
        let transfer_max_bytes = served.limits.transfer_max_bytes.min(server.transfer_limit_bytes);
        Limits { transfer_max_bytes, ..served.limits }
    }

    /// Commands of volumes that may be given now.
    pub(super) fn room(&self) -> usize {
        let ConnectionState::Up(server) = &self.link else { return 0 };
        if self.verifying == Verifying::All || self.must_verify || self.span() >= SPAN_MAX {
            return 0;
        }
        let commands_max = usize::from(server.commands_max).saturating_sub(OWN_COMMANDS).max(1);
        commands_max.saturating_sub(self.session.in_transit())
    }

    fn span(&self) -> u64 {
        match (self.waiting.first_key_value(), self.waiting.last_key_value()) {
            (Some((first, _)), Some((last, _))) => last.0 - first.0,
            _ => 0,
        }
    }

    /// Gives the protocol what volumes ask, as far as it takes it.
    pub(super) fn take_operations(&mut self, now: Instant) -> usize {
        let mut taken = 0;
        while self.room() > 0
            && let Some(at) = self.stalled.iter().position(|stalled| stalled.not_before <= now && self.may_go(stalled))
            && let Some(stalled) = self.stalled.remove(at)
        {
            if !self.give(stalled, now) {
                return taken;
            }
            taken += 1;
        }
        // One from each volume in turn, going on where the last look ended: a deep queue does not shut the others out.
        let count = self.volumes.len();
        let mut in_vain = 0;
        while in_vain < count {
            self.first_volume = (self.first_volume + 1) % count;
            if self.take_from(self.first_volume, now) {
                (taken, in_vain) = (taken + 1, 0);
            } else {
                in_vain += 1;
            }
        }
        taken
    }

    /// Takes an operation of a volume, if there is one and room for it, or its end; false when there was nothing.
    fn take_from(&mut self, index: usize, now: Instant) -> bool {
        let Some(served) = &self.volumes[index] else { return false };
        let is_down = matches!(self.link, ConnectionState::Down(_));
        let may_go = is_down || (self.room() > 0 && self.is_served(served));
        let op = if may_go { served.queue.pop() } else { None };
        let Some(op) = op else {
            let is_over = served.queue.is_abandoned() && served.queue.is_empty() && !self.is_in_use(served.id);
            if is_over {
                self.volumes[index] = None;
                self.let_go_of_unused();
            }
            return is_over;
        };
        if is_down {
            op.completer.complete(Err(self.disconnected()));
            return true;
        }
        let (again, data_in) = Again::new(served.id, served.form, served.block_bytes, op.kind);
        self.give(Stalled { not_before: now, again, data_in, completer: op.completer }, now)
    }

    /// Whether commands of a volume are under way. It is looked after until then, also when nobody waits for them: they must
    /// not reach another volume after a restart of the server.
    fn is_in_use(&self, id: VolumeId) -> bool {
        self.is_in_flight(id) || self.stalled.iter().any(|stalled| stalled.again.volume == id)
    }

    /// Whether commands of a volume were given and are not answered, also those that nobody asked for.
    pub(super) fn is_in_flight(&self, id: VolumeId) -> bool {
        let own = self.served(id).map(|served| served.keeper);
        self.waiting.values().any(|waiting| match waiting {
            Waiting::Operation { again, .. } => again.volume == id,
            Waiting::Background { keeper, .. } | Waiting::Again { keeper } => Some(*keeper) == own,
            Waiting::Own => false,
        })
    }

    /// Whether a command that waits may be given, when it is due.
    fn may_go(&self, stalled: &Stalled) -> bool {
        self.served(stalled.again.volume).is_none_or(|served| self.is_served(served))
    }

    /// When the next of those that wait is given.
    pub(super) fn next_stalled_at(&self) -> Option<Instant> {
        self.stalled.iter().filter(|stalled| self.may_go(stalled)).map(|stalled| stalled.not_before).min()
    }

    /// Gives a command, or the next part of what is too much for one; keeps it for later when the protocol has no room for it.
    fn give(&mut self, stalled: Stalled, now: Instant) -> bool {
        let Stalled { mut again, data_in, completer, .. } = stalled;
        self.note_given(&mut again);
        let Some((lun, limits)) = self.served(again.volume).map(|served| (served.lun, self.limits(served))) else {
            completer.complete(Err(VolumeError::Closed));
            return true;
        };
        let data_in = again.cut(limits, data_in);
        match self.session.order(again.part().order(lun, data_in), now) {
            Ok(id) => {
                self.waiting.insert(id, Waiting::Operation { again, completer });
                true
            }
            Err(order) => {
                let not_before = now + BUSY_WAIT;
                self.stalled.push_front(Stalled { not_before, again, data_in: order.data_in, completer });
                false
            }
        }
    }

    /// Keeps a command that the device did not execute, to be given again.
    pub(super) fn give_again(
        &mut self,
        mut again: Again,
        answer: &Answer,
        data_in: Option<Frame>,
        completer: Completer,
        now: Instant,
    ) {
        let is_attention = !answer.sense.is_empty();
        let (count, max, not_before, what) = if is_attention {
            (&mut again.attentions, ATTENTIONS_MAX, now, "one unit attention after the other")
        } else {
            (&mut again.refusals, BUSY_MAX, now + BUSY_WAIT, "the device has been busy for too long")
        };
        *count += 1;
        if *count > max {
            self.note_in_doubt(&again);
            return completer.complete(Err(VolumeError::Protocol { what: what.into() }));
        }
        self.stalled.push_back(Stalled { not_before, again, data_in, completer });
    }
}
