//! RDMA over a stream: iWARP in software.

use std::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_buffer::{Frame, Packet};
use sanwire_iwarp::{Config, Connection, Event, Memory, Order, Refusal, Refused, Registration, Stag, WorkId};

use crate::message::HEADERS_BYTES;
use crate::queue_pair::{Counts, QueuePair};
use crate::wire::{SetUp, takes_long_fpdus, with_long_fpdus};

/// Bytes that are received at once during the login, beyond what goes straight into memory.
const LOGIN_STAGING_BYTES: usize = 6 << 10;

/// The same after the login, at the most: so that many short answers, or requests, take one call of the kernel.
pub(crate) const STAGING_MAX_BYTES: usize = 64 << 10;

/// RDMA Reads that an initiator serves at a time: all that a target wants.
const IRD: u16 = 128;

/// What both ends say of themselves: memory has addresses, and keys end with answers.
const SET_UP: SetUp = SetUp { has_addresses: true, lacks_invalidation: false };

/// A connection, and its stream.
pub(crate) struct Stream {
    pub(super) rdma: Connection,
    /// The next one to send.
    pub(super) packet: Option<Packet>,
    /// Bytes of TCP's segments, once somebody has told.
    segment_bytes: Option<usize>,
    /// The other end takes FPDUs that are longer.
    takes_long_fpdus: bool,
    /// Bytes that are received at once.
    staging_bytes: usize,
}

impl Stream {
    /// The end that has connected, and asks for this revision of MPA.
    pub(super) fn initiator(seed: [u8; 32], revision: u8) -> Self {
        // As Linux: it has no reads of its own, memory has addresses, and who speaks first anyway needs no peer-to-peer connection.
        let config = Config { revision, ird: IRD, ord: 1, ..config(seed) };
        Stream::new(Connection::initiator(config, &with_long_fpdus(SET_UP.write())))
    }

    /// The end that was connected to.
    pub(super) fn target(seed: [u8; 32]) -> Self {
        Stream::new(Connection::responder(Config { ird: 1, ord: IRD, ..config(seed) }))
    }

    fn new<E: std::fmt::Debug>(rdma: Result<Connection, E>) -> Self {
        Stream {
            rdma: rdma.expect("a configuration that can be"),
            packet: None,
            segment_bytes: None,
            takes_long_fpdus: false,
            staging_bytes: LOGIN_STAGING_BYTES,
        }
    }

    /// From now on so many bytes are received at once, as far as that is of use.
    pub(super) fn widen(&mut self, staging_bytes: usize) {
        self.staging_bytes = staging_bytes.clamp(self.staging_bytes, STAGING_MAX_BYTES);
        self.rdma.widen(self.staging_bytes);
    }

    /// As many messages as there can be in what is received at once.
    pub(super) fn messages_at_once(&self) -> usize {
        messages_in(self.staging_bytes)
    }

    /// What the other end says of itself when the connection is set up.
    pub(super) fn meet(&mut self, private_data: &[u8]) {
        self.takes_long_fpdus = takes_long_fpdus(private_data);
        self.fit();
    }

    /// TCP's segments have so many bytes.
    pub(super) fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.segment_bytes = Some(segment_bytes);
        self.fit();
    }

    /// RFC 5044 5.1: an FPDU is to lie in one segment of TCP, and some adapters take no other ones. Only who says so gets longer ones, of
    /// which less is to be done.
    fn fit(&mut self) {
        let most = self.segment_bytes.filter(|_| !self.takes_long_fpdus);
        self.rdma.set_segment_bytes(most.unwrap_or(usize::MAX));
    }
}

impl QueuePair for Stream {
    fn poll_event(&mut self) -> Option<Event> {
        self.rdma.poll_event()
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        self.rdma.accept(private_data).map_err(|_| Refusal::NotConnected)
    }

    fn reject(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        self.rdma.reject(private_data).map_err(|_| Refusal::NotConnected)
    }

    fn order(&mut self, order: Order, id: Option<WorkId>) -> Result<(), Refused<Order>> {
        self.rdma.order(order, id)
    }

    fn read(
        &mut self,
        id: WorkId,
        frame: Frame,
        part: Range<usize>,
        source: Stag,
        source_offset: u64,
    ) -> Result<(), Refused<Frame>> {
        self.rdma.read(id, frame, part, source, source_offset)
    }

    fn limit_reads(&mut self, at_a_time: u16) {
        self.rdma.limit_reads(at_a_time);
    }

    fn register(&mut self, registration: Registration) -> Result<(Stag, u64), Refused<Registration>> {
        let base = registration.base;
        self.rdma.register(registration).map(|stag| (stag, base))
    }

    fn deregister(&mut self, stag: Stag) -> Option<Memory> {
        self.rdma.deregister(stag)
    }

    fn expect_messages(&mut self, count: usize, longest_bytes: usize) {
        self.rdma.expect_messages(count, longest_bytes);
    }

    fn disconnect(&mut self) {
        self.rdma.disconnect();
    }

    fn is_established(&self) -> bool {
        self.rdma.is_established()
    }

    fn invalidates(&self) -> bool {
        !SET_UP.lacks_invalidation
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    fn adapter(&self) -> Option<String> {
        None
    }

    fn counts(&self) -> Counts {
        Counts {
            moved_bytes: self.rdma.moved_bytes(),
            copied_bytes: self.rdma.moved_bytes() - self.rdma.direct_bytes(),
            registered: self.rdma.registered() as u64,
            registered_ever: self.rdma.registered_ever(),
            receives: self.rdma.receives_posted() as u64,
            segment_bytes: self.segment_bytes.and_then(|bytes| u32::try_from(bytes).ok()),
        }
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
