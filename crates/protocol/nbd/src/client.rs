//! The client of one export: connections that come and go, and orders that outlive them.

mod lingering;
mod orders;
mod recovery;
mod resting;
mod schedule;
#[cfg(test)]
mod tests;
mod witnesses;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use sanwire_buffer::{Packet, Slice};
use sanwire_core::Instant;

use crate::connection::{Connection, Piece};
use crate::export::Export;
use crate::order::{Answer, Failure, Order, OrderId};
use lingering::Lingering;
pub(crate) use orders::Orders;
use orders::{Entry, Kept, Origin};
use witnesses::{OTHER_CONTENT, Witnesses};

/// Zeroes to send to a server that cannot make them.
const ZEROES_BYTES: usize = 256 << 10;
/// The error of a server that is about to end: what it refuses now another one may take.
const ERRNO_SHUTDOWN: u32 = 108;

/// One connection of a driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// What a client is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The export's name; empty for the default one. At most [`crate::wire::TEXT_MAX_BYTES`] bytes.
    pub export: String,
    /// Connections, at the most, where the server takes several; at least one.
    pub connections: usize,
    /// How long a connection may take until it is ready.
    pub connect_timeout: Duration,
    /// How long orders wait for a server that cannot be reached, before they fail.
    pub patience: Duration,
    /// How long a server may be at work on what a connection carried that is lost: so long newer writes to the same bytes wait.
    pub linger: Duration,
    /// Bytes of answered writes, at the most, that are kept until a flush has made them stable, to be given again to a server that
    /// restarts.
    pub kept_max_bytes: usize,
}

/// What the driver learns.
#[derive(Debug)]
pub enum Event {
    /// The first connection is ready. Once.
    Opened(Export),
    /// An attempt to connect has failed; there will be others.
    AttemptFailed {
        /// Why.
        reason: String,
        /// Whether there is a server that does not give the export: asking again helps only when somebody has changed that.
        is_refused: bool,
    },
    /// The connections are lost.
    Lost {
        /// Why.
        reason: String,
    },
    /// They are there again.
    Restored {
        /// Answered writes that are given again, since no flush came after them.
        given_again: usize,
    },
    /// An order has ended.
    Completed {
        /// Which.
        id: OrderId,
        /// How.
        result: Result<Answer, Failure>,
    },
}

/// What the driver is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Connect; then [`Client::connected`], or [`Client::lost`].
    Connect(ConnectionId),
    /// Close.
    Close(ConnectionId),
}

/// Whether the export can be reached.
#[derive(Debug)]
enum Link {
    /// The next attempt is made then.
    Down {
        attempt_at: Instant,
    },
    /// The first connection is on its way.
    Opening,
    Up,
}

/// A client of one export. See the crate's documentation for the loop around it.
///
/// Orders to the same bytes are carried out in the order in which they were given, as far as one of them writes. What was not
/// answered when the connections were lost is given again, before anything newer to the same bytes. So are answered writes that no
/// flush has made stable, since the server may have restarted and lost them: a server that comes back is a pause, not an error.
///
/// What a lost connection carried its server may do late, after it has done the same once more for the next connection. So newer writes
/// to those bytes wait for a while ([`Config::linger`]), or until the server is known to have ended ([`Client::servers_have_ended`]).
#[derive(Debug)]
pub struct Client {
    config: Config,
    /// As it was at the first connection.
    export: Option<Export>,
    /// As it is on those that are there.
    current: Option<Export>,
    link: Link,
    connections: Vec<Connection>,
    last_connection: u64,
    orders: Orders,
    last_order: u64,
    /// Orders of which more requests are to be made.
    waiting: BTreeSet<u64>,
    /// Writes under way.
    writes: usize,
    kept: Kept,
    /// Of those, how many are being given again.
    restoring: usize,
    has_own_flush: bool,
    lingering: Lingering,
    witnesses: Witnesses,
    /// Since when nothing was answered, from the loss of the connections on.
    outage_since: Option<Instant>,
    backoff: Duration,
    /// Why the last connection was lost, or there was none.
    last_failure: String,
    is_refused: bool,
    /// Nothing more is to be done.
    is_abandoned: bool,
    zeroes: Slice,
    events: VecDeque<Event>,
    actions: VecDeque<Action>,
}

impl Client {
    /// A client that begins to connect.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let mut client = Client {
            config,
            export: None,
            current: None,
            link: Link::Opening,
            connections: Vec::new(),
            last_connection: 0,
            orders: Orders::default(),
            last_order: 0,
            waiting: BTreeSet::new(),
            writes: 0,
            kept: Kept::default(),
            restoring: 0,
            has_own_flush: false,
            lingering: Lingering::default(),
            witnesses: Witnesses::default(),
            outage_since: Some(now),
            backoff: recovery::BACKOFF_MIN,
            last_failure: String::new(),
            is_refused: false,
            is_abandoned: false,
            zeroes: Slice::from(vec![0; ZEROES_BYTES]),
            events: VecDeque::new(),
            actions: VecDeque::new(),
        };
        client.connect(now);
        client
    }

    /// Takes an order. Its end is [`Event::Completed`], in any case.
    pub fn order(&mut self, order: Order, now: Instant) -> OrderId {
        self.forget_witnesses(&order);
        let number = self.take(order, Origin::Caller);
        if self.is_out_of_patience(now) {
            self.fail_waiting();
        }
        self.schedule();
        OrderId(number)
    }

    fn take(&mut self, order: Order, origin: Origin) -> u64 {
        self.last_order += 1;
        self.insert(self.last_order, order, origin);
        self.last_order
    }

    fn insert(&mut self, number: u64, order: Order, origin: Origin) {
        self.writes += usize::from(order.is_write());
        self.orders.0.insert(number, Entry::new(order, origin));
        self.waiting.insert(number);
    }

    /// Says that no more orders will come, and tells the server so: drain [`Client::poll_transmit`] once more, then close.
    pub fn disconnect(&mut self) {
        self.connections.iter_mut().for_each(Connection::leave);
    }

    /// The driver has connected.
    pub fn connected(&mut self, connection: ConnectionId) {
        let Client { connections, config, .. } = self;
        if let Some(found) = connections.iter_mut().find(|known| known.id == connection) {
            found.connected(&config.export);
        }
    }

    /// A connection has ended, or there never was one.
    pub fn lost(&mut self, connection: ConnectionId, reason: &str, now: Instant) {
        self.fail_connection(connection, reason, now);
    }

    /// Where the next bytes of a connection belong: first all of the first space, then the second.
    pub fn spaces(&mut self, connection: ConnectionId) -> [&mut [u8]; 2] {
        let Client { connections, orders, .. } = self;
        match connections.iter_mut().find(|known| known.id == connection) {
            Some(found) => found.spaces(orders),
            None => [&mut [], &mut []],
        }
    }

    /// So many bytes were received into the spaces.
    pub fn filled(&mut self, connection: ConnectionId, count: usize, now: Instant) {
        let Some(index) = self.connections.iter().position(|known| known.id == connection) else { return };
        self.connections[index].filled(count);
        match self.connections[index].negotiate() {
            Ok(None) => {}
            Ok(Some(export)) => self.established(connection, export, now),
            Err(error) => self.refuse_connection(connection, &error.to_string(), now),
        }
        self.take_answers(connection, now);
        self.schedule();
    }

    fn take_answers(&mut self, connection: ConnectionId, now: Instant) {
        // Each answer may end all connections.
        while let Some(found) = self.connections.iter_mut().find(|known| known.id == connection && known.is_ready()) {
            match found.poll(&mut self.orders) {
                Ok(Some(piece)) => self.ended(connection, piece, now),
                Ok(None) => return,
                Err(violation) => {
                    let reason = format!("the NBD server breaks the protocol: {violation}");
                    return self.fail_connection(connection, &reason, now);
                }
            }
        }
    }

    /// A request has ended.
    fn ended(&mut self, connection: ConnectionId, piece: Piece, now: Instant) {
        if let Some(Failure::Server { errno: ERRNO_SHUTDOWN, .. }) = &piece.failure {
            return self.fail_connection(connection, "the NBD server is shutting down", now);
        }
        let Some(entry) = self.orders.0.get_mut(&piece.order) else { return };
        // What is looked at first tells only whether it is the same export.
        if entry.origin != Origin::Witness {
            self.outage_since = None;
            self.backoff = recovery::BACKOFF_MIN;
        }
        entry.pieces -= 1;
        entry.extent = entry.extent.or(piece.extent);
        if entry.failure.is_none() && piece.failure.is_some() {
            entry.failure = piece.failure;
            entry.is_cut = true;
            self.waiting.remove(&piece.order);
        }
        if entry.is_cut && entry.pieces == 0 {
            self.finish(piece.order);
        }
        if std::mem::take(&mut self.witnesses.is_other) {
            self.fail_connection(connection, OTHER_CONTENT, now);
        }
    }

    /// An order has ended.
    fn finish(&mut self, number: u64) {
        self.waiting.remove(&number);
        let Some(entry) = self.orders.0.remove(&number) else { return };
        let Entry { order, origin, failure, extent, covers, .. } = entry;
        if order.is_write() {
            self.writes -= 1;
        }
        if let (Order::Flush, None) = (&order, &failure) {
            let stable = self.kept.take_until(covers);
            self.remember(stable);
        }
        if order.is_write() && failure.is_some() {
            self.doubt_writes();
        }
        match origin {
            Origin::Caller => self.answer(number, order, failure, extent),
            Origin::Kept => {
                self.restoring -= 1;
                match failure {
                    None => self.kept.push(number, order),
                    Some(failure) => self.kept.lost = Some(failure),
                }
            }
            Origin::Own => {
                self.has_own_flush = false;
                if let Some(failure) = failure {
                    // Nobody knows what of it is stable, as after a failed flush of the caller, who hears of this one at the next.
                    self.kept.lost = Some(failure);
                    drop(self.kept.take_until(covers));
                }
            }
            Origin::Witness => {
                self.witness_read(&order, failure.as_ref());
                if self.witnesses.under_way == 0 && !self.witnesses.is_other {
                    self.restored();
                }
            }
        }
    }

    fn answer(&mut self, number: u64, order: Order, failure: Option<Failure>, extent: Option<crate::Extent>) {
        let failure = match order {
            Order::Flush => failure.or(self.kept.lost.take()),
            _ => failure,
        };
        let result = match (failure, order) {
            (Some(failure), _) => Err(failure),
            (None, Order::Read { frame, .. }) => Ok(Answer::Read(frame)),
            (None, Order::Extent { length_bytes, .. }) => {
                Ok(Answer::Extent(extent.unwrap_or(crate::Extent { is_hole: false, length_bytes })))
            }
            (None, order) => {
                match order.is_write() {
                    true if self.keeps_writes() => self.kept.push(number, order),
                    true => self.remember(vec![(number, order)]),
                    false => {}
                }
                Ok(Answer::Done)
            }
        };
        self.events.push_back(Event::Completed { id: OrderId(number), result });
    }

    /// Whether the server may lose what it has answered.
    fn keeps_writes(&self) -> bool {
        self.current.or(self.export).is_some_and(|export| export.flushes())
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What the driver is to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The connections, of which some may have something to send.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.connections.iter().map(|connection| connection.id)
    }

    /// The next thing to send on a connection.
    pub fn poll_transmit(&mut self, connection: ConnectionId) -> Option<Packet> {
        self.connections.iter_mut().find(|known| known.id == connection)?.poll_transmit()
    }

    /// Orders of the caller that have not ended.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.orders.0.values().filter(|entry| entry.origin == Origin::Caller).count()
    }
}
