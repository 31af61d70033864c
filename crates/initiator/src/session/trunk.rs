//! Further links of a HyperSCSI connection: which interfaces of this host might reach the server's other addresses, and
//! the ports there.
//!
//! Of a raw Ethernet nobody knows beforehand whether the server is on it: a port is opened on each interface that is free.
//! Those on which the server does not answer are not asked any more, until they are tried again. Addresses of the other kind
//! (IP, when the server is reached by Ethernet) have their turn afterwards, on what is still free. A link whose interface was
//! replaced by another of its name, perhaps with another address, is joined anew while others carry the connection.

use std::cmp::Reverse;
use std::time::Duration;

use sanwire_core::{Instant, LinkId, Path, Peer};
use sanwire_hyperscsi::wire::links::Address;
use sanwire_hyperscsi::{ETHERTYPE, LinkLimits};
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
    /// It was opened in the stage that lasts, or in the last one.
    is_new: bool,
}

impl Extra {
    fn is_live(&self, live: &[Path]) -> bool {
        self.paths.iter().any(|path| live.contains(path))
    }
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
            (self.stage, self.look_at) = (Stage::Settled, Instant::ZERO);
        }
    }

    /// Whether it is not yet known which links there are.
    pub(super) fn is_asking(&self) -> bool {
        self.stage != Stage::Settled || (self.may_have_more() && self.seen.is_empty())
    }

    /// Whether [`Trunk::tend`] may have something to do.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.has_work() && (self.stage != Stage::Settled || self.look_at <= now)
    }

    /// The ports that may lead to the server.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.extras.iter().flat_map(|extra| extra.paths.iter().map(|path| path.link))
    }

    /// What people call a link: the interface, and the server's address there. `None` while nobody knows yet which interfaces there are,
    /// so that a link is not called something else later.
    pub(super) fn name_of(&self, ports: &Ports, path: Path) -> Option<String> {
        let address = match path.peer {
            Peer::Udp(address) => address.ip().to_string(),
            Peer::Ethernet(address) => address.to_string(),
        };
        // Over IP the kernel may send by any interface.
        match self.interface_of(ports, path.link) {
            Some(interface) => Some(format!("{interface} ({address})")),
            None => (!self.seen.is_empty()).then(|| format!("to {address}")),
        }
    }

    /// What the server has told may also be that there is nothing more.
    fn has_work(&self) -> bool {
        self.may_have_more() || (self.seen.is_empty() && !self.extras.is_empty())
    }

    fn may_have_more(&self) -> bool {
        self.addresses.len() > 1 && self.choice.max > 1
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asking { until, .. } => Some(until),
            Stage::Settled => self.has_work().then_some(self.look_at),
        }
    }

    /// Looks after the ports. Gives the paths that are to be joined, with our ends of them, and those that
    /// are no more.
    pub(super) fn tend(&mut self, ports: &mut Ports, first: Path, live: &[Path], now: Instant) -> Changes {
        let mut changes = Changes::default();
        match self.stage {
            _ if !self.is_due(now) => {}
            Stage::Settled => self.look(ports, first, live, now, &mut changes),
            Stage::Asking { until, .. } if until > now && !self.have_all_answered(live) => {}
            Stage::Asking { is_other_kind, .. } => {
                self.prune(live, &mut changes);
                self.stage = Stage::Settled;
                if !is_other_kind {
                    self.open(ports, first, true, now, &mut changes);
                }
            }
        }
        changes
    }

    /// Whether the server was found on every new port: then nothing is waited for.
    fn have_all_answered(&self, live: &[Path]) -> bool {
        self.extras.iter().all(|extra| !extra.is_new || extra.is_live(live))
    }

    /// Looks whether interfaces, or the server's addresses, have changed.
    fn look(&mut self, ports: &mut Ports, first: Path, live: &[Path], now: Instant, changes: &mut Changes) {
        self.look_at = now + LOOK_EVERY;
        let Some(interfaces) = interface::watch().known() else { return };
        ports.mend();
        let is_told_anew = self.seen.is_empty();
        if is_told_anew {
            self.prune_moved(live, changes);
        }
        if *interfaces != self.seen || self.retry_at <= now {
            self.seen = interfaces.to_vec();
            self.retry_at = now + RETRY_EVERY;
            self.prune_gone(changes);
            if self.may_have_more() && !self.open(ports, first, false, now, changes) {
                self.open(ports, first, true, now, changes);
            }
        }
        // The server may know our end by an address that it has no more.
        let known = [first].into_iter().chain(self.extras.iter().flat_map(|extra| extra.paths.iter().copied()));
        let dead = known.filter(|path| !live.iter().any(|live| live.link == path.link));
        changes.joined.extend(dead.map(|path| (path, ports.end(path.link))));
    }

    /// Forgets the new paths on which the server did not answer. Links of before that are suspected may come back.
    fn prune(&mut self, live: &[Path], changes: &mut Changes) {
        self.close(|extra| extra.is_new && !extra.is_live(live), changes);
    }

    /// Forgets the paths to addresses that the server has no more: it may have others there now.
    fn prune_moved(&mut self, live: &[Path], changes: &mut Changes) {
        let addresses = std::mem::take(&mut self.addresses);
        let is_told = |path: &Path| addresses.iter().any(|address| address.peer == path.peer);
        let kept: Vec<Path> = live.iter().copied().filter(is_told).collect();
        self.close(|extra| !extra.is_live(&kept), changes);
        self.addresses = addresses;
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
        self.extras.iter_mut().for_each(|extra| extra.is_new = false);
        let mut others: Vec<&Address> = self.addresses.iter().filter(|address| address.peer != server).collect();
        // There may be more than are wanted: the fastest first, as far as they say.
        others.sort_by_key(|address| Reverse(address.speed_mbit));
        let others: Vec<Peer> = others.into_iter().map(|address| address.peer).collect();
        let used = self.interface_of(ports, first.link);
        let mut free: Vec<Interface> =
            self.seen.iter().filter(|interface| Some(&interface.name) != used.as_ref()).cloned().collect();
        free.sort_by_cached_key(|interface| Reverse(interface.speed_mbit));
        for interface in
            free.iter().filter(|interface| interface.is_up && interface.is_running && !interface.is_loopback)
        {
            let is_taken = self.extras.iter().any(|extra| extra.interface == interface.name);
            if is_taken || self.extras.len() + 1 >= self.choice.max || !self.choice.permits(&interface.name) {
                continue;
            }
            let peers = if is_ethernet { stations(&others, interface) } else { routed(&others, interface, &self.seen) };
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

    /// The interface of a port: of raw Ethernet that by which it was opened, for several may have one MAC address (a VLAN has
    /// that of its card).
    fn interface_of(&self, ports: &Ports, link: LinkId) -> Option<String> {
        let has = |interface: &&Interface| match ports.local_address(link) {
            Some(LocalAddress::Udp(local)) => interface.addresses.contains(&local.ip()),
            Some(LocalAddress::Ethernet(_)) | None => false,
        };
        let by_address = || self.seen.iter().find(has).map(|interface| interface.name.clone());
        ports.interface(link).map(ToOwned::to_owned).or_else(by_address)
    }

    fn add(&mut self, link: LinkId, own: LinkLimits, interface: &Interface, peers: Vec<Peer>, changes: &mut Changes) {
        let paths: Vec<Path> = peers.into_iter().map(|peer| Path { link, peer }).collect();
        changes.joined.extend(paths.iter().map(|path| (*path, own)));
        self.extras.push(Extra { interface: interface.name.clone(), paths, is_new: true });
    }
}

/// Paths that came and went.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) joined: Vec<(Path, LinkLimits)>,
    pub(super) left: Vec<Path>,
}

/// Stations that may be on the interface's Ethernet, for all that we know.
fn stations(peers: &[Peer], interface: &Interface) -> Vec<Peer> {
    let is_station = |peer: &&Peer| matches!(peer, Peer::Ethernet(_)) && interface.mac_address.is_some();
    peers.iter().filter(is_station).copied().collect()
}

/// Addresses of other hosts to which the route leads through the interface.
fn routed(peers: &[Peer], interface: &Interface, all: &[Interface]) -> Vec<Peer> {
    let leads_there = |peer: &&Peer| match peer {
        Peer::Udp(address) => {
            let is_here = address.ip().is_loopback() || interface::is_among(**peer, all);
            !is_here && interface::route_to(*address).is_ok_and(|route| interface.addresses.contains(&route.source))
        }
        Peer::Ethernet(_) => false,
    };
    peers.iter().filter(leads_there).copied().collect()
}

fn door(interface: &Interface, peer: Peer) -> std::io::Result<Door> {
    match peer {
        Peer::Ethernet(_) => Ok(Door::Ethernet {
            interface: interface.name.clone(),
            ethertype: ETHERTYPE,
            ring_bytes: RING_BYTES_DEFAULT,
        }),
        Peer::Udp(address) => Door::udp(address),
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::MacAddress;

    use super::*;

    fn path(link: u8) -> Path {
        Path { link: LinkId(link), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, link])) }
    }

    /// Asks on a second link.
    fn asking(until: Instant) -> Trunk {
        let loopback = Interface {
            name: "lo".into(),
            index: 1,
            mac_address: None,
            mtu_bytes: 65_536,
            speed_mbit: None,
            addresses: Vec::new(),
            is_up: true,
            is_running: true,
            is_loopback: true,
        };
        let told = |link| Address { peer: path(link).peer, packet_max_bytes: 1500, speed_mbit: 0 };
        Trunk {
            addresses: vec![told(1), told(2)],
            extras: vec![Extra { interface: "b".into(), paths: vec![path(2)], is_new: true }],
            stage: Stage::Asking { is_other_kind: false, until },
            seen: vec![loopback],
            ..Trunk::new(Links::default())
        }
    }

    #[test]
    fn the_links_are_known_as_soon_as_the_server_has_answered_on_each() {
        let until = Instant::ZERO + SETTLE;
        let (mut trunk, mut ports) = (asking(until), Ports::new());
        trunk.tend(&mut ports, path(1), &[path(1)], Instant::ZERO);
        assert!(trunk.is_asking(), "nothing was answered yet");
        trunk.tend(&mut ports, path(1), &[path(1), path(2)], Instant::ZERO);
        assert!(!trunk.is_asking() && trunk.links().eq([LinkId(2)]));
        let mut trunk = asking(until);
        trunk.tend(&mut ports, path(1), &[path(1)], until);
        assert_eq!((trunk.is_asking(), trunk.links().count()), (false, 0), "nobody was there");
    }

    #[test]
    fn a_link_has_no_name_before_the_interfaces_are_known() {
        let (mut trunk, ports) = (asking(Instant::ZERO), Ports::new());
        assert_eq!(trunk.name_of(&ports, path(1)).as_deref(), Some("to 02:00:00:00:00:01"));
        trunk.learn(Vec::new());
        assert_eq!(trunk.name_of(&ports, path(1)), None, "all is looked at again");
    }

    #[test]
    fn links_that_are_suspected_while_others_are_asked_for_stay() {
        let until = Instant::ZERO + SETTLE;
        let (mut trunk, mut ports) = (asking(until), Ports::new());
        trunk.extras.push(Extra { interface: "c".into(), paths: vec![path(3)], is_new: false });
        let changes = trunk.tend(&mut ports, path(1), &[path(1)], until);
        assert_eq!(changes.left, [path(2)]);
        assert!(trunk.links().eq([LinkId(3)]));
    }

    #[test]
    fn links_are_closed_when_the_server_has_one_address_left() {
        let (mut trunk, mut ports) = (asking(Instant::ZERO), Ports::new());
        let live = [path(1), path(2)];
        trunk.tend(&mut ports, path(1), &live, Instant::ZERO);
        trunk.learn(trunk.addresses[..1].to_vec());
        assert!(trunk.is_due(Instant::ZERO) && trunk.poll_timeout().is_some());
        let changes = trunk.tend(&mut ports, path(1), &live, Instant::ZERO);
        assert_eq!((changes.left, trunk.links().count(), trunk.poll_timeout()), (vec![path(2)], 0, None));
    }
}
