//! How many handshakes a server begins, and whose: a stranger is to cost it next to nothing, and nobody's flood keeps others out.
//!
//! A handshake costs a fraction of a millisecond of the thread that does all I/O of a shard. As long as few begin, all may. Above
//! that, a peer must first bring back a cookie, so that forged sender addresses lead nowhere. A peer that does is limited by its
//! address and its network, and all of them together; of what they share, a part is kept for networks that have begun few
//! handshakes lately, a part of that for clients that the server knows, and a part of that again for those that have a session
//! from there. A client that the server knows has a limit of its own, so that no stranger of its network takes it.

use std::collections::BTreeMap;

use sanwire_core::quota::{
    self, HANDSHAKES_OF_ADDRESS, HANDSHAKES_OF_NETWORK, HANDSHAKES_PROVEN, HANDSHAKES_UNPROVEN, Limiter, Pace, Quota,
    Usage,
};
use sanwire_core::{ClientId, Instant, Peer};

use crate::cookie::{Asker, Cookie, Cookies};
use crate::keys::Randomness;

/// Of the burst of all handshakes with a cookie: what is kept for networks that have begun few lately.
const RESERVE_FOR_RESTED: u32 = 64;

/// The same for clients that the server knows.
const RESERVE_FOR_KNOWN: u32 = 32;

/// The same for those that have a session from their address.
const RESERVE_FOR_HOME: u32 = 16;

/// Who has begun no more than this lately has rested: the addresses that could take all of what is kept for such are many.
const RESTED: Quota =
    Quota::per_second(quota::Holder::Address, "handshakes of clients that have begun few lately", 4, 8);

/// Who wants to begin a handshake, as far as can be told before the peer has authenticated: anybody can claim any client's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody that the server knows.
    Stranger,
    /// A client that it lists, or has a session of.
    Known,
    /// One that has a session from this very address.
    AtHome,
}

/// Whose limit a handshake counts for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Holder {
    Address(Peer),
    Network(Peer),
    /// A client at a host: who names it from elsewhere takes nothing from it.
    Client(ClientId, Peer),
    /// All of a network that name clients, whose names they may have overheard.
    Namers(Peer),
}

impl Holder {
    /// Those of a handshake.
    fn of(asker: Asker, standing: Standing) -> Vec<Holder> {
        let (host, network) = (asker.path.peer.host(), asker.path.peer.source());
        match standing {
            Standing::AtHome => vec![Holder::Client(asker.client, host)],
            Standing::Known => vec![Holder::Client(asker.client, host), Holder::Namers(network)],
            Standing::Stranger if host == network => vec![Holder::Address(host)],
            Standing::Stranger => vec![Holder::Address(host), Holder::Network(network)],
        }
    }

    fn quota(self) -> &'static Quota {
        match self {
            Holder::Address(_) | Holder::Client(..) => &HANDSHAKES_OF_ADDRESS,
            Holder::Network(_) | Holder::Namers(_) => &HANDSHAKES_OF_NETWORK,
        }
    }
}

/// What a holder has begun.
#[derive(Clone, Copy)]
struct Begun {
    pace: Pace,
    lately: Pace,
}

/// What becomes of a handshake that somebody wants to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    /// It begins.
    Open,
    /// The peer has to bring back this cookie first.
    Cookie(Cookie),
    /// There are too many; the peer may try again.
    Shut,
}

/// Lets handshakes begin.
pub struct Gate {
    unproven: Limiter,
    proven: Limiter,
    /// Those that have begun some lately: no more than all together may.
    holders: BTreeMap<Holder, Begun>,
    cookies: Cookies,
    /// How often a network, and an address or a client, was refused more.
    refused: [u64; 2],
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            unproven: Limiter::new(&HANDSHAKES_UNPROVEN),
            proven: Limiter::new(&HANDSHAKES_PROVEN),
            holders: BTreeMap::new(),
            cookies: Cookies::default(),
            refused: [0; 2],
        }
    }
}

impl Gate {
    /// Somebody wants to begin a handshake.
    pub fn pass(
        &mut self,
        asker: Asker,
        cookie: Option<&Cookie>,
        standing: impl FnOnce() -> Standing,
        random: &mut Randomness,
        now: Instant,
    ) -> Passage {
        if cookie.is_some_and(|cookie| self.cookies.is_ours(cookie, asker, now)) {
            return if self.admits(asker, standing(), now) { Passage::Open } else { Passage::Shut };
        }
        if self.unproven.take(now) {
            return Passage::Open;
        }
        Passage::Cookie(self.cookies.make(asker, random, now))
    }

    fn admits(&mut self, asker: Asker, standing: Standing, now: Instant) -> bool {
        let holders = Holder::of(asker, standing);
        if let Some(worn) = holders.iter().find(|holder| self.begun(**holder).pace.left(now) == 0) {
            self.refused[usize::from(*worn.quota() == HANDSHAKES_OF_ADDRESS)] += 1;
            return false;
        }
        let is_rested = holders.iter().all(|holder| self.begun(*holder).lately.left(now) > 0);
        let reserve = match standing {
            Standing::AtHome => 0,
            Standing::Known if is_rested => RESERVE_FOR_HOME,
            Standing::Stranger if is_rested => RESERVE_FOR_KNOWN,
            Standing::Known | Standing::Stranger => RESERVE_FOR_KNOWN + RESERVE_FOR_RESTED,
        };
        let is_admitted = self.proven.take_above(reserve, now);
        if is_admitted {
            holders.into_iter().for_each(|holder| self.take(holder, now));
        }
        is_admitted
    }

    fn begun(&self, holder: Holder) -> Begun {
        let new = || Begun { pace: Pace::new(holder.quota()), lately: Pace::new(&RESTED) };
        self.holders.get(&holder).copied().unwrap_or_else(new)
    }

    fn take(&mut self, holder: Holder, now: Instant) {
        let mut begun = self.begun(holder);
        begun.pace.take(now);
        begun.lately.take(now);
        self.holders.retain(|_, other| !other.pace.is_full(now) || !other.lately.is_full(now));
        self.holders.insert(holder, begun);
    }

    /// How its quotas are used.
    pub fn usages(&self) -> [Usage; 4] {
        let usage = Usage::refused;
        let [network, address] = self.refused;
        let (network, address) = (usage(&HANDSHAKES_OF_NETWORK, network), usage(&HANDSHAKES_OF_ADDRESS, address));
        [self.unproven.usage(), network, address, self.proven.usage()]
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    use sanwire_core::{ClientId, LinkId, Path};

    use super::Standing::{AtHome, Known, Stranger};
    use super::*;

    struct World {
        gate: Gate,
        random: Randomness,
        now: Instant,
        attempts: u64,
    }

    impl World {
        fn new() -> Self {
            World {
                gate: Gate::default(),
                random: Randomness::new([3; 32]),
                now: Instant::ZERO + Duration::from_secs(1),
                attempts: 0,
            }
        }

        fn asker(&mut self, host: u32) -> Asker {
            self.asker_at(Ipv4Addr::from_bits(host).into())
        }

        fn asker_at(&mut self, address: IpAddr) -> Asker {
            self.attempts += 1;
            let peer = Peer::Udp((address, 5).into());
            Asker { path: Path { link: LinkId(0), peer }, client: ClientId([1; 16]), attempt: self.attempts }
        }

        fn ask(&mut self, asker: Asker, cookie: Option<&Cookie>, standing: Standing) -> Passage {
            self.gate.pass(asker, cookie, || standing, &mut self.random, self.now)
        }

        /// Whether a handshake from there begins, of a peer that brings its cookie back.
        fn is_let_in(&mut self, host: u32, standing: Standing) -> bool {
            let asker = self.asker(host);
            self.passes(asker, standing)
        }

        fn passes(&mut self, asker: Asker, standing: Standing) -> bool {
            match self.ask(asker, None, standing) {
                Passage::Cookie(cookie) => self.ask(asker, Some(&cookie), standing) == Passage::Open,
                passage => passage == Passage::Open,
            }
        }

        /// Nothing is left for those without a cookie.
        fn flooded(mut self) -> Self {
            for host in 0..1000 {
                let asker = self.asker(host);
                self.ask(asker, None, Stranger);
            }
            self
        }
    }

    #[test]
    fn forged_addresses_begin_few_handshakes_and_a_new_client_begins_one_within_a_round_trip() {
        let mut world = World::new();
        let mut begun = 0;
        for number in 0..20_000 {
            let asker = world.asker(number);
            begun += u32::from(world.ask(asker, Some(&[7; 16]), AtHome) == Passage::Open);
            world.now += Duration::from_micros(50);
            if number % 100 == 99 {
                assert!(world.is_let_in(0x0a00_0001 + number, Stranger), "at {number}");
            }
        }
        assert!(begun <= 64 + 100, "{begun} handshakes in a second of forged packets");
    }

    #[test]
    fn one_address_begins_no_more_than_its_share() {
        let mut world = World::new().flooded();
        let begun = (0..10_000).filter(|_| world.is_let_in(1, Stranger)).count();
        assert_eq!(begun, 32);
        world.now += Duration::from_millis(200);
        let begun = (0..100).filter(|_| world.is_let_in(1, Stranger)).count();
        // Those without a cookie, and those with one.
        assert!((10..=31).contains(&begun), "{begun}");
    }

    #[test]
    fn many_addresses_with_cookies_leave_room_for_those_that_ask_seldom_and_for_known_clients() {
        let mut world = World::new().flooded();
        let (mut begun, mut rested, mut known) = (0, 0, 0);
        for turn in 0..20_000u32 {
            begun += u32::from(world.is_let_in(turn % 100, Stranger));
            world.now += Duration::from_micros(50);
            if turn % 1000 == 999 {
                rested += u32::from(world.is_let_in(0x0a00_0001 + turn, Stranger));
                known += u32::from(world.is_let_in(50, AtHome));
            }
        }
        assert!(begun <= 64 + 100 + 128 + 500, "{begun} in a second");
        assert_eq!((rested, known), (20, 20));
    }

    /// Hosts of one network of IPv6.
    fn neighbour(number: u32) -> IpAddr {
        Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(number)).into()
    }

    #[test]
    fn a_network_of_many_hosts_begins_more_than_one_host_and_none_of_them_takes_all_of_it() {
        let mut world = World::new().flooded();
        let (mut greedy, mut others) = (0, 0);
        for turn in 0..20_000u32 {
            let from = if turn % 100 == 0 { neighbour(10 + turn / 100) } else { neighbour(1) };
            let asker = world.asker_at(from);
            let begun = u32::from(world.passes(asker, Stranger));
            if turn % 100 == 0 {
                others += begun
            } else {
                greedy += begun
            }
            world.now += Duration::from_micros(50);
        }
        assert!(greedy <= 64 + 100 + 32 + 50, "{greedy} of one host in a second");
        assert_eq!(others, 200, "each other host has its own");
        let mut world = World::new().flooded();
        let begun = (0..10_000u32).filter(|number| {
            world.now += Duration::from_micros(100);
            let asker = world.asker_at(neighbour(*number));
            world.passes(asker, Stranger)
        });
        let begun = begun.count();
        assert!((200..=64 + 200 + 100).contains(&begun), "{begun} of all hosts in a second");
    }

    #[test]
    fn who_begins_as_many_as_he_may_all_the_time_leaves_room_for_who_begins_one() {
        let mut world = World::new().flooded();
        for turn in 0..40_000u32 {
            world.is_let_in(turn % 20, Stranger);
            world.now += Duration::from_micros(50);
            // They have begun few until then, too.
            if turn > 10_000 && turn % 997 == 500 {
                assert!(world.is_let_in(0x0a00_0001 + turn, Stranger), "at {turn}");
            }
        }
    }

    #[test]
    fn a_client_that_is_known_does_not_wait_for_strangers_of_its_address_or_network() {
        for address in [neighbour(1), IpAddr::from([10, 0, 0, 1])] {
            let mut world = World::new().flooded();
            for _ in 0..1000 {
                let stranger = world.asker_at(address);
                world.passes(stranger, Stranger);
            }
            let own = Asker { client: ClientId([9; 16]), ..world.asker_at(address) };
            assert!(world.passes(own, Known), "listed");
            assert!(world.passes(Asker { attempt: 1 << 40, ..own }, AtHome), "with a session from there");
        }
    }

    #[test]
    fn whoever_names_a_client_from_elsewhere_takes_nothing_from_where_it_is() {
        for standing in [AtHome, Known] {
            let mut world = World::new().flooded();
            for number in 0..10_000 {
                // Many hosts of one network, or a few others.
                let forger =
                    if number % 2 == 0 { neighbour(1000 + number) } else { [10, 0, 1, number as u8 % 5].into() };
                let forger = world.asker_at(forger);
                world.passes(forger, Known);
                world.now += Duration::from_micros(100);
                if number % 100 == 99 {
                    let own = world.asker_at([10, 0, 0, 1].into());
                    assert!(world.passes(own, standing), "{standing:?} at {number}");
                }
            }
        }
    }

    #[test]
    fn addresses_without_number_take_no_more_memory_and_no_more_time() {
        let mut world = World::new().flooded();
        for host in 0..10_000 {
            world.is_let_in(host, Stranger);
            world.now += Duration::from_micros(50);
            assert!(world.gate.holders.len() <= 300, "{}", world.gate.holders.len());
        }
    }
}
