//! Who keeps a place at the front desk when more want to log in than there are places.
//!
//! A newcomer always gets one. When there are too many, one that has the most loses a place: one of a connection that has not
//! said anything yet if there is such, and of those the oldest. So a host with one login loses it only when every place is
//! another host's, and who fills all places from few addresses pushes out only itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// Logins at once of the hosts that some access rule may name.
const PLACES: usize = 512;

/// Those of one host.
const PLACES_OF_HOST: usize = 128;

/// Those of all other hosts together: they are told that they are refused, and why, as long as that costs nobody else a place.
const PLACES_OF_STRANGERS: usize = 64;

/// The logins under way, by the keys of their connections, which rise.
#[derive(Debug)]
pub(super) struct Places {
    known: Class,
    strangers: Class,
    /// Where each of them is.
    homes: BTreeMap<u64, Home>,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    host: IpAddr,
    is_stranger: bool,
}

/// Hosts that share a number of places.
#[derive(Debug)]
struct Class {
    max: usize,
    taken: usize,
    hosts: BTreeMap<IpAddr, Host>,
}

/// The logins of one host, oldest first.
#[derive(Debug, Default)]
struct Host {
    silent: BTreeSet<u64>,
    spoken: BTreeSet<u64>,
}

impl Places {
    /// The places of a process that may have so many descriptors.
    pub(super) fn new(descriptors_max: u64) -> Self {
        let quarter = usize::try_from(descriptors_max / 4).unwrap_or(usize::MAX);
        let class = |max: usize| Class { max: quarter.clamp(1, max), taken: 0, hosts: BTreeMap::new() };
        Places { known: class(PLACES), strangers: class(PLACES_OF_STRANGERS), homes: BTreeMap::new() }
    }

    /// Gives a place to a connection from this address, and says which one loses its own for that. No access rule may name a
    /// stranger, whatever name it says it has.
    pub(super) fn take(&mut self, key: u64, address: IpAddr, is_stranger: bool) -> Option<u64> {
        let home = Home { host: host(address), is_stranger };
        self.homes.insert(key, home);
        let victim = self.class(home).take(key, home.host);
        victim.inspect(|victim| self.leave(*victim))
    }

    /// The connection has sent a whole request.
    pub(super) fn has_spoken(&mut self, key: u64) {
        let Some(home) = self.homes.get(&key).copied() else { return };
        if let Some(host) = self.class(home).hosts.get_mut(&home.host)
            && host.silent.remove(&key)
        {
            host.spoken.insert(key);
        }
    }

    /// The connection is gone, or its login over.
    pub(super) fn leave(&mut self, key: u64) {
        if let Some(home) = self.homes.remove(&key) {
            self.class(home).leave(key, home.host);
        }
    }

    fn class(&mut self, home: Home) -> &mut Class {
        if home.is_stranger { &mut self.strangers } else { &mut self.known }
    }
}

impl Class {
    /// Takes a place, and gives the one that must be left for it.
    fn take(&mut self, key: u64, host: IpAddr) -> Option<u64> {
        let own = self.hosts.entry(host).or_default();
        own.silent.insert(key);
        self.taken += 1;
        if self.taken > self.max {
            let most = self.hosts.values().map(Host::count).max();
            let greediest = self.hosts.values().filter(|host| Some(host.count()) == most);
            return greediest.filter_map(|host| host.first(key)).min().map(|(_, victim)| victim);
        }
        let own = self.hosts.get(&host).filter(|own| own.count() > PLACES_OF_HOST)?;
        own.first(key).map(|(_, victim)| victim)
    }

    fn leave(&mut self, key: u64, host: IpAddr) {
        let Some(own) = self.hosts.get_mut(&host) else { return };
        if own.silent.remove(&key) || own.spoken.remove(&key) {
            self.taken -= 1;
        }
        if own.count() == 0 {
            self.hosts.remove(&host);
        }
    }
}

impl Host {
    fn count(&self) -> usize {
        self.silent.len() + self.spoken.len()
    }

    /// The login that goes first, but the newcomer, and whether it has said something.
    fn first(&self, newcomer: u64) -> Option<(bool, u64)> {
        let silent = self.silent.iter().find(|key| **key != newcomer).map(|key| (false, *key));
        silent.or_else(|| self.spoken.first().map(|key| (true, *key)))
    }
}

/// What counts as one host: an IPv4 address, or the 64 bits of an IPv6 network, all of whose addresses one host may have.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests;
