//! A session by iSCSI, over one TCP connection or several; or as iSER, over such or by an RDMA adapter.

mod adapter;
mod channel;
mod discovery;
mod parting;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use sanwire_core::limits::LONG_TRANSFER_MAX_BYTES;
use sanwire_core::{Instant, Lun, Movement, Protection};
use sanwire_io::tcp::{Received, Stream};
use sanwire_io::{Clock, Interest, Poller, Waker};
use sanwire_iscsi::{
    Client, ClientAction, ClientConfig, ClientEvent, ConnectionId, Failure as WireFailure, Order as WireOrder,
};

use self::channel::Channel;
pub(crate) use self::channel::Way;
pub(crate) use self::discovery::IscsiDiscovery;
use super::{Answer, Event, Failure, Lookup, Order, OrderId, ServerInfo, Session};
use crate::volume::WireUnit;

/// Runs of bytes taken from one connection before the others have their turn.
const RECEIVE_BUDGET: usize = 8;

/// Rounds of sending before the driver looks for what has arrived.
const SEND_BUDGET: usize = 4;

/// How often the name of a target's host is looked up while the target is sought.
const LOOK_UP_EVERY: Duration = Duration::from_secs(2);

/// How long a target may take to read what is left for it on a connection that is to be closed: until then the memory of that is
/// not free for others.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the sockets are tried before the driver sleeps, while commands are in flight: a round trip on a good network. Also with
/// many commands: while one end works off what the other has sent, that one has nothing to do, and if it sleeps then, both pay
/// for its wake-up and take turns from there on, instead of working side by side.
const SPIN: Duration = Duration::from_micros(100);

/// The client's end of the protocol and its sockets.
pub(crate) struct Iscsi {
    protocol: Client,
    way: Way,
    sockets: BTreeMap<ConnectionId, Socket>,
    poller: Poller,
    /// Where the target's host may be by now, if it is known by a name.
    lookup: Option<Lookup>,
    look_up_at: Instant,
}

struct Socket {
    channel: Channel,
    stage: Stage,
    watched: Interest,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    Open,
    /// To be closed when all is sent, or at this time.
    Closing {
        until: Instant,
    },
}

impl Socket {
    fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing { .. })
    }

    /// What the poller is to watch it for.
    fn wanted(&self) -> Interest {
        match &self.channel {
            // What still comes on a connection that is to be closed nobody reads: it would end every wait.
            Channel::Stream(stream) => Interest {
                readable: self.stage == Stage::Open,
                writable: self.stage == Stage::Connecting || stream.wants_write(),
            },
            Channel::Adapter(_) => Interest::READABLE,
        }
    }
}

impl Iscsi {
    pub(crate) fn new(config: ClientConfig, way: Way, lookup: Option<Lookup>, now: Instant) -> Self {
        let protocol = match way {
            Way::Tcp => Client::new(config, now),
            // An adapter's connections bring their own datamovers.
            Way::Iwarp | Way::Adapter(_) => Client::over(sanwire_iser::initiator, config, now),
        };
        let (sockets, poller, look_up_at) = (BTreeMap::new(), Poller::new(), now + LOOK_UP_EVERY);
        Iscsi { protocol, way, sockets, poller, lookup, look_up_at }
    }

    /// Asks for the addresses of the target's host again.
    fn look_up(&mut self, now: Instant) {
        let Some(lookup) = self.lookup.as_mut() else { return };
        if !self.protocol.is_seeking() {
            return lookup.forget();
        }
        if self.look_up_at <= now {
            self.look_up_at = now + LOOK_UP_EVERY;
            lookup.start();
        }
        if let Some(addresses) = lookup.poll() {
            self.protocol.learn_portals(addresses);
        }
    }

    /// Opens and closes connections as the protocol wants it.
    fn act(&mut self, now: Instant) {
        while let Some(action) = self.protocol.poll_action() {
            match action {
                ClientAction::Connect { connection, to } => {
                    if let Err(error) = self.connect(to, connection, now) {
                        tracing::debug!("no connection to {to}: {error}");
                        self.protocol.connection_lost(connection, now);
                    }
                }
                ClientAction::Close { connection } => {
                    if let Some(socket) = self.sockets.get_mut(&connection) {
                        socket.stage = Stage::Closing { until: now + CLOSE_TIMEOUT };
                    }
                }
            }
        }
    }

    fn connect(&mut self, to: SocketAddr, connection: ConnectionId, now: Instant) -> io::Result<()> {
        if let Way::Adapter(rdma) = &self.way {
            let opened = rdma.connect(to)?;
            return self.connect_by_adapter(opened, connection, now);
        }
        let stream = Stream::connect(to)?;
        let watched = Interest { readable: true, writable: true };
        self.poller.add_stream(&stream, connection.0, watched)?;
        let socket = Socket { channel: Channel::Stream(stream), stage: Stage::Connecting, watched };
        self.sockets.insert(connection, socket);
        Ok(())
    }

    fn lose(&mut self, connection: ConnectionId, error: Option<&io::Error>, now: Instant) {
        if let Some(error) = error {
            tracing::debug!("an iSCSI connection is lost: {error}");
        }
        if self.sockets.remove(&connection).is_some_and(|socket| !socket.is_closing()) {
            self.protocol.connection_lost(connection, now);
        }
    }

    /// Receives from one connection; gives how many runs of bytes.
    fn receive_from(&mut self, connection: ConnectionId, now: Instant) -> usize {
        let Some(socket) = self.sockets.get_mut(&connection) else { return 0 };
        let Channel::Stream(stream) = &mut socket.channel else { return self.ask_adapter(connection, now) };
        if socket.stage == Stage::Connecting {
            match stream.is_connected() {
                Ok(true) => {
                    socket.stage = Stage::Open;
                    self.protocol.connected(connection, now);
                    if let Ok(bytes) = stream.segment_bytes() {
                        self.protocol.note_segment_bytes(connection, bytes);
                    }
                }
                Ok(false) => return 0,
                Err(error) => self.lose(connection, Some(&error), now),
            }
            return 1;
        }
        if matches!(socket.stage, Stage::Closing { .. }) {
            return 0;
        }
        for count in 0..RECEIVE_BUDGET {
            match stream.receive(self.protocol.spaces(connection)) {
                Ok(Received::Bytes(bytes)) => self.protocol.filled(connection, bytes, now),
                Ok(Received::Nothing) => return count,
                Ok(Received::End) => {
                    self.lose(connection, None, now);
                    return count + 1;
                }
                Err(error) => {
                    self.lose(connection, Some(&error), now);
                    return count + 1;
                }
            }
        }
        RECEIVE_BUDGET
    }

    /// Sends on one connection what it takes; gives how many packets.
    fn send_on(&mut self, connection: ConnectionId, now: Instant) -> usize {
        let Some(socket) = self.sockets.get_mut(&connection) else { return 0 };
        let Channel::Stream(stream) = &mut socket.channel else {
            // The adapter has it, not we.
            drop(self.protocol.poll_transmit(connection));
            return 0;
        };
        let mut sent = 0;
        for _ in 0..SEND_BUDGET {
            let mut is_empty = false;
            while !is_empty && stream.wants_more() {
                match self.protocol.poll_transmit(connection) {
                    // There is room.
                    Some(packet) => drop(stream.queue(packet)),
                    None => is_empty = true,
                }
                sent += usize::from(!is_empty);
            }
            if let Err(error) = stream.flush() {
                self.lose(connection, Some(&error), now);
                return sent + 1;
            }
            if is_empty || stream.wants_write() {
                break;
            }
        }
        sent
    }

    fn connections(&self) -> Vec<ConnectionId> {
        self.sockets.keys().copied().collect()
    }

    /// Receives from each connection; gives how many runs of bytes.
    fn receive_all(&mut self, now: Instant) -> usize {
        let mut received = 0;
        let mut next = self.sockets.keys().next().copied();
        while let Some(connection) = next {
            received += self.receive_from(connection, now);
            next = self.sockets.range((Excluded(connection), Unbounded)).next().map(|(connection, _)| *connection);
        }
        received
    }

    /// Tries the sockets for a moment, as long as that pays; tells whether something was received.
    fn spin(&mut self, waker: &Waker, deadline: Option<Instant>, clock: &Clock) -> bool {
        if self.protocol.in_transit() == 0 {
            return false;
        }
        let mut poller = std::mem::take(&mut self.poller);
        let mut attempt = || self.receive_all(clock.now()) > 0;
        let found = poller.watch(SPIN, &[], Some(waker), deadline, clock, &mut attempt);
        self.poller = poller;
        found
    }
}

impl Session for Iscsi {
    fn receive(&mut self, now: Instant) -> usize {
        self.look_up(now);
        self.act(now);
        self.receive_all(now)
    }

    pass_to_protocol!();

    fn poll_timeout(&self) -> Option<Instant> {
        let looks_up = self.lookup.is_some() && self.protocol.is_seeking();
        let closing = self.sockets.values().filter_map(|socket| match socket.stage {
            Stage::Closing { until } => Some(until),
            Stage::Connecting | Stage::Open => None,
        });
        self.protocol.poll_timeout().into_iter().chain(looks_up.then_some(self.look_up_at)).chain(closing).min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = translate(self.protocol.poll_event()?) {
                return Some(event);
            }
        }
    }

    fn transmit(&mut self, now: Instant) -> usize {
        self.act(now);
        let mut sent = 0;
        for connection in self.connections() {
            sent += self.send_on(connection, now);
        }
        self.close_those_done(now);
        sent
    }

    fn order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        let Order { lun, cdb, is_repeatable, data_out, data_in } = order;
        match self.protocol.order(WireOrder { lun, cdb, is_repeatable, data_out, data_in }, now) {
            Ok(id) => Ok(OrderId(id.number())),
            Err(WireOrder { lun, cdb, is_repeatable, data_out, data_in }) => {
                Err(Order { lun, cdb, is_repeatable, data_out, data_in })
            }
        }
    }

    fn protection(&self, _: Lun) -> Option<Protection> {
        None
    }

    fn movement(&self) -> Option<Movement> {
        self.protocol.movement()
    }

    fn adapter(&self) -> Option<String> {
        self.protocol.adapter()
    }

    fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> io::Result<()> {
        for (connection, socket) in &mut self.sockets {
            let wanted = socket.wanted();
            if wanted != socket.watched {
                self.poller.change_stream(&socket.channel, connection.0, wanted)?;
                socket.watched = wanted;
            }
        }
        let clock = Clock::new();
        if self.spin(waker, deadline, &clock) {
            return Ok(());
        }
        self.poller.wait(&[], &[], Some(waker), deadline, &clock).map(drop)
    }

    fn part(&mut self, waker: &Waker) {
        self.take_leave(waker, parting::LOGOUT_TIMEOUT);
    }
}

pub(crate) fn translate(event: ClientEvent) -> Option<Event> {
    Some(match event {
        ClientEvent::Connected { server, resumed } => {
            if server.is_narrowed {
                tracing::warn!(
                    "{} drops commands, or ends sessions, that have several connections: it is used with one",
                    server.target
                );
            }
            Event::Connected { server: server_info(*server), resumed }
        }
        ClientEvent::Lost { announced } => Event::Lost { announced },
        ClientEvent::Completed { id, status, sense, data_in, data_in_bytes } => {
            Event::Completed { id: OrderId(id.number()), answer: Answer { status, sense }, data_in, data_in_bytes }
        }
        ClientEvent::Failed { id, failure, data_in } => {
            Event::Failed { id: OrderId(id.number()), failure: failure.into(), data_in }
        }
        ClientEvent::OutOfPatience(failure) => Event::OutOfPatience(failure.into()),
        ClientEvent::GivenUp(failure) => Event::GivenUp(failure.into()),
        // Only a discovery session is told of targets.
        ClientEvent::Targets(_) => return None,
    })
}

pub(crate) fn server_info(server: sanwire_iscsi::ServerInfo) -> ServerInfo {
    ServerInfo {
        name: server.target,
        commands_max: server.commands_max,
        // Each unit says what it takes.
        transfer_max_bytes: LONG_TRANSFER_MAX_BYTES as u32,
        transfer_limit_bytes: LONG_TRANSFER_MAX_BYTES as u32,
        unit: WireUnit::DataSegment(server.connection.send_data_max_bytes),
        public_key: None,
        rate_cap_bytes_per_second: None,
    }
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        match failure {
            WireFailure::NoAnswer
            | WireFailure::LoginClosed
            | WireFailure::LoginUnanswered
            | WireFailure::NoIser { .. }
            | WireFailure::NoRdma { .. } => Failure::NoAnswer(failure.to_string()),
            WireFailure::Refused { .. } | WireFailure::NotAuthentic { .. } => Failure::Refused(failure.to_string()),
            WireFailure::InDoubt => Failure::InDoubt,
            WireFailure::TimedOut { after } => Failure::TimedOut { after },
            WireFailure::Protocol { .. } => Failure::Protocol(failure.to_string()),
            WireFailure::Closed => Failure::Closed,
        }
    }
}

#[cfg(test)]
mod tests;
