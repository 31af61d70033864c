//! A link that loses, doubles, delays, damages and cuts.

use std::time::Duration;

use sanwire_core::Instant;

use crate::random::Random;

/// How one direction of a link behaves.
#[derive(Clone, Copy, Debug)]
pub struct LinkPlan {
    /// The way itself, in microseconds.
    pub delay_us: u64,
    /// What comes on top by chance: the source of reordering, in microseconds.
    pub jitter_us: u64,
    /// Something on the way forwards what came in so many microseconds together, in any order; zero: nothing does.
    pub batch_us: u64,
    /// How many of a million packets are lost.
    pub loss_per_million: u32,
    /// How many of a million come twice.
    pub duplicate_per_million: u32,
    /// How many of a million are damaged: bits flipped, or the end cut off.
    pub damage_per_million: u32,
    /// Longer packets vanish.
    pub packet_max_bytes: usize,
    /// Bytes that pass in a microsecond.
    pub bytes_per_us: u64,
}

impl LinkPlan {
    /// A link without faults: 10 Gbit/s, 10 microseconds.
    #[must_use]
    pub const fn clean(packet_max_bytes: usize) -> Self {
        LinkPlan {
            delay_us: 10,
            jitter_us: 0,
            batch_us: 0,
            loss_per_million: 0,
            duplicate_per_million: 0,
            damage_per_million: 0,
            packet_max_bytes,
            bytes_per_us: 1250,
        }
    }

    /// The same way without its faults.
    #[must_use]
    pub const fn healed(mut self) -> Self {
        self.jitter_us = 0;
        self.batch_us = 0;
        self.loss_per_million = 0;
        self.duplicate_per_million = 0;
        self.damage_per_million = 0;
        self
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    /// How it behaves now.
    pub plan: LinkPlan,
    /// Nothing passes.
    pub is_cut: bool,
    busy_until: Instant,
}

impl Link {
    /// A link that behaves so.
    #[must_use]
    pub fn new(plan: LinkPlan) -> Self {
        Link { plan, is_cut: false, busy_until: Instant::ZERO }
    }

    /// Sends a packet; what comes out at the other end, and when.
    pub fn pass(&mut self, bytes: &[u8], random: &mut Random, now: Instant) -> Vec<(Instant, Vec<u8>)> {
        let plan = self.plan;
        let wire_ns = bytes.len() as u64 * 1000 / plan.bytes_per_us.max(1);
        self.busy_until = self.busy_until.max(now) + Duration::from_nanos(wire_ns);
        let mut copies = Vec::new();
        if self.is_cut || bytes.len() > plan.packet_max_bytes || random.chance(plan.loss_per_million) {
            return copies;
        }
        let count = if random.chance(plan.duplicate_per_million) { 2 } else { 1 };
        for _ in 0..count {
            let way = Duration::from_micros(plan.delay_us) + random.micros(0..=plan.jitter_us);
            let mut copy = bytes.to_vec();
            if random.chance(plan.damage_per_million) {
                damage(&mut copy, random);
            }
            copies.push((shuffled(self.busy_until + way, plan.batch_us, random), copy));
        }
        copies
    }
}

/// When a packet comes of a batch that is forwarded together, in any order.
fn shuffled(at: Instant, batch_us: u64, random: &mut Random) -> Instant {
    if batch_us == 0 {
        return at;
    }
    let end = at.as_nanos().next_multiple_of(batch_us * 1000);
    Instant::from_nanos(end) + Duration::from_nanos(random.range(0..=batch_us * 100))
}

/// What all clients share on the way: a rate, and a buffer before it that drops what does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    /// Bytes that pass in a millisecond.
    pub bytes_per_ms: u64,
    /// Bytes that wait at the most.
    pub buffer_bytes: u64,
}

/// One direction of a bottleneck.
#[derive(Debug)]
pub struct Queue {
    plan: Bottleneck,
    busy_until: Instant,
    /// Packets that it dropped.
    pub drops: u64,
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(plan: Bottleneck) -> Self {
        Queue { plan, busy_until: Instant::ZERO, drops: 0 }
    }

    /// When a packet has passed; `None`: it found no room.
    pub fn pass(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let rate = self.plan.bytes_per_ms.max(1);
        let waiting = (self.busy_until - now).as_nanos() as u64 * rate / 1_000_000;
        if waiting + bytes as u64 > self.plan.buffer_bytes {
            self.drops += 1;
            return None;
        }
        self.busy_until = self.busy_until.max(now) + Duration::from_nanos(bytes as u64 * 1_000_000 / rate);
        Some(self.busy_until)
    }
}

/// Flips some bits, or cuts the end off.
pub fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let last = bytes.len() as u64 - 1;
    if random.chance(300_000) {
        bytes.truncate(random.range(0..=last) as usize);
        return;
    }
    for _ in 0..random.range(1..=6) {
        let at = random.range(0..=last) as usize;
        bytes[at] ^= 1 << random.range(0..=7);
    }
}
