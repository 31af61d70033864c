//! Who keeps a place at the front desk when more want to log in than there are places.
//!
//! A newcomer always gets one. When there are too many, one that has the most loses a place: one of a connection that has not
//! said anything yet if there is such, and of those the oldest. So a host with one login loses it only when every place is
//! another host's, and who fills all places from few addresses pushes out only itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use sanwire_core::quota::{LOGINS, LOGINS_OF_ADDRESS, LOGINS_OF_STRANGERS, Quota};

use super::usage::LoginUsage;

/// The logins under way, by the keys of their connections, which rise.
#[derive(Debug)]
pub(super) struct Places {
    known: Class,
    strangers: Class,
    /// Where each of them is.
    homes: BTreeMap<u64, Home>,
    usage: Arc<LoginUsage>,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    host: IpAddr,
    is_stranger: bool,
}

/// Hosts that share a number of places.
#[derive(Debug)]
struct Class {
    max: u64,
    taken: u64,
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
    pub(super) fn new(descriptors_max: u64, usage: Arc<LoginUsage>) -> Self {
        let quarter = descriptors_max / 4;
        let class = |quota: &Quota| Class { max: quarter.clamp(1, quota.limit), taken: 0, hosts: BTreeMap::new() };
        Places { known: class(&LOGINS), strangers: class(&LOGINS_OF_STRANGERS), homes: BTreeMap::new(), usage }
    }

    /// Gives a place to a connection from this address, and says which one loses its own for that. No access rule may name a
    /// stranger, whatever name it says it has.
    pub(super) fn take(&mut self, key: u64, address: IpAddr, is_stranger: bool) -> Option<u64> {
        let home = Home { host: host(address), is_stranger };
        self.homes.insert(key, home);
        let class = self.class(home);
        let (of_class, of_host) = (class.taken, class.hosts.get(&home.host).map_or(0, Host::count));
        self.usage.note(is_stranger, of_class as usize, of_host);
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
        let own = self.hosts.get(&host).filter(|own| own.count() as u64 > LOGINS_OF_ADDRESS.limit)?;
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
