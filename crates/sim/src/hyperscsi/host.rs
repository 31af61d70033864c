//! A server's process: its shards, which serve the same logical units, each with sessions and memory of its own.

use std::time::Duration;

use sanwire_buffer::{Packet, Region};
use sanwire_core::{Instant, Path};
use sanwire_engine::{Selection, Which};
use sanwire_hyperscsi::CommandHandle;

use super::shard::{Command, Shard, WantedReset};
use crate::executor::Counts;
use crate::post::{Post, ShardMessage};
use crate::random::Random;
use crate::world::{self, Outcome};

/// How long mail from shard to shard takes at the most.
const MAIL_MAX: Duration = Duration::from_micros(50);

/// Who wants commands ended in all shards.
#[derive(Clone, Copy)]
enum AbortedBy {
    /// A reset that a client has asked for.
    Reset(CommandHandle),
    /// A command, at the barrier with this number.
    Command(u64),
}

/// A server that runs. Dropping it is killing it.
pub struct Host {
    /// Its shards, in the order of their numbers.
    pub shards: Vec<Shard>,
    post: Post<Command, AbortedBy>,
}

impl Host {
    /// A server with these shards.
    pub(super) fn new(shards: Vec<Shard>, random: Random) -> Self {
        let post = Post::new(shards.len(), MAIL_MAX, random);
        Host { shards, post }
    }

    /// Handles all events of all shards.
    ///
    /// # Errors
    /// When a shard breaks a promise.
    pub fn drain_events(&mut self, counts: &mut Counts, now: Instant) -> Outcome<()> {
        for shard in 0..self.shards.len() {
            while let Some(wanted) = self.shards[shard].drain_events(counts, now)? {
                self.reset(shard, wanted, now);
            }
        }
        self.answer(now)
    }

    /// Ends the commands of all clients of all shards for a logical unit.
    fn reset(&mut self, shard: usize, (handle, lun): WantedReset, now: Instant) {
        let units = self.shards[shard].executor.units_of(handle.nexus());
        let Some((lun, disk)) = lun.and_then(|lun| Some((lun, units.may_reset(handle.nexus(), lun, now)?))) else {
            return self.shards[shard].server.managed(handle, false, now);
        };
        units.logical_unit_reset(lun);
        let selection = Selection { by: handle.nexus(), which: Which::On(vec![disk.id()]) };
        self.abort_everywhere(shard, AbortedBy::Reset(handle), &selection, now);
    }

    fn abort_everywhere(&mut self, home: usize, by: AbortedBy, selection: &Selection<Command>, now: Instant) {
        let barrier = self.post.barrier(home, by);
        self.post.abort_elsewhere(home, selection, &barrier, now);
        self.shards[home].executor.abort(selection, Some(&barrier));
    }

    /// Has ended what commands want ended, and answers those that are over.
    fn answer(&mut self, now: Instant) -> Outcome<()> {
        for home in 0..self.shards.len() {
            while let Some((number, selection)) = self.shards[home].executor.poll_abort() {
                self.abort_everywhere(home, AbortedBy::Command(number), &selection, now);
            }
        }
        self.shards.iter_mut().try_for_each(|shard| shard.answer(now))?;
        self.post.collect(now);
        Ok(())
    }

    /// Reads the mail that has come.
    fn read_mail(&mut self, now: Instant) -> Outcome<()> {
        while let Some((number, mail)) = self.post.take(now) {
            let shard = &mut self.shards[number];
            match mail {
                ShardMessage::Abort(selection, barrier) => {
                    shard.executor.abort(&selection, Some(&barrier));
                    shard.answer(now)?;
                }
                ShardMessage::BarrierPassed(AbortedBy::Reset(handle)) => shard.server.managed(handle, true, now),
                ShardMessage::BarrierPassed(AbortedBy::Command(number)) => shard.executor.barrier_passed(number, now),
            }
        }
        self.answer(now)
    }

    /// Begins what waited for memory, for aborts or for blocks, perhaps of another shard, as far as it can.
    ///
    /// # Errors
    /// When a shard breaks a promise.
    pub fn feed_starved(&mut self, now: Instant) -> Outcome<()> {
        self.shards.iter_mut().for_each(|shard| shard.executor.retry(now));
        self.answer(now)
    }

    /// What the shards send, each of them by its own ports.
    ///
    /// # Errors
    /// When one of them sends more than `most` packets at one moment.
    pub fn transmits(&mut self, now: Instant, most: usize) -> Outcome<Vec<(usize, Path, Packet)>> {
        let mut packets = Vec::new();
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let begun = packets.len();
            while let Some((path, packet)) = shard.server.poll_transmit(now) {
                packets.push((number, path, packet));
                if packets.len() - begun > most {
                    return Err(format!("shard {number} transmits without end"));
                }
            }
        }
        Ok(packets)
    }

    /// When the disk will have done what it was asked since the last look.
    pub fn take_scheduled(&mut self) -> Vec<(Instant, u64)> {
        let shards = self.shards.len() as u64;
        let mut scheduled = Vec::new();
        for (number, shard) in (0..).zip(&mut self.shards) {
            let taken = shard.executor.take_scheduled();
            // A shard counts its tokens for itself.
            scheduled.extend(taken.into_iter().map(|(at, token)| (at, token * shards + number)));
        }
        scheduled
    }

    /// What the trace must know.
    pub fn take_notes(&mut self) -> Vec<u64> {
        self.shards.iter_mut().flat_map(|shard| std::mem::take(&mut shard.notes)).collect()
    }

    /// What is wanted of clients has changed.
    pub(super) fn look_after_terms(&mut self, now: Instant) {
        self.shards.iter_mut().for_each(|shard| shard.look_after_terms(now));
    }

    /// Whether an initiator keeps the medium in.
    pub(super) fn keeps_medium(&self) -> bool {
        self.shards.iter().any(Shard::keeps_medium)
    }
}

impl world::Host for Host {
    fn memory(&self) -> Vec<Region> {
        self.shards.iter().map(|shard| shard.memory.clone()).collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.shards.iter().filter_map(Shard::poll_timeout).chain(self.post.next_at()).min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Outcome<()> {
        self.shards.iter_mut().for_each(|shard| shard.handle_timeout(now));
        self.read_mail(now)
    }

    fn disk_done(&mut self, token: u64, now: Instant) -> Outcome<()> {
        let (shards, token) = (self.shards.len() as u64, token);
        self.shards[(token % shards) as usize].executor.disk_done(token / shards, now);
        // The blocks are free for commands of other shards too.
        self.feed_starved(now)
    }

    fn shut_down(&mut self, _now: Instant) {
        self.shards.iter_mut().for_each(|shard| shard.server.shut_down());
    }

    fn kill(self, random: &mut Random) {
        self.shards.into_iter().for_each(|shard| shard.executor.kill(random));
    }

    fn sessions(&self) -> usize {
        self.shards.iter().map(|shard| shard.server.connections()).sum()
    }

    fn is_idle(&self) -> bool {
        self.shards.iter().all(|shard| shard.executor.is_idle()) && self.post.is_empty()
    }

    fn describe(&self) -> String {
        let shards = self.shards.iter().map(|shard| {
            let (connections, counters) = (shard.server.connections(), shard.server.counters());
            format!("shard: {connections} connections, {}, {counters:?}", shard.executor.describe())
        });
        format!("{}\n{:?}", shards.collect::<Vec<_>>().join("\n"), self.post)
    }
}
