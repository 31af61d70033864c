//! The other end of a connection of iSER: it has RDMA, in software or by an adapter, and keeps no rule above it.

use arbitrary::{Result, Unstructured};
use sanwire_buffer::Slice;
use sanwire_core::Instant;
use sanwire_iscsi::{Client, ConnectionId, Datamover};
use sanwire_iser::wire::{HeaderForm, IserHeader, Window};
use sanwire_iser::{QueuePair, initiator, initiator_by, target, target_by};
use sanwire_iwarp::{Config, Connection, Event, Memory, Order, Registration, SendKind, Stag, WorkId};
use sanwire_sim::random::Random;
use sanwire_sim::rdma::{AdapterPlan, Cable, End, Pace, connect};

use crate::steps::payload;

/// Times in a row that something moves, at the most.
const ROUNDS_MAX: usize = 50_000;

/// Messages that it takes at a time, and how long they may be.
const RECEIVES: (usize, usize) = (100, 20_000);

/// What carries the RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carriage {
    /// iWARP in software, over a stream.
    Stream,
    /// Adapters, in memory.
    Adapter,
}

impl Carriage {
    /// RDMA, or plain TCP.
    pub fn any(u: &mut Unstructured<'_>) -> Result<Option<Self>> {
        Ok(match u.int_in_range(0..=3u8)? {
            0 | 1 => None,
            2 => Some(Carriage::Stream),
            _ => Some(Carriage::Adapter),
        })
    }
}

/// An end of ours, as its driver has it.
pub trait Driven {
    /// All that it has to send by a stream.
    fn sent(&mut self) -> Vec<u8>;

    /// Takes bytes of a stream, and says how many.
    fn take(&mut self, bytes: &[u8]) -> usize;

    /// Its adapter has something to tell, or room, perhaps.
    fn ready(&mut self);
}

impl Driven for Box<dyn Datamover> {
    fn sent(&mut self) -> Vec<u8> {
        std::iter::from_fn(|| self.pop()).flat_map(|packet| packet.to_vec()).collect()
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        (**self).take(bytes)
    }

    fn ready(&mut self) {
        self.filled(0);
    }
}

/// A connection of a client.
pub struct ByClient<'a> {
    /// Whose it is.
    pub client: &'a mut Client,
    /// Which one.
    pub connection: ConnectionId,
    /// The time.
    pub now: Instant,
}

impl Driven for ByClient<'_> {
    fn sent(&mut self) -> Vec<u8> {
        std::iter::from_fn(|| self.client.poll_transmit(self.connection)).flat_map(|packet| packet.to_vec()).collect()
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for space in self.client.spaces(self.connection) {
            let count = space.len().min(bytes.len() - taken);
            space[..count].copy_from_slice(&bytes[taken..taken + count]);
            taken += count;
        }
        if taken > 0 {
            self.client.filled(self.connection, taken, self.now);
        }
        taken
    }

    fn ready(&mut self) {
        self.client.filled(self.connection, 0, self.now);
    }
}

/// Has an end take these bytes, as many as it does; gives how many.
pub fn feed(ours: &mut impl Driven, bytes: &[u8]) -> usize {
    let mut fed = 0;
    while fed < bytes.len() {
        let taken = ours.take(&bytes[fed..]);
        if taken == 0 {
            break;
        }
        fed += taken;
    }
    fed
}

/// The other end.
pub struct Peer {
    rdma: Rdma,
    /// What it says when it is connected to.
    private_data: Vec<u8>,
    /// What our end does not take yet.
    unsent: Vec<u8>,
    /// It looks at nothing that comes.
    pub is_deaf: bool,
}

enum Rdma {
    Stream(Box<Connection>),
    Adapter { end: End, cable: Cable, orders: u64 },
}

impl Peer {
    /// One that has connected to our target, or to which our initiator has connected; and that one's datamover.
    pub fn meet(u: &mut Unstructured<'_>, is_target: bool, carriage: Carriage) -> Result<(Self, Box<dyn Datamover>)> {
        if carriage == Carriage::Stream {
            let ours = if is_target { target([1; 32]) } else { initiator([1; 32]) };
            return Ok((Peer::over_stream(u, is_target)?, ours));
        }
        let (peer, end) = Peer::by_adapter(u, is_target)?;
        let end = Box::new(end);
        Ok((peer, if is_target { target_by(end) } else { initiator_by(end) }))
    }

    /// The same over a stream, without the datamover.
    pub fn over_stream(u: &mut Unstructured<'_>, is_target: bool) -> Result<Self> {
        let private_data = payload(u, 8)?;
        let config = Config { ird: *u.choose(&[128, 128, 128, 3, 1, 0])?, ..Config::default() };
        let connection = if is_target {
            let config = Config { revision: *u.choose(&[2, 2, 1])?, ..config };
            Connection::initiator(config, &private_data)
        } else {
            Connection::responder(config)
        };
        Ok(Peer::new(Rdma::Stream(Box::new(connection.expect("a connection"))), private_data))
    }

    /// The same by an adapter, with our end of the connection.
    pub fn by_adapter(u: &mut Unstructured<'_>, is_target: bool) -> Result<(Self, End)> {
        let private_data = payload(u, 8)?;
        let is_plain = u.arbitrary()?;
        let random = &mut Random::new(u.arbitrary()?);
        let plans =
            if is_plain { [AdapterPlan::plain(); 2] } else { [AdapterPlan::any(random), AdapterPlan::any(random)] };
        let (has_asked, was_asked, cable) = connect(plans, Pace::ByTurns, random.u64());
        let (end, ours) = if is_target { (has_asked, was_asked) } else { (was_asked, has_asked) };
        Ok((Peer::new(Rdma::Adapter { end, cable, orders: 0 }, private_data), ours))
    }

    fn new(rdma: Rdma, private_data: Vec<u8>) -> Self {
        let mut peer = Peer { rdma, private_data, unsent: Vec::new(), is_deaf: false };
        peer.expect_messages();
        peer
    }

    fn expect_messages(&mut self) {
        match &mut self.rdma {
            Rdma::Stream(connection) => connection.expect_messages(RECEIVES.0, RECEIVES.1),
            Rdma::Adapter { end, .. } => end.expect_messages(RECEIVES.0, RECEIVES.1),
        }
    }

    /// Sends a message.
    pub fn send(&mut self, message: Vec<u8>, invalidate: Option<Stag>) {
        let kind = SendKind { solicited: true, invalidate };
        self.order(Order::Send { kind, head: message.into(), data: None });
    }

    /// Writes into memory that it has seen, or that is none.
    pub fn write(&mut self, Window { stag, offset }: Window, data: Vec<u8>) {
        self.order(Order::Write { stag, offset, data: Slice::from(data).into() });
    }

    fn order(&mut self, order: Order) {
        match &mut self.rdma {
            Rdma::Stream(connection) => drop(connection.order(order, None)),
            Rdma::Adapter { end, orders, .. } => {
                *orders += 1;
                drop(end.order(order, Some(WorkId(*orders))));
            }
        }
    }

    /// Reads from there.
    pub fn read(&mut self, Window { stag, offset }: Window, length: usize) {
        let frame = vec![0; length].into();
        match &mut self.rdma {
            Rdma::Stream(connection) => drop(connection.read(WorkId(0), frame, 0..length, stag, offset)),
            Rdma::Adapter { end, .. } => drop(end.read(WorkId(0), frame, 0..length, stag, offset)),
        }
    }

    /// Opens memory of its own.
    pub fn open(&mut self, registration: Registration) -> Option<Window> {
        let opened = match &mut self.rdma {
            Rdma::Stream(connection) => connection.register(registration).map(|stag| (stag, 0)),
            Rdma::Adapter { end, .. } => end.register(registration),
        };
        opened.ok().map(|(stag, offset)| Window { stag, offset })
    }

    /// Ends a window of its own.
    pub fn close(&mut self, stag: Stag) -> Option<Memory> {
        match &mut self.rdma {
            Rdma::Stream(connection) => connection.deregister(stag),
            Rdma::Adapter { end, .. } => end.deregister(stag),
        }
    }

    /// Everything that is to be sent arrives. Gives what the peer was told.
    pub fn pass(&mut self, ours: &mut impl Driven) -> Vec<Event> {
        let (told, is_done) = self.pass_some(ROUNDS_MAX, ours);
        assert!(is_done, "both ends never stop sending");
        told
    }

    /// Some of it arrives; and whether that was all.
    pub fn pass_some(&mut self, rounds: usize, ours: &mut impl Driven) -> (Vec<Event>, bool) {
        let mut told = Vec::new();
        let is_done = (0..rounds).any(|_| !self.step(ours, &mut told));
        (told, is_done)
    }

    /// Whether anything has moved.
    pub fn step(&mut self, ours: &mut impl Driven, told: &mut Vec<Event>) -> bool {
        let (there, has_turned) = match &mut self.rdma {
            Rdma::Stream(connection) => {
                let there = if self.is_deaf { Vec::new() } else { ours.sent() };
                connection.take(&there);
                (there, false)
            }
            Rdma::Adapter { cable, .. } => {
                ours.ready();
                (ours.sent(), cable.turn())
            }
        };
        let before = told.len();
        if !self.is_deaf {
            self.hear(told);
        }
        if let Rdma::Stream(connection) = &mut self.rdma {
            let packets = std::iter::from_fn(|| connection.poll_transmit());
            self.unsent.extend(packets.flat_map(|packet| packet.to_vec()));
            let taken = feed(ours, &self.unsent);
            self.unsent.drain(..taken);
            return !there.is_empty() || taken > 0;
        }
        assert!(there.is_empty(), "an adapter has no packets");
        has_turned || told.len() > before
    }

    fn hear(&mut self, told: &mut Vec<Event>) {
        loop {
            let event = match &mut self.rdma {
                Rdma::Stream(connection) => connection.poll_event(),
                Rdma::Adapter { end, .. } => end.poll_event(),
            };
            let Some(event) = event else { break };
            if matches!(event, Event::Requested(_)) {
                match &mut self.rdma {
                    Rdma::Stream(connection) => drop(connection.accept(&self.private_data)),
                    Rdma::Adapter { end, .. } => drop(end.accept(&self.private_data)),
                }
            }
            told.push(event);
        }
        self.expect_messages();
    }

    /// By an adapter: nothing passes any more, and whether our end learns that at once.
    pub fn cut(&mut self, is_noticed: bool) {
        if let Rdma::Adapter { cable, .. } = &self.rdma {
            cable.cut([is_noticed; 2]);
        }
    }

    /// It is gone, as far as our end can know it.
    pub fn leave(self) {
        if let Rdma::Adapter { end, cable, .. } = self.rdma {
            drop(end);
            while cable.turn() {}
        }
    }
}

/// A message with a PDU, behind what belongs in front of it, most of the time.
pub fn message(u: &mut Unstructured<'_>, form: HeaderForm, pdu: &[u8]) -> Result<Vec<u8>> {
    let header = match u.int_in_range(0..=15u8)? {
        0 => IserHeader::Hello { versions: u.arbitrary()?, ird: u.arbitrary()? },
        1 => {
            let window = Window { stag: Stag(u.arbitrary()?), offset: u.arbitrary()? };
            IserHeader::Control { write: Some(window), read: Some(window) }
        }
        2 => return Ok(pdu.to_vec()),
        _ => IserHeader::PLAIN,
    };
    Ok([&front(form, &header)[..], pdu].concat())
}

/// A header of iSER in one of its forms.
pub fn front(form: HeaderForm, header: &IserHeader) -> Vec<u8> {
    match form {
        HeaderForm::Rfc7145 => header.write().to_vec(),
        HeaderForm::Rfc5046 => header.write_short().to_vec(),
    }
}
