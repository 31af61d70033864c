//! How much a client may send as long as memory is short: W, N and a rate (the paper, "data transfer and flow control").
//!
//! A packet that finds no memory has crossed the link in vain, and comes again. So W is halved when that happens, and grows again
//! when it does not, by steps of its square root: clients of one server come to equal windows so, and each tries for more only now
//! and then. Nothing depends on a client that heeds this: whoever sends more finds no memory for it, and those who have less of it
//! than others are not asked to send less on their account.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::{Instant, NexusId};

use super::Server;
use super::session::Session;
use crate::wire::offer::Agreement;

/// W does not become smaller than this: a packet that finds memory is what makes it grow.
const WINDOW_MIN_PACKETS: u32 = 4;

/// It is halved no more often than this, nor than once for each round trip: what was under way before its client has heard of it says
/// nothing new. As long as it is smaller than agreed, the rate is one window for each such time.
const SHRINK_EACH: Duration = Duration::from_millis(10);

/// When all packets have found memory for so long, W grows by a step; and then by another one each so often.
const GROW_AFTER: Duration = Duration::from_millis(100);
const GROW_EACH: Duration = Duration::from_millis(20);

/// A client that sends is told again after this: what it was told may be lost, and nobody acknowledges it.
const TELL_AGAIN: Duration = Duration::from_millis(500);

/// What all sessions hold is added up once in as many times this as there are sessions, if they are more than a few. Otherwise each of
/// many connections would have all of them looked at for each window that shrinks, just when memory is short.
const ADD_UP_EACH_SESSION: Duration = Duration::from_micros(1);
const FEW_SESSIONS: usize = 32;

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

/// Of one connection.
#[derive(Debug)]
pub(super) struct FlowControl {
    agreed_packets: u32,
    group_agreed_packets: u16,
    /// Data of a packet.
    packet_bytes: u16,
    window_packets: u32,
    /// When it was asked last whether W is to be smaller.
    judged_at: Option<Instant>,
    grow_at: Option<Instant>,
    told_at: Option<Instant>,
    /// There is something to tell the client.
    is_news: bool,
}

impl FlowControl {
    /// Of a connection on which this was agreed.
    pub(super) fn new(agreement: &Agreement) -> Self {
        FlowControl {
            agreed_packets: agreement.window_packets,
            group_agreed_packets: agreement.group_packets,
            packet_bytes: agreement.data_bytes,
            window_packets: agreement.window_packets,
            judged_at: None,
            grow_at: None,
            told_at: None,
            is_news: false,
        }
    }

    /// A packet has found no memory; `is_cause` says whether this client has more of it than others leave to it.
    fn refused(&mut self, round_trip: Option<Duration>, is_cause: impl FnOnce() -> bool, now: Instant) {
        let each = round_trip.map_or(SHRINK_EACH, |round_trip| round_trip.max(SHRINK_EACH));
        if self.judged_at.is_some_and(|at| now < at + each) {
            return;
        }
        self.judged_at = Some(now);
        if !is_cause() {
            return;
        }
        let least = self.agreed_packets.min(WINDOW_MIN_PACKETS);
        if self.window_packets > least {
            self.window_packets = (self.window_packets / 2).max(least);
            self.is_news = true;
        }
        self.grow_at = self.is_small().then(|| now + GROW_AFTER.max(each * 2));
    }

    /// A packet was taken: it has found memory, or needs none.
    pub(super) fn taken(&mut self, now: Instant) {
        self.is_news |= self.told_at.is_some_and(|at| at + TELL_AGAIN <= now);
    }

    fn is_small(&self) -> bool {
        self.window_packets < self.agreed_packets
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
        self.window_packets = self.window_packets.saturating_add(step).min(self.agreed_packets);
        self.is_news = true;
        self.grow_at = self.is_small().then(|| now + GROW_EACH);
    }

    /// What the client is to be told now, if anything.
    fn poll(&mut self, now: Instant) -> Option<Allowance> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        self.told_at = Some(now);
        Some(self.allowance())
    }

    fn allowance(&self) -> Allowance {
        let (window_packets, group_packets) = (self.window_packets, self.group_agreed_packets);
        if !self.is_small() {
            return Allowance { window_packets, group_packets, rate_bytes_per_second: 0 };
        }
        // Two groups of a window: one is acknowledged while the other one is under way.
        let half = u16::try_from(window_packets / 2).unwrap_or(u16::MAX).max(1);
        let windows_per_second = 1000 / SHRINK_EACH.as_millis() as u64;
        let rate_bytes_per_second = u64::from(window_packets) * u64::from(self.packet_bytes) * windows_per_second;
        Allowance { window_packets, group_packets: group_packets.min(half), rate_bytes_per_second }
    }
}

impl Server {
    /// A packet of this connection has found no memory.
    pub(super) fn refused(&mut self, port: u16, now: Instant) {
        let Some(connection) = self.connections.get_mut(&port) else { return };
        let (sessions, nexus, round_trip) = (&self.sessions, connection.nexus, connection.channel.round_trip());
        let held = &mut self.held_by_all;
        connection.flow.refused(round_trip, || has_its_part(sessions, nexus, held, now), now);
    }

    /// Tells a client how much it may send from now on, if that is to be told.
    pub(super) fn tell_allowance(&mut self, port: u16, now: Instant) {
        let Some(connection) = self.connections.get_mut(&port) else { return };
        let Some(allowance) = connection.flow.poll(now) else { return };
        let Allowance { window_packets, group_packets, rate_bytes_per_second } = allowance;
        let before_packets = connection.channel.room_packets();
        connection.channel.change(window_packets, group_packets, rate_bytes_per_second, now);
        match window_packets.cmp(&before_packets) {
            Ordering::Less => self.windows.shrunk += 1,
            Ordering::Greater => self.windows.grown += 1,
            Ordering::Equal => {}
        }
    }
}

/// The memory that all sessions had together when that was added up last, and how many of them had any.
#[derive(Debug, Default)]
pub(super) struct HeldByAll {
    bytes: usize,
    holders: usize,
    at: Option<Instant>,
}

impl HeldByAll {
    /// Bytes and holders of so many sessions; `add_up` is called no more often than that is worth.
    fn of(&mut self, sessions: usize, now: Instant, add_up: impl FnOnce() -> (usize, usize)) -> (usize, usize) {
        let each = ADD_UP_EACH_SESSION * u32::try_from(sessions).unwrap_or(u32::MAX);
        let is_known = sessions > FEW_SESSIONS && self.at.is_some_and(|at| now < at + each);
        if !is_known {
            (self.bytes, self.holders) = add_up();
            self.at = Some(now);
        }
        (self.bytes, self.holders)
    }
}

/// Whether a session has as much memory as those that have any have on the average, or more. If it has less, others fill it. Those that have
/// none say nothing: whoever opens many sessions, and fills the memory in one of them, would have all others send less.
fn has_its_part(sessions: &BTreeMap<NexusId, Session>, nexus: NexusId, held: &mut HeldByAll, now: Instant) -> bool {
    let held_bytes = |session: &Session| session.memory.held_bytes();
    let add_up = || {
        let holders = sessions.values().map(held_bytes).filter(|bytes| *bytes > 0);
        holders.fold((0, 0), |(bytes, holders), held| (bytes + held, holders + 1))
    };
    let (all_bytes, holders) = held.of(sessions.len(), now, add_up);
    sessions.get(&nexus).is_none_or(|session| held_bytes(session) * holders >= all_bytes)
}

#[cfg(test)]
mod tests;
