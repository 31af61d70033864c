//! A session by HyperSCSI, on raw Ethernet or UDP. A link that goes away and comes back is an outage like any other: the
//! client seeks on.

use std::io;
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Slice};
use sanwire_core::{Instant, LinkId, Lun, Path, Peer, Protection};
use sanwire_hyperscsi::wire::command::{Answer as WireAnswer, Ask};
use sanwire_hyperscsi::{Client, ClientConfig, ClientEvent, Failure as WireFailure, Order as WireOrder};
use sanwire_io::{Clock, LocalAddress, Poller, Port, Waker, interface};
use sanwire_scsi::Status;

use super::{Answer, Event, Failure, Order, OrderId, ServerInfo, Session};
use crate::endpoint::{self, Endpoint};
use crate::url::HyperScsiServer;
use crate::volume::WireUnit;

/// Packets taken from the port before the driver looks at anything else.
const RECEIVE_BUDGET: usize = 64;

/// Packets sent before the driver looks for what has come.
const TRANSMIT_BUDGET: usize = 256;

/// How often the port is looked after while there is no connection.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// The client's end of the protocol, its port, and what it takes to open that again.
pub(crate) struct HyperScsi {
    protocol: Client,
    port: Port,
    poller: Poller,
    path: Path,
    server: HyperScsiServer,
    is_seeking: bool,
    tend_at: Instant,
    is_broken: bool,
}

impl HyperScsi {
    pub(crate) fn new(endpoint: Endpoint, server: HyperScsiServer, config: ClientConfig, now: Instant) -> Self {
        HyperScsi {
            protocol: Client::new(config, now),
            port: endpoint.port,
            poller: Poller::new(),
            path: endpoint.path,
            server,
            is_seeking: true,
            tend_at: Instant::ZERO,
            is_broken: false,
        }
    }

    fn queue(&mut self, to: Peer, packet: Packet) {
        if let Err(packet) = self.port.queue(to, packet) {
            self.flush();
            // An empty batch takes a packet.
            drop(self.port.queue(to, packet));
        }
    }

    fn flush(&mut self) {
        let result = self.port.flush();
        self.note(result);
    }

    fn note<T>(&mut self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.is_broken {
                    tracing::warn!("the network port towards {} does not work any more: {error}", self.server);
                }
                self.is_broken = true;
                None
            }
        }
    }

    /// Opens the port again if it leads nowhere. To be called while there is no connection.
    fn tend(&mut self, now: Instant) {
        if now < self.tend_at {
            return;
        }
        self.tend_at = now + TEND_EVERY;
        if !self.is_stale() {
            return;
        }
        match endpoint::open_port(&self.server, self.path.peer) {
            Ok(port) => {
                tracing::warn!("the network port towards {} is open again", self.server);
                self.port = port;
                self.is_broken = false;
            }
            Err(error) => tracing::debug!("the network port cannot be opened again yet: {error}"),
        }
    }

    fn is_stale(&mut self) -> bool {
        if self.port.refresh().is_err() || self.is_broken {
            return true;
        }
        match (self.port.local_address(), self.path.peer) {
            (LocalAddress::Udp(local), Peer::Udp(server)) => {
                interface::route_to(server).is_ok_and(|route| route.source != local.ip())
            }
            _ => false,
        }
    }
}

impl Session for HyperScsi {
    fn receive(&mut self, now: Instant) -> usize {
        if self.is_seeking {
            self.tend(now);
        }
        let protocol = &mut self.protocol;
        let result = self.port.receive(RECEIVE_BUDGET, &mut |peer, bytes| {
            protocol.handle_input(Path { link: LinkId(0), peer }, bytes, now);
        });
        self.note(result).unwrap_or(0)
    }

    pass_to_protocol!();

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.protocol.poll_event()?;
        match &event {
            ClientEvent::Connected { .. } | ClientEvent::GivenUp(_) => self.is_seeking = false,
            ClientEvent::Lost { .. } => self.is_seeking = true,
            _ => {}
        }
        Some(translate(event))
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        while sent < TRANSMIT_BUDGET
            && let Some((path, packet)) = self.protocol.poll_transmit(now)
        {
            sent += 1;
            self.queue(path.peer, packet);
        }
        if sent > 0 {
            self.flush();
        }
        sent
    }

    fn order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        let Order { lun, cdb, data_out, data_in } = order;
        match self.protocol.order(WireOrder { lun, ask: Ask::Command(cdb), data_out, data_in }, now) {
            Ok(id) => Ok(OrderId(id.number())),
            Err(WireOrder { lun, data_out, data_in, .. }) => Err(Order { lun, cdb, data_out, data_in }),
        }
    }

    fn administer(&mut self, request: Slice, room: Frame, now: Instant) -> Option<Result<OrderId, (Slice, Frame)>> {
        let order = WireOrder {
            lun: Lun::default(),
            ask: Ask::Administer,
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

    fn wait(&mut self, waker: &Waker, deadline: Option<Instant>, clock: &Clock) -> io::Result<()> {
        self.poller.wait(std::slice::from_ref(&self.port), &[], Some(waker), deadline, clock).map(drop)
    }
}

fn translate(event: ClientEvent) -> Event {
    match event {
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
            Event::Failed { id: OrderId(id.number()), failure: Failure::Protocol(what) }
        }
        ClientEvent::Failed { id, failure, .. } => Event::Failed { id: OrderId(id.number()), failure: failure.into() },
        ClientEvent::OutOfPatience(failure) => Event::OutOfPatience(failure.into()),
        ClientEvent::GivenUp(failure) => Event::GivenUp(failure.into()),
    }
}

fn server_info(server: sanwire_hyperscsi::ServerInfo) -> ServerInfo {
    ServerInfo {
        name: server.name,
        commands_max: server.commands_max,
        transfer_max_bytes: server.transfer_max_bytes,
        unit: WireUnit::Packet(server.packet_max_bytes),
        public_key: Some(server.public_key),
    }
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        match failure {
            WireFailure::NoAnswer => Failure::NoAnswer(failure.to_string()),
            WireFailure::NotAuthentic | WireFailure::OtherServer => Failure::Refused(failure.to_string()),
            WireFailure::Full => Failure::Full,
            WireFailure::InDoubt => Failure::InDoubt,
            WireFailure::TooLarge => Failure::TooLarge,
            WireFailure::Closed => Failure::Closed,
        }
    }
}
