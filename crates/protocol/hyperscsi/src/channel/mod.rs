//! What both ends of an established connection have in common: numbered data packets with windows and recovery, sealed
//! control packets, acknowledgements; and links, each with its round trip, its congestion window and its packet size.
//!
//! Data packets are acknowledged by whatever data packet goes the other way; a packet of its own carries the
//! acknowledgement only when a window is full, a gap was seen, or nothing else went for a while.

mod agreed;
mod build;
mod control;
mod credit;
mod drive;
mod incoming;
mod joins;
mod link;
mod messages;
mod packet_protection;
mod pauses;
mod probe;
mod queries;
mod receive;
mod reorder;
mod send;
mod sizes;

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Recycler;
use sanwire_core::{Carried, Instant, Path};

use self::control::Control;
use self::joins::Joins;
use self::link::Link;
pub use self::link::LinkStatus;
pub(crate) use self::link::{Capacity, Sizes};
pub(crate) use self::messages::{Held, Message};
use self::packet_protection::PacketProtection;
pub(crate) use self::packet_protection::Rejected;
use self::pauses::Pauses;
use self::receive::Received;
use self::send::Outgoing;
pub use self::send::Recovery;
use crate::compression::Compressor;
use crate::ring::KeyRing;
use crate::wire::flow::{Snr, Window, Windows};
use crate::wire::{Opcode, Protection};
pub(crate) use sanwire_flow::Shaper;

/// A data packet that was transmitted this often, to a peer that is heard, is too large for the path by now.
const TRANSMISSIONS_MAX: u8 = 12;

/// Settings of a new channel.
pub(crate) struct Setup {
    pub(crate) path: Path,
    pub(crate) connection: u32,
    pub(crate) ring: KeyRing,
    /// Data packets are never guarded less, in both directions.
    pub(crate) floor: Protection,
    pub(crate) data_opcode: Opcode,
    pub(crate) window: Window,
    pub(crate) recovery: Recovery,
    pub(crate) sizes: Sizes,
    pub(crate) capacity: Capacity,
    /// For packets that are sent otherwise than they lie in memory. Channels of one thread share it.
    pub(crate) memory: Recycler,
    pub(crate) now: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckDue {
    No,
    At(Instant),
    Now,
}

/// One end of an established connection.
pub(crate) struct Channel {
    /// At least one, the one of the handshake.
    links: Vec<Link>,
    joins: Joins,
    guard: PacketProtection,
    control: Control,
    outgoing: Outgoing,
    received: Received,
    inward: Window,
    /// How much of what it shares with others what we send takes.
    weight: u16,
    ack_due: AckDue,
    /// When a packet that had come before was last acknowledged at once.
    duplicate_acked_at: Option<Instant>,
    acked_window: u64,
    gap_end: u64,
    last_heard: Instant,
    /// Since when we wait for any sign of life.
    unanswered_since: Option<Instant>,
    /// Since when we ask what has come of what was sent, and are not told.
    asked_since: Option<Instant>,
    /// How many requests for windows there were.
    window_requests: u32,
    /// The one that is not answered.
    requested_windows: Option<WindowRequest>,
    /// The number of the peer's last request for windows.
    heard_windows: u32,
    accepted: VecDeque<Windows>,
    pauses: Pauses,
    recovery: Recovery,
    compressor: Option<Compressor>,
    shaper: Shaper,
    /// Until when the peer takes packets that are guarded less than new ones, if there may be such.
    weak_until: Option<Instant>,
    /// Some are left after that.
    is_too_weak: bool,
}

/// Windows that the peer was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WindowRequest {
    number: u32,
    windows: Windows,
    weight: u16,
}

/// One of a channel's links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkAt(usize);

impl Channel {
    pub(crate) fn new(setup: Setup) -> Self {
        Channel {
            links: vec![Link::new(setup.path, setup.sizes, setup.capacity, setup.now)],
            joins: Joins::default(),
            guard: PacketProtection::new(setup.connection, setup.ring, setup.floor, setup.memory),
            control: Control::default(),
            outgoing: Outgoing::new(setup.data_opcode, setup.window, setup.recovery),
            received: Received::new(),
            inward: setup.window,
            weight: 1,
            ack_due: AckDue::No,
            duplicate_acked_at: None,
            acked_window: 0,
            gap_end: 0,
            last_heard: setup.now,
            unanswered_since: None,
            asked_since: None,
            window_requests: 0,
            requested_windows: None,
            heard_windows: 0,
            accepted: VecDeque::new(),
            pauses: Pauses::default(),
            recovery: setup.recovery,
            compressor: None,
            shaper: Shaper::default(),
            weak_until: None,
            is_too_weak: false,
        }
    }

    /// Data of the packets that were sent, also of those that were sent again.
    pub(crate) fn carried(&self) -> Carried {
        self.guard.carried()
    }

    /// The way of the handshake.
    pub(crate) fn path(&self) -> Path {
        self.links[0].path()
    }

    /// The link that a path is, if it is one of this connection.
    pub(crate) fn link_of(&self, path: Path) -> Option<LinkAt> {
        self.links.iter().position(|link| link.path() == path).map(LinkAt)
    }

    pub(crate) fn connection(&self) -> u32 {
        self.guard.connection()
    }

    /// The links, as they are.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkStatus> {
        self.links.iter().map(Link::status)
    }

    /// What all links together take at once.
    pub(crate) fn capacity(&self) -> Capacity {
        self.links.iter().map(Link::capacity).fold(Capacity::default(), |sum, link| Capacity {
            ours: sum.ours.saturating_add(link.ours),
            theirs: sum.theirs.saturating_add(link.theirs),
        })
    }

    /// The largest packet that every link which carries data is known to take, in bytes: so what is lost on one can go by another.
    pub(crate) fn packet_max_bytes(&self) -> usize {
        let carrying = self.links.iter().filter(|link| self.carries_data(link)).map(Link::packet_max_bytes);
        carrying.min().unwrap_or(self.links[0].packet_max_bytes())
    }

    /// Data packets that we send are never guarded less.
    pub(crate) fn floor(&self) -> Protection {
        self.guard.floor()
    }

    pub(crate) fn keys_mut(&mut self) -> &mut KeyRing {
        self.guard.ring_mut()
    }

    pub(crate) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// The longest round trip of a link, smoothed, once it was measured.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.links.iter().filter_map(|link| link.round_trip.smoothed()).max()
    }

    /// Since when the peer owes us a sign of life.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// Since when the peer, heard or not, was asked what has arrived, and has not said so.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.asked_since
    }

    /// How much data the peer has taken, and what is kept for it.
    pub(crate) fn taken_and_kept_bytes(&self) -> (u64, u64) {
        (self.outgoing.acknowledged_bytes(), self.outgoing.messages().data_bytes())
    }

    /// The messages that the peer has not taken whole.
    pub(crate) fn untaken(&self) -> Held {
        self.outgoing.messages().held()
    }

    /// The windows in force, ours first.
    pub(crate) fn windows(&self) -> Windows {
        Windows { outward: self.outgoing.window(), inward: self.inward }
    }

    /// Whether packets no longer come through although the peer is heard: the path has shrunk, or they are guarded too little by now.
    pub(crate) fn is_stuck(&self) -> bool {
        self.outgoing.oldest_transmissions() > TRANSMISSIONS_MAX || self.is_unfit() || self.is_too_weak
    }

    /// Whether nothing is on its way any more.
    pub(crate) fn is_drained(&self) -> bool {
        !self.outgoing.is_waiting() && !self.outgoing.has_work() && self.control.is_empty()
    }

    /// Queues a sealed control packet.
    pub(crate) fn send_control(&mut self, opcode: Opcode, body: Vec<u8>) {
        self.control.push(opcode, body, None);
    }

    /// From now on what we send takes as much as so many of weight 1; true when that is new.
    pub(crate) fn set_weight(&mut self, weight: u16) -> bool {
        let is_new = self.weight != weight;
        if is_new {
            self.weight = weight;
            self.links.iter_mut().for_each(|link| link.set_weight(weight));
        }
        is_new
    }

    /// Asks for other windows; they are in force when the peer accepts. It sends with the same weight as we do. What is asked again
    /// has the same number: any answer to it will do.
    pub(crate) fn request_windows(&mut self, resumed: bool, windows: Windows, now: Instant) {
        let weight = self.weight;
        let is_same = |asked: &WindowRequest| asked.windows == windows && asked.weight == weight;
        let number = match self.requested_windows.filter(is_same) {
            Some(asked) => asked.number,
            None => self.window_requests.saturating_add(1),
        };
        self.window_requests = number;
        self.requested_windows = Some(WindowRequest { number, windows, weight });
        let request = Snr::SetWindows { resumed, number, windows, weight };
        self.control.push(Opcode::AckSnr, request.write(0), None);
        self.expect_answer(now);
    }

    /// The windows that a request of ours was answered with.
    pub(crate) fn poll_accepted(&mut self) -> Option<Windows> {
        self.accepted.pop_front()
    }

    /// Asks the peer for a sign of life, and what has arrived.
    pub(crate) fn query(&mut self, now: Instant) {
        (0..self.links.len()).for_each(|at| self.query_on(at, now));
        self.expect_answer(now);
    }

    /// Asks the peer what has come of what was sent on a link.
    fn query_on(&mut self, at: usize, now: Instant) {
        let marker = Marker { link: at as u8, order: self.links[at].query(now) };
        self.control.push(Opcode::AckSnr, Snr::Query { marker: marker.number() }.write(0), Some(self.links[at].path()));
    }

    /// Starts to search for the largest packet that the path takes.
    pub(crate) fn start_probing(&mut self, now: Instant) {
        self.links[0].prober.start(now);
    }

    fn expect_answer(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.unanswered_since = None;
    }
}

/// What a query asks about, as the number that its answer repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker {
    link: u8,
    /// The transmission on the link that will be next.
    order: u64,
}

impl Marker {
    const ORDER_BITS: u32 = 56;

    fn number(self) -> u64 {
        u64::from(self.link) << Self::ORDER_BITS | self.order
    }

    fn of(number: u64) -> Marker {
        Marker { link: (number >> Self::ORDER_BITS) as u8, order: number & ((1 << Self::ORDER_BITS) - 1) }
    }
}
