//! What is sent: packets in groups, kept until they are acknowledged, and sent again when they are missed.
//!
//! Three things bound what is under way: W and the room of the receiver, in packets; the congestion window, in bytes; and a rate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sanwire_buffer::Slice;
use sanwire_core::Instant;
use sanwire_flow::{Acknowledged, Congestion, RoundTrip, Shaper};

use crate::wire::flow::{Ack, Place};
use crate::wire::pdu::{Fields, Flags, GROUPS_MAX, PDU_BYTES};

/// A path whose round trip is not known yet has one of so long, for what is missed.
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(1);

/// Groups do not become smaller than this when losses come in bursts.
const GROUP_PACKETS_MIN: u16 = 4;

/// So many groups without a loss, and they may be twice as large again.
const CALM_GROUPS: u32 = 64;

/// The rate is so much more than the window for each round trip, in quarters: only bursts are spread.
const PACE_QUARTERS: u64 = 6;

/// No link carries so many bytes in a second: who allows them allows any number.
const RATE_MAX: u64 = 1 << 40;

/// Rounds of silence after which what is under way is taken for lost.
const SILENT_ROUNDS: u32 = 2;

/// A piece of a command or of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Group and acknowledgement are of the channel.
    pub(crate) flags: Flags,
    pub(crate) fields: Fields,
    pub(crate) command: u16,
    /// Upper bytes of registers, a CDB, or sense data.
    pub(crate) before: Vec<u8>,
    pub(crate) data: Option<Slice>,
}

impl Piece {
    fn bytes(&self) -> u64 {
        (PDU_BYTES + self.before.len() + self.data.as_ref().map_or(0, |data| data.len())) as u64
    }
}

/// A packet that is not acknowledged.
#[derive(Debug)]
struct Sent {
    piece: Piece,
    at: Instant,
    order: u64,
    times: u32,
}

/// What is sent to the other end.
#[derive(Debug)]
pub(crate) struct Outgoing {
    queue: VecDeque<Piece>,
    /// Commands and answers that end in the queue.
    queued: usize,
    sent: BTreeMap<Place, Sent>,
    again: BTreeSet<Place>,
    next: Place,
    order: u64,
    in_flight_bytes: u64,
    /// What both ends have agreed on, what the receiver takes now, and what it has room for.
    window_agreed_packets: u32,
    window_packets: u32,
    room_packets: u32,
    /// The same of groups, and what is used of that.
    group_agreed_packets: u16,
    group_limit: u16,
    group_packets: u16,
    calm_groups: u32,
    congestion: Congestion,
    round_trip: RoundTrip,
    shaper: Shaper,
    rate_of_peer: Option<u64>,
    query_at: Option<Instant>,
    resent_packets: u64,
    timeouts: u64,
}

impl Outgoing {
    pub(crate) fn new(packet_bytes: usize, window_packets: u32, group_packets: u16) -> Self {
        Outgoing {
            queue: VecDeque::new(),
            queued: 0,
            sent: BTreeMap::new(),
            again: BTreeSet::new(),
            next: (0, 0),
            order: 0,
            in_flight_bytes: 0,
            window_agreed_packets: window_packets,
            window_packets,
            room_packets: window_packets,
            group_agreed_packets: group_packets,
            group_limit: group_packets,
            group_packets,
            calm_groups: 0,
            congestion: Congestion::new(packet_bytes),
            round_trip: RoundTrip::default(),
            shaper: Shaper::default(),
            rate_of_peer: None,
            query_at: None,
            resent_packets: 0,
            timeouts: 0,
        }
    }

    pub(crate) fn push(&mut self, piece: Piece, now: Instant) {
        self.queued += usize::from(piece.flags.last);
        self.queue.push_back(piece);
        self.query_at.get_or_insert(now + self.round_trip.timeout());
    }

    /// Commands or answers of which not every packet was sent.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Packets that were sent again, silent rounds, and packets that may be under way.
    pub(crate) fn counts(&self) -> (u64, u64, u32) {
        (self.resent_packets, self.timeouts, self.window_packets.min(self.room_packets))
    }

    /// Whether half of the numbers are used up: they do not come again.
    pub(crate) fn is_worn(&self) -> bool {
        self.next.0 >= GROUPS_MAX / 2
    }

    #[cfg(test)]
    pub(crate) fn ignore_room(&mut self, now: Instant) {
        self.room_packets = self.window_agreed_packets;
        self.change(self.window_agreed_packets, self.group_agreed_packets, 0, now);
    }

    #[cfg(test)]
    pub(crate) fn skip_groups(&mut self, groups: u32) {
        self.next = (self.next.0 + groups, 0);
    }

    /// How long an answer takes, once that is known.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.round_trip.smoothed()
    }

    /// The receiver takes so much from now on; more than was agreed it cannot.
    pub(crate) fn change(&mut self, window_packets: u32, group_packets: u16, rate: u64, now: Instant) {
        self.window_packets = window_packets.min(self.window_agreed_packets);
        self.group_limit = group_packets.min(self.group_agreed_packets);
        self.group_packets = self.group_packets.min(self.group_limit);
        self.rate_of_peer = Some(rate).filter(|rate| (1..RATE_MAX).contains(rate));
        self.pace(now);
    }

    fn pace(&mut self, now: Instant) {
        let own = self.round_trip.smoothed().map(|round_trip| {
            let nanos = (round_trip.as_nanos() as u64).max(1);
            let bytes = u128::from(self.congestion.window_bytes()) * u128::from(PACE_QUARTERS) / 4;
            u64::try_from(bytes * 1_000_000_000 / u128::from(nanos)).unwrap_or(u64::MAX)
        });
        self.shaper.change_cap(own.into_iter().chain(self.rate_of_peer).min(), now);
    }

    /// Whether the window takes another packet.
    fn has_window(&self, bytes: u64) -> bool {
        let packets = self.sent.len() as u64;
        packets < u64::from(self.window_packets.min(self.room_packets))
            && (packets == 0 || self.in_flight_bytes + bytes <= self.congestion.window_bytes())
    }

    /// The packet that is sent now: its place, its piece with the flags that it keeps.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(Place, &Piece)> {
        if !self.shaper.is_free(now) {
            return None;
        }
        let place = self.missed().or_else(|| self.advance(now))?;
        self.order += 1;
        let sent = self.sent.get_mut(&place)?;
        (sent.at, sent.order, sent.times) = (now, self.order, sent.times + 1);
        self.resent_packets += u64::from(sent.times > 1);
        let bytes = sent.piece.bytes() as usize;
        self.shaper.sent(bytes, now);
        self.query_at = Some(now + self.round_trip.timeout());
        Some((place, &sent.piece))
    }

    fn missed(&mut self) -> Option<Place> {
        while let Some(place) = self.again.pop_first() {
            if self.sent.contains_key(&place) {
                return Some(place);
            }
        }
        None
    }

    /// Takes the next piece of the queue, if the window has room for it.
    fn advance(&mut self, now: Instant) -> Option<Place> {
        let bytes = self.queue.front()?.bytes();
        // An acknowledgement names the group after those that are here.
        if !self.has_window(bytes) || self.next.0 + 1 >= GROUPS_MAX {
            return None;
        }
        let mut piece = self.queue.pop_front()?;
        self.queued -= usize::from(piece.flags.last);
        let place = self.next;
        self.in_flight_bytes += bytes;
        // It has to be known before the next piece is: a packet is never changed.
        let goes_on = self.queue.front().map(|next| self.would_have_window(next.bytes()));
        let is_full = place.1 + 1 >= self.group_packets;
        piece.flags.group_end = is_full || goes_on != Some(true);
        piece.flags.ack_now = goes_on == Some(false);
        self.next = if piece.flags.group_end { (place.0 + 1, 0) } else { (place.0, place.1 + 1) };
        self.sent.insert(place, Sent { piece, at: now, order: 0, times: 0 });
        Some(place)
    }

    /// The same after one packet more, which is in the bytes already.
    fn would_have_window(&self, bytes: u64) -> bool {
        (self.sent.len() as u64 + 1) < u64::from(self.window_packets.min(self.room_packets))
            && self.in_flight_bytes + bytes <= self.congestion.window_bytes()
    }

    /// Gives the commands whose last packet has arrived, with all before it. `None`: the receiver acknowledges what was not sent.
    pub(crate) fn acknowledged(&mut self, ack: &Ack, now: Instant) -> Option<Vec<u16>> {
        if ack.next > self.next {
            return None;
        }
        let newest = self.sent.get(&ack.newest).filter(|sent| sent.times == 1);
        let delay = Duration::from_micros(ack.delay_us.into());
        let sample = newest.map(|sent| now.saturating_since(sent.at).saturating_sub(delay));
        sample.inspect(|sample| self.round_trip.sample(*sample));
        self.room_packets = ack.room_packets;
        self.round_trip.progress();
        let rest = self.sent.split_off(&ack.next);
        let arrived = std::mem::replace(&mut self.sent, rest);
        let in_flight_bytes = self.in_flight_bytes;
        let bytes: u64 = arrived.values().map(|sent| sent.piece.bytes()).sum();
        self.in_flight_bytes -= bytes;
        if let Some(order) = arrived.values().map(|sent| sent.order).max() {
            let next_order = self.order + 1;
            let acknowledged = Acknowledged { bytes, order, next_order, round_trip: sample, in_flight_bytes };
            self.congestion.acknowledged(&acknowledged, now);
            self.grow_groups(arrived.values().filter(|sent| sent.piece.flags.group_end).count() as u32);
        }
        self.pace(now);
        // Who says only again what it has does not keep us from asking.
        let asks_at = now + self.round_trip.timeout();
        let before = self.query_at.filter(|_| arrived.is_empty());
        self.query_at = (!self.is_idle()).then(|| before.map_or(asks_at, |before| before.min(asks_at)));
        let is_last = |sent: &&Sent| sent.piece.flags.last;
        Some(arrived.values().filter(is_last).map(|sent| sent.piece.command).collect())
    }

    fn grow_groups(&mut self, groups: u32) {
        self.calm_groups += groups;
        if self.calm_groups >= CALM_GROUPS {
            self.calm_groups = 0;
            self.group_packets = (self.group_packets * 2).min(self.group_limit);
        }
    }

    /// The receiver misses these packets of a group.
    pub(crate) fn missing(&mut self, group: u32, ranges: &[(u16, u16)], now: Instant) {
        let again_after = self.round_trip.smoothed().map_or(ROUND_TRIP_UNKNOWN, |round_trip| round_trip * 7 / 8);
        let next_order = self.order + 1;
        let mut longest = 0;
        for (first, last) in ranges {
            let mut run = 0;
            for (place, sent) in self.sent.range((group, *first)..=(group, *last)) {
                // What was sent just now may be on its way still.
                if now.saturating_since(sent.at) >= again_after && self.again.insert(*place) {
                    self.congestion.lost(sent.order, next_order);
                    run += 1;
                }
            }
            longest = longest.max(run);
        }
        // Losses in a burst: smaller groups are told of sooner, each by itself.
        if longest > 0 {
            self.calm_groups = 0;
        }
        if longest * 2 > self.group_packets {
            self.group_packets = (self.group_packets / 2).max(GROUP_PACKETS_MIN).min(self.group_limit);
        }
    }

    /// Nothing waits, and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty()
    }

    /// When the receiver is asked what it has, unless it says so before; and when the rate lets the next packet go.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.query_at.into_iter().chain(self.shaper.poll_timeout()).min()
    }

    /// Time has passed. The packet up to which the receiver is to be asked now.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Place> {
        self.shaper.handle_timeout(now);
        self.query_at.take_if(|at| *at <= now)?;
        if self.is_idle() {
            return None;
        }
        self.timeouts += 1;
        if self.round_trip.back_off() >= SILENT_ROUNDS {
            self.congestion.collapse();
            self.pace(now);
        }
        self.query_at = Some(now + self.round_trip.timeout());
        Some(self.sent.last_key_value().map_or((0, 0), |(place, _)| *place))
    }
}

#[cfg(test)]
mod tests;
