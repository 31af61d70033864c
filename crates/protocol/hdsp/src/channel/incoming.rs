//! Received packets, by groups: what to acknowledge, and which gaps to report (NACK).
//!
//! Every packet places itself, so none is held back to restore the order: this only remembers which have been received.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::Instant;

use crate::wire::flow::{Ack, Place, RANGES_MAX};
use crate::wire::pdu::{Flags, GROUP_PACKETS_MAX, GROUPS_MAX};

/// When nothing has arrived for this long, what was received is acknowledged.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// A gap is reported after this, while the round trip is not known yet.
const GAP_DELAY: Duration = Duration::from_micros(500);

/// A gap is reported again after this, or after a round trip if that is longer.
const NACK_AGAIN_MIN: Duration = Duration::from_millis(2);

/// Groups whose gaps are reported at once.
const NACKS_MAX: usize = 32;

const WORDS: usize = GROUP_PACKETS_MAX as usize / 64;

/// The gaps of one group.
pub(crate) type Gaps = (u32, Vec<(u16, u16)>);

/// What is to be done with a packet, by its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    New,
    Duplicate,
    Beyond,
}

/// Which packets of a group have been received.
#[derive(Clone, Debug, Default)]
struct Group {
    seen: [u64; WORDS],
    count: u16,
    /// The highest serial number received.
    top: u16,
    /// The last one, once it is known.
    end: Option<u16>,
}

impl Group {
    fn has(&self, serial: u16) -> bool {
        self.seen[usize::from(serial) / 64] & 1 << (serial % 64) != 0
    }

    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.count == end + 1)
    }

    /// How many have been received without a gap from the first one on.
    fn leading(&self) -> u16 {
        let full = self.seen.iter().take_while(|word| **word == u64::MAX).count();
        (full * 64) as u16 + self.seen.get(full).map_or(0, |word| word.trailing_ones() as u16)
    }

    /// The gaps up to and with `last`.
    fn gaps(&self, last: u16) -> Vec<(u16, u16)> {
        let mut gaps: Vec<(u16, u16)> = Vec::new();
        // All have been received, as of most groups: there may be as many of them as the window has packets.
        if self.count > last {
            return gaps;
        }
        for serial in (0..=last).filter(|serial| !self.has(*serial)) {
            if let Some((_, end)) = gaps.last_mut().filter(|(_, end)| *end + 1 == serial) {
                *end = serial;
            } else if gaps.len() < RANGES_MAX {
                gaps.push((serial, serial));
            } else {
                break;
            }
        }
        gaps
    }
}

/// What the other end has sent, as far as it was received.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// All groups before are whole.
    next_group: u32,
    groups: BTreeMap<u32, Group>,
    newest: Option<(Place, Instant)>,
    highest: Place,
    /// What the sender says it has sent.
    told: Option<Place>,
    window_packets: u32,
    group_packets: u16,
    room_packets: u32,
    unacknowledged: u16,
    ack_at: Option<Instant>,
    nack_at: Option<Instant>,
    /// Gaps up to here were told of.
    nacked_to: Place,
}

impl Incoming {
    pub(crate) fn new(window_packets: u32, group_packets: u16) -> Self {
        Incoming {
            next_group: 0,
            groups: BTreeMap::new(),
            newest: None,
            highest: (0, 0),
            told: None,
            window_packets,
            group_packets,
            room_packets: window_packets,
            unacknowledged: 0,
            ack_at: None,
            nack_at: None,
            nacked_to: (0, 0),
        }
    }

    /// Whether a packet is one to look at.
    pub(crate) fn judge(&mut self, (group, serial): Place, now: Instant) -> Verdict {
        let is_known = group < self.next_group || self.groups.get(&group).is_some_and(|group| group.has(serial));
        if is_known {
            // Our acknowledgement was lost, perhaps.
            self.ack_within(ACK_DELAY, now);
            return Verdict::Duplicate;
        }
        if group - self.next_group < self.window_packets { Verdict::New } else { Verdict::Beyond }
    }

    /// Notes an authentic packet that was taken. False: the sender contradicts itself.
    pub(crate) fn note(&mut self, (place, flags): (Place, Flags), round_trip: Option<Duration>, now: Instant) -> bool {
        let (number, serial) = place;
        let group = self.groups.entry(number).or_default();
        let is_behind_end = group.end.is_some_and(|end| serial > end);
        let is_second_end = flags.group_end && (group.end.is_some() || group.count > 0 && group.top > serial);
        if is_behind_end || is_second_end {
            return false;
        }
        group.seen[usize::from(serial) / 64] |= 1 << (serial % 64);
        group.count += 1;
        group.top = group.top.max(serial);
        if flags.group_end {
            group.end = Some(serial);
        }
        let is_whole = group.is_whole();
        self.highest = self.highest.max(place);
        self.newest = Some((place, now));
        while self.groups.get(&self.next_group).is_some_and(Group::is_whole) {
            self.groups.remove(&self.next_group);
            self.next_group += 1;
        }
        self.unacknowledged += 1;
        let is_due = flags.ack_now || self.unacknowledged >= self.group_packets;
        self.ack_within(if is_due { Duration::ZERO } else { ACK_DELAY }, now);
        self.watch_gaps(is_whole && number > self.next_group, round_trip, now);
        true
    }

    fn watch_gaps(&mut self, is_passed: bool, round_trip: Option<Duration>, now: Instant) {
        if !self.has_gap() {
            self.nack_at = None;
        } else if self.highest > self.nacked_to {
            let patience = round_trip.map_or(GAP_DELAY, |round_trip| (round_trip / 8).max(GAP_DELAY / 4));
            let at = if is_passed { now } else { now + patience };
            self.nack_at = Some(self.nack_at.map_or(at, |before| before.min(at)));
        }
    }

    fn has_gap(&self) -> bool {
        let Some((number, first)) = self.groups.first_key_value() else { return false };
        self.groups.len() > 1 || *number > self.next_group || first.count != first.top + 1
    }

    fn ack_within(&mut self, delay: Duration, now: Instant) {
        let at = now + delay;
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    /// Whether half of the sender's numbers are used up.
    pub(crate) fn is_worn(&self) -> bool {
        self.next_group >= GROUPS_MAX / 2
    }

    /// The sender asks what has come up to this packet.
    pub(crate) fn queried(&mut self, place: Place, now: Instant) {
        if place.0 >= self.next_group && place.0 - self.next_group < self.window_packets {
            self.told = self.told.max(Some(place));
            self.nack_at = Some(now);
        }
        self.ack_within(Duration::ZERO, now);
    }

    /// From now on the sender may have so many packets under way, and so many of each group are acknowledged.
    pub(crate) fn set_room(&mut self, packets: u32, group_packets: u16, now: Instant) {
        if packets > self.room_packets {
            self.ack_within(Duration::ZERO, now);
        }
        self.room_packets = packets.min(self.window_packets);
        self.group_packets = group_packets;
    }

    /// How many packets the sender may have under way.
    pub(crate) fn room_packets(&self) -> u32 {
        self.room_packets
    }

    /// The acknowledgement that is due, if one is.
    pub(crate) fn poll_ack(&mut self, now: Instant) -> Option<Ack> {
        self.ack_at.take_if(|at| *at <= now)?;
        self.unacknowledged = 0;
        let leading = self.groups.get(&self.next_group).map_or(0, Group::leading);
        // A whole group of the largest size is counted as none of the next one.
        let next = (self.next_group, leading.min(GROUP_PACKETS_MAX - 1));
        let (newest, at) = self.newest.unwrap_or(((0, 0), now));
        let delay_us = u32::try_from(now.saturating_since(at).as_micros()).unwrap_or(u32::MAX);
        Some(Ack { next, newest, delay_us, room_packets: self.room_packets })
    }

    /// The gaps that are to be told of now.
    pub(crate) fn poll_gaps(&mut self, round_trip: Option<Duration>, now: Instant) -> Vec<Gaps> {
        if self.nack_at.take_if(|at| *at <= now).is_none() {
            return Vec::new();
        }
        let gaps = self.gaps();
        self.told = None;
        self.nacked_to = self.highest;
        if self.has_gap() {
            let again = round_trip.map_or(NACK_AGAIN_MIN * 4, |round_trip| round_trip * 5 / 4).max(NACK_AGAIN_MIN);
            self.nack_at = Some(now + again);
        }
        gaps
    }

    fn gaps(&self) -> Vec<Gaps> {
        let top = if self.groups.is_empty() { None } else { Some(self.highest) };
        let Some((last_group, last)) = top.max(self.told) else { return Vec::new() };
        let groups = self.next_group..=last_group;
        let none = Group::default();
        let of_group = |number: u32| {
            let group = self.groups.get(&number).unwrap_or(&none);
            let last = match group.end {
                Some(end) => end,
                None if number == last_group => last,
                // It has ended, nobody knows where: the sender does.
                None => GROUP_PACKETS_MAX - 1,
            };
            Some((number, group.gaps(last))).filter(|(_, gaps)| !gaps.is_empty())
        };
        groups.filter_map(of_group).take(NACKS_MAX).collect()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.ack_at.into_iter().chain(self.nack_at).min()
    }
}

#[cfg(test)]
mod tests;
