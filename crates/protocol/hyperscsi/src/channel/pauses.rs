//! Pauses of data, asked of the peer (6.6): because the owner wants it, or because there is no room.

use std::time::Duration;

use sanwire_core::Instant;

use super::Channel;
use super::link::Link;
use crate::wire::Opcode;
use crate::wire::flow::{AckKind, Pause, Snr};

/// What was not answered is said again after a timeout, and not before this.
const AGAIN_MIN: Duration = Duration::from_millis(20);

/// A peer that knows that there is no room, and sends nevertheless, is told so again, but not more often.
const TELL_AGAIN: Duration = Duration::from_millis(100);

/// A pause for want of room ends by itself: what would tell of the room may never come.
const NO_ROOM_MAX: Duration = Duration::from_millis(250);

/// What we ask of the peer, and it of us.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// What was asked last.
    number: u32,
    /// What the peer has not answered, by its reason.
    unanswered: [Option<Asking>; 2],
    /// The lowest sequence for which there was no room, and when it was told.
    no_room: Option<(u64, Instant)>,
    /// The highest numbers that the peer has asked with, by their reason.
    heard: [u32; 2],
    /// Our owner wants no data.
    is_pausing: bool,
    /// Since when the peer's owner wants none.
    held_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    number: u32,
    pause: Pause,
    again_at: Instant,
}

impl Pauses {
    /// When something is to be said again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.unanswered.iter().flatten().map(|asking| asking.again_at).min()
    }

    /// The peer has answered.
    pub(super) fn answered(&mut self, number: u32) {
        for asking in &mut self.unanswered {
            asking.take_if(|asking| asking.number == number);
        }
    }
}

fn place(pause: Pause) -> usize {
    match pause {
        Pause::Owner(_) => 0,
        Pause::Room(_) => 1,
    }
}

impl Channel {
    /// Asks the peer to send no data, or to go on, until it has heard so.
    pub(crate) fn pause(&mut self, is_paused: bool, now: Instant) {
        self.pauses.is_pausing = is_paused;
        self.ask_pause(Pause::Owner(is_paused), now);
    }

    /// Whether the peer has heard what it was asked last for its owner's sake.
    pub(crate) fn is_pause_heard(&self) -> bool {
        self.pauses.unanswered[place(Pause::Owner(true))].is_none()
    }

    /// Whether the peer wants no data for a while, because its owner does not.
    pub(crate) fn is_held(&self) -> bool {
        self.outgoing.is_paused()
    }

    /// Since when it is so.
    pub(crate) fn held_since(&self) -> Option<Instant> {
        self.pauses.held_since
    }

    /// Whether the peer was asked to send no data, because our owner wants none.
    pub(crate) fn is_pausing(&self) -> bool {
        self.pauses.is_pausing
    }

    /// Tells the peer that there was no room for a data packet: it is to keep back what needs some from there on.
    pub(crate) fn lacks_room(&mut self, sequence: u64, now: Instant) {
        let is_new = self.pauses.no_room.is_none_or(|(from, told_at)| sequence < from || told_at + TELL_AGAIN <= now);
        if is_new {
            let from = self.pauses.no_room.map_or(sequence, |(from, _)| from.min(sequence));
            self.pauses.no_room = Some((from, now));
            self.ask_pause(Pause::Room(Some(from)), now);
        }
    }

    /// Tells the peer that there is room again.
    pub(crate) fn has_room(&mut self, now: Instant) {
        if self.pauses.no_room.take().is_some() {
            self.ask_pause(Pause::Room(None), now);
        }
    }

    /// The lowest sequence for which there was no room.
    pub(crate) fn no_room_from(&self) -> Option<u64> {
        self.pauses.no_room.map(|(from, _)| from)
    }

    fn ask_pause(&mut self, pause: Pause, now: Instant) {
        self.pauses.number = self.pauses.number.saturating_add(1);
        self.say_pause(Asking { number: self.pauses.number, pause, again_at: now }, now);
    }

    fn say_pause(&mut self, asking: Asking, now: Instant) {
        let Asking { number, pause, .. } = asking;
        let timeouts = self.links.iter().filter(|link| link.is_live()).map(Link::calm_timeout);
        let again_at = now + timeouts.max().unwrap_or_default().max(AGAIN_MIN);
        self.pauses.unanswered[place(pause)] = Some(Asking { again_at, ..asking });
        self.control.push(Opcode::AckSnr, Snr::Pause { number, pause }.write(0), None);
    }

    /// Says again what was not answered, and ends a pause for want of room of which the peer says no more.
    pub(super) fn tend_pauses(&mut self, now: Instant) {
        for at in 0..self.pauses.unanswered.len() {
            if let Some(asking) = self.pauses.unanswered[at].filter(|asking| asking.again_at <= now) {
                self.say_pause(asking, now);
            }
        }
        if self.outgoing.kept_back_until().is_some_and(|at| at <= now) {
            self.outgoing.keep_nothing_back();
        }
    }

    /// The peer asks us. What it has asked before changes nothing any more, but is answered.
    pub(super) fn pause_asked(&mut self, number: u32, pause: Pause, now: Instant) {
        self.acknowledge(AckKind::Pause { number }, None);
        let heard = &mut self.pauses.heard[place(pause)];
        if number <= *heard {
            return;
        }
        *heard = number;
        match pause {
            Pause::Owner(is_paused) => {
                self.outgoing.set_paused(is_paused);
                let held_since = self.pauses.held_since.take().unwrap_or(now);
                if is_paused {
                    self.pauses.held_since = Some(held_since);
                } else {
                    // It was not to answer meanwhile.
                    let held_for = now.saturating_since(held_since);
                    self.asked_since = self.asked_since.map(|since| (since + held_for).min(now));
                }
            }
            Pause::Room(Some(from)) => {
                self.outgoing.keep_back(from, now + NO_ROOM_MAX, &mut self.links);
                self.progressed(now);
            }
            Pause::Room(None) => self.outgoing.keep_nothing_back(),
        }
    }
}
