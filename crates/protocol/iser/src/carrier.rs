//! The RDMA below iSER, and what waits for it: messages in both directions, in their order.

mod below;
mod counts;
mod sending;
mod stream;

use std::collections::VecDeque;

use sanwire_buffer::Frame;
use sanwire_iwarp::{Ended, Event, Memory, Message, Refused, Registration, Request, Stag, WorkId};

use self::below::Below;
use self::stream::Stream;
use crate::message::{ADDITIONAL_MAX_BYTES, HEADERS_BYTES};
use crate::orders::Orders;
use crate::queue_pair::QueuePair;
use crate::wire::{SetUp, Window};

pub(crate) use self::stream::STAGING_MAX_BYTES;

/// Until the login is over an end says one thing, and waits for the answer; what follows that may be there with it.
const RECEIVES_OF_LOGIN: usize = 4;

/// The data of a message during a login (RFC 7143 6.1), and until an end has said what it takes. Nobody says more.
const LOGIN_RECEIVE_MAX_BYTES: usize = 8192;

/// RDMA Reads at a time as long as an initiator has not said how many it takes: one more than it takes would end the connection.
const READS_OF_UNKNOWN: u16 = 1;

/// Why an initiator is refused whose data could not be read.
const NO_READS: &str = "it lets none of its memory be read (its IRD is 0), and iSER reads the data of WRITEs from there: let its adapter \
                        take RDMA Reads";

/// Why a target refuses everybody whose adapter has no reads of its own.
const NO_OWN_READS: &str = "the adapter here makes no RDMA Reads (its ORD is 0), and iSER reads the data of WRITEs by them: serve it by \
                            another adapter";

/// Nothing more is known of the end.
const HAS_ENDED: &str = "the stream has ended";

/// Something that has arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    Message(Message),
    /// What was read from the other end's memory.
    Read(WorkId, Frame),
}

/// One connection.
pub(crate) struct Carrier {
    below: Below,
    arrivals: VecDeque<Arrival>,
    /// Messages among them.
    messages: usize,
    /// Bytes of all messages that there have been.
    message_bytes: u64,
    orders: Orders,
    last_work: u64,
    /// The last read that is done.
    last_read: WorkId,
    /// Reads at a time, at the most, as both ends have agreed.
    reads_max: u16,
    /// The other end speaks RDMA.
    speaks_rdma: bool,
    /// The other end has said what it can.
    has_met: bool,
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
    /// The end that has connected, over a stream, and asks for this revision of MPA.
    pub(crate) fn initiator(seed: [u8; 32], revision: u8) -> Self {
        Carrier::new(Below::Stream(Box::new(Stream::initiator(seed, revision))))
    }

    /// The end that was connected to, over a stream.
    pub(crate) fn target(seed: [u8; 32]) -> Self {
        Carrier::new(Below::Stream(Box::new(Stream::target(seed))))
    }

    /// Either end, by an adapter.
    pub(crate) fn over(queue_pair: Box<dyn QueuePair>) -> Self {
        Carrier::new(Below::over(queue_pair))
    }

    fn new(below: Below) -> Self {
        let mut carrier = Carrier {
            below,
            arrivals: VecDeque::new(),
            messages: 0,
            message_bytes: 0,
            orders: Orders::default(),
            last_work: 0,
            last_read: WorkId(0),
            reads_max: 0,
            speaks_rdma: false,
            has_met: false,
            invalidates: false,
            receives: RECEIVES_OF_LOGIN,
            receive_max_bytes: LOGIN_RECEIVE_MAX_BYTES,
            fault: None,
            is_leaving: false,
        };
        carrier.expect_messages();
        carrier.go_on();
        carrier
    }

    /// From now on so many bytes are received at once, as far as that is of use.
    pub(crate) fn widen(&mut self, staging_bytes: usize) {
        self.below.stream().into_iter().for_each(|stream| stream.widen(staging_bytes));
    }

    /// TCP's segments have so many bytes.
    pub(crate) fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.below.stream().into_iter().for_each(|stream| stream.note_segment_bytes(segment_bytes));
    }

    /// The login is over: so many commands may be under way, and the data of a message is no longer than that.
    pub(crate) fn begin(&mut self, receive_max_bytes: usize, commands_max: usize) {
        (self.receives, self.receive_max_bytes) = (self.below.messages_at_once(commands_max), receive_max_bytes);
        self.expect_messages();
    }

    /// An adapter sends on whether anybody looks or not: what has arrived and was not looked at is less that may come.
    fn expect_messages(&mut self) {
        let longest_bytes = HEADERS_BYTES + ADDITIONAL_MAX_BYTES + self.receive_max_bytes;
        let waiting = if self.has_adapter() { self.messages } else { 0 };
        let count = self.receives.saturating_sub(waiting);
        self.below.pair_mut().expect_messages(count, longest_bytes);
    }

    pub(crate) fn spaces(&mut self) -> [&mut [u8]; 2] {
        match self.below.stream() {
            Some(stream) => stream.rdma.spaces(),
            None => [&mut [], &mut []],
        }
    }

    /// So many bytes of a stream have arrived, or an adapter has something to tell.
    pub(crate) fn filled(&mut self, count: usize) {
        self.below.stream().into_iter().for_each(|stream| stream.rdma.filled(count));
        self.drain();
        self.go_on();
    }

    /// Takes what was received elsewhere, as much as there is room for.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for space in self.spaces() {
            let count = space.len().min(bytes.len() - taken);
            space[..count].copy_from_slice(&bytes[taken..taken + count]);
            taken += count;
        }
        self.filled(taken);
        taken
    }

    fn drain(&mut self) {
        while let Some(event) = self.below.pair_mut().poll_event() {
            match event {
                Event::Requested(request) => self.take_request(&request),
                Event::Connected(terms) => {
                    (self.speaks_rdma, self.reads_max) = (true, terms.ord);
                    // A target has met the initiator by its request.
                    if !self.has_met {
                        self.meet(&terms.private_data);
                    } else if terms.ord == 0 {
                        self.fail(NO_OWN_READS);
                    }
                }
                Event::Rejected(_) => self.end("it refuses the RDMA connection: its log may say why"),
                Event::Message(message) => self.take_message(message),
                Event::ReadDone { id, frame } => {
                    self.last_read = id;
                    if !self.is_over() {
                        self.arrivals.push_back(Arrival::Read(id, frame));
                    }
                }
                Event::Sent(id) => {
                    self.orders.note_sent(id);
                    self.below.note_due();
                }
                Event::Terminated(Ended::ByUs(fault)) => self.end(format!("it broke the protocol ({fault})")),
                Event::Terminated(Ended::ByPeer(Some(fault))) => self.end(format!("it ended the stream ({fault})")),
                Event::Terminated(Ended::ByPeer(None)) => self.end("it ended the stream"),
                Event::Closed(_) => {
                    self.end(HAS_ENDED);
                    self.orders.forget_all();
                }
            }
        }
        self.expect_messages();
    }

    /// An initiator wants in.
    fn take_request(&mut self, request: &Request) {
        self.speaks_rdma = true;
        self.meet(&request.private_data);
        let (own, takes_reads) = (self.below.private_data(), request.ird != Some(0));
        let pair = self.below.pair_mut();
        let answered = if takes_reads { pair.accept(&own) } else { pair.reject(&own) };
        if answered.is_err() {
            self.end("its request cannot be answered");
        } else if !takes_reads {
            self.end(NO_READS);
        } else if request.ird.is_none() {
            self.below.pair_mut().limit_reads(READS_OF_UNKNOWN);
        }
    }

    /// What the other end says of itself when the connection is set up.
    fn meet(&mut self, private_data: &[u8]) {
        let (own, other) = (self.below.set_up(), SetUp::read(private_data));
        self.has_met = true;
        self.invalidates = !own.lacks_invalidation && !other.lacks_invalidation;
        self.below.stream().into_iter().for_each(|stream| stream.meet(private_data));
    }

    fn take_message(&mut self, message: Message) {
        self.message_bytes += message.buffer.len() as u64;
        // An adapter tells of what had come before its connection was given up.
        if !self.is_leaving && !self.is_over() {
            self.messages += 1;
            self.arrivals.push_back(Arrival::Message(message));
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
        self.below.pair_mut().limit_reads(reads);
        self.go_on();
        Ok(reads)
    }

    /// Gives the connection up, for what the other end did: what else it has sent is not looked at. The first reason counts.
    pub(crate) fn fail(&mut self, reason: impl Into<String>) {
        self.arrivals.clear();
        self.messages = 0;
        self.below.pair_mut().disconnect();
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

    /// Whether an adapter carries it.
    pub(crate) fn has_adapter(&self) -> bool {
        matches!(self.below, Below::Adapter(_))
    }

    /// The adapter, for people.
    pub(crate) fn adapter(&self) -> Option<String> {
        self.below.pair().adapter()
    }

    /// What is wrong with a connection, if more is known than that it has ended.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.below.pair().trouble().or_else(|| self.fault.clone().filter(|fault| fault != HAS_ENDED))
    }

    /// Whether nothing more comes than what has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.fault.is_some()
    }

    /// The same, and nothing is left to be sent: it has failed, whoever looks.
    pub(crate) fn has_failed(&self) -> bool {
        let is_sent = match &self.below {
            Below::Stream(_) => self.is_idle(),
            Below::Adapter(_) => self.orders.are_done(),
        };
        self.is_over() && is_sent
    }

    /// Whether the other end speaks RDMA.
    pub(crate) fn speaks_rdma(&self) -> bool {
        self.speaks_rdma
    }

    /// Whether the other end has answered that it speaks only an older revision of MPA.
    pub(crate) fn is_answered_older(&self) -> bool {
        match &self.below {
            Below::Stream(stream) => stream.rdma.is_peer_older(),
            Below::Adapter(_) => false,
        }
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
        let arrival = self.arrivals.pop_front()?;
        if matches!(arrival, Arrival::Message(_)) {
            self.messages -= 1;
            if self.has_adapter() {
                self.expect_messages();
            }
        }
        Some(arrival)
    }

    /// Opens memory to the other end. Gives where that is, as both ends call it.
    ///
    /// # Errors
    /// The memory, and why that cannot be.
    pub(crate) fn register(&mut self, registration: Registration) -> Result<Window, Refused<Registration>> {
        let registered = self.below.pair_mut().register(registration);
        registered.map(|(stag, offset)| Window { stag, offset })
    }

    /// Closes memory to the other end. Gives the frame back, if it is one.
    pub(crate) fn deregister(&mut self, stag: Stag) -> Option<Frame> {
        match self.below.pair_mut().deregister(stag)? {
            Memory::Frame(frame) => Some(frame),
            Memory::Slices(_) => None,
        }
    }

    /// What is to be sent is the last, and nobody waits for what still comes.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        if self.has_adapter() {
            self.arrivals.clear();
            self.messages = 0;
        }
    }
}
