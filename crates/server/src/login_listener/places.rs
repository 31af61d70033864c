//! Who keeps a place at the login listener when more want to log in than there are places.
//!
//! A newcomer always gets one. When there are too many, one that has the most loses a place: the host, and of an IPv6 network the
//! address. Connections that have not said anything yet lose theirs first, the oldest of them, as long as they are at least half: so
//! neither who only connects nor who only begins takes a place from those that do the other. A host with one login loses it only
//! when every place is another host's, and who fills all places from few addresses pushes out only itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sanwire_core::source;

use super::accounts::LoginAccounts;

/// The logins under way, by the keys of their connections, which rise.
#[derive(Debug)]
pub(super) struct Places {
    known: Class,
    strangers: Class,
    /// Where each of them is.
    homes: BTreeMap<u64, Home>,
    accounts: Arc<LoginAccounts>,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    /// What counts as one host: see [`source`].
    host: IpAddr,
    address: IpAddr,
    is_stranger: bool,
}

/// Hosts that share a number of places.
#[derive(Debug, Default)]
struct Class {
    taken: u64,
    hosts: BTreeMap<IpAddr, Host>,
}

/// The logins of one host.
#[derive(Debug, Default)]
struct Host {
    addresses: BTreeMap<IpAddr, Logins>,
    count: usize,
}

/// Those of one address, oldest first.
#[derive(Debug, Default)]
struct Logins {
    silent: BTreeSet<u64>,
    spoken: BTreeSet<u64>,
}

impl Places {
    /// Nobody's yet; these accounts say how many there are.
    pub(super) fn new(accounts: Arc<LoginAccounts>) -> Self {
        Places { known: Class::default(), strangers: Class::default(), homes: BTreeMap::new(), accounts }
    }

    /// Gives a place to a connection from this address, and says which one loses its own for that. No access rule may name a
    /// stranger, whatever name it says it has.
    pub(super) fn take(&mut self, key: u64, address: IpAddr, is_stranger: bool) -> Option<u64> {
        let home = Home { host: source(address), address: address.to_canonical(), is_stranger };
        self.homes.insert(key, home);
        let accounts = Arc::clone(&self.accounts);
        let victim = self.class(home).take(key, home, &accounts);
        victim.inspect(|victim| self.leave(*victim))
    }

    /// The connection has sent a whole request.
    pub(super) fn has_spoken(&mut self, key: u64) {
        let Some(home) = self.homes.get(&key).copied() else { return };
        if let Some(logins) = self.class(home).logins(home)
            && logins.silent.remove(&key)
        {
            logins.spoken.insert(key);
        }
    }

    /// The connection is gone, or its login over.
    pub(super) fn leave(&mut self, key: u64) {
        if let Some(home) = self.homes.remove(&key) {
            self.class(home).leave(key, home);
        }
    }

    fn class(&mut self, home: Home) -> &mut Class {
        if home.is_stranger { &mut self.strangers } else { &mut self.known }
    }
}

impl Class {
    /// Takes a place, and gives the one that must be left for it.
    fn take(&mut self, key: u64, home: Home, accounts: &LoginAccounts) -> Option<u64> {
        let own = self.hosts.entry(home.host).or_default();
        let (of_class, of_host) = (self.taken, own.count as u64);
        own.addresses.entry(home.address).or_default().silent.insert(key);
        own.count += 1;
        self.taken += 1;
        if !accounts.admits(home.is_stranger, of_class) {
            let most = self.hosts.values().map(|host| host.count).max();
            return victim(self.hosts.values().filter(|host| Some(host.count) == most), key);
        }
        if accounts.admits_of_network(of_host) { None } else { victim(self.hosts.get(&home.host), key) }
    }

    fn logins(&mut self, home: Home) -> Option<&mut Logins> {
        self.hosts.get_mut(&home.host)?.addresses.get_mut(&home.address)
    }

    fn leave(&mut self, key: u64, home: Home) {
        let Some(host) = self.hosts.get_mut(&home.host) else { return };
        let Some(logins) = host.addresses.get_mut(&home.address) else { return };
        if logins.silent.remove(&key) || logins.spoken.remove(&key) {
            host.count -= 1;
            self.taken -= 1;
        }
        if logins.count() == 0 {
            host.addresses.remove(&home.address);
        }
        if host.count == 0 {
            self.hosts.remove(&home.host);
        }
    }
}

/// Of hosts that have as many logins as one another: the login that goes for a newcomer.
fn victim<'a>(hosts: impl IntoIterator<Item = &'a Host>, newcomer: u64) -> Option<u64> {
    let logins: Vec<&Logins> = hosts.into_iter().flat_map(Host::greediest).collect();
    let silent = || logins.iter().flat_map(|logins| &logins.silent).filter(|key| **key != newcomer);
    let spoken = || logins.iter().flat_map(|logins| &logins.spoken);
    let oldest = if silent().count() >= spoken().count() { silent().min() } else { spoken().min() };
    oldest.copied()
}

impl Host {
    /// The addresses with the most logins.
    fn greediest(&self) -> impl Iterator<Item = &Logins> {
        let most = self.addresses.values().map(Logins::count).max();
        self.addresses.values().filter(move |logins| Some(logins.count()) == most)
    }
}

impl Logins {
    fn count(&self) -> usize {
        self.silent.len() + self.spoken.len()
    }
}

#[cfg(test)]
mod tests;
