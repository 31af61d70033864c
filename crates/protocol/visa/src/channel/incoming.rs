//! Received packets: which is next, what waits for it, what to acknowledge, and what is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::Instant;

use super::Recovery;
use crate::channel::outgoing::CLASSIC_WINDOW_BYTES;
use crate::wire::Header;
use crate::wire::flow::{Ack, MAP_MAX_PACKETS};

/// When nothing has arrived for this long, what was received is acknowledged.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// So many packets are acknowledged at the latest.
const ACK_PACKETS: u32 = 16;

/// The same while something is missing.
const ACK_PACKETS_WITH_GAP: u32 = 4;

/// What is kept that came too early, in bytes: more comes again.
const HELD_MAX_BYTES: usize = 1 << 20;

/// What a packet takes beside its payload, about.
const AROUND_HELD_BYTES: usize = 128;

/// What is to be done with a packet, by its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Next,
    /// It may be kept until those before it are here.
    Held,
    /// It is not kept.
    OutOfOrder,
    /// Over TCP: it is behind those that are kept, and there is no room for more.
    Overrun,
    Duplicate,
    Beyond,
}

/// What the other end has sent, as far as it was received.
#[derive(Debug)]
pub(super) struct Incoming {
    recovery: Recovery,
    payload_bytes: usize,
    window_packets: u32,
    next: u32,
    held: BTreeMap<u32, (Header, Vec<u8>)>,
    held_bytes: usize,
    newest: Option<(u32, Instant)>,
    unacknowledged_packets: u32,
    unacknowledged_bytes: usize,
    ack_at: Option<Instant>,
    /// That moment has come.
    is_ack_due: bool,
    /// When the last acknowledgement was sent.
    acked_at: Option<Instant>,
    /// When the last packet was taken, or the first one kept.
    moved_at: Instant,
    nak: Option<u32>,
    /// The packet that was last said to be missing.
    naked: Option<u32>,
}

impl Incoming {
    pub(super) fn new(recovery: Recovery, payload_bytes: usize, window_packets: u32) -> Self {
        Incoming {
            recovery,
            payload_bytes,
            window_packets: window_packets.min(MAP_MAX_PACKETS),
            next: 0,
            held: BTreeMap::new(),
            held_bytes: 0,
            newest: None,
            unacknowledged_packets: 0,
            unacknowledged_bytes: 0,
            ack_at: None,
            is_ack_due: false,
            acked_at: None,
            moved_at: Instant::ZERO,
            nak: None,
            naked: None,
        }
    }

    /// Whether half of the sender's numbers are used up: they do not come again.
    pub(super) fn is_worn(&self) -> bool {
        self.next > u32::MAX / 2
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether the packet that is next waits for somebody to take it.
    pub(super) fn is_starved(&self) -> bool {
        self.held.contains_key(&self.next)
    }

    /// What becomes of an authentic packet of this number.
    pub(super) fn judge(&mut self, sequence: u32, now: Instant) -> Verdict {
        let Some(ahead) = sequence.checked_sub(self.next) else {
            // Our acknowledgement was lost, perhaps.
            self.ack_again(now);
            return Verdict::Duplicate;
        };
        if self.held.contains_key(&sequence) {
            self.ack_within(ACK_DELAY, now);
            return Verdict::Duplicate;
        }
        match (ahead, self.recovery) {
            (0, _) => Verdict::Next,
            // It waits behind one that nobody has taken.
            (_, Recovery::Stream) if self.is_behind(ahead) && self.held_bytes < HELD_MAX_BYTES => Verdict::Held,
            (_, Recovery::Stream) if self.is_behind(ahead) => Verdict::Overrun,
            (_, Recovery::Stream) => Verdict::Beyond,
            (_, Recovery::Classic) => {
                if self.naked != Some(self.next) {
                    (self.nak, self.naked) = (Some(self.next), Some(self.next));
                }
                Verdict::OutOfOrder
            }
            (_, Recovery::Modern) if ahead >= self.window_packets => Verdict::Beyond,
            (_, Recovery::Modern) => {
                self.ack_within(ACK_DELAY, now);
                if self.held_bytes < HELD_MAX_BYTES { Verdict::Held } else { Verdict::OutOfOrder }
            }
        }
    }

    /// Over TCP: whether a packet so far ahead is the one behind those that are kept.
    fn is_behind(&self, ahead: u32) -> bool {
        self.is_starved() && ahead as usize == self.held.len()
    }

    /// Since when packets wait for one that is missing, and that does not come.
    pub(super) fn gap_since(&self) -> Option<Instant> {
        (!self.held.is_empty() && !self.is_starved()).then_some(self.moved_at)
    }

    /// Keeps a packet until those before it are here.
    pub(super) fn hold(&mut self, header: Header, payload: &[u8], now: Instant) {
        let is_new_gap = self.held.is_empty();
        self.keep_for_later(header, payload);
        if self.recovery == Recovery::Stream {
            return;
        }
        if is_new_gap {
            self.moved_at = now;
        }
        self.newest = Some((header.sequence, now));
        self.unacknowledged_packets += 1;
        if is_new_gap || header.ack_now || self.unacknowledged_packets >= ACK_PACKETS_WITH_GAP {
            self.ack_within(Duration::ZERO, now);
        }
    }

    /// Keeps a packet that nobody has taken.
    pub(super) fn keep_for_later(&mut self, header: Header, payload: &[u8]) {
        self.held_bytes += payload.len() + AROUND_HELD_BYTES;
        self.held.insert(header.sequence, (header, payload.to_vec()));
    }

    /// The packet that is next in order, if it waits.
    pub(super) fn take_next(&mut self) -> Option<(Header, Vec<u8>)> {
        let (header, payload) = self.held.remove(&self.next)?;
        self.held_bytes -= payload.len() + AROUND_HELD_BYTES;
        Some((header, payload))
    }

    /// The next packet was taken.
    pub(super) fn advance(&mut self, header: &Header, payload_bytes: usize, now: Instant) {
        self.next = header.sequence.wrapping_add(1);
        (self.newest, self.moved_at) = (Some((header.sequence, now)), now);
        self.unacknowledged_packets += 1;
        self.unacknowledged_bytes += payload_bytes;
        let is_due = match self.recovery {
            // Another packet would not fit into the sender's window.
            Recovery::Classic => self.unacknowledged_bytes + self.payload_bytes > CLASSIC_WINDOW_BYTES,
            Recovery::Modern => header.ack_now || self.unacknowledged_packets >= ACK_PACKETS || !self.held.is_empty(),
            Recovery::Stream => self.unacknowledged_packets >= ACK_PACKETS,
        };
        self.ack_within(if is_due { Duration::ZERO } else { ACK_DELAY }, now);
    }

    fn ack_within(&mut self, delay: Duration, now: Instant) {
        let at = now + delay;
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    /// Says again what is here, but not to everybody who sends again what was sent: once in a while is enough.
    fn ack_again(&mut self, now: Instant) {
        let at = self.acked_at.map_or(now, |acked_at| now.max(acked_at + ACK_DELAY));
        self.ack_within(at.saturating_since(now), now);
    }

    /// The sender wants to know what is here: all that it has sent may have arrived, and our acknowledgement not.
    pub(super) fn ack_asked(&mut self, now: Instant) {
        if self.newest.is_some() {
            self.ack_again(now);
        }
    }

    /// The packet that is missing, if that is to be said.
    pub(super) fn poll_nak(&mut self, now: Instant) -> Option<u32> {
        let expected = self.nak.take()?;
        // It says what an acknowledgement would.
        self.note_acknowledged(now);
        Some(expected)
    }

    fn note_acknowledged(&mut self, now: Instant) {
        (self.unacknowledged_packets, self.unacknowledged_bytes) = (0, 0);
        (self.ack_at, self.is_ack_due, self.acked_at) = (None, false, Some(now));
    }

    /// Time has passed. What is due now needs no waking: it goes when packets are taken.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.is_ack_due |= self.ack_at.take_if(|at| *at <= now).is_some();
    }

    /// The acknowledgement that is due, if one is.
    pub(super) fn poll_ack(&mut self, now: Instant) -> Option<Ack> {
        self.handle_timeout(now);
        if !self.is_ack_due {
            return None;
        }
        self.note_acknowledged(now);
        let (newest, at) = self.newest.unwrap_or((0, now));
        let delay_us = u32::try_from(now.saturating_since(at).as_micros()).unwrap_or(u32::MAX);
        let mut ack = Ack { next: self.next, newest, delay_us, room_packets: self.window_packets, map: Vec::new() };
        if self.recovery == Recovery::Modern {
            self.held.keys().filter(|sequence| **sequence > self.next).for_each(|sequence| ack.mark(*sequence));
        }
        Some(ack)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.ack_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    fn header(sequence: u32) -> Header {
        Header { sequence, ..Header::single(Kind::Data, false, 1) }
    }

    #[test]
    fn classic_takes_packets_in_order_acknowledges_48_kb_and_says_once_which_one_is_missing() {
        let (mut incoming, now) = (Incoming::new(Recovery::Classic, 8192, 6), Instant::ZERO);
        for sequence in 0..6 {
            assert_eq!(incoming.judge(sequence, now), Verdict::Next);
            assert!(incoming.poll_ack(now).is_none(), "not before 48 KB");
            incoming.advance(&header(sequence), 8192, now);
        }
        assert_eq!(incoming.poll_ack(now).map(|ack| ack.next), Some(6));
        assert_eq!([incoming.judge(7, now), incoming.judge(8, now)], [Verdict::OutOfOrder; 2]);
        assert_eq!([incoming.poll_nak(now), incoming.poll_nak(now)], [Some(6), None]);
        assert_eq!(incoming.judge(9, now), Verdict::OutOfOrder);
        assert_eq!(incoming.poll_nak(now), None, "once");
        assert_eq!(incoming.judge(3, now), Verdict::Duplicate);
        assert!(incoming.poll_ack(now).is_none(), "who sends again what he has overheard has no answer to each");
        let now = now + ACK_DELAY;
        assert_eq!(incoming.poll_ack(now).map(|ack| ack.next), Some(6));
        incoming.advance(&header(6), 100, now);
        assert!(incoming.poll_ack(now).is_none());
        assert_eq!(incoming.poll_ack(now + ACK_DELAY).map(|ack| ack.next), Some(7), "at the latest");
    }

    #[test]
    fn modern_keeps_what_comes_early_and_tells_of_it() {
        let (mut incoming, now) = (Incoming::new(Recovery::Modern, 1000, 8), Instant::ZERO);
        assert_eq!(incoming.judge(2, now), Verdict::Held);
        incoming.hold(header(2), &[2], now);
        let ack = incoming.poll_ack(now).unwrap();
        assert_eq!((ack.next, ack.beyond().collect::<Vec<_>>()), (0, vec![2]));
        assert_eq!((incoming.judge(2, now), incoming.judge(8, now)), (Verdict::Duplicate, Verdict::Beyond));
        for sequence in [0, 1] {
            assert_eq!(incoming.judge(sequence, now), Verdict::Next);
            assert!(incoming.take_next().is_none());
            incoming.advance(&header(sequence), 1, now);
        }
        assert_eq!(incoming.take_next().map(|(_, payload)| payload), Some(vec![2]));
        assert_eq!(incoming.held_bytes(), 0);
        incoming.advance(&header(2), 1, now);
        assert_eq!(incoming.poll_ack(now).map(|ack| (ack.next, ack.map.len())), Some((3, 0)));
    }

    #[test]
    fn what_comes_early_is_kept_up_to_a_bound() {
        let (mut incoming, now) = (Incoming::new(Recovery::Modern, 60_000, 4096), Instant::ZERO);
        let kept = (1..100).filter(|sequence| {
            let is_held = incoming.judge(*sequence, now) == Verdict::Held;
            if is_held {
                incoming.hold(header(*sequence), &[0; 60_000], now);
            }
            is_held
        });
        assert_eq!(kept.count(), HELD_MAX_BYTES.div_ceil(60_000));
    }
}
