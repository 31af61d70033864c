//! What a server refused, and of whom: told the layer above a burst at a time, so that a flood costs neither memory nor lines.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use sanwire_core::{ClientId, Instant, NexusId, Path};

use super::{Server, ServerEvent};

/// What comes within this after the first of its kind is told with it.
const BURST: Duration = Duration::from_secs(1);

/// Bursts that are told with their clients, of those about which it is proven whose they were, and of the others; what comes besides
/// is told by its kind only.
const KNOWN_MAX: usize = 16;

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

impl fmt::Display for SecurityEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SecurityEvent::WrongPassword => "it does not know the password, or is not who it says it is",
            SecurityEvent::Handshake => "a handshake that does not verify",
            SecurityEvent::NotAuthentic => "packets that are forged, repeated or damaged",
            SecurityEvent::Unsealed => "packets in the open that must be sealed",
            SecurityEvent::Downgrade => "packets that are guarded too little",
            SecurityEvent::Violation => "the rules of the protocol are broken",
            SecurityEvent::Deaf => "changes of options are not answered",
            SecurityEvent::Conflict => "one end enforces an option that the other does not support",
        })
    }
}

/// Offences of one kind, of one client.
struct Burst {
    offence: SecurityEvent,
    client: Option<ClientId>,
    /// Where the first came from.
    path: Path,
    count: u64,
    ends_at: Instant,
}

impl Burst {
    fn is_of(&self, offence: SecurityEvent, client: Option<ClientId>, path: Path) -> bool {
        let is_same_host = client.is_none() || self.path.peer.source() == path.peer.source();
        self.offence == offence && self.client == client && is_same_host
    }
}

/// The bursts that are not told yet, oldest first.
#[derive(Default)]
pub(super) struct Offences(VecDeque<Burst>);

impl Offences {
    fn note(&mut self, offence: SecurityEvent, client: Option<ClientId>, path: Path, now: Instant) {
        let alike = || self.0.iter().filter(|burst| burst.offence.is_proven() == offence.is_proven());
        let has_room = alike().count() < KNOWN_MAX || alike().any(|burst| burst.is_of(offence, client, path));
        let client = client.filter(|_| has_room);
        match self.0.iter_mut().find(|burst| burst.is_of(offence, client, path)) {
            Some(burst) => burst.count += 1,
            None => self.0.push_back(Burst { offence, client, path, count: 1, ends_at: now + BURST }),
        }
    }

    fn ends_at(&self) -> Option<Instant> {
        self.0.front().map(|burst| burst.ends_at)
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
        while let Some(burst) = self.offences.0.pop_front_if(|burst| burst.ends_at <= now) {
            let Burst { offence, client, path, count, .. } = burst;
            self.events.push_back(ServerEvent::Refused { offence, client, path, count });
        }
        self.wake_for_offences();
    }

    fn wake_for_offences(&mut self) {
        if let Some(at) = self.offences.ends_at() {
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

#[cfg(test)]
mod tests {
    use sanwire_core::{LinkId, Peer};

    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn path(host: u8, port: u16) -> Path {
        Path { link: LinkId(0), peer: Peer::Udp(([10, 0, 0, host], port).into()) }
    }

    #[test]
    fn a_burst_is_what_one_client_of_one_host_does_of_one_kind() {
        let (mut offences, client) = (Offences::default(), Some(ClientId([1; 16])));
        for port in 0..100 {
            offences.note(SecurityEvent::Violation, client, path(1, port), NOW);
        }
        offences.note(SecurityEvent::Downgrade, client, path(1, 0), NOW);
        offences.note(SecurityEvent::Violation, client, path(2, 0), NOW);
        offences.note(SecurityEvent::Violation, None, path(3, 0), NOW);
        offences.note(SecurityEvent::Violation, None, path(4, 0), NOW);
        assert_eq!(offences.0.iter().map(|burst| burst.count).collect::<Vec<_>>(), [100, 1, 1, 2]);
    }

    #[test]
    fn a_flood_under_many_names_is_bounded_and_wholly_counted() {
        let mut offences = Offences::default();
        for number in 0..10_000u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            offences.note(SecurityEvent::Handshake, Some(ClientId(id)), path(1, 0), NOW);
        }
        assert_eq!(offences.0.len(), KNOWN_MAX + 1);
        assert_eq!(offences.0.iter().map(|burst| burst.count).sum::<u64>(), 10_000);
        let offender = Some(ClientId([0xee; 16]));
        offences.note(SecurityEvent::Violation, offender, path(2, 0), NOW);
        assert!(
            offences.0.iter().any(|burst| burst.client == offender),
            "it takes no place from those who have shown who they are"
        );
    }
}
