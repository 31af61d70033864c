//! Messages on their way out, as both ends have agreed.

use sanwire_core::Instant;

use super::{Channel, Message};
use crate::compression::Compressor;
use crate::option_exchange::{Floors, GRACE, OptionExchange};
use crate::options::Agreed;

impl Channel {
    /// From now on, what goes out is as both ends have agreed.
    pub(crate) fn apply(&mut self, agreed: &Agreed) {
        if !agreed.compression {
            self.compressor = None;
        } else if self.compressor.is_none() {
            self.compressor = Some(Compressor::default());
        }
        self.shaper.set_cap(agreed.rate_cap_bytes_per_second);
    }

    /// The same on a connection that lives, with how its packets are guarded.
    pub(crate) fn take_terms(&mut self, terms: &OptionExchange, now: Instant) {
        self.apply(terms.agreed());
        self.set_floors(terms.floors(), now);
    }

    /// Messages of which nothing has gone yet are guarded as packets are from now on. Others go on as they were begun, for as long
    /// as the other end takes that.
    pub(crate) fn set_floors(&mut self, floors: Floors, now: Instant) {
        let before = self.guard.floor();
        self.guard.set_floors(floors, now);
        if floors.outward > before {
            self.outgoing.guard(floors.outward);
            self.weak_until = Some(now + GRACE);
        }
    }

    /// What was begun with packets that are not taken any more is begun anew, on another connection.
    pub(super) fn tend_floors(&mut self, now: Instant) {
        if self.weak_until.take_if(|at| *at <= now).is_some() {
            self.is_too_weak = self.outgoing.has_weaker(self.guard.floor());
        }
    }

    /// Queues a message. Its cookie comes back from [`Channel::poll_delivered`] when the peer has all of it.
    pub(crate) fn send(&mut self, message: Message) {
        let message = message.guarded(self.guard.floor());
        self.outgoing.push(match &mut self.compressor {
            Some(compressor) => message.compressed(compressor),
            None => message,
        });
    }

    pub(crate) fn poll_delivered(&mut self) -> Option<u64> {
        self.outgoing.poll_delivered()
    }
}
