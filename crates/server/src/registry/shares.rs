//! How many connections over TCP each may have, so that whoever has few always gets one more.
//!
//! A quarter is kept for networks that have few. Of the rest a network has at most three times as many as are left for all, an address
//! of it three times as many as that leaves its network, and an initiator three times as many as that leaves its address. So who is
//! alone may have half of all, and who takes what he gets, under whatever names, leaves some to those beside him. Connections are held
//! for as long as their hosts like, so a few such hosts take all that is shared so; what is kept takes many.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::quota::{
    Account, DISCOVERIES_OF_STRANGERS, Holder, Quota, TCP_CONNECTIONS, TCP_CONNECTIONS_OF_ADDRESS,
    TCP_CONNECTIONS_OF_CLIENT, TCP_CONNECTIONS_OF_NETWORK, Usage,
};
use sanwire_core::{Tally, source};

use crate::budget::Budget;

/// How many times what it leaves somebody may have.
const GREED: u64 = 3;

/// What one may have who is alone, of what is shared: what [`GREED`] comes to at each level.
const ALONE: [(&Quota, u64, u64); LEVELS] =
    [(&TCP_CONNECTIONS_OF_NETWORK, 3, 4), (&TCP_CONNECTIONS_OF_ADDRESS, 9, 13), (&TCP_CONNECTIONS_OF_CLIENT, 27, 40)];

const LEVELS: usize = 3;

/// Networks that can have few at the same time, at least.
const NETWORKS_WITH_FEW: u64 = 64;

/// Whose a connection is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) network: IpAddr,
    pub(super) address: IpAddr,
    initiator: String,
    /// He has shown nothing, and could use nothing.
    is_stranger: bool,
}

/// Who shares a number of connections with others of the same level.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Network(IpAddr),
    Address(IpAddr),
    /// A name is what anybody says: the same at another address is another's.
    Initiator(IpAddr, String),
}

/// There is no room for another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    quota: &'static Quota,
    /// There would be, if the process might have more descriptors.
    pub(crate) lacks_descriptors: bool,
}

/// Room for one connection. Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    shares: Arc<Shares>,
    owner: Owner,
}

/// The connections of all shards.
#[derive(Debug)]
pub(super) struct Shares(Mutex<Taken>);

#[derive(Debug)]
struct Taken {
    max: u64,
    /// That many are there also for networks that have more than `few`.
    shared_max: u64,
    few: u64,
    all: u64,
    of_strangers: u64,
    of_parts: Tally<Part>,
    server: Account,
    strangers: Account,
    /// Of networks, addresses, initiators.
    levels: [Account; LEVELS],
}

impl Owner {
    pub(super) fn new(address: IpAddr, initiator: String, is_stranger: bool) -> Self {
        Owner { network: source(address), address: address.to_canonical(), initiator, is_stranger }
    }

    /// Whether what this one has may end for the other: it is the same, or both are strangers.
    pub(super) fn is_one_with(&self, other: &Owner) -> bool {
        self.is_stranger && other.is_stranger || self == other
    }

    fn parts(&self) -> [Part; LEVELS] {
        let initiator = Part::Initiator(self.address, self.initiator.clone());
        [Part::Network(self.network), Part::Address(self.address), initiator]
    }
}

impl Seat {
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }
}

#[cfg(test)]
impl Seat {
    /// One for a test of something else.
    pub(crate) fn for_test() -> Arc<Seat> {
        let shares = Arc::new(Shares::new(&Budget::new(1 << 20)));
        let initiator = "iqn.2026-11.org.sanwire:test".to_owned();
        Arc::new(shares.take(Owner::new(IpAddr::from([127, 0, 0, 1]), initiator, false)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shares.lock().leave(&self.owner);
    }
}

impl Shares {
    pub(super) fn new(budget: &Budget) -> Self {
        let max = budget.connections;
        let kept = max / 4;
        let shared_max = max - kept;
        Shares(Mutex::new(Taken {
            max,
            shared_max,
            few: (kept / NETWORKS_WITH_FEW).max(1),
            all: 0,
            of_strangers: 0,
            of_parts: Tally::default(),
            server: Account::within(&TCP_CONNECTIONS, max),
            strangers: Account::within(&DISCOVERIES_OF_STRANGERS, budget.discoveries_of_strangers),
            levels: ALONE.map(|(quota, part, of)| Account::within(quota, (shared_max * part).div_ceil(of))),
        }))
    }

    /// Whether there is room for one more of this owner.
    pub(super) fn check(&self, owner: &Owner) -> Result<(), Full> {
        let mut taken = self.lock();
        let lacks_descriptors = taken.max < TCP_CONNECTIONS.limit;
        taken.check(owner).map_err(|quota| Full { quota, lacks_descriptors })
    }

    /// Takes a seat for this owner, for whom there is room, or who has just been promised another's.
    pub(super) fn take(self: &Arc<Self>, owner: Owner) -> Seat {
        self.lock().take(&owner);
        Seat { shares: Arc::clone(self), owner }
    }

    pub(super) fn usages(&self) -> Vec<Usage> {
        let taken = self.lock();
        [&taken.server, &taken.strangers].into_iter().chain(&taken.levels).map(Account::usage).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics between two writes to the tables.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn check(&mut self, owner: &Owner) -> Result<(), &'static Quota> {
        if !self.server.admits(self.all, 1) {
            return Err(&TCP_CONNECTIONS);
        }
        if owner.is_stranger {
            let is_admitted = self.strangers.admits(self.of_strangers, 1);
            return if is_admitted { Ok(()) } else { Err(&DISCOVERIES_OF_STRANGERS) };
        }
        let parts = owner.parts();
        let held = |part| self.of_parts.count(part);
        let has_few = held(&parts[0]) < self.few;
        let mut room = self.shared_max.saturating_sub(self.all);
        for ((held, account), (quota, ..)) in parts.iter().map(held).zip(&mut self.levels).zip(ALONE) {
            let most = if has_few { self.few } else { room.saturating_mul(GREED) };
            if !account.admits_up_to(most, held, 1) {
                return Err(quota);
            }
            room = most.saturating_sub(held);
        }
        Ok(())
    }

    fn take(&mut self, owner: &Owner) {
        self.all += 1;
        if owner.is_stranger {
            self.of_strangers += 1;
            return;
        }
        for part in owner.parts() {
            self.of_parts.add(part);
        }
    }

    fn leave(&mut self, owner: &Owner) {
        self.all -= 1;
        if owner.is_stranger {
            self.of_strangers -= 1;
            return;
        }
        for part in owner.parts() {
            self.of_parts.take_off(&part);
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.quota.holder {
            Holder::Strangers => "who may use nothing here as far as they have shown",
            Holder::Network => "of its network",
            Holder::Address => "of its address",
            Holder::Client => "of this initiator at its address",
            _ => "of this server",
        };
        write!(f, "there are too many {} {whose}", self.quota.name)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn shares(connections: u64) -> Arc<Shares> {
        Arc::new(Shares::new(&Budget { connections, ..Budget::new(1 << 20) }))
    }

    fn name(number: u32) -> String {
        format!("iqn.2026-11.org.sanwire:{number}").parse().unwrap()
    }

    fn owner(address: impl Into<IpAddr>, initiator: u32) -> Owner {
        Owner::new(address.into(), name(initiator), false)
    }

    fn host(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    /// As many as this owner gets.
    fn fill(shares: &Arc<Shares>, owner: &Owner) -> Vec<Seat> {
        let next = || shares.check(owner).ok().map(|()| shares.take(owner.clone()));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn who_is_alone_may_have_as_many_as_the_quotas_say() {
        for connections in [TCP_CONNECTIONS.limit, 680, 32, 4, 2, 1] {
            let shares = shares(connections);
            let seats = fill(&shares, &owner(host(1), 1)).len() as u64;
            let of_client = shares.lock().levels[2].usage();
            assert_eq!((Some(seats), seats), (of_client.most, of_client.limit), "of {connections}");
        }
        let limits = shares(1 << 30).lock().levels.each_ref().map(|account| account.usage().limit);
        assert_eq!(limits, ALONE.map(|(quota, ..)| quota.limit));
    }

    #[test]
    fn however_many_take_what_they_can_somebody_else_gets_in() {
        let shares = shares(1000);
        let mut kept = Vec::new();
        for number in 0..20 {
            for initiator in 0..5 {
                kept.push(fill(&shares, &owner(host(number), initiator)));
            }
            let newcomer = owner(host(100 + number), 1);
            assert!(fill(&shares, &newcomer).len() > 1, "after {number}");
        }
        let full = shares.check(&owner(host(0), 0)).unwrap_err();
        assert!(full.lacks_descriptors && full.to_string().contains("connections of its network"), "{full}");
    }

    #[test]
    fn one_of_a_network_and_one_at_an_address_leave_some_to_those_beside_them() {
        let within = |low: u64| Ipv6Addr::from_bits(0x2001_0db8_0000_0001 << 64 | u128::from(low));
        let shares = shares(1000);
        let _greedy = fill(&shares, &owner(within(1), 1));
        assert!(shares.check(&owner(within(1), 1)).is_err());
        assert!(shares.check(&owner(within(1), 2)).is_ok(), "another at the same address");
        let _names: Vec<_> = (2..50).map(|initiator| fill(&shares, &owner(within(1), initiator))).collect();
        assert!(shares.check(&owner(within(2), 1)).is_ok(), "another address of the network");
        let _addresses: Vec<_> = (2..50).map(|low| fill(&shares, &owner(within(low), 1))).collect();
        assert!(shares.check(&owner(host(1), 1)).is_ok(), "another network");
    }

    #[test]
    fn strangers_have_their_own_number_and_what_is_left_is_free_again() {
        let shares = shares(TCP_CONNECTIONS.limit);
        let strangers = Owner::new(host(1), name(1), true);
        let mut seats = fill(&shares, &strangers);
        assert_eq!(seats.len() as u64, DISCOVERIES_OF_STRANGERS.limit);
        seats.extend(fill(&shares, &owner(host(1), 1)));
        assert!(seats.len() as u64 > 8000, "who is known at the same address does not wait for them");
        drop(seats);
        let taken = shares.lock();
        assert!(taken.all == 0 && taken.of_strangers == 0 && taken.of_parts.is_empty(), "nothing is kept");
    }
}
