//! What both ends of an established connection have in common: numbered data packets with windows and recovery, sealed
//! control packets, acknowledgements, and the search for the path's packet size.
//!
//! Data packets are acknowledged by whatever data packet goes the other way; a packet of its own carries the
//! acknowledgement only when a window is full, a gap was seen, or nothing else went for a while.

mod control;
mod guard;
mod messages;
mod probe;
mod receive;
mod replay;
mod rtt;
mod send;

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};

use self::control::Control;
use self::guard::Guard;
pub(crate) use self::guard::Rejected;
pub(crate) use self::messages::Message;
use self::probe::Prober;
use self::receive::{Arrival, Received};
use self::rtt::RoundTrip;
pub use self::send::Recovery;
use self::send::{Outgoing, Progress};
use crate::ring::KeyRing;
use crate::wire::flow::{Ack, AckKind, Snr, Window, Windows};
use crate::wire::{Opcode, Protection, RawPacket, command};

/// An acknowledgement waits this long for a data packet that could carry it.
const ACK_DELAY: Duration = Duration::from_millis(1);

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
    pub(crate) packet_base_bytes: usize,
    pub(crate) packet_limit_bytes: usize,
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
    path: Path,
    guard: Guard,
    control: Control,
    outgoing: Outgoing,
    received: Received,
    inward: Window,
    ack_due: AckDue,
    acked_window: u64,
    gap_end: u64,
    round_trip: RoundTrip,
    /// When to ask what has come.
    retransmit_at: Option<Instant>,
    prober: Prober,
    last_heard: Instant,
    /// Since when we wait for any sign of life.
    unanswered_since: Option<Instant>,
    requested_windows: Option<Windows>,
    accepted: VecDeque<Windows>,
    recovery: Recovery,
}

impl Channel {
    pub(crate) fn new(setup: Setup) -> Self {
        Channel {
            path: setup.path,
            guard: Guard::new(setup.connection, setup.ring, setup.floor),
            control: Control::default(),
            outgoing: Outgoing::new(setup.data_opcode, setup.window, setup.recovery),
            received: Received::new(),
            inward: setup.window,
            ack_due: AckDue::No,
            acked_window: 0,
            gap_end: 0,
            round_trip: RoundTrip::default(),
            retransmit_at: None,
            prober: Prober::new(setup.packet_base_bytes, setup.packet_limit_bytes),
            last_heard: setup.now,
            unanswered_since: None,
            requested_windows: None,
            accepted: VecDeque::new(),
            recovery: setup.recovery,
        }
    }

    pub(crate) fn path(&self) -> Path {
        self.path
    }

    pub(crate) fn connection(&self) -> u32 {
        self.guard.connection()
    }

    /// The largest packet that the path is known to take, in bytes.
    pub(crate) fn packet_max_bytes(&self) -> usize {
        self.prober.packet_max_bytes()
    }

    /// Data packets are never guarded less.
    pub(crate) fn floor(&self) -> Protection {
        self.guard.floor()
    }

    pub(crate) fn keys_mut(&mut self) -> &mut KeyRing {
        self.guard.ring_mut()
    }

    pub(crate) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// The round trip, smoothed, once it was measured.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.smoothed()
    }

    /// Data packets that were sent again.
    pub(crate) fn resent_packets(&self) -> u64 {
        self.outgoing.resent()
    }

    /// Since when the peer owes us a sign of life.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// The windows in force, ours first.
    pub(crate) fn windows(&self) -> Windows {
        Windows { outward: self.outgoing.window(), inward: self.inward }
    }

    /// Whether large packets no longer come through although the peer is heard: the path has shrunk.
    pub(crate) fn is_stuck(&self) -> bool {
        self.outgoing.oldest_transmissions() > TRANSMISSIONS_MAX
    }

    /// Whether nothing is on its way any more.
    pub(crate) fn is_drained(&self) -> bool {
        !self.outgoing.is_waiting() && !self.outgoing.has_work() && self.control.is_empty()
    }

    /// Queues a message. Its cookie comes back from [`Channel::poll_delivered`] when the peer has all of it.
    pub(crate) fn send(&mut self, message: Message) {
        self.outgoing.push(message.guarded(self.guard.floor()));
    }

    pub(crate) fn poll_delivered(&mut self) -> Option<u64> {
        self.outgoing.poll_delivered()
    }

    /// Queues a sealed control packet.
    pub(crate) fn send_control(&mut self, opcode: Opcode, body: Vec<u8>) {
        self.control.push(opcode, body);
    }

    /// Asks for other windows; they are in force when the peer accepts.
    pub(crate) fn request_windows(&mut self, resumed: bool, windows: Windows, now: Instant) {
        self.requested_windows = Some(windows);
        self.control.push(Opcode::AckSnr, Snr::SetWindows { resumed, windows }.write(0));
        self.expect_answer(now);
    }

    /// The windows that a request of ours was answered with.
    pub(crate) fn poll_accepted(&mut self) -> Option<Windows> {
        self.accepted.pop_front()
    }

    /// Asks the peer what has come, if only to hear from it.
    pub(crate) fn query(&mut self, now: Instant) {
        let marker = self.outgoing.next_order();
        self.control.push(Opcode::AckSnr, Snr::Query { marker }.write(0));
        self.expect_answer(now);
    }

    /// Starts to search for the largest packet that the path takes.
    pub(crate) fn start_probing(&mut self, now: Instant) {
        self.prober.start(now);
    }

    fn expect_answer(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.unanswered_since = None;
    }

    /// Verifies a data packet, decrypted into `plain` where it must be, and tells whether it is new. The caller that could use it then calls
    /// [`Channel::take_data`]; one that had no room for it does not, and the packet will come again.
    pub(crate) fn check_data<'a>(
        &mut self,
        packet: &RawPacket<'a>,
        plain: &'a mut Vec<u8>,
        now: Instant,
    ) -> Result<(command::Fragment, &'a [u8], &'a [u8]), Rejected> {
        let body = self.guard.open_data(packet, plain, now)?;
        let parts = command::Fragment::read(body).map_err(|_| Rejected::Bad)?;
        match self.received.look(parts.0.sequence) {
            Arrival::New => Ok(parts),
            Arrival::Beyond => Err(Rejected::Bad),
            Arrival::Duplicate => {
                self.ack_due = AckDue::Now;
                Err(Rejected::Duplicate)
            }
        }
    }

    /// Whether everything before this data packet has come.
    pub(crate) fn is_next(&self, sequence: u64) -> bool {
        sequence == self.received.cumulative()
    }

    /// Notes a data packet as received, with the acknowledgement that it carried.
    pub(crate) fn take_data(&mut self, fragment: &command::Fragment, now: Instant) {
        self.heard(now);
        self.received.note(fragment.sequence);
        let progress = self.outgoing.acknowledge_low(fragment.acknowledgement, now);
        self.progressed(&progress, now);
        self.schedule_ack(now);
    }

    fn schedule_ack(&mut self, now: Instant) {
        let window = u64::from(self.inward.packets());
        let full = self.received.cumulative() / window;
        let new_gap = self.received.has_gap() && self.received.end() >= self.gap_end;
        if new_gap {
            // A missing packet is told at once; while it stays missing, once in a while.
            self.gap_end = self.received.end() + u64::from(self.inward.packets().div_ceil(4));
        }
        if full > self.acked_window || new_gap {
            self.acked_window = full;
            self.ack_due = AckDue::Now;
        } else if self.ack_due == AckDue::No {
            self.ack_due = AckDue::At(now + ACK_DELAY);
        }
    }

    fn progressed(&mut self, progress: &Progress, now: Instant) {
        if let Some(sample) = progress.round_trip {
            self.round_trip.sample(sample);
        }
        // After a retransmission only a fresh sample tells that the timer is not too short (RFC 6298 5.7); a query that
        // came too early has cost nothing.
        if progress.round_trip.is_some() || (progress.any && self.recovery == Recovery::Selective) {
            self.round_trip.progress();
        }
        if progress.any {
            self.retransmit_at = None;
        }
        if !self.outgoing.is_waiting() {
            self.retransmit_at = None;
        } else if self.retransmit_at.is_none() {
            self.retransmit_at = Some(now + self.round_trip.timeout());
        }
    }

    /// Opens a sealed control packet: its plain body, if it is authentic and new.
    pub(crate) fn open(&mut self, packet: &RawPacket<'_>, now: Instant) -> Option<Vec<u8>> {
        let plain = self.guard.open_control(packet, now)?;
        self.heard(now);
        Some(plain)
    }

    /// Handles FC_ACK_SNR. Returns whether the server's acceptance in it says that the session goes on.
    pub(crate) fn handle_snr(&mut self, plain: &[u8], packet_bytes: usize, capacity: u32) -> Option<bool> {
        match Snr::read(plain).ok()? {
            Snr::SetWindows { resumed, windows } => {
                let inward = windows.outward.limited_to(capacity);
                let outward = windows.inward;
                self.inward = inward;
                self.outgoing.set_window(outward);
                self.acknowledge(AckKind::Windows(Windows { outward: inward, inward: outward }));
                return Some(resumed);
            }
            Snr::Query { marker } => self.acknowledge(AckKind::Query { marker }),
            Snr::Probe { size_bytes } if usize::from(size_bytes) == packet_bytes => {
                self.acknowledge(AckKind::Probe { size_bytes });
            }
            Snr::Probe { .. } => {}
        }
        None
    }

    /// Handles FC_ACK_REPLY.
    pub(crate) fn handle_ack(&mut self, plain: &[u8], now: Instant) {
        let Ok(ack) = Ack::read(plain) else { return };
        let progress = self.outgoing.acknowledge(ack.cumulative, ack.map, now);
        match ack.kind {
            AckKind::Plain => {}
            AckKind::Windows(windows) => self.windows_answered(windows),
            AckKind::Query { marker } => {
                if self.recovery == Recovery::Selective && marker <= self.outgoing.next_order() {
                    self.outgoing.query_answered(marker);
                }
            }
            AckKind::Probe { size_bytes } => self.prober.answered(usize::from(size_bytes)),
        }
        self.progressed(&progress, now);
    }

    /// The answer names the windows from the requester's point of view; it may only be smaller than what was asked.
    fn windows_answered(&mut self, windows: Windows) {
        let fits = |asked: Window, got: Window| got.in_flight_packets() <= asked.in_flight_packets();
        let is_fitting =
            |asked: &mut Windows| fits(asked.outward, windows.outward) && fits(asked.inward, windows.inward);
        if self.requested_windows.take_if(is_fitting).is_some() {
            self.outgoing.set_window(windows.outward);
            self.inward = windows.inward;
            self.accepted.push_back(windows);
        }
    }

    fn acknowledge(&mut self, kind: AckKind) {
        let ack = Ack { kind, cumulative: self.received.cumulative(), map: &self.received.map() };
        self.control.push(Opcode::AckReply, ack.write());
        self.ack_due = AckDue::No;
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let ack = if let AckDue::At(at) = self.ack_due { Some(at) } else { None };
        let deadlines = [ack, self.retransmit_at, self.prober.poll_timeout(), self.guard.ring().poll_timeout()];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let AckDue::At(at) = self.ack_due
            && at <= now
        {
            self.ack_due = AckDue::Now;
        }
        if self.retransmit_at.is_some_and(|at| at <= now) {
            self.round_trip.back_off();
            self.retransmit_at = Some(now + self.round_trip.timeout());
            match self.recovery {
                Recovery::Selective => self.query(now),
                Recovery::WholeWindow => {
                    self.outgoing.rewind_window();
                    self.expect_answer(now);
                }
            }
        }
        self.prober.handle_timeout(now);
        self.keys_mut().handle_timeout(now);
    }

    /// The next packet to send.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        if let Some(size) = self.prober.poll_probe(now, self.round_trip.timeout()) {
            return control::probe(&mut self.guard, size);
        }
        let data_waits = self.outgoing.has_work();
        if self.ack_due == AckDue::Now && (self.received.has_gap() || !data_waits) {
            self.acknowledge(AckKind::Plain);
        }
        if let Some(packet) = self.control.poll(&mut self.guard) {
            return Some(packet);
        }
        if !data_waits {
            return None;
        }
        let max = self.prober.packet_max_bytes();
        let packet = self.outgoing.transmit(now, &mut self.guard, max, self.received.cumulative())?;
        if self.ack_due != AckDue::No && !self.received.has_gap() {
            self.ack_due = AckDue::No;
            self.acked_window = self.received.cumulative() / u64::from(self.inward.packets());
        }
        if self.retransmit_at.is_none() {
            self.retransmit_at = Some(now + self.round_trip.timeout());
        }
        Some(packet)
    }
}
