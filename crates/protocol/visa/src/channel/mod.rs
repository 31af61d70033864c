//! A connection, as both ends have it: packets that go and come, acknowledgements, and signs of life.

mod guard;
mod incoming;
mod life;
mod outgoing;
mod types;

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path, Protection};

pub(crate) use self::guard::Guard;
use self::incoming::{Incoming, Verdict};
use self::outgoing::Outgoing;
pub(crate) use self::outgoing::{Held, Message};
pub(crate) use self::types::{Heard, Patience, Recovery, Rejected, Setup, Take};
use crate::counters::Traffic;
use crate::wire::flow::{Ack, Close, Ping, read_nak, read_waiting, write_nak};
use crate::wire::header::RawPacket;
use crate::wire::offer::{Mode, Terms};
use crate::wire::{Guarding, Header, Kind};

/// Control packets that wait to be sent; a flood of questions is not answered beyond.
const CONTROLS_MAX: usize = 64;

/// One end of a connection.
pub(crate) struct Channel {
    path: Path,
    connection: u32,
    from_device: bool,
    guard: Guard,
    /// Data packets are never guarded less.
    protection_min: Protection,
    is_stream: bool,
    outgoing: Outgoing,
    incoming: Incoming,
    controls: VecDeque<(Kind, Vec<u8>)>,
    patience: Patience,
    heard_at: Instant,
    /// Since when a question waits for its answer, and when it was asked last.
    asked_since: Option<Instant>,
    asked_at: Instant,
    /// Questions that were asked: each has its number, which the answer repeats.
    questions: u64,
    /// Nothing is given on before this question, or a later one, is answered.
    suspended_until: Option<u64>,
    sent_packets: u64,
    received_packets: u64,
}

impl Channel {
    pub(crate) fn new(setup: Setup, now: Instant) -> Self {
        let Setup { path, connection, from_device, mut guard, terms, is_stream, patience } = setup;
        if terms.is_unchecked {
            guard.uncheck();
        }
        let recovery = match terms.mode {
            _ if is_stream => Recovery::Stream,
            Mode::Classic => Recovery::Classic,
            Mode::Modern => Recovery::Modern,
        };
        let (inward, outward) = match from_device {
            true => (terms.window_packets_in, terms.window_packets_out),
            false => (terms.window_packets_out, terms.window_packets_in),
        };
        let payload_bytes = usize::from(terms.payload_bytes);
        Channel {
            path,
            connection,
            from_device,
            guard,
            protection_min: terms.protection_min,
            is_stream,
            outgoing: Outgoing::new(recovery, payload_bytes, outward),
            incoming: Incoming::new(recovery, payload_bytes, inward),
            controls: VecDeque::new(),
            patience,
            heard_at: now,
            asked_since: None,
            asked_at: now,
            questions: 0,
            suspended_until: None,
            sent_packets: 0,
            received_packets: 0,
        }
    }

    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// Whether packets from there with this connection are its own.
    pub(crate) fn is_of(&self, path: Path, connection: u32) -> bool {
        (self.path, self.connection) == (path, connection)
    }

    /// Whether another connection should take its place.
    pub(crate) fn is_worn(&self) -> bool {
        self.guard.is_worn() || self.outgoing.is_worn() || self.incoming.is_worn()
    }

    /// Has it guarded much, for tests.
    #[cfg(test)]
    pub(crate) fn wear(&mut self) {
        self.guard.wear();
    }

    /// How many packets have come that nobody else can have sent, nor sent again.
    pub(crate) fn heard(&self) -> u64 {
        self.received_packets
    }

    /// Bytes that came before others that are missing, and are kept.
    pub(crate) fn held_bytes(&self) -> usize {
        self.incoming.held_bytes()
    }

    /// Whether the packet that is next in order is here, and nobody has taken it.
    pub(crate) fn is_starved(&self) -> bool {
        !self.is_suspended() && self.incoming.is_starved()
    }

    /// Of what TCP was given on this connection, it has not taken so many bytes.
    pub(crate) fn note_unsent(&mut self, unsent_bytes: usize, now: Instant) {
        self.outgoing.note_unsent(unsent_bytes as u64, now);
    }

    /// What messages hold that have not arrived whole.
    pub(crate) fn untaken(&self) -> Held {
        self.outgoing.held()
    }

    /// Bytes of messages that have arrived, and that have not.
    pub(crate) fn arrived_and_left_bytes(&self) -> (u64, u64) {
        self.outgoing.arrived_and_left_bytes()
    }

    /// Whether all that was sent has arrived, and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.outgoing.is_idle()
    }

    /// Since when packets are kept that wait for one which is missing, and that does not come.
    pub(crate) fn gap_since(&self) -> Option<Instant> {
        self.incoming.gap_since()
    }

    /// Since when nothing arrives of what is sent.
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        self.outgoing.stuck_since()
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.outgoing.smoothed()
    }

    /// A data packet has come. Those that are next in order are given to `take`, this one and others that have waited for it. What that
    /// does not take for want of memory waits for [`Channel::go_on`].
    pub(crate) fn handle_data(
        &mut self,
        raw: &RawPacket<'_>,
        (plain, may_hold): (&mut Vec<u8>, bool),
        take: &mut Take<'_>,
        now: Instant,
    ) -> Result<(), Rejected> {
        if raw.header.guarding.protection() < self.protection_min {
            return Err(Rejected::Downgrade);
        }
        // First, so that nobody else has us acknowledge anything.
        let payload = self.guard.open_data(raw, plain, now)?;
        let is_suspended = self.is_suspended();
        // TCP brings each packet once.
        let may_hold = may_hold || (self.is_stream && !is_suspended);
        match self.incoming.judge(raw.header.sequence, now) {
            Verdict::Next if !is_suspended => {}
            Verdict::Next | Verdict::Held if may_hold => {
                self.hear(now);
                self.incoming.hold(raw.header, payload, now);
                return Ok(());
            }
            Verdict::Next | Verdict::Held | Verdict::Overrun if self.is_stream => return Err(Rejected::Overrun),
            Verdict::Next | Verdict::Held | Verdict::Overrun | Verdict::OutOfOrder => return Err(Rejected::OutOfOrder),
            Verdict::Duplicate => return Err(Rejected::Duplicate),
            // Anybody can have sent it.
            Verdict::Beyond if raw.header.guarding == Guarding::None => return Err(Rejected::OutOfOrder),
            Verdict::Beyond => return Err(Rejected::Violation),
        }
        match take(&raw.header, payload) {
            Ok(()) => {
                self.hear(now);
                self.incoming.advance(&raw.header, payload.len(), now);
            }
            Err(Rejected::NoMemory) if may_hold => {
                self.hear(now);
                self.incoming.keep_for_later(raw.header, payload);
                return Err(Rejected::NoMemory);
            }
            Err(rejected) => return Err(rejected),
        }
        self.go_on(take, now)
    }

    /// Gives what waits and is next in order.
    pub(crate) fn go_on(&mut self, take: &mut Take<'_>, now: Instant) -> Result<(), Rejected> {
        let was_held_up = self.is_held_up();
        while !self.is_suspended()
            && let Some((header, payload)) = self.incoming.take_next()
        {
            match take(&header, &payload) {
                Ok(()) => self.incoming.advance(&header, payload.len(), now),
                Err(rejected) => {
                    self.incoming.keep_for_later(header, &payload);
                    return Err(rejected);
                }
            }
        }
        if was_held_up {
            self.listen_again(now);
        }
        Ok(())
    }

    /// A sealed packet has come.
    pub(crate) fn handle_control(&mut self, raw: &RawPacket<'_>, now: Instant) -> Result<Heard, Rejected> {
        let body = self.guard.open_control(raw, now)?;
        self.hear(now);
        let malformed = |_| Rejected::Malformed;
        match raw.header.kind {
            Kind::Ack => {
                let ack = Ack::read(&body).map_err(malformed)?;
                self.outgoing.acknowledged(&ack, now).map(Heard::Delivered).ok_or(Rejected::Violation)
            }
            Kind::Nak => {
                let expected = read_nak(&body).map_err(malformed)?;
                self.outgoing.roll_back(expected, now).map(Heard::Delivered).ok_or(Rejected::Violation)
            }
            Kind::Ping => {
                let ping = Ping::read(&body).map_err(malformed)?;
                if !ping.is_answer {
                    self.control(Kind::Ping, Ping { is_answer: true, ..ping }.write());
                    self.incoming.ack_asked(now);
                    return Ok(Heard::Nothing);
                }
                Ok(self.answered(ping.nonce))
            }
            Kind::Close => Close::read(&body).map(Heard::Closed).map_err(malformed),
            Kind::Agree if self.from_device => read_waiting(&body).map(Heard::Waits).map_err(malformed),
            Kind::Agree => Terms::read(&body).map(Heard::Terms).map_err(malformed),
            Kind::Connect | Kind::Accept | Kind::Confirm | Kind::Data => Err(Rejected::Malformed),
        }
    }

    /// Sends a command or an answer.
    pub(crate) fn send(&mut self, message: Message, now: Instant) {
        self.outgoing.push(message, now);
    }

    /// Sends a control packet, unless very many wait.
    pub(crate) fn control(&mut self, kind: Kind, body: Vec<u8>) {
        if self.controls.len() < CONTROLS_MAX {
            self.controls.push_back((kind, body));
        }
    }

    /// A control packet that goes at once.
    pub(crate) fn seal(&mut self, kind: Kind, body: &[u8]) -> Option<Packet> {
        self.guard.seal_control(kind, self.from_device, self.connection, body)
    }

    /// The next packet to send.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        let packet = self.next_packet(now)?;
        self.sent_packets += 1;
        Some(packet)
    }

    fn next_packet(&mut self, now: Instant) -> Option<Packet> {
        if let Some((kind, body)) = self.controls.pop_front() {
            return self.seal(kind, &body);
        }
        if let Some(expected) = self.incoming.poll_nak(now) {
            return self.seal(Kind::Nak, &write_nak(expected));
        }
        if let Some(ack) = self.incoming.poll_ack(now) {
            return self.seal(Kind::Ack, &ack.write());
        }
        let Channel { outgoing, guard, from_device, connection, .. } = self;
        let part = outgoing.poll(now)?;
        let header = Header {
            first: part.offset == 0,
            last: part.is_last,
            ack_now: part.ack_now,
            guarding: guard.guarding(part.protection),
            tag: part.tag,
            sequence: part.sequence,
            offset: part.offset,
            ..Header::single(Kind::Data, *from_device, *connection)
        };
        let packet = guard.seal_data(header, &part.before, part.data.as_ref());
        if self.is_stream {
            outgoing.handed_over(header.sequence, now);
        }
        packet
    }

    /// What went through it.
    pub(crate) fn traffic(&self) -> Traffic {
        let (resent_packets, timeouts, window_packets) = self.outgoing.counts();
        Traffic {
            sent_packets: self.sent_packets,
            received_packets: self.received_packets,
            resent_packets,
            timeouts,
            window_packets,
            round_trip: self.outgoing.smoothed(),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
