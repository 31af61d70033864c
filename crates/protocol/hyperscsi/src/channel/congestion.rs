//! How many bytes may be under way on a link: congestion control on loss and on delay.
//!
//! CUBIC (RFC 9438), begun as RFC 6928 says, its slow start ended by loss or by growing delay (HyStart++, RFC 9406).
//! After a pause it begins anew (RFC 5681 4.1).
//! Four things are our own: the window may be as small as one packet, so that many clients fit through a small buffer; a
//! standing queue of [`DELAY_MAX`] counts as a loss, so that a large buffer does not fill; a timeout asks what
//! has come before anything is taken for lost, so only the second one in a row makes the window as small as can be; and
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
pub(super) const BURSTS_PER_WINDOW: u64 = 3;

/// The round trip of an empty path is the least of the last one or two such periods.
const BASE_PERIOD: Duration = Duration::from_secs(10);

/// The window of a link, and how it came about.
#[derive(Debug)]
pub(super) struct Congestion {
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
pub(super) struct Acknowledged {
    pub(super) bytes: u64,
    /// The newest transmission among them, and the one that will be next.
    pub(super) order: u64,
    pub(super) next_order: u64,
    pub(super) round_trip: Option<Duration>,
    /// What was under way before.
    pub(super) in_flight_bytes: u64,
}

impl Congestion {
    /// For packets of at most `packet_bytes`.
    pub(super) fn new(packet_bytes: usize) -> Self {
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
    pub(super) fn set_packet_bytes(&mut self, packet_bytes: usize) {
        self.packet_bytes = packet_bytes as f64;
        let count = self.flows.len() as f64;
        for flow in &mut self.flows {
            let begins_at = if flow.has_lost() { self.packet_bytes } else { initial(self.packet_bytes) };
            flow.widen(begins_at / count);
        }
    }

    /// From now on it takes as much as so many of weight 1 would.
    pub(super) fn set_weight(&mut self, weight: u16) {
        let count = usize::from(weight.max(1));
        if count != self.flows.len() {
            let part = Flow::part(&self.flows, count as f64);
            self.flows = vec![part; count];
        }
    }

    pub(super) fn weight(&self) -> u64 {
        self.flows.len() as u64
    }

    fn window(&self) -> f64 {
        self.flows.iter().map(Flow::window_bytes).sum()
    }

    /// Bytes that may be under way.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window() as u64
    }

    /// Something was acknowledged.
    pub(super) fn acknowledged(&mut self, acknowledged: &Acknowledged, now: Instant) {
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
    pub(super) fn base(&self) -> Option<Duration> {
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
    pub(super) fn lost(&mut self, order: u64, next_order: u64) -> (u16, bool) {
        let of = self.flow_of(order);
        let is_new = self.flows.get_mut(of).is_some_and(|flow| flow.lost(order, next_order, self.packet_bytes));
        if is_new {
            self.cautious = None;
        }
        (of as u16, is_new)
    }

    /// A packet has come that was taken for lost.
    pub(super) fn was_late(&mut self, order: u64, flow: u16) {
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
    pub(super) fn restart(&mut self) {
        let window_bytes = initial(self.packet_bytes) / self.flows.len() as f64;
        self.flows.iter_mut().for_each(|flow| flow.restart(window_bytes));
    }

    /// Twice in a row nothing was acknowledged in time.
    pub(super) fn collapse(&mut self) {
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
mod tests {
    use super::*;

    const PACKET: usize = 1500;

    /// A sender that always has data, on a path of `rate` bytes in a millisecond with a round trip of 1 ms and a buffer.
    struct Path {
        rate: u64,
        buffer: u64,
        now: Instant,
        order: u64,
    }

    impl Path {
        /// One round trip; whether the buffer overflowed.
        fn round(&mut self, congestion: &mut Congestion) -> bool {
            let window = congestion.window_bytes();
            let queue = window.saturating_sub(self.rate);
            let round_trip = Duration::from_micros(1000 + queue * 1000 / self.rate);
            self.now += round_trip;
            let (order, next_order) = (self.order, self.order + window / PACKET as u64);
            self.order = next_order;
            if queue > self.buffer {
                congestion.lost(order, next_order);
                return true;
            }
            for part in 1..=4 {
                let acknowledged = Acknowledged {
                    bytes: window / 4,
                    order: order + (next_order - order) * part / 4,
                    next_order,
                    round_trip: Some(round_trip),
                    in_flight_bytes: window,
                };
                congestion.acknowledged(&acknowledged, self.now);
            }
            false
        }
    }

    fn path(rate: u64, buffer: u64) -> Path {
        Path { rate, buffer, now: Instant::ZERO, order: 1 }
    }

    #[test]
    fn a_buffer_of_the_paths_size_keeps_it_full() {
        let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 100_000));
        let (mut used, mut losses) = (0, 0);
        for round in 0..2000 {
            losses += u64::from(path.round(&mut congestion));
            if round >= 100 {
                used += congestion.window_bytes().min(100_000);
            }
        }
        assert!(used > 1900 * 97_000, "{used}");
        assert!((2..100).contains(&losses), "{losses} losses");
    }

    #[test]
    fn growing_delay_ends_slow_start_before_anything_is_lost() {
        let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 10_000_000));
        assert!((0..20).all(|_| !path.round(&mut congestion)));
        assert!(!congestion.is_slow_start() && congestion.window_bytes() < 10_000_000, "{congestion:?}");
    }

    #[test]
    fn a_queue_does_not_stand_for_longer_than_it_may() {
        let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, u64::MAX));
        for _ in 0..5000 {
            path.round(&mut congestion);
        }
        // The least round trip of late is one with the queue that a smaller window leaves: x = 0.7 x + 50 ms, and what a round adds.
        assert!(congestion.window_bytes() < 250 * 100_000, "{congestion:?}");
    }

    #[test]
    fn a_way_that_becomes_longer_is_no_queue() {
        let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 100_000));
        (0..100).for_each(|_| {
            path.round(&mut congestion);
        });
        for _ in 0..20 {
            path.now += Duration::from_millis(90);
            let order = path.order + 100;
            path.order = order;
            let window = congestion.window_bytes();
            let acknowledged = Acknowledged {
                bytes: window,
                order,
                next_order: order + 100,
                round_trip: Some(Duration::from_millis(90)),
                in_flight_bytes: window,
            };
            congestion.acknowledged(&acknowledged, path.now);
        }
        assert!(congestion.window_bytes() > 60_000, "{congestion:?}");
    }

    #[test]
    fn all_losses_of_a_round_trip_are_one() {
        let mut congestion = Congestion::new(PACKET);
        let before = congestion.window_bytes();
        (5..10).for_each(|order| {
            congestion.lost(order, 10);
        });
        assert_eq!(congestion.window_bytes(), before * 7 / 10);
        congestion.lost(10, 12);
        assert_eq!(congestion.window_bytes(), before * 49 / 100);
    }

    #[test]
    fn a_loss_that_was_none_is_undone_when_the_last_of_its_packets_has_come() {
        let mut congestion = Congestion::new(PACKET);
        let before = congestion.window_bytes();
        let [(first, _), (second, _)] = [5, 6].map(|order| congestion.lost(order, 10));
        congestion.was_late(5, first);
        assert_eq!(congestion.window_bytes(), before * 7 / 10, "one is still missing");
        congestion.was_late(6, second);
        assert!(congestion.window_bytes() == before && congestion.is_slow_start());
        congestion.was_late(6, second);
        assert!(congestion.lost(7, 10).1, "one of the same round trip that is lost counts");
        assert_eq!(congestion.window_bytes(), before * 7 / 10);
        congestion.lost(10, 20);
        congestion.was_late(7, first);
        assert_eq!(congestion.window_bytes(), before * 49 / 100, "what came before the last loss is past");
    }

    #[test]
    fn of_a_heavier_sender_a_loss_takes_a_part_of_one_flow_only() {
        let mut congestion = Congestion::new(PACKET);
        let before = congestion.window_bytes();
        congestion.set_weight(3);
        assert_eq!(congestion.window_bytes(), before);
        congestion.lost(5, 10);
        assert_eq!(congestion.window_bytes(), before * 9 / 10);
        // All of its flows are hit before long.
        (10..1000).for_each(|order| {
            congestion.lost(order, 1000);
        });
        assert_eq!(congestion.window_bytes(), before * 9 / 10 * 7 / 10);
    }

    #[test]
    fn three_flows_grow_as_fast_as_three_senders() {
        let grown = |weight: u16| {
            let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 1_000_000));
            congestion.set_weight(weight);
            (0..1000).for_each(|order| {
                congestion.lost(order, 1000);
            });
            path.order = 1000;
            let before = congestion.window_bytes();
            assert!(!path.round(&mut congestion));
            congestion.window_bytes() - before
        };
        let (one, three) = (grown(1), grown(3));
        assert!((one * 28 / 10..=one * 32 / 10).contains(&three), "{three}, {one}");
    }

    #[test]
    fn the_window_never_falls_below_a_packet_and_comes_back() {
        let mut congestion = Congestion::new(9000);
        (0..50).for_each(|order| {
            congestion.lost(order, order + 1);
        });
        congestion.collapse();
        assert_eq!(congestion.window_bytes(), 9000);
        let mut path = path(100_000, 100_000);
        path.order = 60;
        for _ in 0..200 {
            path.round(&mut congestion);
        }
        assert!(congestion.window_bytes() >= 100_000, "{congestion:?}");
    }

    #[test]
    fn after_a_pause_the_window_begins_anew_and_is_soon_what_it_was() {
        let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 100_000));
        (0..200).for_each(|_| {
            path.round(&mut congestion);
        });
        let before = congestion.window_bytes();
        assert!(before > 100_000);
        congestion.restart();
        assert_eq!(congestion.window_bytes(), 14_600);
        let rounds = (0..20).find(|_| path.round(&mut congestion) || congestion.window_bytes() >= before / 2);
        assert!(rounds.is_some_and(|rounds| rounds <= 4), "{congestion:?}");
        // What is small already stays as it is.
        let mut small = Congestion::new(PACKET);
        (0..50).for_each(|order| {
            small.lost(order, order + 1);
        });
        let before = small.window_bytes();
        small.restart();
        assert_eq!(small.window_bytes(), before);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut congestion = Congestion::new(PACKET);
        let before = congestion.window_bytes();
        for order in 0..1000 {
            let acknowledged =
                Acknowledged { bytes: 3000, order, next_order: order + 1, round_trip: None, in_flight_bytes: 3000 };
            congestion.acknowledged(&acknowledged, Instant::ZERO);
        }
        assert_eq!(congestion.window_bytes(), before);
    }
}
