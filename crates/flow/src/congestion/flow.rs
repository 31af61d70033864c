//! One window: how it grows, and what is left of it after a loss.

use std::time::Duration;

use sanwire_core::Instant;

/// RFC 9438 4.6: what is left of the window after a loss.
const BETA: f64 = 0.7;

/// RFC 9438 5: how steep the cubic curve is, in packets per cubed second.
const C: f64 = 0.4;

/// RFC 9438 4.3: packets that the window grows each round trip to be as fast as Reno.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The window of one sender, or of one of those that a heavier one stands for.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    window_bytes: f64,
    /// Below this the window grows by what is acknowledged.
    threshold_bytes: f64,
    /// The window before the last loss.
    highest_bytes: f64,
    curve: Option<Curve>,
    /// What was sent before this has been answered for by the last loss.
    recovery_order: u64,
    /// What that loss has changed.
    before: Option<Before>,
}

/// A window before a loss, as long as it may turn out that nothing was lost.
#[derive(Clone, Debug)]
struct Before {
    window_bytes: f64,
    threshold_bytes: f64,
    highest_bytes: f64,
    curve: Option<Curve>,
    recovery_order: u64,
    /// Packets that are taken for lost since, as far as they have not come.
    lost: u32,
}

/// The growth since a loss.
#[derive(Clone, Debug)]
struct Curve {
    began_at: Instant,
    /// Seconds until the curve is where the loss was.
    climb_s: f64,
    origin_bytes: f64,
    /// What Reno's window would be.
    reno_bytes: f64,
}

impl Flow {
    pub(super) fn new(window_bytes: f64) -> Self {
        Flow {
            window_bytes,
            threshold_bytes: f64::INFINITY,
            highest_bytes: 0.0,
            curve: None,
            recovery_order: 0,
            before: None,
        }
    }

    /// One of so many that together are as wide as these.
    pub(super) fn part(flows: &[Flow], count: f64) -> Self {
        let sum = |of: fn(&Flow) -> f64| flows.iter().map(of).sum::<f64>() / count;
        Flow {
            window_bytes: sum(|flow| flow.window_bytes),
            threshold_bytes: sum(|flow| flow.threshold_bytes),
            highest_bytes: sum(|flow| flow.highest_bytes),
            curve: None,
            recovery_order: flows.iter().map(|flow| flow.recovery_order).max().unwrap_or(0),
            before: None,
        }
    }

    pub(super) fn window_bytes(&self) -> f64 {
        self.window_bytes
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.window_bytes < self.threshold_bytes
    }

    /// Whether it knows how much is too much.
    pub(super) fn has_lost(&self) -> bool {
        self.threshold_bytes.is_finite()
    }

    pub(super) fn end_slow_start(&mut self) {
        self.threshold_bytes = self.threshold_bytes.min(self.window_bytes);
    }

    pub(super) fn widen(&mut self, least_bytes: f64) {
        self.window_bytes = self.window_bytes.max(least_bytes);
    }

    /// A window that is not used proves nothing by not being exceeded.
    pub(super) fn stop_climbing(&mut self) {
        self.curve = None;
    }

    /// Slow start: a part of the window was acknowledged.
    pub(super) fn open(&mut self, share: f64) {
        self.window_bytes = (self.window_bytes * (1.0 + share)).min(self.threshold_bytes);
    }

    /// After it.
    pub(super) fn climb(&mut self, share: f64, packet_bytes: f64, now: Instant, round_trip: Duration) {
        let (window_bytes, highest_bytes) = (self.window_bytes, self.highest_bytes);
        let curve = self.curve.get_or_insert_with(|| Curve::new(window_bytes, highest_bytes, packet_bytes, now));
        // RFC 9438 4.2 to 4.5: the faster of both, and never by more than a half in one round trip.
        let alpha = if curve.reno_bytes < highest_bytes { ALPHA } else { 1.0 };
        curve.reno_bytes += alpha * packet_bytes * share;
        let at_s = (now.saturating_since(curve.began_at) + round_trip).as_secs_f64() - curve.climb_s;
        let cubic_bytes = curve.origin_bytes + C * at_s.powi(3) * packet_bytes;
        let target = cubic_bytes.clamp(window_bytes, window_bytes * 1.5);
        self.window_bytes = (window_bytes + (target - window_bytes) * share.min(1.0)).max(curve.reno_bytes);
    }

    /// One of its packets is lost; whether that tells something new.
    pub(super) fn lost(&mut self, order: u64, next_order: u64, packet_bytes: f64) -> bool {
        let is_new = order >= self.recovery_order;
        if is_new {
            let before = Before {
                window_bytes: self.window_bytes,
                threshold_bytes: self.threshold_bytes,
                highest_bytes: self.highest_bytes,
                curve: self.curve.take(),
                recovery_order: self.recovery_order,
                lost: 1,
            };
            self.recovery_order = next_order;
            self.shrink(packet_bytes);
            self.before = Some(before);
        } else if let Some(before) = self.before.as_mut().filter(|before| order >= before.recovery_order) {
            before.lost += 1;
        }
        is_new
    }

    /// A packet has arrived that was taken for lost. When that holds for all that the last loss was about, it was none, and the
    /// window is what it was (RFC 8985 3.3.1, RFC 4015).
    pub(super) fn was_late(&mut self, order: u64) {
        let recovery_order = self.recovery_order;
        let is_of_it = |before: &&mut Before| (before.recovery_order..recovery_order).contains(&order);
        let Some(before) = self.before.as_mut().filter(is_of_it) else { return };
        before.lost = before.lost.saturating_sub(1);
        if before.lost > 0 {
            return;
        }
        if let Some(Before { window_bytes, threshold_bytes, highest_bytes, curve, recovery_order, .. }) =
            self.before.take()
        {
            self.window_bytes = self.window_bytes.max(window_bytes);
            (self.threshold_bytes, self.highest_bytes, self.curve) = (threshold_bytes, highest_bytes, curve);
            // What is lost nevertheless counts when it is found.
            self.recovery_order = recovery_order;
        }
    }

    pub(super) fn shrink(&mut self, packet_bytes: f64) {
        // RFC 9438 4.7: who is losing ground leaves more to others.
        let is_falling = self.window_bytes < self.highest_bytes;
        self.highest_bytes = if is_falling { self.window_bytes * (1.0 + BETA) / 2.0 } else { self.window_bytes };
        self.window_bytes = (self.window_bytes * BETA).max(packet_bytes.min(self.window_bytes));
        self.threshold_bytes = self.window_bytes;
        self.curve = None;
        self.before = None;
    }

    /// Begins anew with no more than this. Up to three quarters of what the window was it opens as fast as can be (RFC 2861 3.1).
    pub(super) fn restart(&mut self, window_bytes: f64) {
        if self.window_bytes > window_bytes {
            self.threshold_bytes = self.threshold_bytes.max(self.window_bytes * 0.75);
            self.window_bytes = window_bytes;
            self.curve = None;
        }
    }

    pub(super) fn collapse(&mut self, window_bytes: f64) {
        self.window_bytes = window_bytes;
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
