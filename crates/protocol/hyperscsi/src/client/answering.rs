//! A server that may be the one that is sought: it has answered, and is to say whether it accepts us.

use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};

use super::ServerInfo;
use crate::channel::Channel;
use crate::handshake::RefusalKey;
use crate::option_exchange::OptionExchange;
use crate::wire::RawPacket;
use crate::wire::setup::{Proof, Refusal};

pub(super) const AGAIN_FIRST: Duration = Duration::from_millis(50);

/// Third steps before the server is given up.
const THIRD_STEPS_MAX: u32 = 8;

/// After a hint that the server does not know the handshake, it has this long to accept it, or two round trips.
const HINT_GRACE: Duration = Duration::from_millis(50);

/// The third step is on its way; the server's windows will say that it accepts.
pub(super) struct Answering {
    pub(super) channel: Channel,
    pub(super) info: ServerInfo,
    pub(super) terms: OptionExchange,
    /// Its second step.
    second: Vec<u8>,
    packet: Packet,
    tries: u32,
    again_at: Instant,
    /// How long the server has to accept us after a hint that it does not know the handshake.
    hint_grace: Duration,
    /// When it has not done so.
    gives_up_at: Option<Instant>,
    refusal_key: RefusalKey,
}

impl Answering {
    /// After this second step, which came `round_trip` after we had asked; `packet` is the third.
    pub(super) fn new(
        (channel, info, terms): (Channel, ServerInfo, OptionExchange),
        (second, packet): (&[u8], Packet),
        refusal_key: RefusalKey,
        round_trip: Duration,
        now: Instant,
    ) -> Self {
        let (second, hint_grace) = (second.to_vec(), (round_trip * 2).max(HINT_GRACE));
        Answering {
            channel,
            info,
            terms,
            second,
            packet,
            tries: 0,
            again_at: now,
            hint_grace,
            gives_up_at: None,
            refusal_key,
        }
    }

    pub(super) fn hint_grace(&self) -> Duration {
        self.hint_grace
    }

    /// Its second step.
    pub(super) fn second(&self) -> &[u8] {
        &self.second
    }

    /// Whether this second step came from there already.
    pub(super) fn has_said(&self, path: Path, second: &[u8]) -> bool {
        self.channel.path() == path && self.second == second
    }

    /// Whether it is this server.
    pub(super) fn is_of(&self, server: &[u8; 32]) -> bool {
        self.info.public_key == *server
    }

    /// It is answered later, if it is needed then.
    pub(super) fn put_off(&mut self) {
        self.again_at += self.hint_grace;
    }

    /// Whether packets from there with this connection may be its own.
    pub(super) fn may_be(&self, path: Path, connection: u32) -> bool {
        self.channel.path() == path && self.channel.connection() == connection
    }

    /// When there is something to do.
    pub(super) fn again_at(&self) -> Instant {
        self.gives_up_at.map_or(self.again_at, |at| at.min(self.again_at))
    }

    /// Whether nothing is to be hoped for any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_worn = self.tries >= THIRD_STEPS_MAX && self.again_at <= now;
        is_worn || self.gives_up_at.is_some_and(|at| at <= now)
    }

    /// Whether it is the server of the second step that refuses our third one.
    pub(super) fn is_proven(&self, refusal: Refusal, proof: Option<&Proof>) -> bool {
        let third = RawPacket::read(&self.packet.head).map(|packet| packet.body);
        third.is_ok_and(|third| proof.is_some_and(|proof| self.refusal_key.is_proven(refusal as u8, third, proof)))
    }

    /// An unauthenticated hint that the server does not go on. A server that accepts us says so just as soon.
    pub(super) fn hinted(&mut self, refusal: Refusal, now: Instant) {
        if refusal == Refusal::UnknownConnection {
            self.gives_up_at.get_or_insert(now + self.hint_grace);
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if self.again_at > now || self.tries >= THIRD_STEPS_MAX {
            return None;
        }
        self.tries += 1;
        self.again_at = now + AGAIN_FIRST * self.tries;
        Some((self.channel.path(), self.packet.clone()))
    }
}
