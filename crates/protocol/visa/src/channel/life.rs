//! Signs of life: when the other end is asked for one, when it is missed, and what waits until it has given one.

use std::time::Duration;

use sanwire_core::Instant;

use super::{Channel, Heard, Patience};
use crate::wire::Kind;
use crate::wire::flow::Ping;

/// A question is asked so many times before its answer is missed.
const QUESTIONS: u32 = 4;

/// Over TCP nothing more is taken from who has sent what no memory is free for, so that its questions are not heard: a question so often
/// shows it that this end lives.
const HELD_UP_ASK_EVERY: Duration = Duration::from_millis(400);

/// A suspended connection is asked so often: what its other end has sent waits for the answer.
const SUSPENDED_ASK_EVERY: Duration = Duration::from_millis(200);

impl Channel {
    /// Gives nothing on from now on, until the other end has answered a question that is asked from now on: then it lives. What comes
    /// meanwhile is kept, as far as there is room for it.
    pub(crate) fn suspend(&mut self, now: Instant) {
        self.suspended_until = Some(self.questions + 1);
        self.ask(now);
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended_until.is_some()
    }

    /// Whether nothing more is taken of what TCP brings, until there is memory.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_stream && self.is_starved()
    }

    /// From now on silence lasts so long before the other end is asked.
    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Something has come that is new: who only sends again what he has overheard gives no sign of life.
    pub(super) fn hear(&mut self, now: Instant) {
        (self.heard_at, self.asked_since) = (now, None);
        self.received_packets += 1;
    }

    /// Asks whether the other end is there.
    pub(crate) fn ask(&mut self, now: Instant) {
        self.asked_at = now;
        self.asked_since.get_or_insert(now);
        self.questions += 1;
        self.control(Kind::Ping, Ping { is_answer: false, nonce: self.questions }.write());
    }

    /// A question of this number is answered.
    pub(super) fn answered(&mut self, number: u64) -> Heard {
        let is_it = |question: &mut u64| *question <= number && number <= self.questions;
        self.suspended_until.take_if(is_it).map_or(Heard::Nothing, |_| Heard::Lives)
    }

    /// What it has said while nobody listened waits to be read.
    pub(super) fn listen_again(&mut self, now: Instant) {
        (self.heard_at, self.asked_since) = (now, None);
    }

    /// When [`Channel::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Instant {
        let others = [self.incoming.poll_timeout(), self.outgoing.poll_timeout(), self.dead_at()];
        others.into_iter().flatten().fold(self.ask_at(), Instant::min)
    }

    fn ask_at(&self) -> Instant {
        match self.asked_since {
            _ if self.is_suspended() => self.asked_at + SUSPENDED_ASK_EVERY,
            _ if self.is_held_up() => self.asked_at.max(self.heard_at) + HELD_UP_ASK_EVERY,
            Some(_) => self.asked_at + self.patience.answer / QUESTIONS,
            None => self.heard_at + self.patience.silence,
        }
    }

    /// When it is missed, unless nobody listens to it.
    fn dead_at(&self) -> Option<Instant> {
        let since = self.asked_since.unwrap_or(self.heard_at + self.patience.silence);
        (!self.is_held_up()).then_some(since + self.patience.answer)
    }

    /// Time has passed. False: the other end is gone.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        self.outgoing.handle_timeout(now);
        self.incoming.handle_timeout(now);
        if self.dead_at().is_some_and(|at| at <= now) && self.asked_since.is_some() {
            return false;
        }
        let wants_acknowledgement = self.outgoing.take_question();
        if wants_acknowledgement || self.ask_at() <= now {
            self.ask(now);
        }
        true
    }
}
