//! How many handshakes a server begins, and whose: a stranger is to cost it next to nothing, and nobody's flood keeps others out.
//!
//! A handshake costs a fraction of a millisecond of the thread that does all I/O of a shard. As long as few begin, all may. Above
//! that, who wants one must first bring back a cookie, so that forged sender addresses lead nowhere. Who does is limited by his
//! address, and all of them together; of what they share, a part is kept for addresses that have begun few handshakes lately, and
//! a part of that for clients that have a session from there.

use sanwire_core::quota::{HANDSHAKES_OF_ADDRESS, HANDSHAKES_PROVEN, HANDSHAKES_UNPROVEN, Limiter, Pace, Usage};
use sanwire_core::{Instant, Peer};

use super::cookie::{Asker, Cookies};
use crate::keys::Randomness;
use crate::wire::setup::Cookie;

/// Of the burst of all handshakes with a cookie: what is kept for addresses that have begun few lately.
const RESERVE_FOR_RESTED: u32 = 64;

/// The same for clients with sessions from their addresses.
const RESERVE_FOR_KNOWN: u32 = 32;

/// An address with more than this of its burst left has begun few handshakes lately.
const RESTED_ABOVE: u32 = 24;

/// What becomes of a handshake that somebody wants to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passage {
    /// It begins.
    Open,
    /// He has to bring back this cookie first.
    Cookie(Cookie),
    /// There are too many; he may come again.
    Shut,
}

/// Lets handshakes begin.
pub(super) struct Gate {
    unproven: Limiter,
    proven: Limiter,
    /// Those that have begun some lately: no more than all together may.
    addresses: Vec<(Peer, Pace)>,
    cookies: Cookies,
    /// How often an address was refused more.
    refused: u64,
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            unproven: Limiter::new(&HANDSHAKES_UNPROVEN),
            proven: Limiter::new(&HANDSHAKES_PROVEN),
            addresses: Vec::new(),
            cookies: Cookies::default(),
            refused: 0,
        }
    }
}

impl Gate {
    /// Somebody wants to begin a handshake; `is_known` whether his client has a session from his address.
    pub(super) fn pass(
        &mut self,
        asker: Asker,
        cookie: Option<&Cookie>,
        is_known: impl FnOnce() -> bool,
        random: &mut Randomness,
        now: Instant,
    ) -> Passage {
        if cookie.is_some_and(|cookie| self.cookies.is_ours(cookie, asker, now)) {
            return if self.admits(asker.path.peer.source(), is_known(), now) { Passage::Open } else { Passage::Shut };
        }
        if self.unproven.take(now) {
            return Passage::Open;
        }
        Passage::Cookie(self.cookies.make(asker, random, now))
    }

    fn admits(&mut self, source: Peer, is_known: bool, now: Instant) -> bool {
        let index = self.index_of(source, now);
        let Some((_, own)) = self.addresses.get_mut(index) else { return false };
        let left = own.left(now);
        let reserve = match () {
            () if is_known => 0,
            () if left > RESTED_ABOVE => RESERVE_FOR_KNOWN,
            () => RESERVE_FOR_KNOWN + RESERVE_FOR_RESTED,
        };
        if left == 0 {
            self.refused += 1;
            return false;
        }
        let is_admitted = self.proven.take_above(reserve, now);
        if is_admitted {
            own.take(now);
        }
        is_admitted
    }

    fn index_of(&mut self, source: Peer, now: Instant) -> usize {
        if let Some(index) = self.addresses.iter().position(|(known, _)| *known == source) {
            return index;
        }
        self.addresses.retain(|(_, pace)| !pace.is_full(now));
        self.addresses.push((source, Pace::new(&HANDSHAKES_OF_ADDRESS)));
        self.addresses.len() - 1
    }

    /// How its quotas are used.
    pub(super) fn usages(&self) -> [Usage; 3] {
        let of_address = Usage { quota: &HANDSHAKES_OF_ADDRESS, most: None, refused: self.refused };
        [self.unproven.usage(), of_address, self.proven.usage()]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sanwire_core::{ClientId, LinkId, Path};

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
            self.attempts += 1;
            let peer = Peer::Udp((host.to_be_bytes(), 5).into());
            Asker { path: Path { link: LinkId(0), peer }, client: ClientId([1; 16]), attempt: self.attempts }
        }

        fn ask(&mut self, asker: Asker, cookie: Option<&Cookie>, is_known: bool) -> Passage {
            self.gate.pass(asker, cookie, || is_known, &mut self.random, self.now)
        }

        /// Whether a handshake from there begins, of somebody who brings his cookie back.
        fn is_let_in(&mut self, host: u32, is_known: bool) -> bool {
            let asker = self.asker(host);
            match self.ask(asker, None, is_known) {
                Passage::Cookie(cookie) => self.ask(asker, Some(&cookie), is_known) == Passage::Open,
                passage => passage == Passage::Open,
            }
        }

        /// Nothing is left for those without a cookie.
        fn flooded(mut self) -> Self {
            for host in 0..1000 {
                let asker = self.asker(host);
                self.ask(asker, None, false);
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
            begun += u32::from(world.ask(asker, Some(&[7; 16]), true) == Passage::Open);
            world.now += Duration::from_micros(50);
            if number % 100 == 99 {
                assert!(world.is_let_in(0x0a00_0001 + number, false), "at {number}");
            }
        }
        assert!(begun <= 64 + 100, "{begun} handshakes in a second of forged packets");
    }

    #[test]
    fn one_address_begins_no_more_than_its_share() {
        let mut world = World::new().flooded();
        let begun = (0..10_000).filter(|_| world.is_let_in(1, false)).count();
        assert_eq!(begun, 32);
        world.now += Duration::from_millis(200);
        let begun = (0..100).filter(|_| world.is_let_in(1, false)).count();
        // Those without a cookie, and those with one.
        assert!((10..=31).contains(&begun), "{begun}");
    }

    #[test]
    fn many_addresses_with_cookies_leave_room_for_those_that_ask_seldom_and_for_known_clients() {
        let mut world = World::new().flooded();
        let (mut begun, mut rested, mut known) = (0, 0, 0);
        for turn in 0..20_000u32 {
            begun += u32::from(world.is_let_in(turn % 100, false));
            world.now += Duration::from_micros(50);
            if turn % 1000 == 999 {
                rested += u32::from(world.is_let_in(0x0a00_0001 + turn, false));
                known += u32::from(world.is_let_in(50, true));
            }
        }
        assert!(begun <= 64 + 100 + 128 + 500, "{begun} in a second");
        assert_eq!((rested, known), (20, 20));
    }

    #[test]
    fn addresses_without_number_take_no_more_memory_and_no_more_time() {
        let mut world = World::new().flooded();
        for host in 0..10_000 {
            world.is_let_in(host, false);
            world.now += Duration::from_micros(50);
            assert!(world.gate.addresses.len() <= 200, "{}", world.gate.addresses.len());
        }
    }
}
