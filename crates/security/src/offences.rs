//! What a server refused, and of whom: told a burst at a time, so that a flood costs neither memory nor lines.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_core::{ClientId, Instant, Path};

/// What comes within this after the first of its kind is told with it.
const BURST: Duration = Duration::from_secs(1);

/// Bursts that are told with their clients, of those about which it is proven whose they were, and of the others; what comes besides
/// is told by its kind only.
const KNOWN_MAX: usize = 16;

/// A kind of what is refused.
pub trait OffenceKind: Copy + PartialEq {
    /// Whether it takes a connection's keys: then it is known whose it was.
    fn is_proven(self) -> bool;
}

/// Offences of one kind, of one client.
#[derive(Debug)]
pub struct Burst<O> {
    /// Which kind.
    pub offence: O,
    /// Whose, as far as that is said.
    pub client: Option<ClientId>,
    /// Where the first came from.
    pub path: Path,
    /// How many.
    pub count: u64,
    ends_at: Instant,
}

impl<O: OffenceKind> Burst<O> {
    fn is_of(&self, offence: O, client: Option<ClientId>, path: Path) -> bool {
        let is_same_host = client.is_none() || self.path.peer.source() == path.peer.source();
        self.offence == offence && self.client == client && is_same_host
    }
}

/// The bursts that are not told yet, oldest first.
#[derive(Debug)]
pub struct Offences<O>(VecDeque<Burst<O>>);

impl<O> Default for Offences<O> {
    fn default() -> Self {
        Offences(VecDeque::new())
    }
}

impl<O: OffenceKind> Offences<O> {
    /// Something is refused.
    pub fn note(&mut self, offence: O, client: Option<ClientId>, path: Path, now: Instant) {
        let alike = || self.0.iter().filter(|burst| burst.offence.is_proven() == offence.is_proven());
        let has_room = alike().count() < KNOWN_MAX || alike().any(|burst| burst.is_of(offence, client, path));
        let client = client.filter(|_| has_room);
        match self.0.iter_mut().find(|burst| burst.is_of(offence, client, path)) {
            Some(burst) => burst.count += 1,
            None => self.0.push_back(Burst { offence, client, path, count: 1, ends_at: now + BURST }),
        }
    }

    /// The next burst that is over.
    pub fn poll(&mut self, now: Instant) -> Option<Burst<O>> {
        self.0.pop_front_if(|burst| burst.ends_at <= now)
    }

    /// When one is over next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|burst| burst.ends_at)
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::{LinkId, Peer};

    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Kind {
        Violation,
        Downgrade,
        Handshake,
    }

    impl OffenceKind for Kind {
        fn is_proven(self) -> bool {
            self == Kind::Violation
        }
    }

    fn path(host: u8, port: u16) -> Path {
        Path { link: LinkId(0), peer: Peer::Udp(([10, 0, 0, host], port).into()) }
    }

    #[test]
    fn a_burst_is_what_one_client_of_one_host_does_of_one_kind() {
        let (mut offences, client) = (Offences::default(), Some(ClientId([1; 16])));
        for port in 0..100 {
            offences.note(Kind::Violation, client, path(1, port), NOW);
        }
        offences.note(Kind::Downgrade, client, path(1, 0), NOW);
        offences.note(Kind::Violation, client, path(2, 0), NOW);
        offences.note(Kind::Violation, None, path(3, 0), NOW);
        offences.note(Kind::Violation, None, path(4, 0), NOW);
        assert!(offences.poll(NOW).is_none());
        let over = offences.poll_timeout().unwrap();
        let counts: Vec<u64> = std::iter::from_fn(|| offences.poll(over)).map(|burst| burst.count).collect();
        assert_eq!((counts, offences.poll_timeout()), (vec![100, 1, 1, 2], None));
    }

    #[test]
    fn a_flood_under_many_names_is_bounded_and_wholly_counted() {
        let mut offences = Offences::default();
        for number in 0..10_000u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            offences.note(Kind::Handshake, Some(ClientId(id)), path(1, 0), NOW);
        }
        assert_eq!(offences.0.len(), KNOWN_MAX + 1);
        assert_eq!(offences.0.iter().map(|burst| burst.count).sum::<u64>(), 10_000);
        let offender = Some(ClientId([0xee; 16]));
        offences.note(Kind::Violation, offender, path(2, 0), NOW);
        assert!(
            offences.0.iter().any(|burst| burst.client == offender),
            "it takes no place from those who have shown who they are"
        );
    }
}
