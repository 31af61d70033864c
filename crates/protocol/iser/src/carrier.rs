//! The RDMA below iSER, and what waits for it: messages in both directions, in their order.

use std::collections::VecDeque;
use std::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_buffer::{Frame, Head, Packet, Slice, Slices};
use sanwire_iwarp::{Config, Connection, Ended, Event, Message, Order, Registration, SendKind, Stag, WorkId};

use crate::message::{ADDITIONAL_MAX_BYTES, HEADERS_BYTES};
use crate::wire::SetUp;

/// Bytes that are received at once, beyond what goes straight into memory.
const STAGING_BYTES: usize = 6 << 10;

/// Messages that may come: as many as there can be in what is received at once, each with nothing but its headers.
const RECEIVES: usize = STAGING_BYTES / HEADERS_BYTES + 1;

/// Until the login is over an end says one thing, and waits for the answer; what follows that may be there with it.
const RECEIVES_OF_LOGIN: usize = 4;

/// RDMA Reads that an initiator serves at a time: all that a target wants.
const IRD: u16 = 128;

/// Something that has arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    Message(Message),
    /// What was read from the other end's memory.
    Read(WorkId, Frame),
}

/// What waits to be sent, and what it takes.
struct Waiting {
    order: Order,
    size: Size,
    /// It is sent once this read is done.
    after: Option<WorkId>,
}

#[derive(Clone, Copy, Default)]
struct Size {
    bytes: usize,
    heap_bytes: usize,
    lent_bytes: usize,
}

impl Size {
    fn of(head_bytes: usize, data: Option<&Slices>) -> Size {
        Size {
            bytes: head_bytes + data.map_or(0, |data| data.len()),
            heap_bytes: size_of::<Waiting>() + data.map_or(0, Slices::heap_bytes),
            lent_bytes: data.map_or(0, Slices::lent_bytes),
        }
    }
}

/// One connection.
pub(crate) struct Carrier {
    rdma: Connection,
    /// The next one to send.
    packet: Option<Packet>,
    /// What this end says when the connection is set up.
    own: SetUp,
    arrivals: VecDeque<Arrival>,
    waiting: VecDeque<Waiting>,
    /// What is being cut into packets.
    under_way: VecDeque<Size>,
    queued: Size,
    last_work: u64,
    /// The last read that is done.
    last_read: WorkId,
    was_connected: bool,
    /// Both ends end the keys of memory with answers.
    invalidates: bool,
    /// Messages that may come at once, and the longest data of one.
    receives: usize,
    receive_max_bytes: usize,
    /// Why nothing comes any more, and nothing can be sent.
    fault: Option<String>,
    /// What is sent now is the last.
    is_leaving: bool,
}

impl Carrier {
    /// The end that has connected.
    pub(crate) fn initiator(seed: [u8; 32], receive_max_bytes: usize) -> Self {
        // As Linux: it has no reads of its own, memory has addresses, and who speaks first anyway needs no peer-to-peer connection.
        let config = Config { ird: IRD, ord: 1, ..config(seed) };
        let own = SetUp { has_addresses: true, lacks_invalidation: false };
        Carrier::new(Connection::initiator(config, &own.write()), own, receive_max_bytes)
    }

    /// The end that was connected to.
    pub(crate) fn target(seed: [u8; 32], receive_max_bytes: usize) -> Self {
        let config = Config { ird: 1, ord: IRD, ..config(seed) };
        let own = SetUp { has_addresses: true, lacks_invalidation: false };
        Carrier::new(Connection::responder(config), own, receive_max_bytes)
    }

    fn new<E: std::fmt::Debug>(rdma: Result<Connection, E>, own: SetUp, receive_max_bytes: usize) -> Self {
        let mut carrier = Carrier {
            rdma: rdma.expect("a configuration that can be"),
            packet: None,
            own,
            arrivals: VecDeque::new(),
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            queued: Size::default(),
            last_work: 0,
            last_read: WorkId(0),
            was_connected: false,
            invalidates: false,
            receives: RECEIVES_OF_LOGIN,
            receive_max_bytes,
            fault: None,
            is_leaving: false,
        };
        carrier.expect_messages();
        carrier.look_ahead();
        carrier
    }

    /// The login is over: the other end may send much at once, and the data of a message is no longer than that.
    pub(crate) fn begin(&mut self, receive_max_bytes: usize) {
        (self.receives, self.receive_max_bytes) = (RECEIVES, receive_max_bytes);
        self.expect_messages();
    }

    fn expect_messages(&mut self) {
        let longest_bytes = HEADERS_BYTES + ADDITIONAL_MAX_BYTES + self.receive_max_bytes;
        self.rdma.expect_messages(self.receives, longest_bytes);
    }

    pub(crate) fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.rdma.spaces()
    }

    pub(crate) fn filled(&mut self, count: usize) {
        self.rdma.filled(count);
        self.drain();
        self.look_ahead();
    }

    /// Takes what was received elsewhere, as much as there is room for.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for space in self.rdma.spaces() {
            let count = space.len().min(bytes.len() - taken);
            space[..count].copy_from_slice(&bytes[taken..taken + count]);
            taken += count;
        }
        self.filled(taken);
        taken
    }

    fn drain(&mut self) {
        while let Some(event) = self.rdma.poll_event() {
            match event {
                Event::Requested(request) => {
                    self.meet(SetUp::read(&request.private_data));
                    if self.rdma.accept(&self.own.write()).is_err() {
                        self.end("its request cannot be answered");
                    }
                }
                Event::Connected(terms) => {
                    self.was_connected = true;
                    if !terms.private_data.is_empty() || !self.invalidates {
                        // A target's: it has met the initiator already.
                        self.meet(SetUp::read(&terms.private_data));
                    }
                }
                Event::Rejected(_) => self.end("it refuses the RDMA connection: its log may say why"),
                Event::Message(message) => self.arrivals.push_back(Arrival::Message(message)),
                Event::ReadDone { id, frame } => {
                    self.last_read = id;
                    self.arrivals.push_back(Arrival::Read(id, frame));
                }
                Event::Sent(_) => {
                    let Size { bytes, heap_bytes, lent_bytes } = self.under_way.pop_front().unwrap_or_default();
                    self.queued.bytes -= bytes;
                    self.queued.heap_bytes -= heap_bytes;
                    self.queued.lent_bytes -= lent_bytes;
                }
                Event::Terminated(Ended::ByUs(fault)) => self.end(format!("it broke the protocol ({fault})")),
                Event::Terminated(Ended::ByPeer(Some(fault))) => self.end(format!("it ended the stream ({fault})")),
                Event::Terminated(Ended::ByPeer(None)) => self.end("it ended the stream"),
                Event::Closed(_) => self.end("the stream has ended"),
            }
        }
        self.expect_messages();
    }

    fn meet(&mut self, other: SetUp) {
        self.invalidates = !self.own.lacks_invalidation && !other.lacks_invalidation;
    }

    /// Gives the connection up, for what the other end did: what else it has sent is not looked at. The first reason counts.
    pub(crate) fn fail(&mut self, reason: impl Into<String>) {
        self.arrivals.clear();
        self.rdma.disconnect();
        self.end(reason);
    }

    fn end(&mut self, reason: impl Into<String>) {
        self.fault.get_or_insert_with(|| reason.into());
    }

    /// Why nothing comes any more.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Whether nothing more comes than what has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the RDMA connection has come about.
    pub(crate) fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// Whether the key of a command's memory ends with the command's answer.
    pub(crate) fn invalidates(&self) -> bool {
        self.invalidates
    }

    /// The next thing that has arrived.
    pub(crate) fn arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    /// Has a message sent, once a read is done if one is given.
    pub(crate) fn send(&mut self, head: Head, data: Option<Slices>, invalidate: Option<Stag>, after: Option<WorkId>) {
        let size = Size::of(head.len(), data.as_ref());
        let order = Order::Send { kind: SendKind { solicited: true, invalidate }, head, data };
        self.push(Waiting { order, size, after });
    }

    /// Has data written into the other end's memory.
    pub(crate) fn write(&mut self, stag: Stag, offset: u64, data: Slices) {
        let size = Size::of(0, Some(&data));
        self.push(Waiting { order: Order::Write { stag, offset, data }, size, after: None });
    }

    /// Has an RDMA Write of no bytes sent, which needs no memory at the other end (RFC 5041 5.3), if nothing waits to be sent.
    pub(crate) fn nudge(&mut self) {
        if self.rdma.is_established() && self.packet.is_none() && self.waiting.is_empty() {
            self.write(Stag(0), 0, Slice::from(Vec::new()).into());
        }
    }

    fn push(&mut self, waiting: Waiting) {
        self.queued.bytes += waiting.size.bytes;
        self.queued.heap_bytes += waiting.size.heap_bytes;
        self.queued.lent_bytes += waiting.size.lent_bytes;
        self.waiting.push_back(waiting);
        self.look_ahead();
    }

    /// Reads the other end's memory into a part of a frame.
    ///
    /// # Errors
    /// The frame, when that cannot be.
    pub(crate) fn read(&mut self, frame: Frame, part: Range<usize>, stag: Stag, offset: u64) -> Result<WorkId, Frame> {
        let id = self.next_work();
        self.rdma.read(id, frame, part, stag, offset).map_err(|refused| refused.given)?;
        self.look_ahead();
        Ok(id)
    }

    /// Opens memory to the other end.
    ///
    /// # Errors
    /// The memory, when that cannot be.
    pub(crate) fn register(&mut self, registration: Registration) -> Result<Stag, Registration> {
        self.rdma.register(registration).map_err(|refused| refused.given)
    }

    /// Closes memory to the other end. Gives the frame back, if it is one.
    pub(crate) fn deregister(&mut self, stag: Stag) -> Option<Frame> {
        match self.rdma.deregister(stag)? {
            sanwire_iwarp::Memory::Frame(frame) => Some(frame),
            sanwire_iwarp::Memory::Slices(_) => None,
        }
    }

    fn next_work(&mut self) -> WorkId {
        self.last_work += 1;
        WorkId(self.last_work)
    }

    /// The next bytes to send.
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let packet = self.packet.take();
        self.look_ahead();
        if packet.is_none() && self.is_leaving {
            // Nobody waits for what is still to come.
            drop(self.rdma.reclaim());
        }
        packet
    }

    /// Has the next packet ready, if there is one.
    fn look_ahead(&mut self) {
        while self.packet.is_none() {
            self.packet = self.rdma.poll_transmit();
            self.drain();
            if self.packet.is_none() && !self.order_next() {
                return;
            }
        }
    }

    /// Hands the next order down; `false` when there is none, or it is not time.
    fn order_next(&mut self) -> bool {
        let is_time = |next: &Waiting| next.after.is_none_or(|read| read <= self.last_read);
        if !self.rdma.is_established() || !self.waiting.front().is_some_and(is_time) {
            return false;
        }
        let Some(Waiting { order, size, .. }) = self.waiting.pop_front() else { return false };
        let id = self.next_work();
        self.under_way.push_back(size);
        if self.rdma.order(order, Some(id)).is_err() {
            self.under_way.pop_back();
            self.end("something cannot be sent to it");
        }
        true
    }

    /// Whether nothing can be sent now.
    pub(crate) fn is_idle(&self) -> bool {
        self.packet.is_none()
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued.bytes
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.queued.heap_bytes
    }

    pub(crate) fn lent_bytes(&self) -> usize {
        self.queued.lent_bytes
    }

    /// Bytes that have come into memory that is open, or is being read into.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.rdma.moved_bytes()
    }

    /// How many bytes of memory that is open, from its beginning, the other end has written.
    pub(crate) fn written_bytes(&self, stag: Stag) -> usize {
        self.rdma.written_bytes(stag)
    }

    /// What is to be sent is the last.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
    }
}

/// What both ends want. The keys of memory come from a stream of the seed's of their own.
fn config(seed: [u8; 32]) -> Config {
    let mut random = ChaCha20Rng::from_seed(seed);
    random.set_stream(1);
    let mut seed = [0; 16];
    random.fill_bytes(&mut seed);
    Config { staging_bytes: STAGING_BYTES, receives_max: RECEIVES, seed, ..Config::default() }
}
