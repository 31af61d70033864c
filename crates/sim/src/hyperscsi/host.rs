//! A server's process: its shards, which serve the same logical units, each with sessions and memory of its own.

use std::collections::BTreeSet;

use sanwire_buffer::{Packet, Region};
use sanwire_core::{Instant, Lun, Path};
use sanwire_hyperscsi::CommandHandle;

use super::shard::{Shard, WantedReset};
use crate::random::Random;
use crate::runner::Counts;
use crate::world::{self, Outcome};

/// A reset that waits for the end of what it has aborted.
struct Reset {
    /// Which shard was asked.
    shard: usize,
    handle: CommandHandle,
    is_done: bool,
    awaited: BTreeSet<CommandHandle>,
}

/// A server that runs. Dropping it is killing it.
pub struct Host {
    /// Its shards, in the order of their numbers.
    pub shards: Vec<Shard>,
    resets: Vec<Reset>,
}

impl Host {
    /// A server with these shards.
    pub(super) fn new(shards: Vec<Shard>) -> Self {
        Host { shards, resets: Vec::new() }
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
        self.answer(now);
        Ok(())
    }

    /// Ends the commands of all clients of all shards for a logical unit.
    fn reset(&mut self, shard: usize, (handle, lun): WantedReset, now: Instant) {
        let units = self.shards[shard].runner.units_of(handle.nexus());
        let may_reset = |lun: &Lun| units.may_reset(handle.nexus(), *lun, now).is_some();
        let is_done = lun.filter(may_reset).is_some_and(|lun| units.logical_unit_reset(lun));
        let aborted = self.shards.iter_mut().map(|other| other.runner.abort(handle.nexus(), |_, _| is_done));
        let awaited = aborted.flatten().collect();
        self.resets.push(Reset { shard, handle, is_done, awaited });
    }

    /// Answers the commands that have ended, and the resets that waited for them.
    fn answer(&mut self, now: Instant) {
        let Host { shards, resets } = self;
        shards.iter_mut().for_each(|shard| shard.answer(now));
        resets.retain(|reset| shards[reset.shard].has_session(reset.handle.nexus()));
        let is_over = |reset: &mut Reset| !shards.iter().any(|shard| shard.runner.is_any_active(&reset.awaited));
        let over: Vec<Reset> = resets.extract_if(.., is_over).collect();
        for Reset { shard, handle, is_done, .. } in over {
            shards[shard].server.managed(handle, is_done, now);
        }
    }

    /// Begins what waited for memory, for aborts or for blocks, perhaps of another shard, as far as it can.
    ///
    /// # Errors
    /// When a shard breaks a promise.
    pub fn feed_starved(&mut self, now: Instant) -> Outcome<()> {
        self.shards.iter_mut().try_for_each(|shard| shard.runner.retry(now))?;
        self.answer(now);
        Ok(())
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
            let taken = std::mem::take(&mut shard.runner.scheduled);
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
        self.shards.iter().filter_map(Shard::poll_timeout).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.shards.iter_mut().for_each(|shard| shard.handle_timeout(now));
    }

    fn disk_done(&mut self, token: u64, now: Instant) -> Outcome<()> {
        let (shards, token) = (self.shards.len() as u64, token);
        self.shards[(token % shards) as usize].runner.disk_done(token / shards, now)?;
        // The blocks are free for commands of other shards too.
        self.feed_starved(now)
    }

    fn shut_down(&mut self, _now: Instant) {
        self.shards.iter_mut().for_each(|shard| shard.server.shut_down());
    }

    fn kill(self, random: &mut Random) {
        self.shards.into_iter().for_each(|shard| shard.runner.kill(random));
    }

    fn sessions(&self) -> usize {
        self.shards.iter().map(|shard| shard.server.connections()).sum()
    }

    fn is_idle(&self) -> bool {
        self.shards.iter().all(|shard| shard.runner.is_idle()) && self.resets.is_empty()
    }

    fn describe(&self) -> String {
        let shards = self.shards.iter().map(|shard| {
            let (connections, counters) = (shard.server.connections(), shard.server.counters());
            format!("shard: {connections} connections, {}, {counters:?}", shard.runner.describe())
        });
        format!("{}\n{} resets waiting", shards.collect::<Vec<_>>().join("\n"), self.resets.len())
    }
}
