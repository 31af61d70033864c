//! What must hold whatever happens: it is told of all that is asked, written and answered, in this order, and judges at once.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::{Instant, NexusId};
use sanwire_engine::Handle;
use sanwire_scsi::{Reply, Status};

use super::disks::Written;
use super::initiator::Kind;
use super::shard::KEPT_WITHIN;
use crate::content::{BLOCK_BYTES, version_of};
use crate::world::Outcome;

/// Which command: its number is the version of all that it writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Command {
    /// Whose.
    pub nexus: NexusId,
    /// Which.
    pub number: u64,
}

impl Handle for Command {
    fn nexus(&self) -> NexusId {
        self.nexus
    }
}

/// What was asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Which command.
    pub command: Command,
    /// For which disk.
    pub disk: usize,
    /// What it does.
    pub kind: Kind,
    /// The first block.
    pub lba: u64,
    /// How many.
    pub blocks: u64,
}

#[derive(Debug)]
struct Entry {
    asked: Asked,
    given: u64,
    /// The order of its end among all that happened.
    ended: Option<u64>,
    /// Since when nobody else comes to its blocks.
    kept: Option<u64>,
    /// Since when its store works for it.
    at_store: Option<Instant>,
    /// Which of its blocks were written.
    written: u64,
}

#[derive(Debug, Default)]
struct Block {
    /// What it held, from which moment on.
    history: Vec<(u64, u64)>,
    /// When the newest command was given that has seen it, or changed it.
    newest: u64,
    newest_at: Instant,
}

/// What was asked, and what came of it.
#[derive(Debug, Default)]
pub struct Oracle {
    step: u64,
    entries: BTreeMap<u64, Entry>,
    active: BTreeSet<u64>,
    blocks: BTreeMap<(usize, u64), Block>,
    /// When each command was given.
    times: BTreeMap<u64, Instant>,
    /// Commands that were answered well.
    pub good: u64,
    /// Commands that have ended.
    pub ended: u64,
}

impl Oracle {
    fn tick(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    /// A command is about to be given.
    pub fn ask(&mut self, asked: Asked, now: Instant) {
        let (number, given) = (asked.command.number, self.tick());
        let entry = Entry { asked, given, ended: None, kept: None, at_store: None, written: 0 };
        self.entries.insert(number, entry);
        self.times.insert(number, now);
        self.active.insert(number);
    }

    /// The commands that have not ended.
    pub fn active(&self) -> impl Iterator<Item = Asked> {
        self.active.iter().filter_map(|number| self.entries.get(number)).map(|entry| entry.asked)
    }

    /// Whether this one has not.
    #[must_use]
    pub fn is_active(&self, command: Command) -> bool {
        self.active.contains(&command.number)
    }

    /// Which of these have not.
    #[must_use]
    pub fn any_active(&self, covered: &[u64]) -> Option<u64> {
        covered.iter().copied().find(|number| self.active.contains(number))
    }

    /// A disk begins to write for these commands.
    pub fn begin_write(&mut self, versions: impl Iterator<Item = u64>, now: Instant) {
        for version in versions {
            if let Some(entry) = self.entries.get_mut(&version) {
                entry.at_store.get_or_insert(now);
            }
        }
    }

    /// Nobody comes to the blocks of these commands from now on, until they have ended.
    pub fn keep(&mut self, is_meant: impl Fn(&Asked) -> bool) {
        let step = self.tick();
        for number in &self.active {
            let Some(entry) = self.entries.get_mut(number).filter(|entry| is_meant(&entry.asked)) else { continue };
            entry.kept.get_or_insert(step);
        }
    }

    /// A disk has written a block.
    ///
    /// # Errors
    /// When it should not have.
    pub fn written(&mut self, written: Written, now: Instant) -> Outcome<()> {
        let Written { disk, lba, version } = written;
        let step = self.tick();
        let entry = self.entries.get_mut(&version).ok_or_else(|| format!("{written:?} is of no command"))?;
        let Asked { kind, lba: first, blocks, .. } = entry.asked;
        if entry.asked.disk != disk || !(first..first + blocks).contains(&lba) {
            return Err(format!("{written:?} is elsewhere than {:?}", entry.asked));
        }
        if entry.ended.is_some() {
            return Err(format!("{:?} has ended and writes block {lba} after that", entry.asked));
        }
        entry.written |= 1 << (lba - first);
        let block = self.blocks.entry((disk, lba)).or_default();
        if let Some(kept) = entry.kept.filter(|kept| block.newest > *kept) {
            let newest = block.newest;
            return Err(format!(
                "{:?} is lost since {kept} and writes block {lba} after a command that was given at {newest}",
                entry.asked
            ));
        }
        if entry.at_store.is_some_and(|at| block.newest_at > at + KEPT_WITHIN) {
            let (at, newest_at) = (entry.at_store, block.newest_at);
            return Err(format!(
                "{:?} is at its store since {at:?} and writes block {lba} after a command that was given at {newest_at:?}",
                entry.asked
            ));
        }
        if let Kind::Swap { expected } = kind {
            let before = block.history.last().map_or(0, |(_, version)| *version);
            // Its store may do it once more.
            if before != expected && before != version {
                return Err(format!("{:?} replaces {before}", entry.asked));
            }
        }
        block.history.push((step, version));
        block.newest = block.newest.max(entry.given);
        block.newest_at = block.newest_at.max(self.times.get(&version).copied().unwrap_or(now));
        Ok(())
    }

    /// A command has ended.
    ///
    /// # Errors
    /// When it had before, or its answer cannot be.
    pub fn end(&mut self, command: Command, reply: Option<&Reply>) -> Outcome<Asked> {
        let step = self.tick();
        let entry = self.entries.get_mut(&command.number).ok_or_else(|| format!("{command:?} was never given"))?;
        if entry.ended.replace(step).is_some() {
            return Err(format!("{:?} was answered twice", entry.asked));
        }
        self.active.remove(&command.number);
        self.ended += 1;
        let (asked, given) = (entry.asked, entry.given);
        let Some(reply) = reply.filter(|reply| reply.status == Status::Good) else { return Ok(asked) };
        self.good += 1;
        let all = (1u64 << asked.blocks) - 1;
        match asked.kind {
            Kind::Write { .. } | Kind::Swap { .. } if entry.written & all != all => {
                return Err(format!("{asked:?} was answered before all of it was written"));
            }
            Kind::Read => self.check_read(&asked, given, reply)?,
            _ => {}
        }
        Ok(asked)
    }

    fn check_read(&mut self, asked: &Asked, given: u64, reply: &Reply) -> Outcome<()> {
        let data = reply.data_in.as_ref().map_or(Vec::new(), |data| data.to_vec());
        if data.len() as u64 != asked.blocks * BLOCK_BYTES as u64 {
            return Err(format!("{asked:?} has {} bytes", data.len()));
        }
        let at = self.times.get(&asked.command.number).copied().unwrap_or(Instant::ZERO);
        for (content, lba) in data.chunks(BLOCK_BYTES).zip(asked.lba..) {
            let version = version_of(content, lba).ok_or_else(|| format!("{asked:?}: block {lba} is of nobody"))?;
            let block = self.blocks.entry((asked.disk, lba)).or_default();
            let later = block.history.iter().filter(|(step, _)| *step > given).map(|(_, version)| *version);
            let before = block.history.iter().rev().find(|(step, _)| *step <= given).map_or(0, |(_, version)| *version);
            if version != before && !later.into_iter().any(|later| later == version) {
                return Err(format!("{asked:?}: block {lba} held {version} at no time since it was given"));
            }
            block.newest = block.newest.max(given);
            block.newest_at = block.newest_at.max(at);
        }
        Ok(())
    }
}
