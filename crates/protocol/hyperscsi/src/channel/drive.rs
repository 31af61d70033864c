//! What a channel does when time passes, and which packet goes next, by which link.

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};

use super::link::Link;
use super::{AckDue, Channel, Recovery, control};
use crate::wire::flow::AckKind;

/// Queries that go together, when the ones before were in vain: where half of all packets are lost, a single one and its answer come
/// through so seldom that the timer, which waits twice as long each time, would be all that passes. (RFC 9002 6.2.4 sends two.)
const QUERIES_MAX: u32 = 3;

impl Channel {
    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let ack = match self.ack_due {
            AckDue::At(at) => Some(at),
            AckDue::Now | AckDue::No => None,
        };
        let pauses = [self.pauses.poll_timeout(), self.outgoing.kept_back_until()];
        let links = self.links.iter().flat_map(|link| [link.retransmit_at, link.prober.poll_timeout()]);
        let own = [ack, self.guard.ring().poll_timeout(), self.joins.poll_timeout(), self.links_timeout()];
        links.chain(own).chain(pauses).chain([self.shaper.poll_timeout(), self.weak_until]).flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let AckDue::At(at) = self.ack_due
            && at <= now
        {
            self.ack_due = AckDue::Now;
        }
        for at in 0..self.links.len() {
            if let Some(in_a_row) = self.links[at].has_timed_out(now) {
                self.asked_since.get_or_insert(now);
                if self.recovery == Recovery::WholeWindow {
                    self.outgoing.rewind_window(&mut self.links);
                }
                // The answer tells a round trip where all that is under way was sent before: else the timer would wait twice as long for
                // each further loss, and never less.
                (0..in_a_row.min(QUERIES_MAX)).for_each(|_| self.query_on(at, now));
                self.expect_answer(now);
            }
            self.links[at].prober.handle_timeout(now);
        }
        self.tend_links(now);
        self.tend_joins(now);
        self.tend_pauses(now);
        self.shaper.handle_timeout(now);
        self.tend_floors(now);
        self.keys_mut().handle_timeout(now);
    }

    /// The next packet to send, and its way.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(probe) = self.poll_probe(now) {
            return Some(probe);
        }
        let max = self.packet_max_bytes();
        let data_link = self.data_link(max, now);
        if self.ack_due == AckDue::Now && (self.received.has_gap() || data_link.is_none()) {
            self.acknowledge(AckKind::Plain, None);
        }
        if let Some((path, packet)) = self.control.poll(&mut self.guard) {
            return Some((path.unwrap_or_else(|| self.best_path()), packet));
        }
        let at = data_link?;
        let cumulative = self.received.cumulative();
        let packet = self.outgoing.transmit(now, &mut self.guard, (at, &mut self.links[at]), max, cumulative)?;
        self.shaper.sent(packet.length_bytes(), now);
        if self.ack_due != AckDue::No && !self.received.has_gap() {
            self.ack_due = AckDue::No;
            self.acked_window = cumulative / u64::from(self.inward.packets());
        }
        Some((self.links[at].path(), packet))
    }

    fn poll_probe(&mut self, now: Instant) -> Option<(Path, Packet)> {
        let guard = &mut self.guard;
        self.links.iter_mut().find_map(|link| {
            let size = link.prober.poll_probe(now, || link.round_trip.timeout())?;
            Some((link.path(), control::probe(guard, size)?))
        })
    }

    /// By which link data goes next, if there is any and it may go: by the one where it comes soonest. If that has no room, to wait
    /// for it is better than to go by another.
    fn data_link(&mut self, packet_max_bytes: usize, now: Instant) -> Option<usize> {
        let bytes = self.outgoing.next_bytes(packet_max_bytes)?;
        if !self.shaper.is_free(now) {
            return None;
        }
        self.links.iter_mut().for_each(|link| link.wake(now));
        // The only link is told nothing of sizes: what it does not take is found out by its losses.
        if let [only] = &self.links[..] {
            return only.has_room(bytes).then_some(0);
        }
        let takes = |link: &Link| self.carries_data(link) && link.packet_max_bytes() >= bytes;
        let fit = self.links.iter().enumerate().filter(|(_, link)| takes(link));
        let (at, link) = fit.min_by_key(|(_, link)| link.delay(bytes))?;
        link.has_room(bytes).then_some(at)
    }

    /// Whether what is to be sent again is too large for every link that could carry it.
    pub(super) fn is_unfit(&self) -> bool {
        if self.links.len() == 1 {
            return false;
        }
        let Some(bytes) = self.outgoing.lost_bytes() else { return false };
        let takes = |link: &Link| self.carries_data(link) && link.packet_max_bytes() >= bytes;
        !self.links.iter().any(takes)
    }

    /// Whether data may go by a link: it is alive, or no other is; and its packet size is known, or it is the first.
    pub(super) fn carries_data(&self, link: &Link) -> bool {
        let is_ready = |link: &Link| link.prober.is_done() || link.path() == self.path();
        is_ready(link) && (link.is_live() || !self.links.iter().any(|other| other.is_live() && is_ready(other)))
    }

    /// The way of what may go by any link.
    fn best_path(&self) -> Path {
        let live = self.links.iter().filter(|link| link.is_live());
        live.min_by_key(|link| link.delay(0)).map_or(self.path(), Link::path)
    }

    fn links_timeout(&self) -> Option<Instant> {
        // A connection with one link lives and dies with it: section 8 watches over that.
        let watched = self.links.iter().filter(|_| self.links.len() > 1);
        watched.map(Link::watched_at).min()
    }

    /// Suspects links that do not answer while others do, and asks after those that are suspected or idle.
    fn tend_links(&mut self, now: Instant) {
        if self.links.len() == 1 {
            return;
        }
        for at in 0..self.links.len() {
            if self.links[at].watched_at() > now {
                continue;
            }
            let has_other = self.links.iter().enumerate().any(|(other, link)| other != at && link.is_live());
            if self.links[at].is_silent(now) && has_other {
                self.outgoing.abandon_link(at as u8, &mut self.links);
            }
            self.links[at].watched(has_other, now);
            self.query_on(at, now);
        }
    }
}
