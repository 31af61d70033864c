//! The RDMA below iSER, and what waits for it: messages in both directions, in their order.

mod counts;
mod segments;

use std::collections::VecDeque;
use std::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_buffer::{Frame, Head, Packet, Slice, Slices};
use sanwire_iwarp::{Config, Connection, Ended, Event, Message, Order, Registration, Request, SendKind, Stag, WorkId};

use crate::message::{ADDITIONAL_MAX_BYTES, HEADERS_BYTES};
use crate::orders::Orders;
use crate::wire::{SetUp, with_long_fpdus};

/// Bytes that are received at once during the login, beyond what goes straight into memory.
const LOGIN_STAGING_BYTES: usize = 6 << 10;

/// The same after the login, at the most: so that many short answers, or requests, take one call of the kernel.
pub(crate) const STAGING_MAX_BYTES: usize = 64 << 10;

/// Until the login is over an end says one thing, and waits for the answer; what follows that may be there with it.
const RECEIVES_OF_LOGIN: usize = 4;

/// RDMA Reads that an initiator serves at a time: all that a target wants.
const IRD: u16 = 128;

/// RDMA Reads at a time as long as an initiator has not said how many it takes: one more than it takes would end the connection.
const READS_OF_UNKNOWN: u16 = 1;

/// Why an initiator is refused whose data could not be read.
const NO_READS: &str = "it lets none of its memory be read (its IRD is 0), and iSER reads the data of WRITEs from there: let its adapter \
                        take RDMA Reads";

/// Something that has arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    Message(Message),
    /// What was read from the other end's memory.
    Read(WorkId, Frame),
}

/// One connection.
pub(crate) struct Carrier {
    rdma: Connection,
    /// The next one to send.
    packet: Option<Packet>,
    /// What this end says when the connection is set up.
    own: SetUp,
    arrivals: VecDeque<Arrival>,
    orders: Orders,
    last_work: u64,
    /// The last read that is done.
    last_read: WorkId,
    /// Reads at a time, at the most, as both ends have agreed.
    reads_max: u16,
    /// The other end speaks RDMA.
    speaks_rdma: bool,
    /// Both ends end the keys of memory with answers.
    invalidates: bool,
    /// Bytes of TCP's segments, once somebody has told.
    segment_bytes: Option<usize>,
    /// The other end takes FPDUs that are longer.
    takes_long_fpdus: bool,
    /// Bytes that are received at once.
    staging_bytes: usize,
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
        Carrier::new(Connection::initiator(config, &with_long_fpdus(own.write())), own, receive_max_bytes)
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
            orders: Orders::default(),
            last_work: 0,
            last_read: WorkId(0),
            reads_max: 0,
            speaks_rdma: false,
            invalidates: false,
            segment_bytes: None,
            takes_long_fpdus: false,
            staging_bytes: LOGIN_STAGING_BYTES,
            receives: RECEIVES_OF_LOGIN,
            receive_max_bytes,
            fault: None,
            is_leaving: false,
        };
        carrier.expect_messages();
        carrier.look_ahead();
        carrier
    }

    /// From now on so many bytes are received at once, as far as that is of use.
    pub(crate) fn widen(&mut self, staging_bytes: usize) {
        self.staging_bytes = staging_bytes.clamp(self.staging_bytes, STAGING_MAX_BYTES);
        self.rdma.widen(self.staging_bytes);
    }

    /// The login is over: the other end may send much at once, and the data of a message is no longer than that.
    pub(crate) fn begin(&mut self, receive_max_bytes: usize) {
        (self.receives, self.receive_max_bytes) = (messages_in(self.staging_bytes), receive_max_bytes);
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
                Event::Requested(request) => self.take_request(&request),
                Event::Connected(terms) => {
                    (self.speaks_rdma, self.reads_max) = (true, terms.ord);
                    if !terms.private_data.is_empty() || !self.invalidates {
                        // A target's: it has met the initiator already.
                        self.meet(&terms.private_data);
                    }
                }
                Event::Rejected(_) => self.end("it refuses the RDMA connection: its log may say why"),
                Event::Message(message) => self.arrivals.push_back(Arrival::Message(message)),
                Event::ReadDone { id, frame } => {
                    self.last_read = id;
                    self.arrivals.push_back(Arrival::Read(id, frame));
                }
                Event::Sent(_) => self.orders.note_sent(),
                Event::Terminated(Ended::ByUs(fault)) => self.end(format!("it broke the protocol ({fault})")),
                Event::Terminated(Ended::ByPeer(Some(fault))) => self.end(format!("it ended the stream ({fault})")),
                Event::Terminated(Ended::ByPeer(None)) => self.end("it ended the stream"),
                Event::Closed(_) => {
                    self.end("the stream has ended");
                    self.orders = Orders::default();
                }
            }
        }
        self.expect_messages();
    }

    /// An initiator wants in.
    fn take_request(&mut self, request: &Request) {
        self.speaks_rdma = true;
        self.meet(&request.private_data);
        let (own, takes_reads) = (with_long_fpdus(self.own.write()), request.ird != Some(0));
        let answered = if takes_reads { self.rdma.accept(&own) } else { self.rdma.reject(&own) };
        if answered.is_err() {
            self.end("its request cannot be answered");
        } else if !takes_reads {
            self.end(NO_READS);
        } else if request.ird.is_none() {
            self.rdma.limit_reads(READS_OF_UNKNOWN);
        }
    }

    /// The other end says that it takes so many reads at a time. Gives how many there will be.
    ///
    /// # Errors
    /// Why not, when it takes none.
    pub(crate) fn limit_reads(&mut self, at_a_time: u16) -> Result<u16, &'static str> {
        let reads = at_a_time.min(self.reads_max);
        if reads == 0 {
            return Err(NO_READS);
        }
        self.rdma.limit_reads(reads);
        self.look_ahead();
        Ok(reads)
    }

    /// Gives the connection up, for what the other end did: what else it has sent is not looked at. The first reason counts.
    pub(crate) fn fail(&mut self, reason: impl Into<String>) {
        self.arrivals.clear();
        self.rdma.disconnect();
        self.end(reason);
    }

    /// What has not been handed down yet is not sent any more.
    fn end(&mut self, reason: impl Into<String>) {
        self.fault.get_or_insert_with(|| reason.into());
        self.orders.forget_waiting();
    }

    /// Why nothing comes any more.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Whether nothing more comes than what has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.fault.is_some()
    }

    /// The same, and nothing is left to be sent: it has failed, whoever looks.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_over() && self.is_idle()
    }

    /// Whether the other end speaks RDMA.
    pub(crate) fn speaks_rdma(&self) -> bool {
        self.speaks_rdma
    }

    /// Whether a read is done.
    pub(crate) fn is_read(&self, id: WorkId) -> bool {
        id <= self.last_read
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
        self.push(Order::Send { kind: SendKind { solicited: true, invalidate }, head, data }, after);
    }

    /// Has data written into the other end's memory.
    pub(crate) fn write(&mut self, stag: Stag, offset: u64, data: Slices) {
        self.push(Order::Write { stag, offset, data }, None);
    }

    /// Has an RDMA Write of no bytes sent, which needs no memory at the other end (RFC 5041 5.3), if nothing waits to be sent.
    pub(crate) fn nudge(&mut self) {
        if self.rdma.is_established() && self.packet.is_none() && !self.orders.has_waiting() {
            self.write(Stag(0), 0, Slice::from(Vec::new()).into());
        }
    }

    fn push(&mut self, order: Order, after: Option<WorkId>) {
        if self.is_over() {
            return;
        }
        self.orders.push(order, after);
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
        if !self.rdma.is_established() {
            return false;
        }
        let Some(order) = self.orders.next(self.last_read) else { return false };
        let id = self.next_work();
        if self.rdma.order(order, Some(id)).is_err() {
            // What follows would tell of it as if it had been sent.
            self.orders.give_up_last();
            self.fail("something cannot be sent to it");
            return false;
        }
        true
    }

    /// Whether nothing can be sent now.
    pub(crate) fn is_idle(&self) -> bool {
        self.packet.is_none()
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.orders.bytes()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.orders.heap_bytes()
    }

    pub(crate) fn lent_bytes(&self) -> usize {
        self.orders.lent_bytes()
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
    let receives_max = messages_in(STAGING_MAX_BYTES);
    Config { staging_bytes: LOGIN_STAGING_BYTES, receives_max, seed, ..Config::default() }
}

/// As many messages as there can be in what is received at once, each with nothing but its headers.
fn messages_in(staging_bytes: usize) -> usize {
    staging_bytes / HEADERS_BYTES + 1
}
