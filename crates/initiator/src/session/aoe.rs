//! A session by ATA over Ethernet, with one target. Its link may go away and come back: that is an outage like any other.

use std::io;
use std::time::Duration;

use sanwire_aoe::{Client, ClientConfig, ClientEvent, Failure as WireFailure, Order as WireOrder, Place, question};
use sanwire_core::{Instant, LinkId, Lun, Protection};
use sanwire_io::{Clock, ReceivePath, Waker};

use super::{Answer, Event, Failure, Order, OrderId, ServerInfo, Session};
use crate::endpoint::{ConnectError, Endpoint};
use crate::options::ClientOptions;
use crate::ports::Ports;
use crate::url::AoeServer;
use crate::volume::WireUnit;

/// Packets taken from the port before the driver looks at anything else.
const RECEIVE_BUDGET: usize = 64;

/// Packets sent before the driver looks for what has arrived.
const TRANSMIT_BUDGET: usize = 256;

/// How often the ports are looked after: those of a connection may carry more or less than before.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// How often those are asked who may be there.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The longest transfer of one command of the layer above: the protocol cuts it into as many as it takes.
const TRANSFER_MAX_BYTES: u32 = 1 << 20;

/// Commands that wait for their answers.
const COMMANDS_MAX: u16 = 128;

/// The client's end of the protocol and its ports.
pub(crate) struct Aoe {
    protocol: Client,
    ports: Ports,
    links: Vec<LinkId>,
    name: String,
    is_seeking: bool,
    tend_at: Instant,
}

impl Aoe {
    pub(crate) fn open(server: &AoeServer, options: &ClientOptions, now: Instant) -> Result<Aoe, ConnectError> {
        let address = server.address.ok_or_else(|| ConnectError::NoTarget { host: server.to_string() })?;
        let Endpoint { ports, places, .. } =
            Endpoint::of_stations(server.interface.as_deref(), sanwire_aoe::ETHERTYPE)?;
        let packet_max_bytes = |link| ports.end(link).packet_max_bytes as usize;
        let config = ClientConfig {
            address,
            links: places.iter().map(|place| (place.link, packet_max_bytes(place.link))).collect(),
            connect_patience: options.connect_patience,
            reconnect_patience: options.reconnect_patience,
            first_tag: first_tag()?,
        };
        let protocol = Client::new(config, now);
        let links = places.iter().map(|place| place.link).collect();
        Ok(Aoe { protocol, ports, links, name: address.to_string(), is_seeking: true, tend_at: now + TEND_EVERY })
    }

    fn tend(&mut self) {
        if self.is_seeking {
            self.ports.tend()
        } else {
            self.ports.mend()
        }
        for link in &self.links {
            self.protocol.set_link(*link, self.ports.end(*link).packet_max_bytes as usize);
        }
    }

    fn info(&self, place: Place) -> ServerInfo {
        ServerInfo {
            name: self.name.clone(),
            commands_max: COMMANDS_MAX,
            transfer_max_bytes: TRANSFER_MAX_BYTES,
            transfer_limit_bytes: TRANSFER_MAX_BYTES,
            unit: WireUnit::Packet(self.ports.end(place.path.link).packet_max_bytes),
            public_key: None,
            rate_cap_bytes_per_second: None,
        }
    }
}

fn first_tag() -> Result<u32, ConnectError> {
    let bytes = crate::random::bytes().map_err(crate::options::no_randomness)?;
    Ok(u32::from_be_bytes(bytes))
}

impl Session for Aoe {
    fn receive_path(&self) -> Option<ReceivePath> {
        self.ports.receive_path()
    }

    fn receive(&mut self, now: Instant) -> usize {
        if now >= self.tend_at {
            self.tend_at = now + TEND_EVERY;
            self.tend();
        }
        let protocol = &mut self.protocol;
        self.ports.receive(RECEIVE_BUDGET, &mut |path, bytes| protocol.handle_input(path, bytes, now))
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.protocol.poll_timeout().is_some_and(|at| at <= now) {
            self.protocol.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.protocol.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.protocol.poll_event()?;
        Some(match event {
            ClientEvent::Connected(place) => {
                self.is_seeking = false;
                Event::Connected { server: self.info(place), resumed: false }
            }
            ClientEvent::Lost => {
                self.is_seeking = true;
                Event::Lost { announced: false }
            }
            ClientEvent::Completed { number, status, sense, data_in, data_in_bytes } => {
                Event::Completed { id: OrderId(number), answer: Answer { status, sense }, data_in, data_in_bytes }
            }
            ClientEvent::Failed { number, failure, data_in } => {
                Event::Failed { id: OrderId(number), failure: failure.into(), data_in }
            }
            ClientEvent::OutOfPatience => Event::OutOfPatience(WireFailure::NoAnswer.into()),
            ClientEvent::GivenUp(failure) => Event::GivenUp(failure.into()),
        })
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        while sent < TRANSMIT_BUDGET
            && let Some((path, packet)) = self.protocol.poll_transmit(now)
        {
            sent += 1;
            self.ports.queue(path, packet);
        }
        if sent > 0 {
            self.ports.flush();
        }
        sent
    }

    fn order(&mut self, order: Order, _now: Instant) -> Result<OrderId, Order> {
        let Order { lun, cdb, is_repeatable, data_out, data_in } = order;
        match self.protocol.order(WireOrder { cdb, data_out, data_in }) {
            Ok(number) => Ok(OrderId(number)),
            Err(WireOrder { data_out, data_in, .. }) => Err(Order { lun, cdb, is_repeatable, data_out, data_in }),
        }
    }

    fn in_transit(&self) -> usize {
        self.protocol.in_transit()
    }

    fn hold_after_restart(&mut self) {
        self.protocol.hold_after_restart();
    }

    fn release(&mut self) {
        self.protocol.release();
    }

    /// There is one unit.
    fn abandon(&mut self, _lun: Lun) {
        self.protocol.abandon();
    }

    fn withdraw(&mut self, id: OrderId) {
        self.protocol.withdraw(id.0);
    }

    fn server(&self) -> Option<ServerInfo> {
        self.protocol.place().map(|place| self.info(place))
    }

    fn protection(&self, _lun: Lun) -> Option<Protection> {
        None
    }

    fn disconnect(&mut self, _now: Instant) {
        self.protocol.disconnect();
    }

    fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> io::Result<()> {
        self.ports.wait(Some(waker), deadline, &Clock::new())
    }
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        match failure {
            WireFailure::NoAnswer => Failure::NoAnswer(failure.to_string()),
            WireFailure::NoDisk(what) => Failure::Protocol(what),
            WireFailure::InDoubt => Failure::InDoubt,
            WireFailure::Closed => Failure::Closed,
        }
    }
}

/// An AoE target that has answered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AoeTarget {
    /// The URL of the target.
    pub server: AoeServer,
    /// The station that has it.
    pub station: String,
    /// The largest packet of our link, in bytes.
    pub packet_max_bytes: u32,
    /// What its owner has written there, as far as it can be shown.
    pub config: String,
}

/// Asks the Ethernet of an interface, or all of them, which targets there are; each is told once for each interface.
///
/// # Errors
/// [`ConnectError`] when no port can be opened or used.
pub fn aoe_targets(server: &AoeServer, patience: Duration) -> Result<Vec<AoeTarget>, ConnectError> {
    let ethertype = sanwire_aoe::ETHERTYPE;
    let Endpoint { mut ports, places, .. } = Endpoint::of_stations(server.interface.as_deref(), ethertype)?;
    let question = question(server.address.unwrap_or(sanwire_aoe::Address::EVERY), first_tag()?);
    let clock = Clock::new();
    let (end, mut ask_at) = (clock.now() + patience, Instant::ZERO);
    let mut answers = Vec::new();
    while clock.now() < end {
        if ask_at <= clock.now() {
            ask_at = clock.now() + ASK_EVERY;
            places.iter().for_each(|place| ports.queue(*place, question.clone()));
            ports.flush();
        }
        let received = ports.receive(RECEIVE_BUDGET, &mut |path, bytes| {
            answers.extend(sanwire_aoe::found(bytes).map(|found| (path, found)))
        });
        if received == 0 {
            let broken = |source| ConnectError::Open { what: "the links for discovery".into(), source, hint: "" };
            ports.wait(None, Some(end.min(ask_at)), &clock).map_err(broken)?;
        }
    }
    let mut targets: Vec<AoeTarget> = Vec::new();
    for (path, found) in answers {
        let interface = ports.interface(path.link).map(ToOwned::to_owned);
        let target = AoeTarget {
            server: AoeServer { interface, address: Some(found.address) },
            station: path.peer.to_string(),
            packet_max_bytes: ports.end(path.link).packet_max_bytes,
            config: String::from_utf8_lossy(&found.config).into_owned(),
        };
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets.sort();
    Ok(targets)
}
