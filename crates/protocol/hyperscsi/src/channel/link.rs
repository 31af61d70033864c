//! One link of a connection: a way with a round trip, a congestion window and a packet size of its own.

use std::time::Duration;

use sanwire_core::{Instant, Path};

use super::congestion::{Acknowledged, Congestion};
use super::probe::Prober;
use super::rtt::RoundTrip;

/// Later transmissions on the same link that must have been acknowledged before a packet counts as lost.
const REORDER_PACKETS: u64 = 3;

/// One link, and what is under way on it.
#[derive(Debug)]
pub(super) struct Link {
    path: Path,
    pub(super) prober: Prober,
    pub(super) round_trip: RoundTrip,
    congestion: Congestion,
    in_flight_bytes: u64,
    in_flight_packets: u64,
    next_order: u64,
    acknowledged_order: u64,
    /// The newest transmission that is acknowledged, or of a packet that is.
    newest_order: u64,
    /// The last transmission that was to be acknowledged at once, and what was sent since.
    asked_order: u64,
    unasked_bytes: u64,
    /// When to ask what has come.
    pub(super) retransmit_at: Option<Instant>,
    progress: Progress,
}

/// What acknowledgements have brought since it was last looked at.
#[derive(Debug, Default)]
struct Progress {
    any: bool,
    bytes: u64,
    order: u64,
    /// The round trip of the newest packet that was sent once.
    round_trip: Option<Duration>,
}

impl Link {
    pub(super) fn new(path: Path, packet_base_bytes: usize, packet_limit_bytes: usize) -> Self {
        let prober = Prober::new(packet_base_bytes, packet_limit_bytes);
        Link {
            path,
            congestion: Congestion::new(prober.packet_max_bytes()),
            prober,
            round_trip: RoundTrip::default(),
            in_flight_bytes: 0,
            in_flight_packets: 0,
            next_order: 1,
            acknowledged_order: 0,
            newest_order: 0,
            asked_order: 0,
            unasked_bytes: 0,
            retransmit_at: None,
            progress: Progress::default(),
        }
    }

    pub(super) fn path(&self) -> Path {
        self.path
    }

    /// The largest packet that the path is known to take, in bytes.
    pub(super) fn packet_max_bytes(&self) -> usize {
        self.prober.packet_max_bytes()
    }

    /// The number that the next transmission will have.
    pub(super) fn next_order(&self) -> u64 {
        self.next_order
    }

    /// Whether a packet may go now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.in_flight_packets == 0 || self.in_flight_bytes + bytes as u64 <= self.congestion.window_bytes()
    }

    /// Whether a packet that is sent now should be acknowledged at once: a third of the window has gone since the last such
    /// one, or the window is full and no such one is under way. So there are some acknowledgements in each round trip,
    /// however small the window is.
    pub(super) fn wants_answer(&mut self, bytes: usize) -> bool {
        let (window, bytes) = (self.congestion.window_bytes(), bytes as u64);
        self.unasked_bytes += bytes;
        let is_full = self.in_flight_bytes + bytes + self.packet_max_bytes() as u64 > window;
        let wants = self.unasked_bytes * 3 >= window || (is_full && self.asked_order <= self.newest_order);
        if wants {
            self.unasked_bytes = 0;
            self.asked_order = self.next_order;
        }
        wants
    }

    /// A packet was sent. Gives its place among the transmissions.
    pub(super) fn sent(&mut self, bytes: u32, now: Instant) -> u64 {
        self.in_flight_bytes += u64::from(bytes);
        self.in_flight_packets += 1;
        if self.retransmit_at.is_none() {
            self.retransmit_at = Some(now + self.round_trip.timeout());
        }
        self.next_order += 1;
        self.next_order - 1
    }

    /// A packet is no longer under way: it has come, or is lost, or nobody can tell.
    pub(super) fn forget(&mut self, bytes: u32) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(u64::from(bytes));
        self.in_flight_packets = self.in_flight_packets.saturating_sub(1);
    }

    /// A packet that was under way has come. `sample`: its round trip, if it was sent once.
    pub(super) fn acknowledged(&mut self, bytes: u32, order: u64, sample: Option<Duration>) {
        self.forget(bytes);
        self.newest_order = self.newest_order.max(order);
        self.progress.any = true;
        self.progress.bytes += u64::from(bytes);
        self.progress.order = self.progress.order.max(order);
        // Of a packet that was sent twice nobody knows which one came (Karn's rule).
        if let Some(sample) = sample {
            self.progress.round_trip = Some(sample);
            self.acknowledged_order = self.acknowledged_order.max(order);
        }
    }

    /// Whatever was transmitted at or before this and is not acknowledged is lost.
    pub(super) fn lost_order(&self) -> u64 {
        self.acknowledged_order.saturating_sub(REORDER_PACKETS)
    }

    /// A packet is lost that was transmitted as this.
    pub(super) fn lost(&mut self, order: u64) {
        self.newest_order = self.newest_order.max(order);
        self.congestion.lost(order, self.next_order);
    }

    /// Draws the consequences of what was acknowledged. With `is_lenient` any progress ends the backoff of the timer.
    pub(super) fn progressed(&mut self, is_lenient: bool, now: Instant) {
        let progress = std::mem::take(&mut self.progress);
        if let Some(sample) = progress.round_trip {
            self.round_trip.sample(sample);
        }
        // After a retransmission only a fresh sample tells that the timer is not too short (RFC 6298 5.7); a query that
        // came too early has cost nothing.
        if progress.round_trip.is_some() || (progress.any && is_lenient) {
            self.round_trip.progress();
        }
        if progress.any {
            self.retransmit_at = None;
            let acknowledged = Acknowledged {
                bytes: progress.bytes,
                order: progress.order,
                next_order: self.next_order,
                round_trip: progress.round_trip,
                in_flight_bytes: self.in_flight_bytes + progress.bytes,
            };
            self.congestion.acknowledged(&acknowledged, now);
        }
    }

    /// The timer runs while something is under way, or may be.
    pub(super) fn watch(&mut self, may_be: bool, now: Instant) {
        if self.in_flight_packets == 0 && !may_be {
            self.retransmit_at = None;
        } else if self.retransmit_at.is_none() {
            self.retransmit_at = Some(now + self.round_trip.timeout());
        }
    }

    /// Whether nothing was acknowledged in time. Then the timer begins anew.
    pub(super) fn has_timed_out(&mut self, now: Instant) -> bool {
        if self.retransmit_at.is_none_or(|at| at > now) {
            return false;
        }
        if self.round_trip.back_off() > 1 {
            self.congestion.collapse();
        }
        self.retransmit_at = Some(now + self.round_trip.timeout());
        true
    }

    /// A probe was answered.
    pub(super) fn probed(&mut self, size_bytes: usize) {
        self.prober.answered(size_bytes);
        self.congestion.set_packet_bytes(self.prober.packet_max_bytes());
    }
}
