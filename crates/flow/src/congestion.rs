//! How many bytes may be under way on a link: congestion control on loss and on delay.
//!
//! CUBIC (RFC 9438), begun as RFC 6928 says, its slow start ended by loss or by growing delay (HyStart++, RFC 9406).
//! After a pause it begins anew (RFC 5681 4.1).
//! Four things are our own: the window may be as small as one packet, so that many clients fit through a small buffer; a
//! standing queue of [`DELAY_MAX`] counts as a loss, so that a large buffer does not fill; a timeout asks what
//! has arrived before anything is taken for lost, so only the second one in a row makes the window as small as can be; and
//! a sender of some weight has as many windows, which grow and shrink each for itself, as those of so many senders would.

mod flow;

use std::time::Duration;

use sanwire_core::Instant;

use self::flow::Flow;

/// RFC 9406 4.3: a round trip that has grown by this (or an eighth of it, within these bounds) tells of a queue.
const RISE_MIN: Duration = Duration::from_millis(4);
const RISE_MAX: Duration = Duration::from_millis(16);

/// Samples that a round must have to be believed. RFC 9406 wants 8 of a TCP, which acknowledges each second packet;
/// here one acknowledgement stands for half a window.
const ROUND_SAMPLES_MIN: u32 = 2;

/// RFC 9406 4.2: slow start goes on at a quarter of its pace for so many rounds, to see whether the queue was real.
const CAUTIOUS_ROUNDS: u32 = 5;
const CAUTIOUS_DIVISOR: f64 = 4.0;

/// A queue that stands for a whole round and delays by this is too long.
const DELAY_MAX: Duration = Duration::from_millis(50);

/// How many acknowledgements a flow wants in each round trip: so often it sends a burst.
pub const BURSTS_PER_WINDOW: u64 = 3;

/// The round trip of an empty path is the least of the last one or two such periods.
const BASE_PERIOD: Duration = Duration::from_secs(10);

/// The window of a link, and how it came about.
#[derive(Debug)]
pub struct Congestion {
    packet_bytes: f64,
    /// As many as the weight says: their windows together are the link's.
    flows: Vec<Flow>,
    round: Round,
    cautious: Option<Cautious>,
    base: Base,
    /// The round trip when the window was last made smaller for it.
    delayed: Option<Duration>,
}

/// One round trip.
#[derive(Debug, Default)]
struct Round {
    /// The transmission that ends it.
    end_order: u64,
    samples: u32,
    least: Option<Duration>,
    last_least: Option<Duration>,
}

/// The end of slow start, perhaps.
#[derive(Debug)]
struct Cautious {
    baseline: Duration,
    rounds: u32,
}

/// The least round trip of late.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    since: Instant,
    current: Option<Duration>,
    previous: Option<Duration>,
}

impl Base {
    fn note(&mut self, sample: Duration, now: Instant) {
        if now.saturating_since(self.since) >= BASE_PERIOD {
            self.since = now;
            self.previous = self.current.take();
        }
        self.current = Some(self.current.map_or(sample, |least| least.min(sample)));
    }

    fn get(&self) -> Option<Duration> {
        self.current.into_iter().chain(self.previous).min()
    }
}

/// Packets of a link that were acknowledged together.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// How much they are.
    pub bytes: u64,
    /// The newest transmission among them, and the one that will be next.
    pub order: u64,
    /// The order of the next transmission.
    pub next_order: u64,
    /// How long the newest of them took, if it was sent once.
    pub round_trip: Option<Duration>,
    /// What was under way before.
    pub in_flight_bytes: u64,
}

impl Congestion {
    /// For packets of at most `packet_bytes`.
    pub fn new(packet_bytes: usize) -> Self {
        let packet_bytes = packet_bytes as f64;
        Congestion {
            packet_bytes,
            flows: vec![Flow::new(initial(packet_bytes))],
            round: Round::default(),
            cautious: None,
            base: Base::default(),
            delayed: None,
        }
    }

    /// The path takes larger packets.
    pub fn set_packet_bytes(&mut self, packet_bytes: usize) {
        self.packet_bytes = packet_bytes as f64;
        let count = self.flows.len() as f64;
        for flow in &mut self.flows {
            let begins_at = if flow.has_lost() { self.packet_bytes } else { initial(self.packet_bytes) };
            flow.widen(begins_at / count);
        }
    }

    /// From now on it takes as much as so many of weight 1 would.
    pub fn set_weight(&mut self, weight: u16) {
        let count = usize::from(weight.max(1));
        if count != self.flows.len() {
            let part = Flow::part(&self.flows, count as f64);
            self.flows = vec![part; count];
        }
    }

    /// As how many of weight 1 it counts.
    pub fn weight(&self) -> u64 {
        self.flows.len() as u64
    }

    fn window(&self) -> f64 {
        self.flows.iter().map(Flow::window_bytes).sum()
    }

    /// Bytes that may be under way.
    pub fn window_bytes(&self) -> u64 {
        self.window() as u64
    }

    /// Something was acknowledged.
    pub fn acknowledged(&mut self, acknowledged: &Acknowledged, now: Instant) {
        if let Some(sample) = acknowledged.round_trip {
            self.base.note(sample, now);
            self.round.samples += 1;
            self.round.least = Some(self.round.least.map_or(sample, |least| least.min(sample)));
            self.watch_slow_start();
        }
        // RFC 9438 5.8: a window that is not used proves nothing by not being exceeded.
        let in_flight_bytes = acknowledged.in_flight_bytes as f64;
        let window = self.window();
        let is_full = in_flight_bytes + self.packet_bytes > window;
        if is_full || in_flight_bytes * 4.0 >= window * 3.0 {
            self.grow(acknowledged.bytes as f64 / window, now);
        } else {
            self.flows.iter_mut().for_each(Flow::stop_climbing);
        }
        if acknowledged.order >= self.round.end_order {
            self.end_round(acknowledged.next_order);
        }
    }

    /// The least round trip of late.
    pub fn base(&self) -> Option<Duration> {
        self.base.get()
    }

    fn is_slow_start(&self) -> bool {
        self.flows.iter().any(Flow::is_slow_start)
    }

    /// RFC 9406 4.2.
    fn watch_slow_start(&mut self) {
        let (Some(least), true) = (self.round.least, self.is_slow_start()) else { return };
        if self.round.samples < ROUND_SAMPLES_MIN {
            return;
        }
        match &self.cautious {
            Some(cautious) if least < cautious.baseline => self.cautious = None,
            Some(_) => {}
            None => {
                if let Some(last) = self.round.last_least
                    && least >= last + (last / 8).clamp(RISE_MIN, RISE_MAX)
                {
                    self.cautious = Some(Cautious { baseline: least, rounds: 0 });
                }
            }
        }
    }

    fn end_round(&mut self, next_order: u64) {
        if let Some(cautious) = &mut self.cautious {
            cautious.rounds += 1;
            if cautious.rounds >= CAUTIOUS_ROUNDS {
                self.flows.iter_mut().for_each(Flow::end_slow_start);
                self.cautious = None;
            }
        }
        if let Some(least) = self.round.least {
            self.watch_delay(least);
        }
        self.round = Round { end_order: next_order, samples: 0, least: None, last_least: self.round.least };
    }

    /// Whether a queue stands. A delay that does not yield when the window shrinks is none of ours: the way is longer now.
    fn watch_delay(&mut self, least: Duration) {
        if self.base.get().is_none_or(|base| least <= base + DELAY_MAX) {
            self.delayed = None;
        } else if self.delayed.is_some_and(|before| least > before * 9 / 10) {
            self.base = Base { current: Some(least), previous: None, ..self.base };
            self.delayed = None;
        } else {
            self.delayed = Some(least);
            self.shrink();
        }
    }

    /// A part of the window was acknowledged.
    fn grow(&mut self, share: f64, now: Instant) {
        let pace = if self.cautious.is_some() { CAUTIOUS_DIVISOR } else { 1.0 };
        let round_trip = self.base.get().unwrap_or_default();
        for flow in &mut self.flows {
            if flow.is_slow_start() {
                flow.open(share / pace);
            } else {
                flow.climb(share, self.packet_bytes, now, round_trip);
            }
        }
    }

    /// A packet is lost that was transmitted as `order`; `next_order` will be next. Of one round trip all losses of a flow are one.
    /// Gives the flow, for [`Congestion::was_late`], and whether the loss tells something new.
    pub fn lost(&mut self, order: u64, next_order: u64) -> (u16, bool) {
        let of = self.flow_of(order);
        let is_new = self.flows.get_mut(of).is_some_and(|flow| flow.lost(order, next_order, self.packet_bytes));
        if is_new {
            self.cautious = None;
        }
        (of as u16, is_new)
    }

    /// A packet has arrived that was taken for lost.
    pub fn was_late(&mut self, order: u64, flow: u16) {
        if let Some(flow) = self.flows.get_mut(usize::from(flow)) {
            flow.was_late(order);
        }
    }

    /// Whose a transmission is: by chance, as likely as its window is wide. What leaves in one burst, between two acknowledgements, is
    /// one flow's, as it would be of several senders; often it is lost together.
    fn flow_of(&self, order: u64) -> usize {
        let window = self.window();
        let burst_packets = window / (self.packet_bytes * (BURSTS_PER_WINDOW * self.weight()) as f64);
        let burst = order / (burst_packets as u64).max(1);
        // The upper bits are well mixed.
        let chance = (burst.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as f64 / f64::from(u32::MAX);
        let mut place = chance * window;
        let is_there = |flow: &Flow| {
            place -= flow.window_bytes();
            place <= 0.0
        };
        self.flows.iter().position(is_there).unwrap_or(0)
    }

    fn shrink(&mut self) {
        self.flows.iter_mut().for_each(|flow| flow.shrink(self.packet_bytes));
        self.cautious = None;
    }

    /// Nothing was sent for long: what the window was found by may be past, and it would leave all at once (RFC 5681 4.1).
    pub fn restart(&mut self) {
        let window_bytes = initial(self.packet_bytes) / self.flows.len() as f64;
        self.flows.iter_mut().for_each(|flow| flow.restart(window_bytes));
    }

    /// Twice in a row nothing was acknowledged in time.
    pub fn collapse(&mut self) {
        if self.window() > self.packet_bytes {
            self.shrink();
            let part = self.packet_bytes / self.flows.len() as f64;
            self.flows.iter_mut().for_each(|flow| flow.collapse(part));
        }
    }
}

/// RFC 6928 2.
fn initial(packet_bytes: f64) -> f64 {
    (packet_bytes * 10.0).min((packet_bytes * 2.0).max(14_600.0))
}

#[cfg(test)]
mod tests;
