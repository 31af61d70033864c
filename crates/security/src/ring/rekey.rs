//! New keys on a living connection: the server asks with a fresh key, the client answers with one of its own.
//!
//! The client can receive under the next generation as soon as it has answered; the server sends under it when the answer has
//! come, the client after the first authentic packet of it. The generation before is received for a while; then its secrets
//! are wiped.

use std::time::Duration;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use sanwire_core::Instant;
use zeroize::Zeroizing;

use super::{Direction, Generation, KeyRing, NewKeys, Secret};
use crate::keys::{KeyError, exchange, public};

/// How long the generation before is received.
const OLD_KEYS: Duration = Duration::from_secs(5);

/// A request without an answer yet.
pub(super) struct Asked {
    private: Secret,
    request: NewKeys,
}

/// The client's last answer, and to what.
pub(super) struct Answered {
    request: NewKeys,
    answer: NewKeys,
}

impl KeyRing {
    /// The server's request for new keys: the one that waits for its answer, else one with the private key of `draw`.
    pub fn ask(&mut self, draw: impl FnOnce() -> [u8; 32]) -> Result<NewKeys, KeyError> {
        if self.asked.is_none() {
            let private = Zeroizing::new(draw());
            let request = NewKeys { epoch: self.current.epoch + 1, public: public(&private)? };
            self.asked = Some(Asked { private, request });
        }
        self.asked.as_ref().map(|asked| asked.request).ok_or(KeyError)
    }

    /// Whether a request of ours has no answer yet.
    pub fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// The client's answer has arrived: the next packets are sent under the new keys. `false`: it was not asked for (any more).
    pub fn take_answer(&mut self, answer: NewKeys, now: Instant) -> Result<bool, KeyError> {
        let Some(asked) = self.asked.take_if(|asked| asked.request.epoch == answer.epoch) else { return Ok(false) };
        let shared = exchange(&asked.private, &answer.public)?;
        let next = self.current.next(&shared);
        self.advance(next, now);
        Ok(true)
    }

    /// The client's answer to a request; the same request has the same answer. `None` when it is not the next in order.
    pub fn answer(&mut self, request: NewKeys, draw: impl FnOnce() -> [u8; 32]) -> Result<Option<NewKeys>, KeyError> {
        if let Some(answered) = self.answered.as_ref().filter(|answered| answered.request == request) {
            return Ok(Some(answered.answer));
        }
        if request.epoch != self.current.epoch + 1 || self.next.is_some() {
            return Ok(None);
        }
        let private = Zeroizing::new(draw());
        let answer = NewKeys { epoch: request.epoch, public: public(&private)? };
        let shared = exchange(&private, &request.public)?;
        self.next = Some(self.current.next(&shared));
        self.answered = Some(Answered { request, answer });
        Ok(Some(answer))
    }

    pub(super) fn advance(&mut self, next: Generation, now: Instant) {
        let old = std::mem::replace(&mut self.current, next);
        self.previous = Some((old, now + OLD_KEYS));
    }

    /// When the generation before is forgotten.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.previous.as_ref().map(|(_, until)| *until)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.previous.take_if(|(_, until)| *until <= now);
    }
}

impl Generation {
    fn next(&self, shared: &Secret) -> Generation {
        Generation {
            epoch: self.epoch + 1,
            outward: Direction::new(extract(&self.outward.secret, shared)),
            inward: Direction::new(extract(&self.inward.secret, shared)),
        }
    }
}

/// HKDF-Extract (RFC 5869 2.2) with the old secret as salt.
fn extract(secret: &Secret, shared: &Secret) -> Secret {
    let key = hmac::Key::new(HMAC_SHA256, &**secret);
    let mut next = Zeroizing::new([0; 32]);
    next.copy_from_slice(hmac::sign(&key, &**shared).as_ref());
    next
}
