//! One link of a connection: a way with a round trip, a congestion window and a packet size of its own.

mod watch;

use std::time::Duration;

use sanwire_core::{Instant, Path};
use sanwire_flow::{Acknowledged, BURSTS_PER_WINDOW, Congestion, RoundTrip};

use self::watch::State;
use super::probe::Prober;
use super::queries::Queries;
use super::reorder::{Loss, REORDER_PACKETS, Reordering};
pub(crate) use super::sizes::{Capacity, Sizes};

/// What was found out about a way is trusted for so long after it was last used (RFC 5681 4.1; RFC 6298 2.4): no timeout is longer.
const TRUST_MAX: Duration = Duration::from_secs(1);

/// The round trip of a link on which nothing was measured.
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(1);

/// A link of a connection, as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkStatus {
    /// Its way.
    pub path: Path,
    /// The largest packet that it is known to take, in bytes.
    pub packet_max_bytes: u32,
    /// The round trip, smoothed, once it was measured.
    pub round_trip: Option<Duration>,
    /// What it carries in a second, in bytes, as far as was seen.
    pub bytes_per_second: u64,
    /// Data packets that went by it, those that were sent again too.
    pub sent_packets: u64,
    /// Data packets that were sent before, by it or by another link, and went by it again.
    pub resent_packets: u64,
    /// How often nothing was acknowledged in time: then the peer is asked what has arrived.
    pub timeouts: u64,
    /// Whether it answers.
    pub is_live: bool,
}

/// One link, and what is under way on it.
#[derive(Debug)]
pub(super) struct Link {
    path: Path,
    capacity: Capacity,
    pub(super) prober: Prober,
    pub(super) round_trip: RoundTrip,
    congestion: Congestion,
    in_flight_bytes: u64,
    in_flight_packets: u64,
    /// When data was last sent, or might have been.
    sent_at: Instant,
    next_order: u64,
    sent_packets: u64,
    resent_packets: u64,
    timeouts: u64,
    acknowledged_order: u64,
    reordering: Reordering,
    /// The newest transmission that is acknowledged, or of a packet that is.
    newest_order: u64,
    /// The last transmission that was to be acknowledged at once, and what was sent since.
    asked_order: u64,
    unasked_bytes: u64,
    /// When to ask what has arrived.
    pub(super) retransmit_at: Option<Instant>,
    pub(super) progress: Progress,
    state: State,
    /// Since when it owes an answer.
    silent_since: Option<Instant>,
    /// When nothing was acknowledged in time.
    timed_out_at: Option<Instant>,
    queries: Queries,
    /// When it last answered.
    answered_at: Instant,
}

/// What acknowledgements have brought since it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) any: bool,
    bytes: u64,
    order: u64,
    /// The round trip of the newest packet that was sent once.
    round_trip: Option<Duration>,
}

impl Link {
    pub(super) fn new(path: Path, sizes: Sizes, capacity: Capacity, now: Instant) -> Self {
        let Sizes { packet_base_bytes, packet_limit_bytes } = sizes;
        let prober = Prober::new(packet_base_bytes, packet_limit_bytes);
        Link {
            path,
            capacity,
            congestion: Congestion::new(prober.packet_max_bytes()),
            prober,
            round_trip: RoundTrip::default(),
            in_flight_bytes: 0,
            in_flight_packets: 0,
            sent_at: now,
            next_order: 1,
            sent_packets: 0,
            resent_packets: 0,
            timeouts: 0,
            acknowledged_order: 0,
            reordering: Reordering::default(),
            newest_order: 0,
            asked_order: 0,
            unasked_bytes: 0,
            retransmit_at: None,
            progress: Progress::default(),
            state: State::Live,
            silent_since: None,
            timed_out_at: None,
            queries: Queries::default(),
            answered_at: now,
        }
    }

    pub(super) fn set_weight(&mut self, weight: u16) {
        self.congestion.set_weight(weight);
    }

    pub(super) fn status(&self) -> LinkStatus {
        LinkStatus {
            path: self.path,
            packet_max_bytes: self.packet_max_bytes() as u32,
            round_trip: self.round_trip.smoothed(),
            bytes_per_second: self.bytes_per_second() as u64,
            sent_packets: self.sent_packets,
            resent_packets: self.resent_packets,
            timeouts: self.timeouts,
            is_live: self.is_live(),
        }
    }

    /// By its window and its round trip.
    fn bytes_per_second(&self) -> f64 {
        let round_trip = self.round_trip.smoothed().unwrap_or(ROUND_TRIP_UNKNOWN);
        self.congestion.window_bytes() as f64 / round_trip.as_secs_f64().max(1e-6)
    }

    /// How long a packet takes that is sent now, after all that is under way.
    pub(super) fn delay(&self, bytes: usize) -> Duration {
        let way = self.congestion.base().unwrap_or_default() / 2;
        way + Duration::from_secs_f64((self.in_flight_bytes as f64 + bytes as f64) / self.bytes_per_second().max(1.0))
    }

    pub(super) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// A question is sent: gives its place among the transmissions, which tells it from those at other times.
    pub(super) fn query(&mut self, now: Instant) -> u64 {
        self.silent_since.get_or_insert(now);
        if let Some(order) = self.queries.asked_at(now) {
            return order;
        }
        self.queries.ask(self.next_order, now);
        self.next_order += 1;
        self.next_order - 1
    }

    pub(super) fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(super) fn path(&self) -> Path {
        self.path
    }

    /// The largest packet that the path is known to take, in bytes.
    pub(super) fn packet_max_bytes(&self) -> usize {
        self.prober.packet_max_bytes()
    }

    /// A link in the place of another one. Its transmissions are numbered on from there: a late answer to a question about the
    /// former tells nothing of what this one has sent.
    pub(super) fn in_place_of(mut self, former: &Link) -> Self {
        let order = former.next_order;
        self.next_order = order;
        (self.acknowledged_order, self.newest_order, self.asked_order) = (order - 1, order - 1, order - 1);
        self
    }

    /// How long an answer takes at the most, as far as was seen.
    pub(super) fn calm_timeout(&self) -> Duration {
        self.round_trip.calm_timeout()
    }

    /// There is something to send. After a pause not all of the window is to be trusted.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.in_flight_packets == 0 && now.saturating_since(self.sent_at) > TRUST_MAX {
            self.congestion.restart();
            self.sent_at = now;
        }
    }

    /// Whether a packet may go now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let is_taken = self.in_flight_packets < u64::from(self.capacity.theirs);
        self.in_flight_packets == 0 || is_taken && self.in_flight_bytes + bytes as u64 <= self.congestion.window_bytes()
    }

    /// Whether a packet that is sent now should be acknowledged at once: a third of the window (of a flow of weight 1) has gone since the last such
    /// one, or the window is full and no such one is under way. So there are some acknowledgements in each round trip,
    /// however small the window is.
    pub(super) fn wants_answer(&mut self, bytes: usize) -> bool {
        let (window, bytes) = (self.congestion.window_bytes(), bytes as u64);
        self.unasked_bytes += bytes;
        let is_full = self.in_flight_bytes + bytes + self.packet_max_bytes() as u64 > window;
        let wants = self.unasked_bytes * BURSTS_PER_WINDOW * self.congestion.weight() >= window
            || (is_full && self.asked_order <= self.newest_order);
        if wants {
            self.unasked_bytes = 0;
            self.asked_order = self.next_order;
        }
        wants
    }

    /// A packet was sent, perhaps not for the first time. Gives its place among the transmissions.
    pub(super) fn sent(&mut self, bytes: u32, is_again: bool, now: Instant) -> u64 {
        self.sent_packets += 1;
        self.resent_packets += u64::from(is_again);
        self.in_flight_bytes += u64::from(bytes);
        self.in_flight_packets += 1;
        self.sent_at = now;
        self.silent_since.get_or_insert(now);
        if self.retransmit_at.is_none() {
            self.retransmit_at = Some(now + self.round_trip.timeout());
        }
        self.next_order += 1;
        self.next_order - 1
    }

    /// A packet is no longer under way: it has arrived, or is lost, or nobody can tell.
    pub(super) fn forget(&mut self, bytes: u32) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(u64::from(bytes));
        self.in_flight_packets = self.in_flight_packets.saturating_sub(1);
    }

    /// A packet that was under way has arrived. `sent_at`: when it was sent, if that was once.
    pub(super) fn acknowledged(&mut self, bytes: u32, order: u64, sent_at: Option<Instant>, now: Instant) {
        self.forget(bytes);
        self.newest_order = self.newest_order.max(order);
        self.progress.any = true;
        self.progress.bytes += u64::from(bytes);
        self.progress.order = self.progress.order.max(order);
        // Of a packet that was sent twice nobody knows which one came (Karn's rule).
        let Some(sent_at) = sent_at else { return };
        let is_newest = order >= self.acknowledged_order;
        self.acknowledged_order = self.acknowledged_order.max(order);
        // What comes after a timeout may have been acknowledged before, in vain: that is no round trip.
        if self.timed_out_at.is_none_or(|at| sent_at > at) {
            let sample = now.saturating_since(sent_at);
            self.progress.round_trip = Some(sample);
            if is_newest {
                self.reordering.delivered(sample);
            }
        }
    }

    /// A question was answered that was asked at this place among the transmissions.
    pub(super) fn query_answered(&mut self, order: u64, now: Instant) {
        self.progress.round_trip = self.queries.answered(order, now).or(self.progress.round_trip);
    }

    /// Whether a packet is lost that was transmitted as this, then, and is not acknowledged: later ones are.
    pub(super) fn has_lost(&self, order: u64, sent_at: Instant, now: Instant) -> bool {
        order + REORDER_PACKETS <= self.acknowledged_order && self.reordering.is_overdue(sent_at, now)
    }

    /// A packet is lost that was transmitted as this.
    pub(super) fn lost(&mut self, order: u64) -> Loss {
        self.newest_order = self.newest_order.max(order);
        let (flow, is_new) = self.congestion.lost(order, self.next_order);
        if is_new {
            self.reordering.lost();
        }
        Loss { order, flow }
    }

    /// A packet has arrived that was taken for lost.
    pub(super) fn was_late(&mut self, loss: Loss) {
        self.congestion.was_late(loss.order, loss.flow);
        if let (Some(shortest), Some(usual)) = (self.congestion.base(), self.round_trip.smoothed()) {
            self.reordering.was_late(loss.order, self.next_order, (shortest, usual));
        }
    }

    /// Whether an answer that comes now cannot be one to what was sent then: no round trip of late was so short.
    pub(super) fn is_too_soon(&self, sent_at: Instant, now: Instant) -> bool {
        self.congestion.base().is_some_and(|shortest| now.saturating_since(sent_at) < shortest / 8 * 7)
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
            self.answered_at = now;
            self.silent_since = (self.in_flight_packets > 0).then_some(now);
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

    /// How often in a row nothing was acknowledged in time, if that has happened again. Then the timer begins anew.
    pub(super) fn has_timed_out(&mut self, now: Instant) -> Option<u32> {
        self.retransmit_at.filter(|at| *at <= now)?;
        (self.timeouts, self.timed_out_at) = (self.timeouts + 1, Some(now));
        let in_a_row = self.round_trip.back_off();
        if in_a_row > 1 {
            self.congestion.collapse();
        }
        self.retransmit_at = Some(now + self.round_trip.timeout());
        Some(in_a_row)
    }

    /// A probe was answered.
    pub(super) fn probed(&mut self, size_bytes: usize) {
        self.prober.answered(size_bytes);
        self.congestion.set_packet_bytes(self.prober.packet_max_bytes());
    }
}
