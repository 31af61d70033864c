//! What is sent: messages cut into packets, kept until they are acknowledged, and sent again when they are missed.

mod classic;
mod message;
mod modern;
mod sent;
mod stream;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_flow::{Acknowledged, Congestion, RoundTrip, Shaper};

pub(crate) use self::message::{Held, Message};
pub(super) use self::sent::Part;
use self::sent::{Flight, Sent};
use super::Recovery;
use crate::wire::HEADER_BYTES;
use crate::wire::flow::{Ack, MAP_MAX_PACKETS};
use crate::wire::message::{PROLOGUE_BYTES, Prologue};

/// The window of classic mode: so much payload is sent, then the sender waits for an acknowledgement.
pub(super) const CLASSIC_WINDOW_BYTES: usize = 48 << 10;

/// A timer of classic mode that has measured no round trip yet.
const CLASSIC_TIMEOUT_FIRST: Duration = Duration::from_secs(1);

/// After a pause of this length not all of the window is to be trusted.
const TRUST_MAX: Duration = Duration::from_secs(1);

/// What is sent to the other end.
#[derive(Debug)]
pub(super) struct Outgoing {
    recovery: Recovery,
    payload_bytes: usize,
    window_packets: u32,
    room_packets: u32,
    queue: VecDeque<Message>,
    /// Data bytes of the first message that were sent.
    cut_bytes: Option<usize>,
    /// Packets from `base` on.
    sent: VecDeque<Sent>,
    base: u32,
    missed: BTreeSet<u32>,
    /// Classic: the packet that is sent next, which may have been sent before.
    cursor: u32,
    /// Payload of those between `base` and `cursor`; of those under way.
    in_flight_bytes: u64,
    order: u64,
    top_order: u64,
    congestion: Congestion,
    round_trip: RoundTrip,
    shaper: Shaper,
    timer_at: Option<Instant>,
    look_at: Option<Instant>,
    /// All that was sent is here, but for what is before it: the receiver is to say so again.
    has_question: bool,
    /// Classic: the last packet to which the receiver had us go back, and when.
    rolled_back: Option<(u32, Instant)>,
    resent_packets: u64,
    timeouts: u64,
    held: Held,
    /// When a packet was sent last.
    sent_at: Instant,
    /// Of all that was given to be sent, and of what has arrived of it, in bytes; over TCP, what was handed over to that.
    given_bytes: u64,
    arrived_bytes: u64,
    /// Of what was handed over, what waits to be taken.
    unsent_bytes: u64,
    /// When something has arrived last, or began to be under way.
    moved_at: Instant,
}

impl Outgoing {
    pub(super) fn new(recovery: Recovery, payload_bytes: usize, window_packets: u32) -> Self {
        Outgoing {
            recovery,
            payload_bytes,
            // Of more no acknowledgement could tell, and each looks at all.
            window_packets: window_packets.min(MAP_MAX_PACKETS),
            room_packets: MAP_MAX_PACKETS,
            queue: VecDeque::new(),
            cut_bytes: None,
            sent: VecDeque::new(),
            base: 0,
            missed: BTreeSet::new(),
            cursor: 0,
            in_flight_bytes: 0,
            order: 0,
            top_order: 0,
            congestion: Congestion::new(payload_bytes + HEADER_BYTES),
            round_trip: RoundTrip::default(),
            shaper: Shaper::default(),
            timer_at: None,
            look_at: None,
            has_question: false,
            rolled_back: None,
            resent_packets: 0,
            timeouts: 0,
            held: Held::default(),
            sent_at: Instant::ZERO,
            given_bytes: 0,
            arrived_bytes: 0,
            unsent_bytes: 0,
            moved_at: Instant::ZERO,
        }
    }

    pub(super) fn push(&mut self, message: Message, now: Instant) {
        if self.is_idle() {
            if now.saturating_since(self.sent_at) > TRUST_MAX {
                self.congestion.restart();
            }
            self.sent_at = now;
        }
        if self.stuck_since().is_none() {
            self.moved_at = now;
        }
        self.held.add(message.held());
        self.given_bytes += message.bytes();
        self.queue.push_back(message);
    }

    /// What messages hold that have not arrived whole.
    pub(super) fn held(&self) -> Held {
        self.held
    }

    /// Bytes that have arrived, and that have not.
    pub(super) fn arrived_and_left_bytes(&self) -> (u64, u64) {
        let left_bytes = self.given_bytes - self.arrived_bytes;
        (self.arrived_bytes.saturating_sub(self.unsent_bytes), left_bytes + self.unsent_bytes)
    }

    /// Since when nothing arrives of what is sent.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        let is_over = match self.recovery {
            Recovery::Stream => self.queue.is_empty() && self.unsent_bytes == 0,
            Recovery::Classic | Recovery::Modern => self.is_idle(),
        };
        (!is_over).then_some(self.moved_at)
    }

    /// Nothing waits, and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty()
    }

    /// Whether half of the numbers are used up.
    pub(super) fn is_worn(&self) -> bool {
        self.base > u32::MAX / 2
    }

    /// How long an answer takes, once that is known.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.round_trip.smoothed()
    }

    /// Packets that were sent again, timeouts, and packets that may be under way.
    pub(super) fn counts(&self) -> (u64, u64, u32) {
        (self.resent_packets, self.timeouts, self.window_packets.min(self.room_packets))
    }

    fn next(&self) -> u32 {
        self.base + self.sent.len() as u32
    }

    /// The packet that is sent now.
    pub(super) fn poll(&mut self, now: Instant) -> Option<&Part> {
        let sequence = match self.recovery {
            Recovery::Classic => self.next_classic(now)?,
            Recovery::Modern => self.next_modern(now)?,
            Recovery::Stream => self.next_of_stream(now)?,
        };
        self.order += 1;
        self.sent_at = now;
        let index = (sequence - self.base) as usize;
        let is_watched = self.recovery != Recovery::Stream;
        let sent = self.sent.get_mut(index)?;
        (sent.at, sent.order, sent.times, sent.flight) = (now, self.order, sent.times + 1, Flight::Underway);
        self.resent_packets += u64::from(sent.times > 1);
        self.in_flight_bytes += sent.bytes;
        if is_watched {
            self.timer_at.get_or_insert(now + timeout(self.recovery, &self.round_trip));
        }
        self.sent.get(index).map(|sent| &sent.part)
    }

    /// Payload of the next packet that was not sent before.
    fn peek_bytes(&self) -> Option<u64> {
        let message = self.queue.front()?;
        let (before, left) = match self.cut_bytes {
            None => (PROLOGUE_BYTES + message.head.len(), message.data_bytes()),
            Some(cut) => (0, message.data_bytes() - cut),
        };
        Some((before + left).min(self.payload_bytes.max(before)) as u64)
    }

    /// Makes the next packet of the first message.
    fn cut(&mut self, now: Instant) -> u32 {
        let sequence = self.next();
        let Some(message) = self.queue.front() else { return sequence };
        let data_bytes = message.data_bytes();
        let (before, from) = match self.cut_bytes {
            None => {
                let prologue = Prologue { head_bytes: message.head.len() as u16, data_bytes: data_bytes as u32 };
                ([&prologue.write()[..], &message.head].concat(), 0)
            }
            Some(cut) => (Vec::new(), cut),
        };
        let head_bytes = PROLOGUE_BYTES + message.head.len();
        let offset = if before.is_empty() { head_bytes + from } else { 0 };
        let to = data_bytes.min(from + self.payload_bytes.saturating_sub(before.len()));
        let data = message.data.as_ref().filter(|_| to > from).map(|data| data.cut(from..to));
        let is_last = to == data_bytes;
        let bytes = (before.len() + to - from) as u64;
        let (tag, protection, cookie) = (message.tag, message.protection, message.cookie.filter(|_| is_last));
        let held = if is_last { message.held() } else { Held::default() };
        if is_last {
            self.queue.pop_front();
            self.cut_bytes = None;
        } else {
            self.cut_bytes = Some(to);
        }
        // It has to be known now: a packet is never changed.
        let in_flight = (self.in_flight_bytes + bytes, self.sent.len() as u32 + 1);
        let ack_now = self.recovery == Recovery::Modern
            && self.peek_bytes().is_some_and(|next| {
                in_flight.1 >= self.window_packets.min(self.room_packets)
                    || in_flight.0 + next > self.congestion.window_bytes()
            });
        let part = Part { sequence, tag, protection, offset: offset as u32, is_last, ack_now, before, data };
        let flight = Flight::Missed;
        self.sent.push_back(Sent { part, cookie, held, bytes, at: now, order: 0, times: 0, flight, lost: None });
        sequence
    }

    /// Gives the messages that have arrived. `None`: the receiver acknowledges what was not sent, or cannot be here.
    pub(super) fn acknowledged(&mut self, ack: &Ack, now: Instant) -> Option<Vec<u64>> {
        // Only modern receivers keep what comes early.
        let has_map = !ack.map.is_empty() && self.recovery != Recovery::Modern;
        if ack.next > self.next() || has_map {
            return None;
        }
        self.room_packets = ack.room_packets.max(1);
        let before_bytes = self.in_flight_bytes;
        let newest = ack.newest.checked_sub(self.base).and_then(|index| self.sent.get(index as usize));
        let newest = newest.filter(|sent| sent.times == 1 && sent.flight != Flight::Here);
        let delay = Duration::from_micros(ack.delay_us.into());
        let sample = newest.map(|sent| now.saturating_since(sent.at).saturating_sub(delay));
        sample.inspect(|sample| self.round_trip.sample(*sample));
        let mut arrived = Arrived::default();
        for sequence in ack.beyond() {
            self.arrive(sequence, &mut arrived);
        }
        let delivered = self.pass(ack.next, &mut arrived);
        if arrived.packets > 0 {
            self.round_trip.progress();
            (self.timer_at, self.moved_at) = (None, now);
        }
        match self.recovery {
            Recovery::Classic => self.watch(now),
            Recovery::Modern => {
                self.top_order = self.top_order.max(arrived.order);
                if arrived.order > 0 {
                    let acknowledged = Acknowledged {
                        bytes: arrived.bytes,
                        order: arrived.order,
                        next_order: self.order + 1,
                        round_trip: sample,
                        in_flight_bytes: before_bytes,
                    };
                    self.congestion.acknowledged(&acknowledged, now);
                }
                self.look_for_losses(now);
                self.pace(now);
                self.watch(now);
            }
            Recovery::Stream => {}
        }
        Some(delivered)
    }

    /// The timer runs as long as something is under way; in modern mode also where all has arrived that is behind a gap, since nothing
    /// else would tell us when the gap is closed.
    fn watch(&mut self, now: Instant) {
        let is_over = match self.recovery {
            Recovery::Modern => self.sent.is_empty(),
            Recovery::Classic | Recovery::Stream => self.in_flight_bytes == 0,
        };
        match is_over {
            true => self.timer_at = None,
            false => _ = self.timer_at.get_or_insert(now + timeout(self.recovery, &self.round_trip)),
        }
    }

    /// All before this one are here: they are forgotten.
    fn pass(&mut self, next: u32, arrived: &mut Arrived) -> Vec<u64> {
        let mut delivered = Vec::new();
        while self.base < next {
            self.arrive(self.base, arrived);
            let Some(sent) = self.sent.pop_front() else { break };
            delivered.extend(sent.cookie);
            self.held.take_off(sent.held);
            self.base += 1;
        }
        if self.cursor < self.base {
            self.cursor = self.base;
        }
        delivered
    }

    /// Whether the receiver is to be asked what is here.
    pub(super) fn take_question(&mut self) -> bool {
        std::mem::take(&mut self.has_question)
    }

    /// A packet is here.
    fn arrive(&mut self, sequence: u32, arrived: &mut Arrived) {
        let Some(index) = sequence.checked_sub(self.base) else { return };
        // Behind the cursor it was rolled back, and is not counted.
        let is_counted = self.recovery != Recovery::Classic || sequence < self.cursor;
        let Some(sent) = self.sent.get_mut(index as usize).filter(|sent| sent.times > 0) else { return };
        match sent.flight {
            Flight::Here => return,
            Flight::Underway if is_counted => self.in_flight_bytes -= sent.bytes,
            Flight::Underway => {}
            Flight::Missed => _ = self.missed.remove(&sequence),
        }
        if let Some((order, flow)) = sent.lost.filter(|_| sent.times == 1) {
            self.congestion.was_late(order, flow);
        }
        sent.flight = Flight::Here;
        sent.part.data = None;
        if self.recovery != Recovery::Stream {
            self.arrived_bytes += sent.bytes;
        }
        arrived.packets += 1;
        arrived.bytes += sent.bytes;
        arrived.order = arrived.order.max(sent.order);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.timer_at, self.look_at, self.shaper.poll_timeout()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.shaper.handle_timeout(now);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_for_losses(now);
        }
        if self.timer_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        self.timeouts += 1;
        let rounds = self.round_trip.back_off();
        match self.recovery {
            Recovery::Classic => self.send_from(self.base),
            Recovery::Modern => self.probe(rounds, now),
            Recovery::Stream => {}
        }
        self.timer_at = (!self.sent.is_empty()).then(|| now + timeout(self.recovery, &self.round_trip));
    }
}

fn timeout(recovery: Recovery, round_trip: &RoundTrip) -> Duration {
    match recovery {
        Recovery::Classic if round_trip.smoothed().is_none() => CLASSIC_TIMEOUT_FIRST,
        _ => round_trip.timeout(),
    }
}

/// What an acknowledgement has told that was not known.
#[derive(Debug, Default)]
struct Arrived {
    packets: u64,
    bytes: u64,
    order: u64,
}

#[cfg(test)]
mod tests;
