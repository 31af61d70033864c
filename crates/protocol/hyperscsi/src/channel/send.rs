//! Data packets on their way: cut from messages, kept until acknowledged, sent again when lost.
//!
//! A packet keeps its sequence through all its transmissions, each of which has a packet number of its own; transmissions
//! of data are counted besides on each link (`order`), so that a packet is found lost when later ones have been acknowledged.

use std::collections::VecDeque;

use sanwire_buffer::Packet;
use sanwire_core::Instant;

use super::build::{Fields, build, packet_bytes};
use super::credit::Credit;
use super::link::Link;
use super::messages::{Message, MessageId, Messages, Turns};
use super::packet_protection::PacketProtection;
use super::reorder::Loss;
use crate::wire::flow::Window;
use crate::wire::{OVERHEAD_BYTES, Opcode, Protection};

/// How lost packets are recovered (HyperSCSI 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recovery {
    /// Only what is missing is sent again, as acknowledgements and answers to queries tell.
    #[default]
    Selective,
    /// After a timeout the whole oldest window is sent again.
    WholeWindow,
}

/// One data packet that was sent and not yet acknowledged in order.
#[derive(Debug)]
pub(super) struct Sent {
    message: MessageId,
    pub(super) data_offset: u32,
    pub(super) data_bytes: u32,
    pub(super) fragment: u16,
    pub(super) last: bool,
    acknowledged: bool,
    lost: bool,
    transmissions: u8,
    /// Whether its link counts it as under way.
    is_counted: bool,
    /// Of the last transmission: its link, its place among those of the link, its bytes.
    link: u8,
    order: u64,
    bytes: u32,
    at: Instant,
    /// On which link it was last taken for lost.
    loss: Option<(u8, Loss)>,
}

impl Sent {
    /// Whether its last transmission may still come.
    fn is_under_way(&self) -> bool {
        !self.acknowledged && !self.lost && self.transmissions > 0
    }
}

/// The outgoing half of a channel.
#[derive(Debug)]
pub(super) struct Outgoing {
    opcode: Opcode,
    messages: Messages,
    sent: VecDeque<Sent>,
    /// Sequence of the first of `sent`.
    base: u64,
    /// Data of all packets before it.
    acknowledged_bytes: u64,
    credit: Credit,
    /// The peer's owner wants no data for a while.
    is_paused: bool,
    /// The peer has no room for messages with data from this sequence on, until this time if it says nothing else.
    kept_back: Option<(u64, Instant)>,
    lost: usize,
    /// Where the search for lost packets goes on.
    lost_from: u64,
    recovery: Recovery,
}

impl Outgoing {
    pub(super) fn new(opcode: Opcode, window: Window, recovery: Recovery) -> Self {
        let turns = if opcode == Opcode::HcbeRequest { Turns::Queue } else { Turns::Alternate };
        Outgoing {
            opcode,
            messages: Messages::new(turns),
            sent: VecDeque::new(),
            base: 0,
            acknowledged_bytes: 0,
            credit: Credit::new(window, 0),
            is_paused: false,
            kept_back: None,
            lost: 0,
            lost_from: 0,
            recovery,
        }
    }

    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Messages of which nothing has gone yet are guarded so or better.
    pub(super) fn guard(&mut self, floor: Protection) {
        self.messages.guard(floor);
    }

    /// Whether packets of a message that is guarded less are still to go, or to be acknowledged.
    pub(super) fn has_weaker(&self, floor: Protection) -> bool {
        self.messages.has_weaker(floor)
    }

    pub(super) fn window(&self) -> Window {
        self.credit.window()
    }

    pub(super) fn set_window(&mut self, window: Window) {
        self.credit = Credit::new(window, self.base);
    }

    pub(super) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Data that has arrived, without a gap.
    pub(super) fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    /// The messages that are incomplete.
    pub(super) fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Whether packets wait for an acknowledgement.
    pub(super) fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether there is something to send, as far as the peer is concerned.
    pub(super) fn has_work(&self) -> bool {
        !self.is_paused && (self.first_lost().is_some() || self.can_cut())
    }

    fn can_cut(&self) -> bool {
        let has_uncut = if self.kept_back.is_some() { self.messages.has_short() } else { self.messages.has_uncut() };
        has_uncut && self.credit.admits(self.base + self.sent.len() as u64)
    }

    /// How large the packet at most is that [`Outgoing::transmit`] would give, or how large it is when it was sent before.
    pub(super) fn next_bytes(&self, packet_max_bytes: usize) -> Option<usize> {
        if !self.has_work() {
            return None;
        }
        match self.first_lost() {
            Some(index) => Some(self.sent[index].bytes as usize),
            None => Some(self.messages.next_bytes(packet_max_bytes)),
        }
    }

    /// How often the oldest packet was transmitted.
    pub(super) fn oldest_transmissions(&self) -> u8 {
        self.sent.front().map_or(0, |sent| sent.transmissions)
    }

    /// The cookie of a message that is acknowledged whole.
    pub(super) fn poll_delivered(&mut self) -> Option<u64> {
        self.messages.poll_delivered()
    }

    /// The next packet: a lost one first, else a new one if there is credit. It goes by `links[at]`.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        guard: &mut PacketProtection,
        (at, link): (usize, &mut Link),
        packet_max_bytes: usize,
        acknowledgement: u64,
    ) -> Option<Packet> {
        if !self.has_work() {
            return None;
        }
        let index = match self.next_lost() {
            Some(index) => index,
            None => self.cut(packet_max_bytes, now)?,
        };
        let sequence = self.base + index as u64;
        let sent = &mut self.sent[index];
        let message = self.messages.get(sent.message);
        if sent.transmissions == 0 {
            sent.bytes = packet_bytes(message, sent);
        }
        let answer_at_once = link.wants_answer(sent.bytes as usize);
        sent.link = at as u8;
        sent.order = link.sent(sent.bytes, sent.transmissions > 0, now);
        sent.at = now;
        sent.is_counted = true;
        sent.transmissions = sent.transmissions.saturating_add(1);
        let fields = Fields { opcode: self.opcode, sequence, acknowledgement, answer_at_once };
        build(&fields, message, sent, guard)
    }

    /// The peer has no room for messages with data from this sequence on. What of them is under way was dropped: no loss of the
    /// network, and not for its size.
    pub(super) fn keep_back(&mut self, from: u64, until: Instant, links: &mut [Link]) {
        if from < self.base || from > self.base + self.sent.len() as u64 {
            return;
        }
        self.kept_back = Some((from, until));
        self.lost_from = self.lost_from.min(from);
        for index in (from - self.base) as usize..self.sent.len() {
            let is_kept_back = self.is_kept_back(index);
            let Some(sent) = self.sent.get_mut(index).filter(|sent| is_kept_back && !sent.acknowledged) else {
                continue;
            };
            if std::mem::take(&mut sent.is_counted)
                && let Some(link) = links.get_mut(usize::from(sent.link))
            {
                link.forget(sent.bytes);
            }
            self.lost += usize::from(!sent.lost);
            sent.lost = true;
            sent.transmissions = sent.transmissions.min(2);
        }
    }

    /// The peer has room.
    pub(super) fn keep_nothing_back(&mut self) {
        self.kept_back = None;
        self.lost_from = self.base;
    }

    /// When what the peer has no room for is tried again.
    pub(super) fn kept_back_until(&self) -> Option<Instant> {
        self.kept_back.map(|(_, until)| until)
    }

    fn is_kept_back(&self, index: usize) -> bool {
        let sequence = self.base + index as u64;
        let has_data = |sent: &Sent| self.messages.get(sent.message).data_length() > 0;
        self.kept_back.is_some_and(|(from, _)| sequence >= from) && self.sent.get(index).is_some_and(has_data)
    }

    fn first_lost(&self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let start = self.lost_from.saturating_sub(self.base) as usize;
        (start..self.sent.len()).find(|&index| self.sent[index].lost && !self.is_kept_back(index))
    }

    fn next_lost(&mut self) -> Option<usize> {
        let index = self.first_lost()?;
        self.sent[index].lost = false;
        self.lost -= 1;
        self.lost_from = self.base + index as u64;
        Some(index)
    }

    fn cut(&mut self, packet_max_bytes: usize, now: Instant) -> Option<usize> {
        if !self.can_cut() {
            return None;
        }
        let (message, cut) = self.messages.cut(packet_max_bytes.saturating_sub(OVERHEAD_BYTES))?;
        self.sent.push_back(Sent {
            message,
            data_offset: cut.data_offset,
            data_bytes: cut.data_bytes,
            fragment: cut.fragment,
            last: cut.last,
            acknowledged: false,
            lost: false,
            transmissions: 0,
            is_counted: false,
            link: 0,
            order: 0,
            bytes: 0,
            at: now,
            loss: None,
        });
        Some(self.sent.len() - 1)
    }

    /// Takes a cumulative acknowledgement of 32 bits out of a data packet.
    pub(super) fn acknowledge_low(&mut self, low: u32, links: &mut [Link], now: Instant) {
        let ahead = low.wrapping_sub(self.base as u32);
        if ahead as usize <= self.sent.len() {
            self.acknowledge(self.base + u64::from(ahead), &[], links, now);
        }
    }

    /// Takes an acknowledgement: everything below `cumulative`, and what the map says from there on. One that is older
    /// than what is known, or ahead of what was sent, changes nothing.
    pub(super) fn acknowledge(&mut self, cumulative: u64, map: &[u8], links: &mut [Link], now: Instant) {
        if cumulative < self.base || cumulative - self.base > self.sent.len() as u64 {
            return;
        }
        for _ in self.base..cumulative {
            self.mark(0, links, now);
            if let Some(sent) = self.sent.pop_front() {
                self.acknowledged_bytes += u64::from(sent.data_bytes);
                self.messages.packet_done(sent.message);
            }
            self.base += 1;
        }
        self.credit.advance(self.base);
        if self.kept_back.is_some_and(|(from, _)| from < self.base) {
            self.keep_nothing_back();
        }
        if self.recovery == Recovery::Selective && !map.is_empty() {
            for index in 0..self.sent.len().min(map.len() * 8) {
                if map[index / 8] & (0x80 >> (index % 8)) != 0 {
                    self.mark(index, links, now);
                }
            }
            self.find_lost(links, map.len() * 8, |sent, link| link.has_lost(sent.order, sent.at, now));
        }
    }

    fn mark(&mut self, index: usize, links: &mut [Link], now: Instant) {
        let Some(sent) = self.sent.get_mut(index) else { return };
        if sent.acknowledged {
            return;
        }
        if std::mem::take(&mut sent.is_counted)
            && let Some(link) = links.get_mut(usize::from(sent.link))
        {
            let sent_at = (sent.transmissions == 1).then_some(sent.at);
            link.acknowledged(sent.bytes, sent.order, sent_at, now);
        }
        sent.acknowledged = true;
        if let Some((at, loss)) = sent.loss
            && (sent.lost || links.get(usize::from(sent.link)).is_some_and(|link| link.is_too_soon(sent.at, now)))
            && let Some(link) = links.get_mut(usize::from(at))
        {
            link.was_late(loss);
        }
        if sent.lost {
            sent.lost = false;
            self.lost -= 1;
        }
    }

    /// Of what is under way, that is lost of which this holds.
    fn find_lost(&mut self, links: &mut [Link], within: usize, is_lost: impl Fn(&Sent, &Link) -> bool) {
        for (index, sent) in self.sent.iter_mut().enumerate().take(within) {
            if sent.is_under_way()
                && let Some(link) = links.get_mut(usize::from(sent.link))
                && is_lost(sent, link)
            {
                sent.loss = Some((sent.link, link.lost(sent.order)));
                if std::mem::take(&mut sent.is_counted) {
                    link.forget(sent.bytes);
                }
                sent.lost = true;
                self.lost += 1;
                self.lost_from = self.lost_from.min(self.base + index as u64);
            }
        }
    }

    /// The answer to a query on a link: all that was sent there before the query and is not in the answer is lost.
    pub(super) fn query_answered(&mut self, link: u8, order: u64, links: &mut [Link]) {
        self.find_lost(links, usize::MAX, |sent, _| sent.link == link && sent.order < order);
    }

    /// What is under way on a link is lost.
    pub(super) fn abandon_link(&mut self, link: u8, links: &mut [Link]) {
        self.find_lost(links, usize::MAX, |sent, _| sent.link == link);
    }

    /// The size of the packet that is to be sent again next.
    pub(super) fn lost_bytes(&self) -> Option<usize> {
        self.first_lost().map(|index| self.sent[index].bytes as usize)
    }

    /// Sends the whole oldest window again.
    pub(super) fn rewind_window(&mut self, links: &mut [Link]) {
        let count = (self.credit.oldest_end() - self.base) as usize;
        self.find_lost(links, count, |_, _| true);
        // Of the later windows nobody can tell what has arrived. What counted as under way would keep the oldest from being sent.
        for sent in &mut self.sent {
            if std::mem::take(&mut sent.is_counted)
                && let Some(link) = links.get_mut(usize::from(sent.link))
            {
                link.forget(sent.bytes);
            }
        }
    }
}
