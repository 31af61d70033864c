//! The ports of one shard. A link that goes away must not take the others with it, and comes back by itself.

use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Peer};
use sanwire_hyperscsi::wire::links::{Address, LINKS_MAX};
use sanwire_io::interface::Interface;
use sanwire_io::{LocalAddress, Port, interface};

use crate::messages::{Mailbox, ShardMessage};
use crate::opener::{Opener, Reopened};

/// How often the links are looked after.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// Where clients can reach these ports.
pub(crate) fn addresses(ports: &[Port], interfaces: &[Interface]) -> Vec<Address> {
    let mut addresses = Vec::new();
    for port in ports {
        let peers: Vec<Peer> = match port.local_address() {
            LocalAddress::Ethernet(mac) => vec![Peer::Ethernet(mac)],
            LocalAddress::Udp(local) if !local.ip().is_unspecified() => vec![Peer::Udp(local)],
            LocalAddress::Udp(any) => {
                let reachable = interfaces.iter().filter(|interface| interface.is_up && !interface.is_loopback);
                let ips = reachable.flat_map(|interface| &interface.addresses);
                let fitting = ips.filter(|ip| ip.is_ipv4() == any.is_ipv4() && !is_link_local(**ip));
                fitting.map(|ip| Peer::Udp(SocketAddr::new(*ip, any.port()))).collect()
            }
        };
        let packet_max_bytes = packet_max_bytes(port);
        let speed_mbit =
            |peer| interfaces.iter().find(|interface| is_at(interface, peer)).and_then(|found| found.speed_mbit);
        let told = peers.into_iter();
        addresses.extend(told.map(|peer| Address {
            peer,
            packet_max_bytes,
            speed_mbit: speed_mbit(peer).unwrap_or(0),
        }));
    }
    fastest(addresses)
}

/// As many as a connection may have links, the fastest first; of those that do not say how fast they are, the first.
fn fastest(mut addresses: Vec<Address>) -> Vec<Address> {
    addresses.sort_by_key(|address| Reverse(address.speed_mbit));
    addresses.truncate(LINKS_MAX);
    addresses
}

fn is_at(interface: &Interface, peer: Peer) -> bool {
    match peer {
        Peer::Ethernet(mac) => interface.mac_address == Some(mac),
        Peer::Udp(address) => interface.addresses.contains(&address.ip()),
    }
}

/// An address that means nothing without its interface.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The largest packet of a port. HyperSCSI counts body bytes in 16 bits.
pub(crate) fn packet_max_bytes(port: &Port) -> u32 {
    port.payload_max_bytes().min(65_000) as u32
}

/// What a shard receives from and sends to.
pub(crate) struct Links {
    ports: Vec<Port>,
    wires: Vec<LinkWire>,
    tend_at: Instant,
    /// As they were when the links were last looked after.
    interfaces: Option<Arc<Vec<Interface>>>,
    /// Something has happened since the links were last looked after: perhaps it was that one is gone.
    is_put_off: bool,
}

/// The wire that a port belongs to.
struct LinkWire {
    opener: Arc<Opener>,
    /// Which opening of its ports this is.
    round: u32,
    is_broken: bool,
}

impl Links {
    /// `ports` were opened by `openers`, in this order.
    pub(crate) fn new(ports: Vec<Port>, openers: Vec<Arc<Opener>>) -> Self {
        let wire = |opener| LinkWire { opener, round: 0, is_broken: false };
        let wires = openers.into_iter().map(wire).collect();
        Links { ports, wires, tend_at: Instant::ZERO, interfaces: None, is_put_off: false }
    }

    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Hands out up to `budget` packets of each link.
    pub(crate) fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(usize, Peer, &[u8])) -> usize {
        let mut received = 0;
        for index in 0..self.ports.len() {
            let result = self.ports[index].receive(budget, &mut |peer, bytes| handler(index, peer, bytes));
            received += self.note(index, result).unwrap_or(0);
        }
        received
    }

    /// Queues a packet; a link that is away loses it.
    pub(crate) fn queue(&mut self, link: usize, to: Peer, packet: Packet) {
        let Some(port) = self.ports.get_mut(link) else { return };
        if let Err(packet) = port.queue(to, packet) {
            let result = port.flush();
            self.note(link, result);
            // An empty batch takes a packet.
            drop(self.ports[link].queue(to, packet));
        }
    }

    pub(crate) fn flush(&mut self) {
        for index in 0..self.ports.len() {
            let result = self.ports[index].flush();
            self.note(index, result);
        }
    }

    fn note<T>(&mut self, index: usize, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.lose(index, &error)).ok()
    }

    fn lose(&mut self, index: usize, error: &io::Error) {
        let LinkWire { opener, is_broken, .. } = &mut self.wires[index];
        if !opener.is_bound_to_an_interface() {
            tracing::debug!("wire {opener}: {error}");
            return;
        }
        if !*is_broken {
            tracing::warn!("wire {opener} is gone: {error}; it is opened again when it is back");
        }
        *is_broken = true;
    }

    /// Looks after the links, now and then: takes over their MTU and addresses, and has what is gone opened again when it is
    /// there, for all shards. `false`: it is not yet time for that, or the kernel does not say which links there are.
    pub(crate) fn tend(&mut self, shards: &[Mailbox], now: Instant) -> bool {
        self.is_put_off = now < self.tend_at;
        if self.is_put_off {
            return false;
        }
        self.tend_at = now + TEND_EVERY;
        let Some(interfaces) = interface::watch().known() else { return false };
        let before = self.interfaces.replace(Arc::clone(&interfaces));
        // What is older than the port says nothing of it.
        let is_news = before.is_none_or(|before| !Arc::ptr_eq(&before, &interfaces));
        for index in 0..self.ports.len() {
            if let Err(error) = self.ports[index].refresh(&interfaces)
                && is_news
            {
                self.lose(index, &error);
            }
            let wire = &self.wires[index];
            if wire.is_broken && wire.opener.is_there(&interfaces) {
                wire.reopen(shards);
            }
        }
        true
    }

    /// Where clients can reach the links, as they were when they were last looked after.
    pub(crate) fn addresses(&self) -> Option<Vec<Address>> {
        self.interfaces.as_ref().map(|interfaces| addresses(&self.ports, interfaces))
    }

    /// Goes on with a port that was opened again.
    pub(crate) fn take(&mut self, reopened: Reopened) {
        let Reopened { wire, round, port } = reopened;
        if let Some(index) = self.wires.iter().position(|link| link.opener.number() == wire) {
            self.ports[index] = port;
            (self.wires[index].round, self.wires[index].is_broken) = (round, false);
        }
    }

    /// When [`Links::tend`] should be called next: if a link is away, or once more after whatever has woken the shard. While all
    /// are there and nothing happens, nothing wakes a shard for it.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (self.is_put_off || self.wires.iter().any(|wire| wire.is_broken)).then_some(self.tend_at)
    }
}

impl LinkWire {
    /// Opens the ports of all shards again, unless another shard has done so: then this one's comes by mail, too.
    fn reopen(&self, shards: &[Mailbox]) {
        match self.opener.reopen(self.round) {
            Ok(Some(reopened)) => {
                tracing::warn!("wire {} is open again", self.opener);
                shards.iter().zip(reopened).for_each(|(shard, reopened)| shard.send(ShardMessage::Reopened(reopened)));
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("wire {} stays away: {error}", self.opener),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_addresses_the_fastest_are_told() {
        let speeds = [1000, 0, 100, 1000, 0, 1000, 100, 1000, 10_000, 25_000];
        let address = |(place, speed_mbit)| {
            let peer = Peer::Udp(SocketAddr::new(IpAddr::from([10, 0, 0, place]), 5674));
            Address { peer, packet_max_bytes: 1500, speed_mbit }
        };
        let told = fastest((0..).zip(speeds).map(address).collect());
        assert_eq!(told.len(), LINKS_MAX);
        assert_eq!(told.iter().map(|one| one.speed_mbit).take(3).collect::<Vec<_>>(), [25_000, 10_000, 1000]);
        assert!(told.iter().all(|one| one.speed_mbit > 0) && told[2].peer == address((0, 1000)).peer);
    }

    /// A shard without clients is woken once when an interface goes, and only then has it opened again.
    #[test]
    fn links_are_looked_after_once_more_after_whatever_has_woken_the_shard() {
        let mut links = Links::new(Vec::new(), Vec::new());
        let (begin, soon) = (Instant::ZERO, Instant::ZERO + TEND_EVERY / 2);
        assert!(links.tend(&[], begin) && links.poll_timeout().is_none());
        assert!(!links.tend(&[], soon));
        assert_eq!(links.poll_timeout(), Some(begin + TEND_EVERY));
        assert!(links.tend(&[], begin + TEND_EVERY) && links.poll_timeout().is_none());
    }
}
