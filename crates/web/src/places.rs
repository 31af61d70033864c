//! What those at the other end may hold: connections, and memory for what comes and goes by them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{
    CONNECTIONS_MAX, CONNECTIONS_OF_NETWORK_MAX, CONNECTIONS_OF_SOCKET_MAX, MEMORY_MAX_BYTES,
    MEMORY_OF_NETWORK_MAX_BYTES,
};
use crate::problem::Problem;

/// What is held by all.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Held>>);

/// The networks are those of TCP, and `None` the unix socket: what strangers hold leaves it to root.
#[derive(Default)]
struct Held {
    by_tcp: Share,
    of_networks: BTreeMap<Option<IpAddr>, Share>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Share {
    connections: usize,
    bytes: usize,
}

/// The place of one connection.
pub(crate) struct Place {
    places: Places,
    network: Option<IpAddr>,
}

/// Memory that is held for a connection until this is dropped.
pub(crate) struct Memory {
    place: Arc<Place>,
    bytes: usize,
}

impl Places {
    /// A place for one more connection, if there is one.
    pub(crate) fn enter(&self, network: Option<IpAddr>) -> Option<Arc<Place>> {
        let one = Share { connections: 1, bytes: 0 };
        self.lock().take(network, one).then(|| Arc::new(Place { places: self.clone(), network }))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // It is whole between any two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Holds so much memory.
    ///
    /// # Errors
    /// A problem when too much is held already.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Memory, Problem> {
        // What is longer than a share is let through alone.
        let bytes = bytes.min(MEMORY_OF_NETWORK_MAX_BYTES);
        if !self.places.lock().take(self.network, Share { connections: 0, bytes }) {
            return Err(Problem::new("busy", "too much is on its way to and from this network: ask again"));
        }
        Ok(Memory { place: Arc::clone(self), bytes })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().give_back(self.network, Share { connections: 1, bytes: 0 });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.place.places.lock().give_back(self.place.network, Share { connections: 0, bytes: self.bytes });
    }
}

impl Held {
    /// Takes that much, if there is so much left.
    fn take(&mut self, network: Option<IpAddr>, more: Share) -> bool {
        let of_one = if network.is_some() { CONNECTIONS_OF_NETWORK_MAX } else { CONNECTIONS_OF_SOCKET_MAX };
        let own = self.of_networks.get(&network).copied().unwrap_or_default().plus(more);
        let all = if network.is_some() { self.by_tcp.plus(more) } else { self.by_tcp };
        let is_free =
            own.is_within(of_one, MEMORY_OF_NETWORK_MAX_BYTES) && all.is_within(CONNECTIONS_MAX, MEMORY_MAX_BYTES);
        if is_free {
            self.by_tcp = all;
            self.of_networks.insert(network, own);
        }
        is_free
    }

    fn give_back(&mut self, network: Option<IpAddr>, less: Share) {
        if network.is_some() {
            self.by_tcp = self.by_tcp.minus(less);
        }
        let own = self.of_networks.get(&network).copied().unwrap_or_default().minus(less);
        match own == Share::default() {
            true => self.of_networks.remove(&network),
            false => self.of_networks.insert(network, own),
        };
    }
}

impl Share {
    fn plus(self, more: Share) -> Share {
        Share { connections: self.connections + more.connections, bytes: self.bytes + more.bytes }
    }

    fn minus(self, less: Share) -> Share {
        Share {
            connections: self.connections.saturating_sub(less.connections),
            bytes: self.bytes.saturating_sub(less.bytes),
        }
    }

    fn is_within(self, connections: usize, bytes: usize) -> bool {
        self.connections <= connections && self.bytes <= bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn one_network_does_not_take_all_connections_and_none_takes_those_of_the_socket() {
        let places = Places::default();
        let of_one: Vec<_> = std::iter::from_fn(|| places.enter(address(1))).collect();
        assert_eq!(of_one.len(), CONNECTIONS_OF_NETWORK_MAX);
        let mut others: Vec<_> = (2..=255).filter_map(|last| places.enter(address(last))).collect();
        others.extend((2..=255).filter_map(|last| places.enter(address(last))));
        assert_eq!(of_one.len() + others.len(), CONNECTIONS_MAX);
        let of_socket: Vec<_> = std::iter::from_fn(|| places.enter(None)).collect();
        assert_eq!(of_socket.len(), CONNECTIONS_OF_SOCKET_MAX, "root comes in all the same");
        drop(of_one);
        assert!(places.enter(address(1)).is_some());
        drop((others, of_socket));
        let held = places.lock();
        assert_eq!((held.by_tcp, held.of_networks.len()), (Share::default(), 0));
    }

    #[test]
    fn memory_is_bounded_for_each_and_for_all_and_comes_back() {
        let places = Places::default();
        let held: Vec<_> = (1..=255)
            .filter_map(|last| places.enter(address(last)))
            .filter_map(|place| place.hold(2 * MEMORY_OF_NETWORK_MAX_BYTES).ok())
            .collect();
        assert_eq!(held.len(), MEMORY_MAX_BYTES / MEMORY_OF_NETWORK_MAX_BYTES);
        let again = places.enter(address(1)).unwrap();
        assert_eq!(again.hold(1).err().unwrap().code, "busy");
        let root = places.enter(None).unwrap();
        assert!(root.hold(MEMORY_OF_NETWORK_MAX_BYTES).is_ok());
        drop(held);
        assert!(again.hold(MEMORY_OF_NETWORK_MAX_BYTES).is_ok());
    }
}
