//! The network ports of one client: opened, served together, and opened again when they lead nowhere any more.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, LinkId, MacAddress, Path, Peer};
use sanwire_io::interface::Interface;
use sanwire_io::{Clock, LocalAddress, PacketPort, Poller, Port, ReceivePath, UdpPort, Waker, interface};

use crate::session::LinkLimits;

/// Ports of a client at the most.
pub(crate) const PORTS_MAX: usize = 32;

/// Where a client seeks: stands for every place at which its server may be.
pub(crate) const EVERYWHERE: Path = Path { link: LinkId(u8::MAX), peer: Peer::Ethernet(MacAddress::BROADCAST) };

/// Packets by which receive buffers are measured: what most links take at the most. A wildcard address or the loopback takes
/// larger ones; then fewer fit, and the rest is recovered like any loss.
const JUMBO_BYTES: usize = 9000;

/// How a port is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// Raw Ethernet on an interface.
    Ethernet { interface: String, ethertype: u16, ring_bytes: usize },
    /// UDP, from the address that leads to this server.
    Udp {
        server: SocketAddr,
        source: IpAddr,
        /// IP may take its datagrams apart.
        may_fragment: bool,
    },
}

impl Door {
    pub(crate) fn udp(server: SocketAddr) -> io::Result<Door> {
        Ok(Door::Udp { server, source: interface::route_to(server)?.source, may_fragment: false })
    }

    /// The same, where IP may take datagrams apart.
    pub(crate) fn fragmenting_udp(server: SocketAddr) -> io::Result<Door> {
        Ok(Door::Udp { server, source: interface::route_to(server)?.source, may_fragment: true })
    }

    pub(crate) fn open(&self) -> io::Result<Port> {
        match self {
            Door::Ethernet { interface, ethertype, ring_bytes } => {
                PacketPort::open(interface, *ethertype, *ring_bytes).map(Port::from)
            }
            Door::Udp { source, may_fragment, .. } => {
                let port = UdpPort::open(SocketAddr::new(*source, 0))?;
                if *may_fragment {
                    port.let_ip_fragment()?;
                }
                Ok(port.into())
            }
        }
    }

    /// Whether there is something to open.
    fn is_there(&self, interfaces: &[Interface]) -> bool {
        match self {
            Door::Ethernet { interface, .. } => interfaces.iter().any(|known| known.name == *interface),
            Door::Udp { .. } => true,
        }
    }

    /// One port serves all servers that are reached from the same address.
    fn leads_like(&self, other: &Door) -> bool {
        match (self, other) {
            (Door::Ethernet { interface, .. }, Door::Ethernet { interface: other, .. }) => interface == other,
            (Door::Udp { source, may_fragment, .. }, Door::Udp { source: other, may_fragment: others, .. }) => {
                (source, may_fragment) == (other, others)
            }
            _ => false,
        }
    }
}

/// Open ports, each with a [`LinkId`] of its own.
pub(crate) struct Ports {
    ports: Vec<Port>,
    /// In the same order.
    doors: Vec<Opened>,
    next: LinkId,
    poller: Poller,
    /// As they were when the ports were last looked after.
    interfaces: Option<Arc<Vec<Interface>>>,
}

/// How a port was opened, and what it is called.
struct Opened {
    link: LinkId,
    door: Door,
    is_broken: bool,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Ports { ports: Vec::new(), doors: Vec::new(), next: LinkId(0), poller: Poller::new(), interfaces: None }
    }

    /// Opens one more, unless it is open already.
    ///
    /// # Errors
    /// The system's; `InvalidInput` when there are [`PORTS_MAX`].
    pub(crate) fn add(&mut self, door: Door) -> io::Result<LinkId> {
        if let Some(known) = self.doors.iter().find(|known| known.door.leads_like(&door)) {
            return Ok(known.link);
        }
        if self.ports.len() == PORTS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.ports.push(door.open()?);
        while self.next == EVERYWHERE.link || self.place(self.next).is_some() {
            self.next = LinkId(self.next.0.wrapping_add(1));
        }
        let link = self.next;
        // The number of a port that is closed is not used again at once.
        self.next = LinkId(link.0.wrapping_add(1));
        self.doors.push(Opened { link, door, is_broken: false });
        Ok(link)
    }

    /// Closes the ports that are not among these.
    pub(crate) fn keep_only(&mut self, used: &[LinkId]) {
        for place in (0..self.doors.len()).rev() {
            if !used.contains(&self.doors[place].link) {
                self.doors.remove(place);
                self.ports.remove(place);
            }
        }
    }

    fn place(&self, link: LinkId) -> Option<usize> {
        self.doors.iter().position(|opened| opened.link == link)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// The interface of a raw Ethernet link.
    pub(crate) fn interface(&self, link: LinkId) -> Option<&str> {
        match &self.doors[self.place(link)?].door {
            Door::Ethernet { interface, .. } => Some(interface),
            Door::Udp { .. } => None,
        }
    }

    /// How the packets of raw Ethernet come; `None` of other links.
    pub(crate) fn receive_path(&self) -> Option<ReceivePath> {
        let is_ethernet = |opened: &Opened| matches!(opened.door, Door::Ethernet { .. });
        let place = self.doors.iter().position(is_ethernet)?;
        Some(self.ports[place].receive_path())
    }

    /// Where a link begins.
    pub(crate) fn local_address(&self, link: LinkId) -> Option<LocalAddress> {
        self.place(link).map(|place| self.ports[place].local_address())
    }

    /// Our end of a link.
    pub(crate) fn end(&self, link: LinkId) -> LinkLimits {
        let nothing = LinkLimits { packet_max_bytes: 0, receive_capacity_packets: 0 };
        self.place(link).map_or(nothing, |place| limits(&self.ports[place..=place]))
    }

    /// What the protocol negotiates by: the largest packet of any link, which it then tries on the one that it uses, and as
    /// many of them as any takes.
    pub(crate) fn limits(&self) -> LinkLimits {
        limits(&self.ports)
    }

    /// Takes at most `budget` packets from each port.
    pub(crate) fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Path, &[u8])) -> usize {
        let mut received = 0;
        for place in 0..self.ports.len() {
            let link = self.doors[place].link;
            let result =
                self.ports[place].receive(budget, &mut |peer, packet| each(Path { link, peer }, packet.bytes()));
            received += self.note(place, result).unwrap_or(0);
        }
        received
    }

    /// Puts a packet into the batch of its port; [`Ports::flush`] sends it.
    pub(crate) fn queue(&mut self, path: Path, packet: Packet) {
        let Some(place) = self.place(path.link) else { return };
        let port = &mut self.ports[place];
        if let Err(packet) = port.queue(path.peer, packet) {
            let result = port.flush();
            // An empty batch takes a packet.
            drop(port.queue(path.peer, packet));
            self.note(place, result);
        }
    }

    pub(crate) fn flush(&mut self) {
        for place in 0..self.ports.len() {
            let result = self.ports[place].flush();
            self.note(place, result);
        }
    }

    fn note<T>(&mut self, place: usize, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let opened = &mut self.doors[place];
                if !std::mem::replace(&mut opened.is_broken, true) {
                    tracing::warn!("the network port {} does not work any more: {error}", opened.door);
                }
                None
            }
        }
    }

    /// Opens those again that lead nowhere. To be called now and then while there is no connection.
    pub(crate) fn tend(&mut self) {
        self.mend();
        for place in 0..self.ports.len() {
            if self.is_rerouted(place) {
                self.reopen(place);
            }
        }
    }

    /// Opens those again whose interfaces were replaced, or have lost their addresses. Others may carry a connection meanwhile.
    pub(crate) fn mend(&mut self) {
        let Some(interfaces) = interface::watch().known() else { return };
        let before = self.interfaces.replace(Arc::clone(&interfaces));
        // What is older than the port says nothing of it.
        let is_news = before.is_none_or(|before| !Arc::ptr_eq(&before, &interfaces));
        for place in 0..self.ports.len() {
            let is_gone = self.ports[place].refresh(&interfaces).is_err() && is_news;
            self.doors[place].is_broken |= is_gone;
            if self.doors[place].is_broken && self.doors[place].door.is_there(&interfaces) {
                self.reopen(place);
            }
        }
    }

    fn reopen(&mut self, place: usize) {
        let door = match &self.doors[place].door {
            Door::Udp { server, may_fragment: true, .. } => Door::fragmenting_udp(*server),
            Door::Udp { server, .. } => Door::udp(*server),
            door @ Door::Ethernet { .. } => Ok(door.clone()),
        };
        match door.and_then(|door| Ok((door.open()?, door))) {
            Ok((port, door)) => {
                tracing::warn!("the network port {door} is open again");
                self.ports[place] = port;
                (self.doors[place].door, self.doors[place].is_broken) = (door, false);
            }
            Err(error) => tracing::debug!("the network port cannot be opened again yet: {error}"),
        }
    }

    fn is_rerouted(&self, place: usize) -> bool {
        match (self.ports[place].local_address(), &self.doors[place].door) {
            (LocalAddress::Udp(local), Door::Udp { server, .. }) => {
                interface::route_to(*server).is_ok_and(|route| route.source != local.ip())
            }
            _ => false,
        }
    }

    pub(crate) fn wait(&mut self, waker: Option<&Waker>, deadline: Option<Instant>, clock: &Clock) -> io::Result<()> {
        self.poller.wait(&self.ports, &[], waker, deadline, clock).map(drop)
    }
}

fn limits(ports: &[Port]) -> LinkLimits {
    // HyperSCSI counts body bytes in 16 bits.
    let packet_max = ports.iter().map(Port::payload_max_bytes).max().unwrap_or(0).min(65_000);
    let capacity = ports.iter().map(|port| port.receive_capacity_packets(packet_max.min(JUMBO_BYTES))).min();
    LinkLimits { packet_max_bytes: packet_max as u32, receive_capacity_packets: capacity.unwrap_or(0) }
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Door::Ethernet { interface, .. } => write!(f, "on {interface}"),
            Door::Udp { server, .. } => write!(f, "towards {server}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(host: u8) -> Door {
        let source = IpAddr::from([127, 0, 0, host]);
        Door::Udp { server: SocketAddr::new(source, 9), source, may_fragment: false }
    }

    #[test]
    fn ports_that_nobody_uses_are_closed_and_the_others_keep_their_names() {
        let mut ports = Ports::new();
        let links: Vec<LinkId> = (1..=4).map(|host| ports.add(door(host)).unwrap()).collect();
        assert_eq!(ports.add(door(2)).unwrap(), links[1], "one is enough");
        let local = ports.local_address(links[2]);
        ports.keep_only(&[links[2], links[3]]);
        assert_eq!((ports.ports.len(), ports.local_address(links[2])), (2, local));
        assert_eq!((ports.local_address(links[0]), ports.end(links[1]).packet_max_bytes), (None, 0));
        assert_eq!(ports.receive_path(), None, "there is no Ethernet");
        let again = ports.add(door(1)).unwrap();
        assert!(!links.contains(&again), "what still goes to the old one is not taken for the new one's");
        for _ in 0..300 {
            let link = ports.add(door(5)).unwrap();
            assert!(link != EVERYWHERE.link && ![links[2], links[3], again].contains(&link));
            ports.keep_only(&[links[2], links[3], again]);
        }
    }
}
