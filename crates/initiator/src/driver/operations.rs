//! Operations of volumes on their way into the protocol, as far as it has room.

use sanwire_core::Instant;

use super::{BUSY_WAIT, Driver, Link, Served, Stalled, Waiting};
use crate::queue::Completer;
use crate::session::Answer;
use crate::translate::{Again, command};
use crate::volume::VolumeError;
use sanwire_buffer::Frame;
use sanwire_core::Lun;

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
    pub(crate) fn serve(&mut self, served: Served) {
        match self.volumes.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(served),
            None => self.volumes.push(Some(served)),
        }
    }

    /// Commands of volumes that may be given now.
    pub(super) fn room(&self) -> usize {
        let Link::Up(server) = &self.link else { return 0 };
        if self.is_verifying || self.must_verify || self.span() >= SPAN_MAX {
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
            && self.stalled.front().is_some_and(|stalled| stalled.not_before <= now)
            && let Some(stalled) = self.stalled.pop_front()
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
        let is_down = matches!(self.link, Link::Down(_));
        let op = if is_down || self.room() > 0 { served.queue.pop() } else { None };
        let Some(op) = op else {
            let is_over = served.queue.is_abandoned() && served.queue.is_empty() && !self.is_in_use(served.lun);
            if is_over {
                self.volumes[index] = None;
            }
            return is_over;
        };
        if is_down {
            op.completer.complete(Err(self.disconnected()));
            return true;
        }
        match command(served.lun, served.form, served.block_bytes, op.kind) {
            Some((again, data_in)) => {
                let stalled = Stalled { not_before: now, again, data_in, completer: op.completer };
                self.give(stalled, now)
            }
            None => {
                op.completer.complete(Err(VolumeError::Unsupported));
                true
            }
        }
    }

    /// Whether commands for a logical unit are under way. It is looked after until then, also when nobody waits for them:
    /// they must not reach another volume after a restart of the server.
    fn is_in_use(&self, lun: Lun) -> bool {
        let is_waiting = |waiting: &Waiting| matches!(waiting, Waiting::Operation { again, .. } if again.lun == lun);
        self.waiting.values().any(is_waiting) || self.stalled.iter().any(|stalled| stalled.again.lun == lun)
    }

    /// Gives a command; keeps it for later when the protocol has no room for it.
    fn give(&mut self, stalled: Stalled, now: Instant) -> bool {
        let Stalled { again, data_in, completer, .. } = stalled;
        match self.session.order(again.order(data_in), now) {
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
            return completer.complete(Err(VolumeError::Protocol { what: what.into() }));
        }
        self.stalled.push_back(Stalled { not_before, again, data_in, completer });
    }
}
