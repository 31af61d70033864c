//! Wrong passwords slow down who gives them: the next handshake of the same client from the same host waits, longer each time.
//! A new key for each guess does not help: all clients of an address that the server does not know share a rate, and so do all of them
//! together, from wherever they come. Of what all share, half is kept for addresses that gave none lately: after a password was
//! changed, those who go on with the old one keep out only themselves.
//!
//! Only a third step counts whose sender has shaken hands with us up to the password: who merely sends packets in another's
//! name cannot make the other wait. The wait is short, so that even who sits on the wire cannot keep a client out for long.
//! Clients that the server knows, because it lists them or has a session of theirs, wait for nobody else.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sanwire_core::quota::{Account, GUESSERS, GUESSES, GUESSES_OF_NETWORK, GUESSING_NETWORKS, Pace, Usage};
use sanwire_core::{ClientId, Instant, Peer};

/// Attempts that are remembered, so that each counts once; a flood pushes out the oldest.
const ATTEMPTS_MAX: usize = 256;

/// Of the burst of all wrong passwords: what is kept for addresses that gave none lately.
const RESERVE_FOR_INNOCENT: u32 = 32;

const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Who gave no wrong password for so long begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

struct Entry {
    source: Peer,
    client: ClientId,
    failures: u32,
    waits_until: Instant,
}

/// What an address has done.
struct Record {
    pace: Pace,
    /// The last wrong password from there.
    failed_at: Instant,
}

/// A client with a handshake under way.
#[derive(Clone, Copy)]
pub struct Who {
    /// Where its packets come from.
    pub peer: Peer,
    /// Who it says it is.
    pub client: ClientId,
    /// The server lists it, or has a session of it.
    pub is_known: bool,
}

/// Who gave wrong passwords lately, oldest first.
pub struct Throttle {
    clients: VecDeque<Entry>,
    addresses: BTreeMap<Peer, Record>,
    /// How many of both are remembered; a flood pushes out the oldest.
    of_clients: Account,
    of_networks: Account,
    all: Pace,
    /// How often clients were made to wait for others of their address, and for others anywhere.
    refused: [u64; 2],
    /// The attempts that came too early last: each counts once.
    early: VecDeque<u64>,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle {
            clients: VecDeque::new(),
            addresses: BTreeMap::new(),
            of_clients: Account::new(&GUESSERS),
            of_networks: Account::new(&GUESSING_NETWORKS),
            all: Pace::new(&GUESSES),
            refused: [0; 2],
            early: VecDeque::new(),
        }
    }
}

impl Throttle {
    /// Whether a handshake has to wait.
    pub fn is_too_early(&mut self, who: Who, now: Instant) -> bool {
        let Who { peer, client, is_known } = who;
        let mut own = self.clients.iter().filter(|entry| entry.is_of(peer, client));
        if own.any(|entry| now < entry.waits_until) {
            return true;
        }
        if is_known {
            return false;
        }
        let of_address = self.addresses.get(&peer.source()).filter(|record| !record.is_forgiven(now));
        let address = of_address.is_some_and(|record| record.pace.left(now) == 0);
        let all = self.all.left(now) <= if of_address.is_some() { RESERVE_FOR_INNOCENT } else { 0 };
        self.refused[0] += u64::from(address);
        self.refused[1] += u64::from(all);
        address || all
    }

    /// An attempt came too early; whether nothing of it did before.
    pub fn is_first(&mut self, attempt: u64) -> bool {
        if self.early.contains(&attempt) {
            return false;
        }
        if self.early.len() == ATTEMPTS_MAX {
            self.early.pop_front();
        }
        self.early.push_back(attempt);
        true
    }

    /// The client gave a wrong password.
    pub fn failed(&mut self, Who { peer, client, is_known }: Who, now: Instant) {
        self.clients.retain(|entry| now.saturating_since(entry.waits_until) < FORGIVEN_AFTER);
        let known = self.clients.iter().position(|entry| entry.is_of(peer, client));
        let failures = known.and_then(|index| self.clients.remove(index)).map_or(0, |entry| entry.failures) + 1;
        if !self.of_clients.admits(self.clients.len() as u64, 1) {
            self.clients.pop_front();
        }
        let wait = (WAIT_FIRST * (1 << (failures - 1).min(10))).min(WAIT_MAX);
        self.clients.push_back(Entry { source: peer.source(), client, failures, waits_until: now + wait });
        if !is_known {
            self.all.take(now);
            self.failed_at(peer.source(), now);
        }
    }

    fn failed_at(&mut self, source: Peer, now: Instant) {
        let is_new = !self.addresses.contains_key(&source);
        if is_new && !self.of_networks.admits(self.addresses.len() as u64, 1) {
            let oldest = self.addresses.iter().min_by_key(|(_, record)| record.failed_at).map(|(source, _)| *source);
            if let Some(oldest) = oldest {
                self.addresses.remove(&oldest);
            }
        }
        let new = Record { pace: Pace::new(&GUESSES_OF_NETWORK), failed_at: now };
        let record = self.addresses.entry(source).or_insert(new);
        record.pace.take(now);
        record.failed_at = now;
    }

    /// How its quotas are used.
    pub fn usages(&self) -> [Usage; 4] {
        let [of_network, of_all] = self.refused;
        let (all, network) = (Usage::refused(&GUESSES, of_all), Usage::refused(&GUESSES_OF_NETWORK, of_network));
        [all, network, self.of_clients.usage(), self.of_networks.usage()]
    }

    /// The client has shown that it knows the password.
    pub fn forgive(&mut self, peer: Peer, client: ClientId) {
        self.clients.retain(|entry| !entry.is_of(peer, client));
    }
}

impl Record {
    fn is_forgiven(&self, now: Instant) -> bool {
        now.saturating_since(self.failed_at) >= FORGIVEN_AFTER
    }
}

impl Entry {
    fn is_of(&self, peer: Peer, client: ClientId) -> bool {
        self.client == client && self.source == peer.source()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn peer(port: u16) -> Peer {
        Peer::Udp(([10, 0, 0, 1], port).into())
    }

    fn client(number: u32) -> ClientId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        ClientId(id)
    }

    fn known(peer: Peer, number: u32) -> Who {
        Who { peer, client: client(number), is_known: true }
    }

    fn unknown(peer: Peer, number: u32) -> Who {
        Who { is_known: false, ..known(peer, number) }
    }

    /// How many of so many guesses are read, one each millisecond.
    fn read(throttle: &mut Throttle, guesses: u32, who: impl Fn(u32) -> Who) -> u32 {
        let guess = |number| {
            let (who, now) = (who(number), Instant::ZERO + Duration::from_millis(number.into()));
            let is_read = !throttle.is_too_early(who, now);
            if is_read {
                throttle.failed(who, now);
            }
            u32::from(is_read)
        };
        (0..guesses).map(guess).sum()
    }

    #[test]
    fn the_wait_grows_to_its_bound_and_concerns_one_client_of_one_host() {
        let mut throttle = Throttle::default();
        let mut now = Instant::ZERO;
        let mut waits = Vec::new();
        for _ in 0..10 {
            throttle.failed(unknown(peer(1), 1), now);
            assert!(!throttle.is_too_early(unknown(peer(1), 2), now), "another client");
            let elsewhere = Peer::Udp(([10, 0, 0, 2], 1).into());
            assert!(!throttle.is_too_early(unknown(elsewhere, 1), now), "another host");
            let begun = now;
            while throttle.is_too_early(unknown(peer(7), 1), now) {
                now += Duration::from_millis(10);
            }
            waits.push(now - begun);
        }
        assert!(
            waits.is_sorted() && waits.first() == Some(&WAIT_FIRST) && waits.last() == Some(&WAIT_MAX),
            "{waits:?}"
        );
        throttle.failed(unknown(peer(1), 1), now);
        throttle.forgive(peer(2), client(1));
        assert!(!throttle.is_too_early(unknown(peer(1), 1), now), "who knows the password does not wait");
    }

    #[test]
    fn a_fresh_key_for_each_guess_does_not_make_a_host_faster() {
        let seconds = 10;
        let most = 16 + 2 * seconds + 1;
        let mut throttle = Throttle::default();
        let guessed = read(&mut throttle, 1000 * seconds, |number| unknown(peer(1), number));
        assert!((16..=most).contains(&guessed), "{guessed}");
        let network = |number: u32| Peer::Udp((Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number)), 1).into());
        let guessed = read(&mut Throttle::default(), 1000 * seconds, |number| unknown(network(number), number));
        assert!((16..=most).contains(&guessed), "{guessed}, by a network of many addresses");
        let now = Instant::ZERO + Duration::from_millis(u64::from(1000 * seconds) - 1);
        assert!(throttle.is_too_early(unknown(peer(1), u32::MAX), now));
        assert!(!throttle.is_too_early(known(peer(1), u32::MAX), now), "a client that is known waits for nobody");
    }

    #[test]
    fn many_hosts_together_are_not_faster_than_all_may_be() {
        let seconds = 10;
        let host = |number: u32| Peer::Udp((Ipv4Addr::from_bits(number), 1).into());
        let guessed = read(&mut Throttle::default(), 1000 * seconds, |number| unknown(host(number), number));
        assert!((64..=64 + 8 * seconds + 1).contains(&guessed), "{guessed}");
    }

    #[test]
    fn those_who_go_on_with_an_old_password_leave_room_for_who_gives_his_first() {
        let mut throttle = Throttle::default();
        for ms in 0..20_000u64 {
            let now = Instant::ZERO + Duration::from_millis(ms);
            let stale = (ms % 40) as u32;
            let who = unknown(Peer::Udp((Ipv4Addr::from_bits(stale), 1).into()), stale);
            if !throttle.is_too_early(who, now) {
                throttle.failed(who, now);
            }
            let newcomer = Peer::Udp((Ipv4Addr::from_bits(1000), 1).into());
            assert!(!throttle.is_too_early(unknown(newcomer, 1000), now), "after {ms} ms");
        }
        let usage = throttle.usages()[0];
        assert!(usage.refused > 0, "the old ones wait");
    }

    #[test]
    fn an_attempt_that_comes_too_early_again_and_again_counts_once() {
        let mut throttle = Throttle::default();
        assert!(throttle.is_first(1) && !throttle.is_first(1) && throttle.is_first(2) && !throttle.is_first(1));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut throttle = Throttle::default();
        for number in 0..10_000 {
            let host = Peer::Udp((Ipv4Addr::from_bits(number), 1).into());
            throttle.failed(unknown(host, number), Instant::ZERO);
            throttle.is_first(number.into());
        }
        let lengths = [throttle.clients.len(), throttle.addresses.len(), throttle.early.len()];
        assert_eq!(lengths.map(|length| length as u64), [GUESSERS.limit, GUESSING_NETWORKS.limit, 256]);
    }
}
