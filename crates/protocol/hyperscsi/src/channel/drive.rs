//! What a channel does when time passes, and which packet goes next, by which link.

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};

use super::link::Link;
use super::{AckDue, Channel, Recovery, control};
use crate::wire::flow::AckKind;

impl Channel {
    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let ack = match self.ack_due {
            AckDue::At(at) => Some(at),
            AckDue::Now | AckDue::No => None,
        };
        let pause = self.unanswered_pause.map(|(_, at)| at);
        let links = self.links.iter().flat_map(|link| [link.retransmit_at, link.prober.poll_timeout()]);
        links.chain([ack, pause, self.guard.ring().poll_timeout()]).flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let AckDue::At(at) = self.ack_due
            && at <= now
        {
            self.ack_due = AckDue::Now;
        }
        for at in 0..self.links.len() {
            if self.links[at].has_timed_out(now) {
                match self.recovery {
                    Recovery::Selective => self.query_on(at, now),
                    Recovery::WholeWindow => {
                        self.outgoing.rewind_window(&mut self.links);
                        self.expect_answer(now);
                    }
                }
            }
            self.links[at].prober.handle_timeout(now);
        }
        if let Some((is_paused, at)) = self.unanswered_pause
            && at <= now
        {
            self.pause(is_paused, now);
        }
        self.keys_mut().handle_timeout(now);
    }

    /// The next packet to send, and its way.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(probe) = self.poll_probe(now) {
            return Some(probe);
        }
        let data_link = self.data_link();
        if self.ack_due == AckDue::Now && (self.received.has_gap() || data_link.is_none()) {
            self.acknowledge(AckKind::Plain, None);
        }
        if let Some((link, packet)) = self.control.poll(&mut self.guard) {
            let at = link.map_or(0, usize::from);
            return Some((self.links[at].path(), packet));
        }
        let at = data_link?;
        let max = self.packet_max_bytes();
        let cumulative = self.received.cumulative();
        let packet = self.outgoing.transmit(now, &mut self.guard, (at, &mut self.links[at]), max, cumulative)?;
        if self.ack_due != AckDue::No && !self.received.has_gap() {
            self.ack_due = AckDue::No;
            self.acked_window = cumulative / u64::from(self.inward.packets());
        }
        Some((self.links[at].path(), packet))
    }

    fn poll_probe(&mut self, now: Instant) -> Option<(Path, Packet)> {
        let guard = &mut self.guard;
        self.links.iter_mut().find_map(|link| {
            let size = link.prober.poll_probe(now, link.round_trip.timeout())?;
            Some((link.path(), control::probe(guard, size)?))
        })
    }

    /// By which link data goes next, if there is any and it may go.
    fn data_link(&self) -> Option<usize> {
        let bytes = self.outgoing.next_bytes(self.packet_max_bytes())?;
        let is_fit = |link: &Link| link.has_room(bytes);
        self.links.iter().position(is_fit)
    }
}
