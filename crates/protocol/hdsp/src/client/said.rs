//! What a server may learn late: which commands a client waited for when it proved who it is.

use std::collections::VecDeque;

use sanwire_core::Instant;

use crate::wire::connection::PROOF_MAX;

/// Of each proof that a server may still accept: the next number that its client said, and until when.
#[derive(Debug, Default)]
pub(super) struct Said(VecDeque<(u16, Instant)>);

impl Said {
    /// A challenge is answered, by a client that gives this number next.
    pub(super) fn note(&mut self, next: u16, now: Instant) {
        self.0.push_back((next, now + PROOF_MAX));
    }

    /// The oldest number.
    pub(super) fn oldest(&self) -> Option<u16> {
        self.0.front().map(|(next, _)| *next)
    }

    /// A server has accepted another proof of this session, or the session is over: those before lead nowhere.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|(_, until)| *until)
    }

    /// Time has passed. Whether a proof came too late by now.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, until)| *until > now);
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_said_counts_as_long_as_a_challenge_waits_for_its_proof() {
        let (mut said, at) = (Said::default(), |seconds| Instant::ZERO + Duration::from_secs(seconds));
        said.note(7, at(0));
        said.note(9, at(3));
        assert!(!said.expire(at(4)) && said.oldest() == Some(7) && said.poll_timeout() == Some(at(5)));
        assert!(said.expire(at(5)) && said.oldest() == Some(9));
        said.clear();
        assert!(said.oldest().is_none() && said.poll_timeout().is_none());
    }
}
