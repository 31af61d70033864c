//! One end of one stream.

mod counts;
mod setup;

use std::ops::Range;

use sanwire_buffer::{Frame, Packet};

use crate::config::{Config, ConfigError, check_private_data};
use crate::event::{Closed, Ended, Event, Order, Refusal, Refused, WorkId};
use crate::memory::{Memory, Registration, Registrations};
use crate::mpa::{self, Broken, Framer, Step};
use crate::rdmap::{Inbound, Outbound, Outgoing, Read};
use crate::wire::{Opcode, ReadRequest, Stag, Startup, Terminate};

/// One end of one stream: see the [crate].
pub struct Connection {
    config: Config,
    phase: Phase,
    framer: Framer,
    inbound: Inbound,
    /// A responder has answered with revision 1 of MPA, and was asked for a later one.
    is_peer_older: bool,
}

enum Phase {
    /// An initiator waits for the reply.
    Requesting,
    /// A responder waits for the request.
    Listening,
    /// Its owner decides about the request.
    Deciding(Startup),
    Established,
    /// What is to be sent is sent; then the stream ends so.
    Ending(Closed),
    Closed,
}

/// What a connection had when it ended.
#[derive(Debug, Default)]
pub struct Reclaimed {
    /// Buffers into which no message came.
    pub receives: Vec<Frame>,
    /// Reads that were not done, with their frames.
    pub reads: Vec<(WorkId, Frame)>,
    /// What was registered.
    pub registrations: Vec<(Stag, Memory)>,
}

impl Connection {
    /// The end of who connected. It begins with a request that says this to the owner of the other end.
    ///
    /// # Errors
    /// When the configuration cannot be, or the private data is too long (512 bytes; 508 with revision 2).
    pub fn initiator(config: Config, private_data: &[u8]) -> Result<Self, ConfigError> {
        check_private_data(private_data, config.revision >= 2)?;
        let request = mpa::request(&config, private_data);
        let mut connection = Connection::new(config, Phase::Requesting)?;
        connection.inbound.outbound.push_raw(request.write());
        Ok(connection)
    }

    /// The end of who was connected to.
    ///
    /// # Errors
    /// When the configuration cannot be.
    pub fn responder(config: Config) -> Result<Self, ConfigError> {
        Connection::new(config, Phase::Listening)
    }

    fn new(config: Config, phase: Phase) -> Result<Self, ConfigError> {
        config.check()?;
        let registrations = Registrations::new(config.seed, config.registrations_max);
        let inbound = Inbound::new(registrations, Outbound::new(config.mulpdu_bytes()));
        let framer = Framer::new(config.staging_bytes);
        Ok(Connection { config, phase, framer, inbound, is_peer_older: false })
    }

    /// Where the next bytes of the stream belong: first all of the first space, then the second. Either may be empty, not both.
    /// Nothing else is called before [`Connection::filled`].
    pub fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.framer.spaces(&mut self.inbound)
    }

    /// From now on at least so many bytes are received at once, beyond what goes straight to its place.
    pub fn widen(&mut self, staging_bytes: usize) {
        self.framer.widen(staging_bytes);
    }

    /// So many bytes were received into the spaces.
    pub fn filled(&mut self, count: usize) {
        self.framer.filled(count, &mut self.inbound);
        while self.take_next() {}
        self.settle();
    }

    /// Takes bytes that were received elsewhere, all of them.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut taken = 0;
            for space in self.spaces() {
                let count = space.len().min(bytes.len() - taken);
                space[..count].copy_from_slice(&bytes[taken..taken + count]);
                taken += count;
            }
            bytes = &bytes[taken..];
            self.filled(taken);
        }
    }

    /// The peer has closed its direction of the stream, or the stream is lost.
    pub fn peer_closed(&mut self) {
        let is_clean = self.framer.is_at_rest() && !self.inbound.is_within_message();
        let closed = match self.phase {
            Phase::Closed => return,
            Phase::Ending(closed) => closed,
            Phase::Established if is_clean => Closed::ByPeer,
            _ => Closed::Lost,
        };
        self.end(closed, None);
        self.settle();
    }

    /// Sends what was ordered, and ends the stream then. What arrives meanwhile is not looked at.
    pub fn disconnect(&mut self) {
        match self.phase {
            Phase::Established if !self.inbound.outbound.is_held() => self.phase = Phase::Ending(Closed::ByUs),
            Phase::Ending(_) | Phase::Closed => {}
            _ => self.end(Closed::ByUs, None),
        }
        self.inbound.reads.stop();
        self.framer.stop();
        self.settle();
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.settle();
        self.inbound.events.pop_front()
    }

    /// The next packet. They must be sent in this order, whole; an FPDU whose data lies in several pieces is several packets.
    pub fn poll_transmit(&mut self) -> Option<Packet> {
        let Inbound { outbound, registrations, reads, events, .. } = &mut self.inbound;
        match outbound.poll(registrations, reads, events) {
            Ok(packet) => packet,
            Err(fault) => {
                self.fail(Broken { fault, about: None });
                self.poll_transmit()
            }
        }
    }

    /// Whether [`Connection::poll_transmit`] may give something now.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        !self.inbound.outbound.is_empty()
    }

    /// Has the peer sent these bytes. Its owner is told when they are packets if it has given a name.
    ///
    /// # Errors
    /// Gives the order back when the connection is not established, when too many wait, or when it is longer than messages may be.
    #[expect(clippy::result_large_err, reason = "the order itself comes back; boxing it would allocate")]
    pub fn order(&mut self, order: Order, id: Option<WorkId>) -> Result<(), Refused<Order>> {
        let refusal = match &order {
            _ if !self.is_established() => Some(Refusal::NotConnected),
            _ if self.inbound.outbound.orders() >= self.config.orders_max => Some(Refusal::Full),
            Order::Send { head, data, .. } => {
                let length = head.len() + data.as_ref().map_or(0, |data| data.len());
                u32::try_from(length).is_err().then_some(Refusal::Range)
            }
            Order::Write { offset, data, .. } => {
                let fits = u32::try_from(data.len()).is_ok() && offset.checked_add(data.len() as u64).is_some();
                (!fits).then_some(Refusal::Range)
            }
        };
        if let Some(refusal) = refusal {
            return Err(Refused { refusal, given: order });
        }
        let outgoing = match order {
            Order::Send { kind, head, data } => {
                let opcode = Opcode::send(kind.solicited, kind.invalidate.is_some());
                Outgoing::untagged(opcode, kind.invalidate.unwrap_or_default(), head, data)
            }
            Order::Write { stag, offset, data } => Outgoing::write(stag, offset, Some(data)),
        };
        self.inbound.outbound.push(outgoing.told(id));
        Ok(())
    }

    /// Reads what the peer has registered into a part of a frame, as many bytes as that has. The frame comes back by
    /// [`Event::ReadDone`]. Reads are answered in their order; Sends and Writes that are ordered later may overtake them.
    ///
    /// # Errors
    /// Gives the frame back when the connection is not established, when too many wait, when the peer takes no reads, or when the
    /// part is not within the frame.
    pub fn read(
        &mut self,
        id: WorkId,
        frame: Frame,
        part: Range<usize>,
        source: Stag,
        source_offset: u64,
    ) -> Result<(), Refused<Frame>> {
        let is_within = part.start <= part.end && part.end <= frame.len();
        let length = u32::try_from(part.end.saturating_sub(part.start));
        let reads = &mut self.inbound.reads;
        let refusal = match length {
            _ if !matches!(self.phase, Phase::Established) => Refusal::NotConnected,
            _ if reads.ord == 0 => Refusal::NoReads,
            _ if reads.len() >= self.config.orders_max => Refusal::Full,
            Ok(length_bytes) if is_within && source_offset.checked_add(length_bytes.into()).is_some() => {
                let sink = self.inbound.registrations.new_key();
                let request = ReadRequest { sink, sink_offset: 0, length_bytes, source, source_offset };
                reads.push(Read { id: Some(id), frame, start: part.start, request, done: 0 });
                return Ok(());
            }
            _ => Refusal::Range,
        };
        Err(Refused { refusal, given: frame })
    }

    /// From now on so many RDMA Reads of this end are under way at a time, but no more than its configuration allows: for who learns
    /// from the owner of the other end how many that takes.
    pub fn limit_reads(&mut self, at_a_time: u16) {
        if self.is_established() {
            self.inbound.reads.ord = at_a_time.min(self.config.ord);
        }
    }

    /// Gives a buffer for a message of the peer. A message for which there is none ends the stream, as does one that is longer.
    ///
    /// # Errors
    /// Gives the frame back when there are as many as may be, or the stream has ended.
    pub fn post_receive(&mut self, frame: Frame) -> Result<(), Refused<Frame>> {
        let refusal = match self.phase {
            Phase::Ending(_) | Phase::Closed => Refusal::NotConnected,
            _ if self.inbound.receives() >= self.config.receives_max => Refusal::Full,
            _ => {
                self.inbound.post_receive(frame);
                return Ok(());
            }
        };
        Err(Refused { refusal, given: frame })
    }

    /// Lets so many messages of the peer come without buffers that were posted for them, each of at most so many bytes: memory is taken
    /// when one begins, as much as it needs. Buffers that are posted are filled first.
    pub fn expect_messages(&mut self, count: usize, longest_bytes: usize) {
        self.inbound.expect(count.min(self.config.receives_max), longest_bytes);
    }

    /// Lets the peer reach memory, by the key that this gives.
    ///
    /// # Errors
    /// Gives the memory back when there are as many registrations as may be, when the stream has ended, or when the range is not
    /// within the memory, or the rights are to write to what is shared.
    pub fn register(&mut self, registration: Registration) -> Result<Stag, Refused<Registration>> {
        if matches!(self.phase, Phase::Ending(_) | Phase::Closed) {
            return Err(Refused { refusal: Refusal::NotConnected, given: registration });
        }
        self.inbound.registrations.register(registration)
    }

    /// Ends a registration, whether the peer has already ended it or not, and gives the memory back. A peer that uses the key
    /// afterwards has broken a rule. `None` for a key that is none of this end.
    pub fn deregister(&mut self, stag: Stag) -> Option<Memory> {
        self.inbound.registrations.deregister(stag)
    }

    /// Everything that was given to the connection and has not come back. It is for a stream that has ended: one that has not is
    /// ended by it, without a word.
    pub fn reclaim(&mut self) -> Reclaimed {
        if !matches!(self.phase, Phase::Closed) {
            self.end(Closed::ByUs, None);
        }
        Reclaimed {
            receives: self.inbound.drain_receives(),
            reads: self.inbound.reads.drain().filter_map(|read| Some((read.id?, read.frame))).collect(),
            registrations: self.inbound.registrations.drain(),
        }
    }

    /// Whether messages may be sent.
    #[must_use]
    pub fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    /// Whether the stream has ended, and nothing more is to be sent.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Receive buffers that are posted, and messages that may come without one: as many may come.
    #[must_use]
    pub fn receives_posted(&self) -> usize {
        self.inbound.receives()
    }

    /// Registrations that have not been taken back.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.inbound.registrations.len()
    }

    /// Reads that are not done.
    #[must_use]
    pub fn reads_under_way(&self) -> usize {
        self.inbound.reads.len()
    }

    /// Takes the next thing in the stream; `false` when there is no more of it.
    fn take_next(&mut self) -> bool {
        match self.phase {
            Phase::Requesting => self.take_reply(),
            Phase::Listening => self.take_request(),
            Phase::Deciding(_) => {
                // RFC 5044 7.1.2: an initiator sends nothing before it has the reply.
                if !self.framer.waiting().is_empty() {
                    self.break_off();
                }
                false
            }
            Phase::Established => match self.framer.step(&mut self.inbound) {
                Ok(Step::Starving) => false,
                Ok(Step::Arrived) => true,
                Ok(Step::Ended(ended)) => {
                    self.inbound.events.push_back(Event::Terminated(ended));
                    self.end(Closed::Terminated, None);
                    false
                }
                Err(broken) => {
                    self.fail(broken);
                    false
                }
            },
            Phase::Ending(_) | Phase::Closed => {
                self.framer.stop();
                false
            }
        }
    }

    /// The peer broke a rule: tell it, and end.
    fn fail(&mut self, broken: Broken) {
        let Broken { fault, about } = broken;
        self.inbound.events.push_back(Event::Terminated(Ended::ByUs(fault)));
        let (segment_bytes, headers) = about.filter(|_| fault.is_of_segment()).unzip();
        let terminate = Terminate { code: fault.code(), segment_bytes, headers: headers.unwrap_or_default() };
        let outgoing = Outgoing::untagged(Opcode::Terminate, Stag(0), terminate.write().into(), None);
        self.end(Closed::Terminated, Some(outgoing));
    }

    fn end(&mut self, closed: Closed, last: Option<Outgoing>) {
        self.framer.stop();
        self.inbound.reads.stop();
        self.inbound.outbound.cut(last);
        self.phase = Phase::Ending(closed);
    }

    /// The stream has ended when nothing more is to be sent.
    fn settle(&mut self) {
        if let Phase::Ending(closed) = self.phase
            && self.inbound.outbound.is_empty()
        {
            self.phase = Phase::Closed;
            self.inbound.events.push_back(Event::Closed(closed));
        }
    }
}
