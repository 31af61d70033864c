//! What other threads tell a shard.

use sanwire_core::Instant;

use super::Shard;
use super::system::System;
use crate::front::{FrontEnd, ManageOutcome};
use crate::login_listener::{Arrival, turn_away};
use crate::messages::{ShardMessage, Wanted};

impl<S: System> Shard<S> {
    pub(super) fn read_mail(&mut self, now: Instant) {
        while let Ok(mail) = self.mail.try_recv() {
            match mail {
                ShardMessage::Admit(arrival) => self.admit(*arrival, now),
                ShardMessage::Look(newcomer) => {
                    self.streams.ask_now();
                    self.newcomers.push(newcomer);
                }
                ShardMessage::Abort(selection, barrier) => {
                    self.engine.abort(&selection, Some(&barrier));
                    self.answer(now);
                }
                ShardMessage::BarrierPassed(Wanted::ByRequest(request)) => {
                    if let Some(front) = self.fronts.get(request.front) {
                        front.managed(request, ManageOutcome::Complete, now);
                    }
                }
                ShardMessage::BarrierPassed(Wanted::ByCommand(number)) => self.engine.barrier_passed(number, now),
                ShardMessage::Redirect(target) => self.each_front(|front| front.redirect(target, now)),
                ShardMessage::Drop(selection) => self.each_front(|front| front.drop_nexuses(&selection, now)),
                ShardMessage::Pause(principal, is_paused) => self.pause(&principal, is_paused, now),
                ShardMessage::ClientsConfig => self.each_front(|front| front.terms_changed(now)),
                ShardMessage::DemandsMore(lun, than) => self.each_front(|front| front.demands_more(lun, than, now)),
                // Who has asked may have lost patience.
                ShardMessage::Count(answer) => drop(answer.send(self.count())),
                ShardMessage::Commands(slot, max, answer) => drop(answer.send(self.commands(slot, max, now))),
                ShardMessage::Turn(answer) => drop(answer.send(())),
                ShardMessage::Administered(request, answer) => {
                    if let Some(front) = self.fronts.get(request.front) {
                        front.administered(request, answer, now);
                    }
                }
                ShardMessage::VolumesRemoved => self.engine.try_starved_again(),
                ShardMessage::CountFromZero(slots) => {
                    slots.iter().for_each(|slot| self.counters.clear(*slot));
                    self.nexuses.forget_uses(&slots);
                }
                ShardMessage::Reopened(reopened) => {
                    self.links.take(reopened);
                    self.links.tell_addresses(&mut self.fronts, now);
                }
            }
        }
    }

    /// Lets the commands of a principal wait, also in nexuses that begin later, or go on.
    fn pause(&mut self, principal: &str, is_paused: bool, now: Instant) {
        self.each_front(|front| front.pause(principal, is_paused, now));
        self.nexuses.of(principal).for_each(|id| self.engine.pause(id, is_paused, now));
        self.nexuses.pause(principal, is_paused);
    }

    fn each_front(&mut self, tell: impl FnMut(&mut Box<dyn FrontEnd>)) {
        self.fronts.iter_mut().for_each(tell);
    }

    /// Takes a connection over whose login has passed.
    fn admit(&mut self, arrival: Arrival, now: Instant) {
        let Arrival { channel, newcomer, admission, seat } = arrival;
        let place = newcomer.port.front;
        if newcomer.joined == 0 && self.registry.has_lost_place(&admission) {
            turn_away(channel, newcomer.login);
            return self.registry.closed(admission.nexus, admission.session);
        }
        let segment_bytes = channel.segment_bytes();
        let added = self.streams.add(channel, (place, admission.nexus), seat, &mut self.poller, now);
        match (added, self.fronts.get(place)) {
            (Ok(id), Some(front)) => {
                front.admit(id, newcomer.login, admission, now);
                if let (Some(end), Some(bytes)) = (front.streams(), segment_bytes) {
                    end.note_segment(id, bytes);
                }
            }
            (Ok(id), None) => self.streams.cut(id),
            (Err((channel, error)), _) => {
                let (initiator, peer) = (&newcomer.port.initiator, newcomer.peer);
                self.lines.sessions.warn(format_args!("{initiator} at {peer} is turned away: {error}"), now);
                turn_away(*channel, newcomer.login);
                // A further connection of a session takes nothing with it.
                if newcomer.joined == 0 {
                    self.registry.closed(admission.nexus, admission.session);
                }
            }
        }
    }
}
