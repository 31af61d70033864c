//! A session by VISA, over UDP or TCP. A link that goes away and comes back is an outage like any other: the client seeks on.

mod carrier;
mod discover;
mod streams;
mod terms;

use std::io;
use std::time::Duration;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Instant, Lun, Path, Protection};
use sanwire_io::{Clock, Waker};
use sanwire_scsi::Status;
use sanwire_visa::wire::HEADER_BYTES;
use sanwire_visa::{
    Answer as WireAnswer, Ask, Client, ClientEvent, Failure as WireFailure, Mode, Order as WireOrder,
    ServerInfo as WireServer,
};

use self::carrier::Carrier;
pub use self::discover::{VisaFound, visa_servers};
use self::terms::config;
use super::{Answer, Event, Failure, Lookup, Order, OrderId, ServerInfo, Session};
use crate::endpoint::ConnectError;
use crate::options::ClientOptions;
use crate::resolve;
use crate::session::table::{VISA, VISA_TCP};
use crate::url::VisaServer;
use crate::volume::WireUnit;

/// Packets sent before the driver looks for what has arrived.
const TRANSMIT_BUDGET: usize = 256;

/// How often the ways to the server, and its name, are looked after while there is no connection.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// What a packet has besides its payload, in bytes: its header, and the tag behind it.
const AROUND_PAYLOAD_BYTES: u32 = HEADER_BYTES as u32 + 16;

/// The client's end of the protocol, and what carries its packets.
pub(crate) struct Visa {
    protocol: Client,
    carrier: Carrier,
    /// Where the server is sought.
    places: Vec<Path>,
    /// Where it may be by now, if it is known by a name.
    lookup: Option<Lookup>,
    is_seeking: bool,
    tend_at: Instant,
}

impl Visa {
    pub(crate) fn open(
        server: &VisaServer,
        options: &ClientOptions,
        waker: &Waker,
        now: Instant,
    ) -> Result<Visa, ConnectError> {
        let (carrier, places) = Carrier::open(server, options)?;
        let config = config(options, carrier.link(), places.clone())?;
        let service = if server.is_stream { VISA_TCP } else { VISA };
        let lookup = Lookup::of(&server.host, server.port, service, &options.name_servers);
        Ok(Visa {
            protocol: Client::new(config, now),
            carrier,
            places,
            lookup: lookup.map(|lookup| lookup.waking(waker.clone())),
            is_seeking: true,
            tend_at: now + TEND_EVERY,
        })
    }

    /// Looks after the ways to the server while it is sought.
    fn tend(&mut self, now: Instant) {
        let is_due = self.is_seeking && now >= self.tend_at;
        if is_due {
            self.tend_at = now + TEND_EVERY;
            self.carrier.tend(now);
        }
        let Some(lookup) = &mut self.lookup else { return };
        if is_due {
            lookup.start();
        }
        let Some(addresses) = lookup.poll() else { return };
        let mut places: Vec<Path> = addresses.into_iter().filter_map(|address| self.carrier.way_to(address)).collect();
        // What was told last comes first; what was true before may become so again.
        places.extend(self.places.iter().filter(|place| !places.contains(place)).copied().collect::<Vec<_>>());
        places.truncate(resolve::ADDRESSES_MAX);
        self.places = places;
        self.protocol.set_places(self.places.clone());
    }
}

impl Session for Visa {
    fn receive(&mut self, now: Instant) -> usize {
        self.tend(now);
        self.carrier.receive(&mut self.protocol, now)
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.protocol.poll_timeout().is_some_and(|at| at <= now) {
            self.protocol.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let tends = self.is_seeking.then_some(self.tend_at);
        self.protocol.poll_timeout().into_iter().chain(tends).min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.protocol.poll_event()?;
        match &event {
            ClientEvent::Connected { server, .. } => {
                self.is_seeking = false;
                self.lookup.iter_mut().for_each(Lookup::forget);
                self.carrier.keep_only(server.path);
            }
            ClientEvent::Lost { .. } => {
                self.is_seeking = true;
                self.tend_at = Clock::new().now() + TEND_EVERY;
                self.carrier.start_anew();
            }
            ClientEvent::GivenUp(_) => self.is_seeking = false,
            _ => {}
        }
        Some(match (translate(event), self.carrier.failed()) {
            // Of the server nothing is known: what its host says may be why.
            (Event::GivenUp(Failure::NoAnswer(text)), Some(why)) => Event::GivenUp(with_reason(&text, why)),
            (Event::OutOfPatience(Failure::NoAnswer(text)), Some(why)) => Event::OutOfPatience(with_reason(&text, why)),
            (event, _) => event,
        })
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        while sent < TRANSMIT_BUDGET
            && self.carrier.has_room()
            && let Some((path, packet)) = self.protocol.poll_transmit(now)
        {
            sent += 1;
            self.carrier.queue(path, packet, now);
        }
        sent + self.carrier.flush(&mut self.protocol, now)
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

    fn in_transit(&self) -> usize {
        self.protocol.in_transit()
    }

    fn hold_after_restart(&mut self) {
        self.protocol.hold_after_restart();
    }

    fn release(&mut self) {
        self.protocol.release(Clock::new().now());
    }

    fn abandon(&mut self, lun: Lun) {
        self.protocol.abandon(lun, WireFailure::InDoubt);
    }

    fn withdraw(&mut self, id: OrderId) {
        self.protocol.withdraw(id.0);
    }

    fn server(&self) -> Option<ServerInfo> {
        self.protocol.server().map(server_info)
    }

    fn protection(&self, lun: Lun) -> Option<Protection> {
        self.protocol.protection(lun)
    }

    fn disconnect(&mut self, _now: Instant) {
        self.protocol.disconnect();
    }

    fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> io::Result<()> {
        self.carrier.wait(waker, deadline)
    }
}

fn with_reason(text: &str, why: &str) -> Failure {
    Failure::NoAnswer(format!("{why} ({text})"))
}

fn translate(event: ClientEvent) -> Event {
    match event {
        ClientEvent::Connected { server, resumed } => {
            tell_dangers(&server);
            Event::Connected { server: server_info(server), resumed }
        }
        ClientEvent::Lost { announced } => Event::Lost { announced },
        ClientEvent::Completed { id, answer: WireAnswer::Command { status, sense }, data_in, data_in_bytes } => {
            Event::Completed { id: OrderId(id.number()), answer: Answer { status, sense }, data_in, data_in_bytes }
        }
        ClientEvent::Completed { id, answer: WireAnswer::Administered, data_in, data_in_bytes } => {
            let answer = Answer { status: Status::Good, sense: Vec::new() };
            Event::Completed { id: OrderId(id.number()), answer, data_in, data_in_bytes }
        }
        ClientEvent::Completed { id, answer: WireAnswer::Managed { .. }, data_in, .. } => {
            let what = "a command was answered as something else".to_owned();
            Event::Failed { id: OrderId(id.number()), failure: Failure::Protocol(what), data_in }
        }
        ClientEvent::Failed { id, failure, data_in } => {
            Event::Failed { id: OrderId(id.number()), failure: failure.into(), data_in }
        }
        ClientEvent::OutOfPatience(failure) => Event::OutOfPatience(failure.into()),
        ClientEvent::GivenUp(failure) => Event::GivenUp(failure.into()),
    }
}

/// Who has asked for it has been told in the documentation; it is said all the same.
fn tell_dangers(server: &WireServer) {
    if server.terms.is_unchecked {
        tracing::warn!("server {}: nothing checks the packets of volumes without `security`", server.name);
    }
    if server.terms.mode == Mode::Classic {
        tracing::info!("server {}: classic mode, payload {} bytes", server.name, server.terms.payload_bytes);
    }
}

fn server_info(server: WireServer) -> ServerInfo {
    ServerInfo {
        name: server.name,
        commands_max: server.commands_max,
        transfer_max_bytes: server.transfer_max_bytes,
        transfer_limit_bytes: server.transfer_max_bytes,
        unit: WireUnit::Packet(u32::from(server.terms.payload_bytes) + AROUND_PAYLOAD_BYTES),
        public_key: Some(server.public_key),
        rate_cap_bytes_per_second: None,
    }
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        match failure {
            WireFailure::NoAnswer => Failure::NoAnswer(failure.to_string()),
            WireFailure::NoPassword | WireFailure::WrongPassword => Failure::Refused(failure.to_string()),
            WireFailure::OtherServer { pinned, received } => Failure::OtherServer { pinned, received },
            WireFailure::Full => Failure::Full,
            WireFailure::InDoubt => Failure::InDoubt,
            WireFailure::TooLarge => Failure::TooLarge,
            WireFailure::Closed => Failure::Closed,
        }
    }
}

#[cfg(test)]
mod tests;
