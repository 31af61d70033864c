//! A session by HyperSCSI, on raw Ethernet or UDP. A link that goes away and comes back is an outage like any other: the
//! client seeks on.

use std::io;
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Slice};
use sanwire_core::{Instant, LinkId, Lun, Path, Peer, Protection, Size};
use sanwire_hyperscsi::wire::command::{Answer as WireAnswer, Ask};
use sanwire_hyperscsi::{
    Agreed, Client, ClientConfig, ClientEvent, Failure as WireFailure, LinkStatus, Order as WireOrder,
};
use sanwire_io::{Clock, ReceivePath, Waker};
use sanwire_scsi::Status;

use super::link_watch::{LinkWatch, News};
use super::lookup::Lookup;
use super::trunk::Trunk;
use super::{Answer, Event, Failure, Order, OrderId, ServerInfo, Session, Wish};
use crate::endpoint::Endpoint;
use crate::options::Links;
use crate::ports::{Door, EVERYWHERE, Ports};
use crate::resolve;
use crate::volume::WireUnit;

/// Packets taken from the port before the driver looks at anything else.
const RECEIVE_BUDGET: usize = 64;

/// Packets sent before the driver looks for what has arrived.
const TRANSMIT_BUDGET: usize = 256;

/// How often the ports, and the server's name, are looked after while there is no connection.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// The client's end of the protocol, its ports, and the places at which the server may be.
pub(crate) struct HyperScsi {
    protocol: Client,
    ports: Ports,
    trunk: Trunk,
    link_watch: LinkWatch,
    /// The one that had the last connection comes first.
    places: Vec<Path>,
    /// How many of them are asked next.
    places_asked: usize,
    is_seeking: bool,
    /// Where the server may be by now, if it is known by a name.
    lookup: Option<Lookup>,
    tend_at: Instant,
}

impl HyperScsi {
    /// The session's configuration names [`EVERYWHERE`] as the place of the server.
    pub(crate) fn new(endpoint: Endpoint, config: ClientConfig, links: Links, now: Instant) -> Self {
        let mut session = HyperScsi {
            protocol: Client::new(config, now),
            ports: endpoint.ports,
            trunk: Trunk::new(links),
            link_watch: LinkWatch::default(),
            places: endpoint.places,
            places_asked: 0,
            is_seeking: false,
            lookup: endpoint.lookup,
            tend_at: now + TEND_EVERY,
        };
        session.seek();
        session
    }

    /// The first place has a short lead over the second, those two over the next two, and so on: the first that answers is
    /// connected. Broadcasts on several links need no order.
    fn seek(&mut self) {
        self.is_seeking = true;
        let is_ethernet = matches!(self.places.first(), Some(Path { peer: Peer::Ethernet(_), .. }));
        self.places_asked = if is_ethernet { self.places.len() } else { 1 };
    }

    /// Looks after the further links.
    fn tend_trunk(&mut self, now: Instant) {
        if !self.trunk.is_due(now) {
            return;
        }
        let Some(server) = self.protocol.server() else { return };
        let live = self.protocol.links().into_iter().filter(|link| link.is_live).map(|link| link.path);
        let live: Vec<Path> = live.collect();
        self.tell_links(&live, &server.name);
        let changes = self.trunk.tend(&mut self.ports, server.path, &live, now);
        changes.left.into_iter().for_each(|path| self.protocol.forget(path));
        for (path, own) in changes.joined {
            self.protocol.join(path, own, now);
        }
        if !self.trunk.is_asking() {
            self.close_unused();
        }
    }

    /// Says which links are lost, and which are back.
    fn tell_links(&mut self, live: &[Path], server: &str) {
        let names: Option<Vec<String>> = live.iter().map(|path| self.trunk.name_of(&self.ports, *path)).collect();
        let Some(names) = names else { return };
        for news in self.link_watch.heed(&names) {
            match news {
                News::Lost(what) => tracing::warn!("server {server}: {what}"),
                News::Back(what) => tracing::info!("server {server}: {what}"),
            }
        }
    }

    /// A port on which the server was not found holds a ring of memory for nothing.
    fn close_unused(&mut self) {
        let places = self.places.iter().map(|place| place.link);
        let links = self.protocol.links().into_iter().map(|link| link.path.link);
        let used: Vec<LinkId> = places.chain(links).chain(self.trunk.links()).collect();
        self.ports.keep_only(&used);
    }

    /// The next search begins where the server was.
    fn connected(&mut self, path: Path) {
        self.is_seeking = false;
        self.lookup.iter_mut().for_each(Lookup::forget);
        let on_ethernet = matches!(path.peer, Peer::Ethernet(_));
        let is_here = |place: &Path| *place == path || (on_ethernet && place.link == path.link);
        if let Some(index) = self.places.iter().position(is_here) {
            self.places[..=index].rotate_right(1);
        }
    }

    /// Asks for the server's addresses again, and seeks it at those that are new.
    fn look_up(&mut self, is_due: bool) {
        let Some(lookup) = &mut self.lookup else { return };
        if is_due {
            lookup.start();
        }
        let Some(addresses) = lookup.poll() else { return };
        let mut places = Vec::new();
        for address in addresses {
            match Door::udp(address).and_then(|door| self.ports.add(door)) {
                Ok(link) => places.push(Path { link, peer: Peer::Udp(address) }),
                Err(error) => tracing::debug!("there is no way to {address}: {error}"),
            }
        }
        // What was told last comes first; what was true before may become so again.
        places.extend(self.places.iter().filter(|place| !places.contains(place)).copied().collect::<Vec<_>>());
        places.truncate(resolve::ADDRESSES_MAX);
        self.places_asked = self.places_asked.max(1);
        self.places = places;
    }

    fn queue(&mut self, path: Path, packet: Packet) {
        if path != EVERYWHERE {
            return self.ports.queue(path, packet);
        }
        for place in self.places.iter().take(self.places_asked) {
            self.ports.queue(*place, packet.clone());
        }
        self.places_asked = (self.places_asked * 2).min(self.places.len());
    }
}

impl Session for HyperScsi {
    fn receive_path(&self) -> Option<ReceivePath> {
        self.ports.receive_path()
    }

    fn receive(&mut self, now: Instant) -> usize {
        if self.is_seeking {
            let is_due = now >= self.tend_at;
            if is_due {
                self.tend_at = now + TEND_EVERY;
                self.ports.tend();
            }
            self.look_up(is_due);
        }
        self.tend_trunk(now);
        let protocol = &mut self.protocol;
        self.ports.receive(RECEIVE_BUDGET, &mut |path, bytes| protocol.handle_input(path, bytes, now))
    }

    pass_to_protocol!();

    fn poll_timeout(&self) -> Option<Instant> {
        self.protocol.poll_timeout().into_iter().chain(self.trunk.poll_timeout().filter(|_| !self.is_seeking)).min()
    }

    fn pause(&mut self, is_paused: bool, now: Instant) -> bool {
        self.protocol.pause(is_paused, now);
        true
    }

    fn is_pause_heard(&self) -> bool {
        self.protocol.is_pause_heard()
    }

    fn links(&self) -> (Vec<LinkStatus>, bool) {
        (self.protocol.links(), self.trunk.is_asking())
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = loop {
            match self.protocol.poll_event()? {
                ClientEvent::Addresses(addresses) => self.trunk.learn(addresses),
                ClientEvent::Options(agreed) => return changed(&self.protocol, &agreed),
                event => break event,
            }
        };
        match &event {
            ClientEvent::Connected { server, .. } => self.connected(server.path),
            ClientEvent::GivenUp(_) => self.is_seeking = false,
            ClientEvent::Lost { .. } => self.seek(),
            _ => {}
        }
        translate(event)
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        while sent < TRANSMIT_BUDGET
            && let Some((path, packet)) = self.protocol.poll_transmit(now)
        {
            sent += 1;
            self.queue(path, packet);
        }
        if sent > 0 {
            self.ports.flush();
        }
        sent
    }

    fn order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        let Order { lun, cdb, is_repeatable, data_out, data_in } = order;
        match self.protocol.order(WireOrder { lun, ask: Ask::Command(cdb), is_repeatable, data_out, data_in }, now) {
            Ok(id) => Ok(OrderId(id.number())),
            Err(WireOrder { lun, data_out, data_in, .. }) => Err(Order { lun, cdb, is_repeatable, data_out, data_in }),
        }
    }

    fn administer(&mut self, request: Slice, room: Frame, now: Instant) -> Option<Result<OrderId, (Slice, Frame)>> {
        let order = WireOrder {
            lun: Lun::default(),
            ask: Ask::Administer,
            is_repeatable: false,
            data_out: Some(request.clone()),
            data_in: Some(room),
        };
        match self.protocol.order(order, now) {
            Ok(id) => Some(Ok(OrderId(id.number()))),
            Err(WireOrder { data_in, .. }) => data_in.map(|room| Err((request, room))),
        }
    }

    fn protection(&self, lun: Lun) -> Option<Protection> {
        self.protocol.protection(lun)
    }

    fn is_compressed(&self, lun: Lun) -> Option<bool> {
        self.protocol.is_compressed(lun)
    }

    fn wish(&mut self, Wish { wishes, protection_min }: Wish, now: Instant) {
        if let Err(error) = self.protocol.wish(wishes, protection_min, now) {
            tracing::error!("the connection stays as it is: {error}");
        }
    }

    fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> io::Result<()> {
        self.ports.wait(Some(waker), deadline, &Clock::new())
    }
}

pub(crate) fn translate(event: ClientEvent) -> Option<Event> {
    Some(match event {
        ClientEvent::Addresses(_) | ClientEvent::Options(_) => return None,
        ClientEvent::WishRefused(option) => {
            Event::WishRefused(format!("the server and this client do not go together in {}", option.name()))
        }
        ClientEvent::Connected { server, resumed } => Event::Connected { server: server_info(server), resumed },
        ClientEvent::Lost { announced } => Event::Lost { announced },
        ClientEvent::Completed { id, answer: WireAnswer::Command { status, sense }, data_in, data_in_bytes } => {
            Event::Completed { id: OrderId(id.number()), answer: Answer { status, sense }, data_in, data_in_bytes }
        }
        ClientEvent::Completed { id, answer: WireAnswer::Administered, data_in, data_in_bytes } => {
            let answer = Answer { status: Status::Good, sense: Vec::new() };
            Event::Completed { id: OrderId(id.number()), answer, data_in, data_in_bytes }
        }
        ClientEvent::Completed { id, answer: WireAnswer::Managed { .. }, .. } => {
            let what = "a command was answered as task management".to_owned();
            Event::Failed { id: OrderId(id.number()), failure: Failure::Protocol(what), data_in: None }
        }
        ClientEvent::Failed { id, failure, data_in } => {
            Event::Failed { id: OrderId(id.number()), failure: failure.into(), data_in }
        }
        ClientEvent::OutOfPatience(failure) => Event::OutOfPatience(failure.into()),
        ClientEvent::GivenUp(failure) => Event::GivenUp(failure.into()),
    })
}

/// Tells what both ends have agreed on anew.
pub(crate) fn changed(client: &Client, agreed: &Agreed) -> Option<Event> {
    let terms = describe(agreed);
    client.server().map(|server| Event::Changed { server: server_info(server), terms })
}

/// What was agreed on, in words for people.
fn describe(agreed: &Agreed) -> String {
    let compression = if agreed.compression { "compression" } else { "no compression" };
    let cap = agreed.rate_cap_bytes_per_second.map_or("no cap".to_owned(), |cap| format!("cap {}/s", Size(cap)));
    let transfer = agreed.transfer_max_bytes.map(|bytes| format!(", transfers of up to {}", Size(bytes.into())));
    let media = if agreed.medium_lock { ", media locked" } else { "" };
    format!("security {} at least, {compression}, {cap}{}{media}", agreed.protection_min, transfer.unwrap_or_default())
}

pub(crate) fn server_info(server: sanwire_hyperscsi::ServerInfo) -> ServerInfo {
    ServerInfo {
        name: server.name,
        commands_max: server.commands_max,
        transfer_max_bytes: server.transfer_max_bytes,
        transfer_limit_bytes: server.transfer_limit_bytes,
        unit: WireUnit::Packet(server.packet_max_bytes),
        public_key: Some(server.public_key),
        rate_cap_bytes_per_second: server.options.rate_cap_bytes_per_second,
    }
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        match failure {
            WireFailure::NoAnswer => Failure::NoAnswer(failure.to_string()),
            WireFailure::NoPassword
            | WireFailure::WrongPassword
            | WireFailure::Option(_)
            | WireFailure::RefusedOptions => Failure::Refused(failure.to_string()),
            WireFailure::OtherServer { pinned, received } => Failure::OtherServer { pinned, received },
            WireFailure::Full => Failure::Full,
            WireFailure::InDoubt => Failure::InDoubt,
            WireFailure::TooLarge => Failure::TooLarge,
            WireFailure::Closed => Failure::Closed,
        }
    }
}
