//! Data packets on their way: cut from messages, kept until acknowledged, sent again when lost.
//!
//! A packet keeps its sequence through all its transmissions, each of which has a packet number of its own; transmissions
//! of data are counted besides (`order`), so that a packet is found lost when later ones have been acknowledged.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::Instant;

use super::guard::Guard;
use super::messages::{Message, MessageId, Messages, Turns};
use crate::wire::command::Fragment;
use crate::wire::flow::Window;
use crate::wire::{FRAGMENTS_MAX, Header, OVERHEAD_BYTES, Opcode};

/// Later transmissions that must have been acknowledged before a packet counts as lost.
const REORDER_PACKETS: u64 = 3;

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
struct Sent {
    message: MessageId,
    data_offset: u32,
    data_bytes: u32,
    fragment: u16,
    last: bool,
    acknowledged: bool,
    lost: bool,
    transmissions: u8,
    order: u64,
    at: Instant,
}

/// What an acknowledgement brought.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Something new was acknowledged.
    pub(super) any: bool,
    /// The round trip of the newest packet that was sent once.
    pub(super) round_trip: Option<Duration>,
}

/// The outgoing half of a channel.
#[derive(Debug)]
pub(super) struct Outgoing {
    opcode: Opcode,
    messages: Messages,
    sent: VecDeque<Sent>,
    /// Sequence of the first of `sent`.
    base: u64,
    window: Window,
    next_order: u64,
    acknowledged_order: u64,
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
            window,
            next_order: 1,
            acknowledged_order: 0,
            lost: 0,
            lost_from: 0,
            recovery,
        }
    }

    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    pub(super) fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    /// The number that the next transmission will have.
    pub(super) fn next_order(&self) -> u64 {
        self.next_order
    }

    /// Transmissions beyond the first of each packet.
    pub(super) fn resent(&self) -> u64 {
        let packets = self.base + self.sent.len() as u64;
        (self.next_order - 1).saturating_sub(packets)
    }

    /// Whether packets wait for an acknowledgement.
    pub(super) fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether [`Outgoing::transmit`] would give a packet.
    pub(super) fn has_work(&self) -> bool {
        self.lost > 0 || (self.messages.has_uncut() && self.has_credit())
    }

    /// How often the oldest packet was transmitted.
    pub(super) fn oldest_transmissions(&self) -> u8 {
        self.sent.front().map_or(0, |sent| sent.transmissions)
    }

    /// The cookie of a message that is acknowledged whole.
    pub(super) fn poll_delivered(&mut self) -> Option<u64> {
        self.messages.poll_delivered()
    }

    /// Credits are counted in whole windows: the window of the oldest missing packet and `in_flight - 1` after it.
    fn has_credit(&self) -> bool {
        let packets = u64::from(self.window.packets());
        let next = self.base + self.sent.len() as u64;
        next / packets < self.base / packets + u64::from(self.window.in_flight())
    }

    /// The next packet: a lost one first, else a new one if there is credit.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        guard: &mut Guard,
        packet_max_bytes: usize,
        acknowledgement: u64,
    ) -> Option<Packet> {
        let index = match self.next_lost() {
            Some(index) => index,
            None => self.cut(packet_max_bytes, now)?,
        };
        let order = self.next_order;
        self.next_order += 1;
        let sequence = self.base + index as u64;
        let sent = &mut self.sent[index];
        sent.order = order;
        sent.at = now;
        sent.transmissions = sent.transmissions.saturating_add(1);
        let message = self.messages.get(sent.message);
        build(self.opcode, message, sent, sequence, guard, acknowledgement)
    }

    fn next_lost(&mut self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let start = self.lost_from.saturating_sub(self.base) as usize;
        let index = (start..self.sent.len()).find(|&index| self.sent[index].lost)?;
        self.sent[index].lost = false;
        self.lost -= 1;
        self.lost_from = self.base + index as u64 + 1;
        Some(index)
    }

    fn cut(&mut self, packet_max_bytes: usize, now: Instant) -> Option<usize> {
        if !self.has_credit() {
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
            order: 0,
            at: now,
        });
        Some(self.sent.len() - 1)
    }

    /// Takes a cumulative acknowledgement of 32 bits out of a data packet.
    pub(super) fn acknowledge_low(&mut self, low: u32, now: Instant) -> Progress {
        let ahead = low.wrapping_sub(self.base as u32);
        if ahead as usize > self.sent.len() {
            Progress::default()
        } else {
            self.acknowledge(self.base + u64::from(ahead), &[], now)
        }
    }

    /// Takes an acknowledgement: everything below `cumulative`, and what the map says from there on. One that is older
    /// than what is known, or ahead of what was sent, changes nothing.
    pub(super) fn acknowledge(&mut self, cumulative: u64, map: &[u8], now: Instant) -> Progress {
        let mut progress = Progress::default();
        if cumulative < self.base || cumulative - self.base > self.sent.len() as u64 {
            return progress;
        }
        for _ in self.base..cumulative {
            self.mark(0, now, &mut progress);
            if let Some(sent) = self.sent.pop_front() {
                self.messages.packet_done(sent.message);
            }
            self.base += 1;
        }
        if self.recovery == Recovery::Selective && !map.is_empty() {
            for index in 0..self.sent.len().min(map.len() * 8) {
                if map[index / 8] & (0x80 >> (index % 8)) != 0 {
                    self.mark(index, now, &mut progress);
                }
            }
            self.find_lost(self.acknowledged_order.saturating_sub(REORDER_PACKETS), map.len() * 8);
        }
        progress
    }

    fn mark(&mut self, index: usize, now: Instant, progress: &mut Progress) {
        let Some(sent) = self.sent.get_mut(index) else { return };
        if sent.acknowledged {
            return;
        }
        sent.acknowledged = true;
        progress.any = true;
        if sent.lost {
            sent.lost = false;
            self.lost -= 1;
        }
        // Of a packet that was sent twice nobody knows which one came (Karn's rule).
        if sent.transmissions == 1 {
            progress.round_trip = Some(now - sent.at);
            self.acknowledged_order = self.acknowledged_order.max(sent.order);
        }
    }

    /// Whatever was transmitted at or before `order` and is not acknowledged is lost.
    fn find_lost(&mut self, order: u64, within: usize) {
        for (index, sent) in self.sent.iter_mut().enumerate().take(within) {
            if !sent.acknowledged && !sent.lost && sent.transmissions > 0 && sent.order <= order {
                sent.lost = true;
                self.lost += 1;
                self.lost_from = self.lost_from.min(self.base + index as u64);
            }
        }
    }

    /// The answer to a query: all that was sent before the query and is not in the answer is lost.
    pub(super) fn query_answered(&mut self, marker: u64) {
        self.find_lost(marker.saturating_sub(1), usize::MAX);
    }

    /// Sends the whole oldest window again.
    pub(super) fn rewind_window(&mut self) {
        let packets = u64::from(self.window.packets());
        let window_end = (self.base / packets + 1) * packets;
        let count = (window_end - self.base) as usize;
        self.find_lost(u64::MAX, count);
    }
}

/// Makes the packet anew, under a number that was never used.
fn build(opcode: Opcode, message: &Message, sent: &Sent, sequence: u64, guard: &mut Guard, ack: u64) -> Option<Packet> {
    let opcode = message.opcode(opcode);
    let header = Header { tag: message.tag(), last: sent.last, fragment: sent.fragment % FRAGMENTS_MAX, opcode };
    let message_head: &[u8] = if sent.fragment == 0 { message.head() } else { &[] };
    let fragment = Fragment {
        sequence,
        data_offset: sent.data_offset,
        data_length: message.data_length(),
        acknowledgement: ack as u32,
        head_length: message_head.len() as u16,
    };
    let payload = message.data(sent.data_offset, sent.data_bytes);
    guard.data(header, message.protection(), [&fragment.write(), message_head], payload)
}
