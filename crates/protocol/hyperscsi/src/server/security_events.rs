//! What a server refused, and of whom: counted, and told the layer above a burst at a time ([`Offences`](sanwire_security::Offences)).

use std::fmt;

use sanwire_core::{ClientId, Instant, NexusId, Path};
use sanwire_security::{Burst, OffenceKind};

use super::{Server, ServerEvent};

/// Something that a server refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecurityEvent {
    /// A handshake of somebody who took part in it, but does not know the password, or is not the client that it names.
    WrongPassword,
    /// Another handshake that did not verify.
    Handshake,
    /// A packet that does not authenticate.
    NotAuthentic,
    /// A packet of a connection's path, that must be sealed and is not.
    Unsealed,
    /// A packet or a request that was guarded less than is demanded.
    Downgrade,
    /// Something authentic that the protocol forbids.
    Violation,
    /// One end enforces what the other does not support.
    Conflict,
    /// Other options are told again and again, and never answered.
    Deaf,
}

impl SecurityEvent {
    /// Whether it takes a connection's keys: then it is known whose it was.
    #[must_use]
    pub fn is_proven(self) -> bool {
        match self {
            SecurityEvent::Violation | SecurityEvent::Conflict | SecurityEvent::Deaf => true,
            SecurityEvent::WrongPassword | SecurityEvent::Handshake | SecurityEvent::NotAuthentic => false,
            // Some of what is guarded too little says in whose name it comes, and no more.
            SecurityEvent::Unsealed | SecurityEvent::Downgrade => false,
        }
    }
}

impl OffenceKind for SecurityEvent {
    fn is_proven(self) -> bool {
        SecurityEvent::is_proven(self)
    }
}

impl fmt::Display for SecurityEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SecurityEvent::WrongPassword => "it does not know the password, or is not who it says it is",
            SecurityEvent::Handshake => "a handshake that does not verify",
            SecurityEvent::NotAuthentic => "packets that are forged, repeated or damaged",
            SecurityEvent::Unsealed => "packets in the open that must be sealed",
            SecurityEvent::Downgrade => "packets that are protected too little",
            SecurityEvent::Violation => "the rules of the protocol are broken",
            SecurityEvent::Deaf => "changes of options are not answered",
            SecurityEvent::Conflict => "one end enforces an option that the other does not support",
        })
    }
}

impl Server {
    /// Counts something that is refused, and sees to it that it is told.
    pub(super) fn note_offence(&mut self, offence: SecurityEvent, client: Option<ClientId>, path: Path, now: Instant) {
        let count = match offence {
            SecurityEvent::WrongPassword | SecurityEvent::Handshake => &mut self.counters.not_authentic,
            SecurityEvent::NotAuthentic => &mut self.counters.rejected,
            SecurityEvent::Unsealed => &mut self.counters.malformed,
            SecurityEvent::Downgrade => &mut self.counters.downgrades,
            SecurityEvent::Violation | SecurityEvent::Deaf => &mut self.counters.violations,
            SecurityEvent::Conflict => &mut self.counters.conflicts,
        };
        *count += 1;
        match offence {
            SecurityEvent::WrongPassword => self.tally.handshakes.wrong_password += 1,
            SecurityEvent::Handshake => self.tally.handshakes.unverified += 1,
            _ => {}
        }
        self.offences.note(offence, client, path, now);
        self.wake_for_offences();
    }

    /// The same, on the connection of a session.
    pub(super) fn note_offence_of(&mut self, nexus: NexusId, offence: SecurityEvent, path: Path, now: Instant) {
        let client = self.sessions.get(&nexus).map(|session| session.client);
        self.note_offence(offence, client, path, now);
    }

    /// Tells of the bursts that are over.
    pub(super) fn tell_offences(&mut self, now: Instant) {
        while let Some(Burst { offence, client, path, count, .. }) = self.offences.poll(now) {
            self.events.push_back(ServerEvent::Refused { offence, client, path, count });
        }
        self.wake_for_offences();
    }

    fn wake_for_offences(&mut self) {
        if let Some(at) = self.offences.poll_timeout() {
            self.wake_at(at);
        }
    }
}

impl Server {
    /// Counts a packet of somebody who is not allowed, and sees to it that this is told.
    pub(super) fn note_stranger(&mut self, path: Path, client: ClientId, now: Instant) {
        self.counters.not_permitted += 1;
        self.strangers.note(path, client, now);
        self.wake_for_strangers();
    }

    /// Tells of those whose time it is.
    pub(super) fn tell_strangers(&mut self, now: Instant) {
        while let Some((path, client, packets)) = self.strangers.poll(now) {
            self.events.push_back(ServerEvent::NotAllowed { client, path, packets });
        }
        self.wake_for_strangers();
    }

    fn wake_for_strangers(&mut self) {
        self.strangers.poll_timeout().into_iter().for_each(|at| self.wake_at(at));
    }
}
