//! The time that a server's shards need for what comes: one packet after the other, and much of it for the steps of a handshake. Only
//! worlds with strangers at the door look at it.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_core::{Instant, Path};
use sanwire_hyperscsi::wire::{Opcode, Prefix, Protection};

/// What any packet costs.
const PACKET: Duration = Duration::from_micros(2);

/// What a step of a handshake costs that is made or read.
const STEP: Duration = Duration::from_micros(200);

/// Packets that a socket keeps; more are lost.
const QUEUE_MAX: usize = 512;

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<(Path, Vec<u8>)>,
    busy_until: Instant,
}

/// The shards, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Processor {
    shards: Vec<Queue>,
    /// Packets that were lost because there were too many.
    pub(super) lost: u64,
}

impl Processor {
    pub(super) fn new(shards: usize) -> Self {
        Processor { shards: (0..shards).map(|_| Queue::default()).collect(), lost: 0 }
    }

    /// A packet has come; when the shard is to work, if it does not know so already.
    pub(super) fn take(&mut self, shard: usize, path: Path, bytes: Vec<u8>, now: Instant) -> Option<Instant> {
        let queue = &mut self.shards[shard];
        if queue.packets.len() == QUEUE_MAX {
            self.lost += 1;
            return None;
        }
        queue.packets.push_back((path, bytes));
        (queue.packets.len() == 1).then(|| queue.busy_until.max(now))
    }

    /// The next packet that the shard works on, and what that costs by itself.
    pub(super) fn begin(&mut self, shard: usize, now: Instant) -> Option<(Path, Vec<u8>)> {
        let (path, bytes) = self.shards[shard].packets.front().cloned()?;
        self.shards[shard].busy_until = now;
        self.spend(shard, &bytes);
        Some((path, bytes))
    }

    /// The shard has done so; when it works on the next one.
    pub(super) fn end(&mut self, shard: usize) -> Option<Instant> {
        let queue = &mut self.shards[shard];
        queue.packets.pop_front();
        (!queue.packets.is_empty()).then_some(queue.busy_until)
    }

    /// A packet costs the shard time, that comes or goes.
    pub(super) fn spend(&mut self, shard: usize, bytes: &[u8]) {
        self.shards[shard].busy_until += if is_step(bytes) { STEP + PACKET } else { PACKET };
    }
}

/// Whether a packet is the second or the third step of a handshake.
pub(super) fn is_step(bytes: &[u8]) -> bool {
    Prefix::read(bytes).is_ok_and(|(prefix, _, body)| {
        prefix.protection == Protection::Checksum
            && matches!(prefix.header.opcode, Opcode::AdnRequest | Opcode::AdnReply)
            && body.first() == Some(&1)
    })
}
