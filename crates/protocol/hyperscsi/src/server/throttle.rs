//! Wrong passwords slow down who gives them: the next handshake of the same client from the same host waits, longer each time.
//!
//! Only a third step counts whose sender has shaken hands with us up to the password: who merely sends packets in another's
//! name cannot make the other wait. The wait is short, so that even who sits on the wire cannot keep a client out for long.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use sanwire_core::{ClientId, Instant, Peer};

/// Clients that are remembered; a flood pushes out the oldest.
const ENTRIES_MAX: usize = 256;

const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Who gave no wrong password for so long begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

pub(super) struct Entry {
    host: Peer,
    client: ClientId,
    failures: u32,
    waits_until: Instant,
    /// The attempt that came too early last.
    attempt: Option<u64>,
}

/// Who gave wrong passwords lately, oldest first.
#[derive(Default)]
pub(super) struct Throttle(VecDeque<Entry>);

impl Throttle {
    /// What a handshake of this client has to wait for, if it comes too early.
    pub(super) fn is_too_early(&mut self, peer: Peer, client: ClientId, now: Instant) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.is_of(peer, client) && now < entry.waits_until)
    }

    /// The client gave a wrong password.
    pub(super) fn failed(&mut self, peer: Peer, client: ClientId, now: Instant) {
        self.0.retain(|entry| now.saturating_since(entry.waits_until) < FORGIVEN_AFTER);
        let known = self.0.iter().position(|entry| entry.is_of(peer, client)).and_then(|index| self.0.remove(index));
        let failures = known.map_or(0, |entry| entry.failures) + 1;
        if self.0.len() == ENTRIES_MAX {
            self.0.pop_front();
        }
        let wait = (WAIT_FIRST * (1 << (failures - 1).min(10))).min(WAIT_MAX);
        self.0.push_back(Entry { host: host(peer), client, failures, waits_until: now + wait, attempt: None });
    }

    /// The client has shown that it knows the password.
    pub(super) fn forgive(&mut self, peer: Peer, client: ClientId) {
        self.0.retain(|entry| !entry.is_of(peer, client));
    }
}

impl Entry {
    /// Whether nothing of this attempt came too early before.
    pub(super) fn is_first(&mut self, attempt: u64) -> bool {
        self.attempt.replace(attempt) != Some(attempt)
    }

    fn is_of(&self, peer: Peer, client: ClientId) -> bool {
        self.client == client && self.host == host(peer)
    }
}

/// The peer without its port.
pub(super) fn host(peer: Peer) -> Peer {
    match peer {
        Peer::Ethernet(_) => peer,
        Peer::Udp(address) => Peer::Udp(SocketAddr::new(address.ip(), 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Peer {
        Peer::Udp(([10, 0, 0, 1], port).into())
    }

    #[test]
    fn the_wait_grows_to_its_bound_and_concerns_one_client_of_one_host() {
        let (mut throttle, client) = (Throttle::default(), ClientId([1; 16]));
        let mut now = Instant::ZERO;
        let mut waits = Vec::new();
        for _ in 0..10 {
            throttle.failed(peer(1), client, now);
            assert!(throttle.is_too_early(peer(1), ClientId([2; 16]), now).is_none(), "another client");
            let elsewhere = Peer::Udp(([10, 0, 0, 2], 1).into());
            assert!(throttle.is_too_early(elsewhere, client, now).is_none(), "another host");
            let begun = now;
            while throttle.is_too_early(peer(7), client, now).is_some() {
                now += Duration::from_millis(10);
            }
            waits.push(now - begun);
        }
        assert!(
            waits.is_sorted() && waits.first() == Some(&WAIT_FIRST) && waits.last() == Some(&WAIT_MAX),
            "{waits:?}"
        );
        throttle.failed(peer(1), client, now);
        throttle.forgive(peer(2), client);
        assert!(throttle.is_too_early(peer(1), client, now).is_none(), "who knows the password does not wait");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut throttle = Throttle::default();
        for number in 0..10_000u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            throttle.failed(peer(1), ClientId(id), Instant::ZERO);
        }
        assert_eq!(throttle.0.len(), ENTRIES_MAX);
    }
}
