//! What is lost is sent again, and nothing else; congestion control says how much is under way.

use std::time::Duration;

use sanwire_core::Instant;

use super::{Flight, Outgoing};
use crate::wire::HEADER_BYTES;

/// A path whose round trip is not known yet has one of so long, for what is missed.
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(1);

/// The rate is so much more than the window for each round trip, in quarters: only bursts are spread.
const PACE_QUARTERS: u64 = 6;

/// Timeouts in a row after which all that is under way is taken for lost.
const SILENT_ROUNDS: u32 = 2;

impl Outgoing {
    pub(super) fn next_modern(&mut self, now: Instant) -> Option<u32> {
        if !self.shaper.is_free(now) {
            return None;
        }
        let sequence = match self.missed.first().copied() {
            Some(missed) => self.fits_congestion(self.sent.get((missed - self.base) as usize)?.bytes).then_some(missed),
            None => self.has_window(self.peek_bytes()?).then(|| self.cut(now)),
        }?;
        self.missed.remove(&sequence);
        if let Some(sent) = self.sent.get((sequence - self.base) as usize) {
            self.shaper.sent(sent.bytes as usize + HEADER_BYTES, now);
        }
        Some(sequence)
    }

    pub(super) fn has_window(&self, bytes: u64) -> bool {
        let packets = self.sent.len() as u64;
        packets < u64::from(self.window_packets.min(self.room_packets))
            && self.next() < u32::MAX
            && self.fits_congestion(bytes)
    }

    pub(super) fn fits_congestion(&self, bytes: u64) -> bool {
        self.in_flight_bytes == 0 || self.in_flight_bytes + bytes <= self.congestion.window_bytes()
    }

    /// What was sent well before something that has arrived, and is not here, is lost.
    pub(super) fn look_for_losses(&mut self, now: Instant) {
        self.look_at = None;
        let patience = self.round_trip.smoothed().map_or(ROUND_TRIP_UNKNOWN, |round_trip| round_trip * 5 / 4);
        let next_order = self.order + 1;
        for (sequence, sent) in (self.base..).zip(&mut self.sent) {
            if sent.flight != Flight::Underway || sent.order >= self.top_order {
                continue;
            }
            let lost_at = sent.at + patience;
            if lost_at > now {
                self.look_at = Some(self.look_at.map_or(lost_at, |at| at.min(lost_at)));
                continue;
            }
            let (flow, _) = self.congestion.lost(sent.order, next_order);
            (sent.lost, sent.flight) = (Some((sent.order, flow)), Flight::Missed);
            self.in_flight_bytes -= sent.bytes;
            self.missed.insert(sequence);
        }
    }

    pub(super) fn pace(&mut self, now: Instant) {
        let cap = self.round_trip.smoothed().map(|round_trip| {
            let nanos = (round_trip.as_nanos() as u64).max(1);
            let bytes = u128::from(self.congestion.window_bytes()) * u128::from(PACE_QUARTERS) / 4;
            u64::try_from(bytes * 1_000_000_000 / u128::from(nanos)).unwrap_or(u64::MAX)
        });
        self.shaper.change_cap(cap, now);
    }

    /// Nothing was heard: the oldest packet that is under way asks what has come, and later all of them go again.
    pub(super) fn probe(&mut self, rounds: u32, now: Instant) {
        if self.in_flight_bytes == 0 {
            self.has_question = self.missed.is_empty();
            return;
        }
        let is_silent = rounds >= SILENT_ROUNDS;
        if is_silent {
            self.congestion.collapse();
            self.pace(now);
        }
        for (sequence, sent) in (self.base..).zip(&mut self.sent) {
            if sent.flight == Flight::Underway {
                sent.flight = Flight::Missed;
                self.in_flight_bytes -= sent.bytes;
                self.missed.insert(sequence);
                if !is_silent {
                    break;
                }
            }
        }
    }
}
