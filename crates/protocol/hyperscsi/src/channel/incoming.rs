//! What comes in on a channel: data packets, acknowledgements, and questions about them.

use std::time::Duration;

use sanwire_core::Instant;

use super::receive::Arrival;
use super::{AckDue, Channel, LinkAt, Marker, Recovery, Rejected, WindowRequest};
use crate::vacancy::{Parts, Vacancy};
use crate::wire::flow::{Ack, AckKind, Snr, Window, Windows};
use crate::wire::{Malformed, Opcode, RawPacket, command};

/// An acknowledgement waits this long for a data packet that could carry it.
const ACK_DELAY: Duration = Duration::from_millis(1);

impl Channel {
    /// Verifies a data packet, decrypted to the vacancy or into `plain` where it must be, and tells whether it is new. The caller that
    /// could use it then calls [`Channel::take_data`]; one that had no room for it does not, and the packet will come again.
    pub(crate) fn check_data<'a>(
        &mut self,
        packet: &RawPacket<'a>,
        room: (&'a mut Vec<u8>, Option<Vacancy<'_>>),
        now: Instant,
    ) -> Result<Parts<'a>, Rejected> {
        let parts = self.guard.open_data(packet, room, now)?;
        match self.received.look(parts.0.sequence) {
            Arrival::New => Ok(parts),
            Arrival::Beyond => Err(Rejected::Bad),
            Arrival::Duplicate => {
                self.acknowledge_duplicate(now);
                Err(Rejected::Duplicate)
            }
        }
    }

    /// Its acknowledgement was lost; or somebody repeats a recorded packet, which must not make us send as often.
    fn acknowledge_duplicate(&mut self, now: Instant) {
        let at = self.duplicate_acked_at.map_or(now, |last| last + ACK_DELAY);
        if at <= now {
            self.duplicate_acked_at = Some(now);
            self.ack_due = AckDue::Now;
        } else if self.ack_due == AckDue::No {
            self.ack_due = AckDue::At(at);
        }
    }

    /// Whether everything before this data packet has arrived.
    pub(crate) fn is_next(&self, sequence: u64) -> bool {
        sequence == self.received.cumulative()
    }

    /// Notes a data packet as received, with the acknowledgement that it carried.
    pub(crate) fn take_data(&mut self, fragment: &command::Fragment, now: Instant) {
        self.heard(now);
        self.received.note(fragment.sequence);
        self.outgoing.acknowledge_low(fragment.acknowledgement, &mut self.links, now);
        self.progressed(now);
        self.schedule_ack(now);
        if fragment.answer_at_once {
            self.ack_due = AckDue::Now;
        }
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

    pub(super) fn progressed(&mut self, now: Instant) {
        let is_lenient = self.recovery == Recovery::Selective;
        let is_waiting = self.outgoing.is_waiting();
        if !is_waiting || self.links.iter().any(|link| link.progress.any) {
            self.asked_since = None;
        }
        for link in &mut self.links {
            link.progressed(is_lenient, now);
            // Without maps nobody knows by link what has arrived.
            link.watch(!is_lenient && is_waiting, now);
        }
    }

    /// Opens a sealed control packet: its plain body, if it is authentic and new.
    pub(crate) fn open(&mut self, packet: &RawPacket<'_>, now: Instant) -> Option<Vec<u8>> {
        let plain = self.guard.open_control(packet, now)?;
        self.heard(now);
        Some(plain)
    }

    /// Handles FC_ACK_SNR: windows are set to no more than `most`, as this end sees them. Returns what a server's
    /// acceptance says: whether the session goes on, and the weight of what we send.
    ///
    /// # Errors
    /// [`Malformed`]; then nothing has changed.
    pub(crate) fn handle_snr(
        &mut self,
        plain: &[u8],
        packet_bytes: usize,
        (at, now): (LinkAt, Instant),
        most: Windows,
    ) -> Result<Option<(bool, u16)>, Malformed> {
        match Snr::read(plain)? {
            // A later request was faster.
            Snr::SetWindows { number, .. } if number < self.heard_windows => {}
            Snr::SetWindows { resumed, number, windows, weight } => {
                self.heard_windows = number;
                let inward = windows.outward.limited_to(most.inward.in_flight_packets());
                let outward = windows.inward.limited_to(most.outward.in_flight_packets());
                self.inward = inward;
                self.outgoing.set_window(outward);
                let windows = Windows { outward: inward, inward: outward };
                self.acknowledge(AckKind::Windows { number, windows }, None);
                return Ok(Some((resumed, weight)));
            }
            Snr::Query { marker } => self.acknowledge(AckKind::Query { marker }, Some(at)),
            Snr::Probe { size_bytes } if usize::from(size_bytes) == packet_bytes => {
                self.acknowledge(AckKind::Probe { size_bytes }, Some(at));
            }
            Snr::Probe { .. } => {}
            Snr::Pause { number, pause } => self.pause_asked(number, pause, now),
        }
        Ok(None)
    }

    /// Handles FC_ACK_REPLY.
    pub(crate) fn handle_ack(&mut self, plain: &[u8], at: LinkAt, now: Instant) {
        let Ok(ack) = Ack::read(plain) else { return };
        self.outgoing.acknowledge(ack.cumulative, ack.map, &mut self.links, now);
        match ack.kind {
            AckKind::Plain => {}
            AckKind::Windows { number, windows } => self.windows_answered(number, windows),
            AckKind::Query { marker } => {
                self.asked_since = None;
                if usize::from(Marker::of(marker).link) == at.0 {
                    self.links[at.0].answered(now);
                    self.links[at.0].query_answered(Marker::of(marker).order, now);
                }
                if self.recovery == Recovery::Selective {
                    let Marker { link, order } = Marker::of(marker);
                    self.links[at.0].round_trip.progress();
                    self.outgoing.query_answered(link, order, &mut self.links);
                }
            }
            AckKind::Probe { size_bytes } => self.links[at.0].probed(usize::from(size_bytes)),
            AckKind::Pause { number } => self.pauses.answered(number),
        }
        self.progressed(now);
    }

    /// The answer names the windows from the requester's point of view; it may only be smaller than what was asked.
    fn windows_answered(&mut self, number: u32, windows: Windows) {
        let fits = |asked: Window, got: Window| got.in_flight_packets() <= asked.in_flight_packets();
        let is_fitting = |asked: &mut WindowRequest| {
            let most = asked.windows;
            asked.number == number && fits(most.outward, windows.outward) && fits(most.inward, windows.inward)
        };
        if self.requested_windows.take_if(is_fitting).is_some() {
            self.outgoing.set_window(windows.outward);
            self.inward = windows.inward;
            self.accepted.push_back(windows);
        }
    }

    /// `at`: by which link it must go.
    pub(super) fn acknowledge(&mut self, kind: AckKind, at: Option<LinkAt>) {
        let ack = Ack { kind, cumulative: self.received.cumulative(), map: &self.received.map() };
        self.control.push(Opcode::AckReply, ack.write(), at.map(|at| self.links[at.0].path()));
        self.ack_due = AckDue::No;
    }
}
