//! The ports of one shard. A link that goes away must not take the others with it, and comes back by itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Arrival, Packet};
use sanwire_core::{Instant, LinkId, Path, Peer};
use sanwire_io::interface::Interface;
use sanwire_io::{LocalAddress, Port, PortCounters, interface};

use crate::announce::Announced;
use crate::counting::WireCount;
use crate::events::{EventLog, Happening};
use crate::front::{FrontEnd, Fronts};
use crate::messages::{Mailbox, ShardMessage};
use crate::opener::{Opener, Reopened};

/// How often the links are looked after.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// A place where initiators reach a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkAddress {
    pub(crate) peer: Peer,
    /// The largest packet of the port.
    pub(crate) packet_max_bytes: usize,
    /// Zero where the link does not say.
    pub(crate) speed_mbit: u32,
}

/// Where initiators reach these ports.
pub(crate) fn addresses(ports: impl IntoIterator<Item = PortTerms>, interfaces: &[Interface]) -> Vec<LinkAddress> {
    let mut addresses = Vec::new();
    for port in ports {
        let peers: Vec<Peer> = match port.address {
            LocalAddress::Ethernet(mac) => vec![Peer::Ethernet(mac)],
            LocalAddress::Udp(local) => places_of(local, interfaces).into_iter().map(Peer::Udp).collect(),
        };
        let packet_max_bytes = port.packet_max_bytes;
        let speed_mbit =
            |peer| interfaces.iter().find(|interface| is_at(interface, peer)).and_then(|found| found.speed_mbit);
        let told = peers.into_iter();
        addresses.extend(told.map(|peer| LinkAddress {
            peer,
            packet_max_bytes,
            speed_mbit: speed_mbit(peer).unwrap_or(0),
        }));
    }
    addresses
}

/// Where others reach what listens at an address of IP: at all of this host's that they can name, if it is the wildcard.
pub(crate) fn addresses_of(local: SocketAddr, interfaces: &[Interface]) -> Vec<LinkAddress> {
    let places = places_of(local, interfaces).into_iter();
    places.map(|place| LinkAddress { peer: Peer::Udp(place), packet_max_bytes: 0, speed_mbit: 0 }).collect()
}

fn places_of(local: SocketAddr, interfaces: &[Interface]) -> Vec<SocketAddr> {
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    let reachable = interfaces.iter().filter(|interface| interface.is_up && !interface.is_loopback);
    let ips = reachable.flat_map(|interface| &interface.addresses);
    let fitting = ips.filter(|ip| ip.is_ipv4() == local.is_ipv4() && !is_link_local(**ip));
    fitting.map(|ip| SocketAddr::new(*ip, local.port())).collect()
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

/// What links need of a port.
pub(crate) trait LinkPort: Sized {
    /// One that was opened again, if this is of the same kind.
    fn reopened(port: Port) -> Option<Self>;

    /// See [`Port::receive`].
    fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Peer, Arrival<'_>)) -> io::Result<usize>;

    /// See [`Port::queue`].
    #[expect(clippy::result_large_err, reason = "the packet itself comes back; boxing it would allocate")]
    fn queue(&mut self, to: Peer, packet: Packet) -> Result<(), Packet>;

    /// See [`Port::flush`].
    fn flush(&mut self) -> io::Result<()>;

    /// See [`Port::refresh`].
    fn refresh(&mut self, interfaces: &[Interface]) -> io::Result<()>;

    /// See [`Port::counters`].
    fn counters(&self) -> PortCounters;

    /// What peers are told of it.
    fn terms(&self) -> PortTerms;
}

/// What peers are told of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortTerms {
    pub(crate) address: LocalAddress,
    /// The largest packet, in bytes.
    pub(crate) packet_max_bytes: usize,
    /// How many jumbo frames may be under way towards it.
    pub(crate) receive_capacity_packets: u32,
}

/// What a shard receives from and sends to.
pub(crate) struct Links<P> {
    ports: Vec<P>,
    wires: Vec<LinkWire>,
    /// By front ends: the places of their ports among all, by the links' numbers.
    places: Vec<Vec<usize>>,
    tend_at: Instant,
    /// As they were when the links were last looked after.
    interfaces: Option<Arc<Vec<Interface>>>,
    /// Something has happened since the links were last looked after: perhaps it was that one is gone.
    is_put_off: bool,
    /// Which of their addresses clients are told.
    announced: Announced,
    events: EventLog,
}

/// Packets by which receive buffers are measured: what most links take at the most. A wildcard address or the loopback
/// takes larger ones; then fewer fit, and the rest is recovered like any loss.
const JUMBO_BYTES: usize = 9000;

impl LinkPort for Port {
    fn reopened(port: Port) -> Option<Self> {
        Some(port)
    }

    fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Peer, Arrival<'_>)) -> io::Result<usize> {
        Port::receive(self, budget, handler)
    }

    fn queue(&mut self, to: Peer, packet: Packet) -> Result<(), Packet> {
        Port::queue(self, to, packet)
    }

    fn flush(&mut self) -> io::Result<()> {
        Port::flush(self)
    }

    fn refresh(&mut self, interfaces: &[Interface]) -> io::Result<()> {
        Port::refresh(self, interfaces)
    }

    fn counters(&self) -> PortCounters {
        Port::counters(self)
    }

    fn terms(&self) -> PortTerms {
        let packet_max_bytes = self.payload_max_bytes();
        let receive_capacity_packets = self.receive_capacity_packets(packet_max_bytes.min(JUMBO_BYTES));
        PortTerms { address: self.local_address(), packet_max_bytes, receive_capacity_packets }
    }
}

/// The wire that a port belongs to.
struct LinkWire {
    opener: Arc<Opener>,
    /// Which link of which front end it is.
    front: u8,
    link: u8,
    /// Which opening of its ports this is.
    round: u32,
    is_broken: bool,
    /// What was counted at the ports that it had before.
    before: PortCounters,
}

impl<P: LinkPort> Links<P> {
    /// `ports` were opened by `openers`, in this order.
    pub(crate) fn new(ports: Vec<P>, openers: Vec<Arc<Opener>>, announced: Announced, events: EventLog) -> Self {
        let (mut places, mut wires) = (Vec::<Vec<usize>>::new(), Vec::new());
        for (place, opener) in openers.into_iter().enumerate() {
            let front = opener.wire().front();
            places.resize(places.len().max(usize::from(front) + 1), Vec::new());
            let links = &mut places[usize::from(front)];
            let (link, before) = (links.len() as u8, PortCounters::default());
            wires.push(LinkWire { opener, front, link, round: 0, is_broken: false, before });
            links.push(place);
        }
        Links { ports, wires, places, tend_at: Instant::ZERO, interfaces: None, is_put_off: false, announced, events }
    }

    pub(crate) fn ports(&self) -> &[P] {
        &self.ports
    }

    /// Hands up to `budget` packets of each link to the front ends.
    pub(crate) fn receive(&mut self, budget: usize, fronts: &mut Fronts, now: Instant) -> usize {
        let mut received = 0;
        for index in 0..self.ports.len() {
            let LinkWire { front, link, .. } = self.wires[index];
            let Some(end) = fronts.get(front).and_then(FrontEnd::datagrams) else { continue };
            let handle =
                &mut |peer, packet: Arrival<'_>| end.handle_input(Path { link: LinkId(link), peer }, packet, now);
            let result = self.ports[index].receive(budget, handle);
            received += self.note(index, result).unwrap_or(0);
        }
        received
    }

    /// Sends up to `budget` packets of each front end; gives how many.
    pub(crate) fn transmit(&mut self, budget: usize, fronts: &mut Fronts, now: Instant) -> usize {
        let mut sent = 0;
        for front in 0..self.places.len() {
            let mut left = budget;
            if let Some(end) = fronts.get(front as u8).and_then(FrontEnd::datagrams) {
                while left > 0
                    && let Some((path, packet)) = end.poll_transmit(now)
                {
                    left -= 1;
                    if let Some(place) = self.places[front].get(usize::from(path.link.0)).copied() {
                        self.queue(place, path.peer, packet);
                    }
                }
            }
            sent += budget - left;
        }
        if sent > 0 {
            self.flush();
        }
        sent
    }

    /// Queues a packet; a link that is away loses it.
    fn queue(&mut self, place: usize, to: Peer, packet: Packet) {
        let port = &mut self.ports[place];
        if let Err(packet) = port.queue(to, packet) {
            let result = port.flush();
            self.note(place, result);
            // An empty batch takes a packet.
            drop(self.ports[place].queue(to, packet));
        }
    }

    fn flush(&mut self) {
        for index in 0..self.ports.len() {
            let result = self.ports[index].flush();
            self.note(index, result);
        }
    }

    fn note<T>(&mut self, index: usize, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.lose(index, &error)).ok()
    }

    fn lose(&mut self, index: usize, error: &io::Error) {
        let LinkWire { opener, is_broken, round, .. } = &mut self.wires[index];
        if !opener.is_bound_to_an_interface() {
            tracing::debug!("wire {opener}: {error}");
            return;
        }
        if !*is_broken && opener.is_lost_first(*round) {
            tracing::warn!("wire {opener} is gone: {error}; it is opened again when it is back");
            self.events.note(Happening::LinkLost { wire: opener.to_string() });
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
                wire.reopen(shards, &self.events);
            }
        }
        true
    }

    /// Tells the front ends where initiators reach their links, and what these carry, as they were when they were last looked after.
    pub(crate) fn tell_addresses(&self, fronts: &mut Fronts, now: Instant) {
        let Some(interfaces) = &self.interfaces else { return };
        for (front, places) in (0..).zip(&self.places) {
            if let Some(end) = fronts.get(front).and_then(FrontEnd::datagrams) {
                let links = addresses(places.iter().map(|place| self.ports[*place].terms()), interfaces);
                end.set_addresses(&self.announced.of_links(&links, interfaces), now);
                for (place, link) in places.iter().zip(0..) {
                    end.set_packet_max(LinkId(link), self.ports[*place].terms().packet_max_bytes);
                }
            }
        }
    }

    /// Goes on with a port that was opened again.
    pub(crate) fn take(&mut self, reopened: Reopened) {
        let Reopened { wire, round, port } = reopened;
        let index = self.wires.iter().position(|link| link.opener.number() == wire);
        if let (Some(index), Some(port)) = (index, P::reopened(port)) {
            let former = std::mem::replace(&mut self.ports[index], port);
            let wire = &mut self.wires[index];
            (wire.round, wire.is_broken) = (round, false);
            wire.before += former.counters();
        }
    }

    /// What was counted at the ports of each wire.
    pub(crate) fn counts(&self) -> Vec<WireCount> {
        let count = |(port, wire): (&P, &LinkWire)| {
            let mut ports = wire.before;
            ports += port.counters();
            WireCount { wire: wire.opener.to_string(), is_up: !wire.is_broken, ports, connections: 0 }
        };
        self.ports.iter().zip(&self.wires).map(count).collect()
    }

    /// The wire that a link of a front end is.
    pub(crate) fn wire_of(&self, front: u8, link: LinkId) -> Option<String> {
        let place = *self.places.get(usize::from(front))?.get(usize::from(link.0))?;
        self.wires.get(place).map(|wire| wire.opener.to_string())
    }

    /// When [`Links::tend`] should be called next: if a link is away, or once more after whatever has woken the shard. While all
    /// are there and nothing happens, nothing wakes a shard for it.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (self.is_put_off || self.wires.iter().any(|wire| wire.is_broken)).then_some(self.tend_at)
    }
}

impl LinkWire {
    /// Opens the ports of all shards again, unless another shard has done so: then this one's comes by mail, too.
    fn reopen(&self, shards: &[Mailbox], events: &EventLog) {
        match self.opener.reopen(self.round) {
            Ok(Some(reopened)) => {
                tracing::warn!("wire {} is open again", self.opener);
                events.note(Happening::LinkBack { wire: self.opener.to_string() });
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

    /// A shard without clients is woken once when an interface goes, and only then has it opened again.
    #[test]
    fn links_are_looked_after_once_more_after_whatever_has_woken_the_shard() {
        let mut links = Links::<Port>::new(
            Vec::new(),
            Vec::new(),
            Announced::default(),
            EventLog::new(0, crate::revisions::Revisions::new(0)),
        );
        let (begin, soon) = (Instant::ZERO, Instant::ZERO + TEND_EVERY / 2);
        assert!(links.tend(&[], begin) && links.poll_timeout().is_none());
        assert!(!links.tend(&[], soon));
        assert_eq!(links.poll_timeout(), Some(begin + TEND_EVERY));
        assert!(links.tend(&[], begin + TEND_EVERY) && links.poll_timeout().is_none());
    }
}
