//! How many bytes may be under way on a link: congestion control on loss and on delay.
//!
//! CUBIC (RFC 9438), begun as RFC 6928 says, its slow start ended by loss or by growing delay (HyStart++, RFC 9406).
//! Three things are our own: the window may be as small as one packet, so that many clients fit through a small buffer; a
//! standing queue of [`DELAY_MAX`] counts as a loss, so that a large buffer does not fill; and a timeout asks what
//! has come before anything is taken for lost, so only the second one in a row makes the window as small as can be.

use std::time::Duration;

use sanwire_core::Instant;

/// RFC 9438 4.6: what is left of the window after a loss.
const BETA: f64 = 0.7;

/// RFC 9438 5: how steep the cubic curve is, in packets per cubed second.
const C: f64 = 0.4;

/// RFC 9438 4.3: packets that the window grows each round trip to be as fast as Reno.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

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

/// The round trip of an empty path is the least of the last one or two such periods.
const BASE_PERIOD: Duration = Duration::from_secs(10);

/// The window of a link, and how it came about.
#[derive(Debug)]
pub(super) struct Congestion {
    packet_bytes: f64,
    window_bytes: f64,
    /// Below this the window grows by what is acknowledged.
    threshold_bytes: f64,
    /// The window before the last loss.
    highest_bytes: f64,
    curve: Option<Curve>,
    round: Round,
    cautious: Option<Cautious>,
    base: Base,
    /// The round trip when the window was last made smaller for it.
    delayed: Option<Duration>,
    /// What was sent before this has been answered for by the last loss.
    recovery_order: u64,
}

/// The growth since a loss.
#[derive(Debug)]
struct Curve {
    began_at: Instant,
    /// Seconds until the curve is where the loss was.
    climb_s: f64,
    origin_bytes: f64,
    /// What Reno's window would be.
    reno_bytes: f64,
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
            window_bytes: initial(packet_bytes),
            threshold_bytes: f64::INFINITY,
            highest_bytes: 0.0,
            curve: None,
            round: Round::default(),
            cautious: None,
            base: Base::default(),
            delayed: None,
            recovery_order: 0,
        }
    }

    /// The path takes larger packets.
    pub(super) fn set_packet_bytes(&mut self, packet_bytes: usize) {
        self.packet_bytes = packet_bytes as f64;
        let begins_at = if self.threshold_bytes.is_infinite() { initial(self.packet_bytes) } else { self.packet_bytes };
        self.window_bytes = self.window_bytes.max(begins_at);
    }

    /// Bytes that may be under way.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
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
        let is_full = in_flight_bytes + self.packet_bytes > self.window_bytes;
        if is_full || in_flight_bytes * 4.0 >= self.window_bytes * 3.0 {
            self.grow(acknowledged.bytes as f64, now);
        } else {
            self.curve = None;
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
        self.window_bytes < self.threshold_bytes
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
                self.threshold_bytes = self.window_bytes;
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

    fn grow(&mut self, bytes: f64, now: Instant) {
        if self.is_slow_start() {
            let pace = if self.cautious.is_some() { CAUTIOUS_DIVISOR } else { 1.0 };
            self.window_bytes = (self.window_bytes + bytes / pace).min(self.threshold_bytes);
            return;
        }
        let (packet_bytes, window_bytes, highest_bytes) = (self.packet_bytes, self.window_bytes, self.highest_bytes);
        let curve = self.curve.get_or_insert_with(|| Curve::new(window_bytes, highest_bytes, packet_bytes, now));
        // RFC 9438 4.2 to 4.5: the faster of both, and never by more than a half in one round trip.
        let share = bytes / window_bytes;
        let alpha = if curve.reno_bytes < highest_bytes { ALPHA } else { 1.0 };
        curve.reno_bytes += alpha * packet_bytes * share;
        let round_trip = self.base.get().unwrap_or_default();
        let at_s = (now.saturating_since(curve.began_at) + round_trip).as_secs_f64() - curve.climb_s;
        let cubic_bytes = curve.origin_bytes + C * at_s.powi(3) * packet_bytes;
        let target = cubic_bytes.clamp(window_bytes, window_bytes * 1.5);
        self.window_bytes = (window_bytes + (target - window_bytes) * share.min(1.0)).max(curve.reno_bytes);
    }

    /// A packet is lost that was transmitted as `order`; `next_order` will be next. Of one round trip all losses are one.
    pub(super) fn lost(&mut self, order: u64, next_order: u64) {
        if order >= self.recovery_order {
            self.recovery_order = next_order;
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        // RFC 9438 4.7: who is losing ground leaves more to others.
        let is_falling = self.window_bytes < self.highest_bytes;
        self.highest_bytes = if is_falling { self.window_bytes * (1.0 + BETA) / 2.0 } else { self.window_bytes };
        self.window_bytes = (self.window_bytes * BETA).max(self.packet_bytes);
        self.threshold_bytes = self.window_bytes;
        self.curve = None;
        self.cautious = None;
    }

    /// Twice in a row nothing was acknowledged in time.
    pub(super) fn collapse(&mut self) {
        if self.window_bytes > self.packet_bytes {
            self.shrink();
            self.window_bytes = self.packet_bytes;
        }
    }
}

impl Curve {
    fn new(window_bytes: f64, highest_bytes: f64, packet_bytes: f64, now: Instant) -> Self {
        let missing_packets = ((highest_bytes - window_bytes) / packet_bytes).max(0.0);
        Curve {
            began_at: now,
            climb_s: (missing_packets / C).cbrt(),
            origin_bytes: highest_bytes.max(window_bytes),
            reno_bytes: window_bytes,
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
        (5..10).for_each(|order| congestion.lost(order, 10));
        assert_eq!(congestion.window_bytes(), before * 7 / 10);
        congestion.lost(10, 12);
        assert_eq!(congestion.window_bytes(), before * 49 / 100);
    }

    #[test]
    fn the_window_never_falls_below_a_packet_and_comes_back() {
        let mut congestion = Congestion::new(9000);
        (0..50).for_each(|order| congestion.lost(order, order + 1));
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
