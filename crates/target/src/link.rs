//! The ports of one shard. A link that goes away must not take the others with it, and comes back by itself.

use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Peer};
use sanwire_hyperscsi::ETHERTYPE;
use sanwire_hyperscsi::wire::links::{Address, LINKS_MAX};
use sanwire_io::interface::Interface;
use sanwire_io::{LocalAddress, PacketPort, Port, Steering, UdpPort, interface};

use crate::wire::Wire;

/// How often the links are looked after.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// How to open the port of one wire for one shard, also again.
pub(crate) struct Opener {
    pub(crate) wire: Wire,
    /// The wire's place among the server's.
    pub(crate) number: u16,
    pub(crate) shards: u32,
    pub(crate) shard: u32,
    pub(crate) ring_bytes: usize,
    /// Ports that all shards together have opened again. Shards take turns, because the kernel numbers them by the order
    /// in which they open their ports.
    pub(crate) reopened: Arc<AtomicU32>,
}

impl Opener {
    /// Opens the port for the first time.
    ///
    /// # Errors
    /// The kernel's: `AddrInUse` also where another process shares the port, as our shards do among themselves.
    pub(crate) fn open(&self) -> io::Result<Port> {
        if let Wire::HsIp { address } = &self.wire
            && self.shard == 0
        {
            drop(UdpPort::open(*address, None)?);
        }
        self.open_in_round(0)
    }

    /// Opens the port again, when it is this shard's turn.
    fn reopen(&self) -> io::Result<Option<Port>> {
        let turn = self.reopened.load(Ordering::Acquire);
        if turn % self.shards != self.shard {
            return Ok(None);
        }
        // A new group for each round: the old one is bound to the interface that is gone.
        let port = self.open_in_round(turn / self.shards + 1)?;
        self.reopened.store(turn.wrapping_add(1), Ordering::Release);
        Ok(Some(port))
    }

    fn open_in_round(&self, round: u32) -> io::Result<Port> {
        let steering = (self.shards > 1).then(|| Steering {
            shards: self.shards,
            index: self.shard,
            group: group(std::process::id(), self.number, round),
        });
        match &self.wire {
            Wire::HsEth { interface } => {
                PacketPort::open(interface, ETHERTYPE, steering, self.ring_bytes).map(Port::from)
            }
            Wire::HsIp { address } => UdpPort::open(*address, steering).map(Port::from),
            // Its connections are taken elsewhere.
            Wire::Iscsi { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Where clients can reach these ports; `None` when the kernel does not say.
pub(crate) fn addresses(ports: &[Port]) -> Option<Vec<Address>> {
    let interfaces =
        interface::list().inspect_err(|error| tracing::debug!("the interfaces are unknown: {error}")).ok()?;
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
            |peer| interfaces.iter().find(|interface| is_at(interface, peer)).and_then(Interface::speed_mbit);
        let told = peers.into_iter();
        addresses.extend(told.map(|peer| Address {
            peer,
            packet_max_bytes,
            speed_mbit: speed_mbit(peer).unwrap_or(0),
        }));
    }
    Some(fastest(addresses))
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

/// A number that the shards share for one interface, and hardly anybody else on this host.
fn group(process: u32, wire: u16, round: u32) -> u16 {
    let mixed =
        process.wrapping_mul(0x9e37_79b1) ^ u32::from(wire).wrapping_mul(0x85eb_ca6b) ^ round.wrapping_mul(0xc2b2_ae35);
    (mixed >> 16) as u16
}

/// What a shard receives from and sends to.
pub(crate) struct Links {
    ports: Vec<Port>,
    openers: Vec<Opener>,
    is_broken: Vec<bool>,
    tend_at: Instant,
    /// Something has happened since the links were last looked after: perhaps it was that one is gone.
    is_put_off: bool,
}

impl Links {
    /// `ports` were opened by `openers`, in this order.
    pub(crate) fn new(ports: Vec<Port>, openers: Vec<Opener>) -> Self {
        let is_broken = vec![false; ports.len()];
        Links { ports, openers, is_broken, tend_at: Instant::ZERO, is_put_off: false }
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
        if !self.is_broken[index] {
            tracing::warn!("wire {} is gone: {error}; it is opened again when it is back", self.openers[index].wire);
        }
        self.is_broken[index] = true;
    }

    /// Looks after the links, now and then: reads their MTU and addresses, and opens again what is gone. `false`: it is not yet
    /// time for that.
    pub(crate) fn tend(&mut self, now: Instant) -> bool {
        self.is_put_off = now < self.tend_at;
        if self.is_put_off {
            return false;
        }
        self.tend_at = now + TEND_EVERY;
        for index in 0..self.ports.len() {
            // Any other error passes: the port goes on with what it knew.
            if let Err(error) = self.ports[index].refresh()
                && error.kind() == io::ErrorKind::NotFound
            {
                self.lose(index, &error);
            }
            if !self.is_broken[index] {
                continue;
            }
            match self.openers[index].reopen() {
                Ok(Some(port)) => {
                    tracing::warn!("wire {} is open again", self.openers[index].wire);
                    self.ports[index] = port;
                    self.is_broken[index] = false;
                }
                Ok(None) => {}
                Err(error) => tracing::debug!("wire {} stays away: {error}", self.openers[index].wire),
            }
        }
        true
    }

    /// When [`Links::tend`] should be called next: if a link is away, or once more after whatever has woken the shard. While all
    /// are there and nothing happens, nothing wakes a shard for it.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (self.is_put_off || self.is_broken.contains(&true)).then_some(self.tend_at)
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

    /// A shard without clients is woken once when an interface goes, and its turn to open the port again holds up all the others.
    #[test]
    fn links_are_looked_after_once_more_after_whatever_has_woken_the_shard() {
        let mut links = Links::new(Vec::new(), Vec::new());
        let (begin, soon) = (Instant::ZERO, Instant::ZERO + TEND_EVERY / 2);
        assert!(links.tend(begin) && links.poll_timeout().is_none());
        assert!(!links.tend(soon));
        assert_eq!(links.poll_timeout(), Some(begin + TEND_EVERY));
        assert!(links.tend(begin + TEND_EVERY) && links.poll_timeout().is_none());
    }

    #[test]
    fn groups_of_wires_and_rounds_differ() {
        let mut groups: Vec<u16> = (0..8).flat_map(|wire| (0..4).map(move |round| group(4711, wire, round))).collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), 32);
    }
}
