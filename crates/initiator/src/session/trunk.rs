//! Further links of a HyperSCSI connection: which interfaces of this host might reach the server's other addresses, and
//! the ports there.
//!
//! Of a raw Ethernet nobody knows beforehand whether the server is on it: a port is opened on each interface that is free.
//! Those on which the server does not answer are not asked any more, until they are tried again. Addresses of the other kind
//! (IP, when the server is reached by Ethernet) have their turn afterwards, on what is still free.

use std::cmp::Reverse;
use std::time::Duration;

use sanwire_core::{Instant, LinkId, Path, Peer};
use sanwire_hyperscsi::LinkLimits;
use sanwire_hyperscsi::wire::links::Address;
use sanwire_io::interface::{self, Interface};
use sanwire_io::{LocalAddress, RING_BYTES_DEFAULT};

use crate::options::Links;
use crate::ports::{Door, Ports};

/// How long a server may take to answer on a new port.
const SETTLE: Duration = Duration::from_secs(2);

/// How often interfaces are looked at again, and when those without a server are tried again.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const RETRY_EVERY: Duration = Duration::from_secs(30);

/// Paths by a port of a further link.
struct Extra {
    interface: String,
    paths: Vec<Path>,
}

/// What the ports wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing, until interfaces change.
    Settled,
    /// The server's answers to ports of the URL's kind, or of the other.
    Asking { is_other_kind: bool, until: Instant },
}

/// All further links.
pub(super) struct Trunk {
    choice: Links,
    addresses: Vec<Address>,
    extras: Vec<Extra>,
    stage: Stage,
    look_at: Instant,
    retry_at: Instant,
    seen: Vec<Interface>,
}

impl Trunk {
    pub(super) fn new(choice: Links) -> Self {
        Trunk {
            choice,
            addresses: Vec::new(),
            extras: Vec::new(),
            stage: Stage::Settled,
            look_at: Instant::ZERO,
            retry_at: Instant::ZERO,
            seen: Vec::new(),
        }
    }

    /// The server tells where it can be reached.
    pub(super) fn learn(&mut self, addresses: Vec<Address>) {
        if self.addresses != addresses {
            self.addresses = addresses;
            self.seen.clear();
            (self.look_at, self.retry_at) = (Instant::ZERO, Instant::ZERO);
        }
    }

    /// Whether it is not yet known which links there are.
    pub(super) fn is_asking(&self) -> bool {
        self.stage != Stage::Settled || (self.may_have_more() && self.seen.is_empty())
    }

    /// The ports that may lead to the server.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.extras.iter().flat_map(|extra| extra.paths.iter().map(|path| path.link))
    }

    fn may_have_more(&self) -> bool {
        self.addresses.len() > 1 && self.choice.max > 1
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asking { until, .. } => Some(until),
            Stage::Settled => self.may_have_more().then_some(self.look_at),
        }
    }

    /// Looks after the ports. Gives the paths that are to be joined, with our ends of them, and those that
    /// are no more.
    pub(super) fn tend(&mut self, ports: &mut Ports, first: Path, live: &[Path], now: Instant) -> Changes {
        let mut changes = Changes::default();
        if !self.may_have_more() || self.poll_timeout().is_none_or(|at| at > now) {
            return changes;
        }
        if let Stage::Asking { is_other_kind, .. } = self.stage {
            self.prune(live, &mut changes);
            if is_other_kind || !self.open(ports, first, true, now, &mut changes) {
                self.stage = Stage::Settled;
            }
            return changes;
        }
        self.look_at = now + LOOK_EVERY;
        let Ok(interfaces) = interface::list() else { return changes };
        if interfaces != self.seen || self.retry_at <= now {
            self.seen = interfaces;
            self.retry_at = now + RETRY_EVERY;
            self.prune_gone(&mut changes);
            if !self.open(ports, first, false, now, &mut changes) {
                self.open(ports, first, true, now, &mut changes);
            }
        }
        changes
    }

    /// Forgets the paths on which the server did not answer.
    fn prune(&mut self, live: &[Path], changes: &mut Changes) {
        self.close(|extra| !extra.paths.iter().any(|path| live.contains(path)), changes);
    }

    /// Forgets the paths by interfaces that are gone.
    fn prune_gone(&mut self, changes: &mut Changes) {
        let seen = std::mem::take(&mut self.seen);
        self.close(|extra| !seen.iter().any(|interface| interface.name == extra.interface), changes);
        self.seen = seen;
    }

    fn close(&mut self, is_useless: impl Fn(&Extra) -> bool, changes: &mut Changes) {
        let (useless, kept) = std::mem::take(&mut self.extras).into_iter().partition(is_useless);
        self.extras = kept;
        changes.left.extend(Vec::<Extra>::into_iter(useless).flat_map(|extra| extra.paths));
    }

    /// Opens ports on what is free, for the server's addresses of the URL's kind or of the other. `false`: there was nothing to
    /// open.
    fn open(
        &mut self,
        ports: &mut Ports,
        first: Path,
        is_other_kind: bool,
        now: Instant,
        changes: &mut Changes,
    ) -> bool {
        let server = first.peer;
        let is_ethernet = matches!(server, Peer::Ethernet(_)) != is_other_kind;
        let before = self.extras.len();
        let mut others: Vec<&Address> = self.addresses.iter().filter(|address| address.peer != server).collect();
        // There may be more than are wanted: the fastest first, as far as they say.
        others.sort_by_key(|address| Reverse(address.speed_mbit));
        let others: Vec<Peer> = others.into_iter().map(|address| address.peer).collect();
        let local = ports.local_address(first.link);
        let used = self
            .seen
            .iter()
            .find(|interface| local.is_some_and(|local| is_at(interface, local)))
            .map(|interface| interface.name.clone());
        let mut free: Vec<Interface> =
            self.seen.iter().filter(|interface| Some(&interface.name) != used.as_ref()).cloned().collect();
        free.sort_by_cached_key(|interface| Reverse(interface.speed_mbit()));
        for interface in
            free.iter().filter(|interface| interface.is_up && interface.is_running && !interface.is_loopback)
        {
            let is_taken = self.extras.iter().any(|extra| extra.interface == interface.name);
            if is_taken || self.extras.len() + 1 >= self.choice.max || !self.choice.permits(&interface.name) {
                continue;
            }
            let peers = if is_ethernet { stations(&others, interface) } else { routed(&others, interface) };
            if let Some(&peer) = peers.first()
                && let Ok(link) = door(interface, peer).and_then(|door| ports.add(door))
            {
                self.add(link, ports.end(link), interface, peers, changes);
            }
        }
        let is_opened = self.extras.len() > before;
        if is_opened {
            self.stage = Stage::Asking { is_other_kind, until: now + SETTLE };
        }
        is_opened
    }

    fn add(&mut self, link: LinkId, own: LinkLimits, interface: &Interface, peers: Vec<Peer>, changes: &mut Changes) {
        let paths: Vec<Path> = peers.into_iter().map(|peer| Path { link, peer }).collect();
        changes.joined.extend(paths.iter().map(|path| (*path, own)));
        self.extras.push(Extra { interface: interface.name.clone(), paths });
    }
}

/// Paths that came and went.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) joined: Vec<(Path, LinkLimits)>,
    pub(super) left: Vec<Path>,
}

fn is_at(interface: &Interface, local: LocalAddress) -> bool {
    match local {
        LocalAddress::Ethernet(mac) => interface.mac_address == Some(mac),
        LocalAddress::Udp(local) => interface.addresses.contains(&local.ip()),
    }
}

/// Stations that may be on the interface's Ethernet, for all that we know.
fn stations(peers: &[Peer], interface: &Interface) -> Vec<Peer> {
    let is_station = |peer: &&Peer| matches!(peer, Peer::Ethernet(_)) && interface.mac_address.is_some();
    peers.iter().filter(is_station).copied().collect()
}

/// Addresses of other hosts to which the route leads through the interface.
fn routed(peers: &[Peer], interface: &Interface) -> Vec<Peer> {
    let leads_there = |peer: &&Peer| match peer {
        Peer::Udp(address) => {
            let is_here = interface::is_local_address(**peer).unwrap_or(true);
            !is_here && interface::route_to(*address).is_ok_and(|route| interface.addresses.contains(&route.source))
        }
        Peer::Ethernet(_) => false,
    };
    peers.iter().filter(leads_there).copied().collect()
}

fn door(interface: &Interface, peer: Peer) -> std::io::Result<Door> {
    match peer {
        Peer::Ethernet(_) => Ok(Door::Ethernet { interface: interface.name.clone(), ring_bytes: RING_BYTES_DEFAULT }),
        Peer::Udp(address) => Door::udp(address),
    }
}
