//! How much a client may send: W, N and a rate (the paper, "data transfer and flow control"), less of it as long as memory is short.
//!
//! A packet that finds no memory has crossed the link in vain, and comes again. So W is halved when that happens, and grows again
//! when it does not, by steps of its square root: clients of one server come to equal windows so, and each tries for more only now
//! and then. Nothing depends on a client that heeds this: whoever sends more finds no memory for it, and those who have less of it
//! than others are not asked to send less on their account.

use std::cmp::Ordering;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};

use super::Server;
use super::connection::Connection;
use crate::wire::offer::Agreement;

/// Want of memory makes W no smaller than this: a packet that finds memory is what makes it grow.
const WINDOW_MIN_PACKETS: u32 = 4;

/// W is halved no more often than this, nor than once for each round trip. As long as it is smaller than agreed, the rate is one window
/// for each such time.
const SHRINK_EACH: Duration = Duration::from_millis(1);

/// When all packets have found memory for so long, W grows by a step; and then by another one each so often.
const GROW_AFTER: Duration = Duration::from_millis(100);
const GROW_EACH: Duration = Duration::from_millis(20);

/// A client that is heard is told again after this: what it was told may be lost, and nobody acknowledges it.
const TELL_AGAIN: Duration = Duration::from_millis(500);

/// The most that it may send it is told so often, each time after twice as long: one of these it has heard.
const TELL_MOST: u32 = 8;

/// What a client may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Allowance {
    /// W.
    window_packets: u32,
    /// N.
    group_packets: u16,
    /// 0: as fast as it can.
    rate_bytes_per_second: u64,
}

/// W was halved, and packets come that were under way before the client has heard so (the recovery of `RFC 6582 3.2`): that they find no
/// memory says nothing new. It is over when the client answers a question that was sent right behind the news.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    question: u64,
    /// Question or answer may be lost.
    until: Instant,
}

/// Of one connection.
#[derive(Debug)]
pub(super) struct FlowControl {
    agreed_packets: u32,
    group_agreed_packets: u16,
    /// Data of a packet.
    packet_bytes: u16,
    /// The most that it may send, however much memory there is.
    most: Allowance,
    /// W.
    window_packets: u32,
    /// W is halved, and a window is sent, no more often.
    each: Duration,
    /// When it was asked last whether W is to be smaller.
    judged_at: Option<Instant>,
    recovery: Option<Recovery>,
    grow_at: Option<Instant>,
    told_at: Option<Instant>,
    /// How often it was told the most that it may send, since that has changed or it was told less.
    told_most: u32,
    /// There is something to tell the client.
    is_news: bool,
    /// It is asked whether it has heard that.
    is_asked: bool,
}

impl FlowControl {
    /// Of a connection on which this was agreed.
    pub(super) fn new(agreement: &Agreement) -> Self {
        let &Agreement { window_packets, group_packets, data_bytes, .. } = agreement;
        FlowControl {
            agreed_packets: window_packets,
            group_agreed_packets: group_packets,
            packet_bytes: data_bytes,
            most: Allowance { window_packets, group_packets, rate_bytes_per_second: 0 },
            window_packets,
            each: SHRINK_EACH,
            judged_at: None,
            recovery: None,
            grow_at: None,
            told_at: None,
            told_most: 0,
            is_news: false,
            is_asked: false,
        }
    }

    /// From now on it may send no more than so much, and no more than was agreed.
    fn limit(&mut self, window_packets: u32, group_packets: u16, rate_bytes_per_second: u64) {
        let was_small = self.is_small();
        self.most = Allowance {
            window_packets: window_packets.max(1).min(self.agreed_packets),
            group_packets: group_packets.max(1).min(self.group_agreed_packets),
            rate_bytes_per_second,
        };
        let most_packets = self.most.window_packets;
        self.window_packets = if was_small { self.window_packets.min(most_packets) } else { most_packets };
        self.grow_at = self.grow_at.filter(|_| self.is_small());
        (self.is_news, self.told_most) = (true, 0);
    }

    /// A packet has found no memory; `is_cause` says whether this client has more of it than others leave to it. So it is, too, where
    /// there is some which is kept for the command of another client: memory is short then, and until that command has all of its packets
    /// those of others cross the link in vain. Who has little of it is no cause, and not asked to send less on that account, either.
    fn refused(&mut self, round_trip: Option<Duration>, is_cause: impl FnOnce() -> bool, now: Instant) {
        self.recovery.take_if(|recovery| recovery.until <= now);
        if self.recovery.is_some() {
            let grow_after = self.grow_after();
            self.grow_at = self.grow_at.map(|_| now + grow_after);
            return;
        }
        self.each = round_trip.map_or(SHRINK_EACH, |round_trip| round_trip.max(SHRINK_EACH));
        if self.judged_at.is_some_and(|at| now < at + self.each) {
            return;
        }
        self.judged_at = Some(now);
        if !is_cause() {
            return;
        }
        let least = self.most.window_packets.min(WINDOW_MIN_PACKETS);
        if self.window_packets > least {
            self.window_packets = (self.window_packets / 2).max(least);
            (self.is_news, self.is_asked) = (true, true);
        }
        self.grow_at = self.is_small().then(|| now + self.grow_after());
    }

    fn grow_after(&self) -> Duration {
        GROW_AFTER.max(self.each * 2)
    }

    /// The client was heard.
    pub(super) fn heard(&mut self, now: Instant) {
        let after = TELL_AGAIN * (1 << self.told_most.saturating_sub(1));
        self.is_news |= self.told_at.is_some_and(|at| at + after <= now);
    }

    /// It has answered a question.
    pub(super) fn answered(&mut self, question: u64) {
        self.recovery.take_if(|recovery| recovery.question == question);
    }

    fn is_small(&self) -> bool {
        self.window_packets < self.most.window_packets
    }

    /// When W grows, unless a packet finds no memory before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.grow_at
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.grow_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let step = self.window_packets.isqrt().max(1);
        self.window_packets = self.window_packets.saturating_add(step).min(self.most.window_packets);
        self.is_news = true;
        self.grow_at = self.is_small().then(|| now + GROW_EACH);
    }

    /// What the client is to be told now, if anything.
    fn poll(&mut self, now: Instant) -> Option<Allowance> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        self.told_most = if self.is_small() { 0 } else { self.told_most + 1 };
        self.told_at = (self.told_most < TELL_MOST).then_some(now);
        Some(self.allowance())
    }

    fn allowance(&self) -> Allowance {
        if !self.is_small() {
            return self.most;
        }
        let window_packets = self.window_packets;
        // Two groups of a window: one is acknowledged while the other one is under way.
        let half = u16::try_from(window_packets / 2).unwrap_or(u16::MAX).max(1);
        let window_bytes = u128::from(window_packets) * u128::from(self.packet_bytes);
        let rate = u64::try_from(window_bytes * 1_000_000_000 / self.each.as_nanos()).unwrap_or(u64::MAX).max(1);
        let most_rate = Some(self.most.rate_bytes_per_second).filter(|most| *most > 0);
        Allowance {
            window_packets,
            group_packets: self.most.group_packets.min(half),
            rate_bytes_per_second: most_rate.map_or(rate, |most| most.min(rate)),
        }
    }

    /// The question that the client is to be asked behind what it was just told, if one; its answer may take so long.
    fn poll_question(&mut self, patience: Duration, now: Instant) -> Option<u64> {
        if !std::mem::take(&mut self.is_asked) {
            return None;
        }
        let question = now.as_nanos();
        self.recovery = Some(Recovery { question, until: now + patience });
        Some(question)
    }
}

impl Server {
    /// From now on connections of this session take no more than so much: W, N, and a rate in bytes for each second (0: any).
    pub fn change_flow(&mut self, nexus: NexusId, window_packets: u32, group_packets: u16, rate: u64, now: Instant) {
        let port = self.sessions.get(&nexus).and_then(|session| session.connection);
        if let Some((port, connection)) = port.and_then(|port| Some((port, self.connections.get_mut(&port)?))) {
            connection.flow.limit(window_packets, group_packets, rate);
            self.tell(port, now);
            self.wake(port);
        }
    }

    /// A packet of this connection has found no memory.
    pub(super) fn refused(&mut self, port: u16, now: Instant) {
        let Some(connection) = self.connections.get_mut(&port) else { return };
        let memory = self.sessions.get(&connection.nexus).map(|session| &session.memory);
        let is_cause = || memory.is_none_or(Region::holds_its_part);
        connection.flow.refused(connection.channel.round_trip(), is_cause, now);
    }

    /// Tells a client how much it may send from now on, if that is to be told.
    pub(super) fn tell_allowance(&mut self, port: u16, now: Instant) {
        match self.tell(port, now) {
            Ordering::Less => self.windows.shrunk += 1,
            Ordering::Greater => self.windows.grown += 1,
            Ordering::Equal => {}
        }
    }

    /// The same; gives how W is to what it was.
    fn tell(&mut self, port: u16, now: Instant) -> Ordering {
        let Some(Connection { flow, channel, .. }) = self.connections.get_mut(&port) else { return Ordering::Equal };
        let Some(allowance) = flow.poll(now) else { return Ordering::Equal };
        let Allowance { window_packets, group_packets, rate_bytes_per_second } = allowance;
        let before_packets = channel.room_packets();
        channel.change(window_packets, group_packets, rate_bytes_per_second, now);
        if let Some(question) = flow.poll_question(channel.patience(), now) {
            channel.question(question, now);
        }
        window_packets.cmp(&before_packets)
    }
}

#[cfg(test)]
mod tests;
