//! What initiators do.

use sanwire_core::{Lun, NexusId};
use sanwire_device::UnitId;
use sanwire_engine::{Selection, Which};

use super::initiator::{Initiator, Kind};
use super::oracle::{Asked, Command};
use super::plan::Deeds;
use super::world::{AbortedBy, Event, World};
use crate::world::Outcome;

/// How long a nexus goes on, at the most, when its initiator has another one.
const FORMER_MAX_US: u64 = 500_000;

impl World {
    /// An initiator does something.
    pub(super) fn act(&mut self, number: usize) -> Outcome<()> {
        let Initiator { left, nexus, .. } = self.initiators[number];
        if left == 0 {
            return Ok(());
        }
        // An initiator at its depth acts more seldom.
        let in_flight = self.oracle.active().filter(|asked| asked.command.nexus == nexus).count();
        let is_full = in_flight >= self.plan.depth;
        let patience_us = if is_full { self.random.choose(&[0, 1_000, 50_000]) } else { 0 };
        let think = self.random.micros(0..=self.plan.think_us + patience_us);
        self.schedule(think, Event::Act(number));
        let Deeds { abort_task, abandon_task, abort_task_set, reset_unit, reset_target, preempt, lose_nexus, restart } =
            self.plan.deeds;
        let chosen = self.random.range(0..=999_999) as u32;
        let mut below = 0;
        let mut is = |per_million: u32| {
            below += per_million;
            chosen < below
        };
        if is(abort_task) {
            return self.abort_one(number, false);
        } else if is(abandon_task) {
            return self.abort_one(number, true);
        } else if is(abort_task_set) {
            return self.abort_own(number);
        } else if is(reset_unit) {
            return self.reset(number, false);
        } else if is(reset_target) {
            return self.reset(number, true);
        } else if is(lose_nexus) {
            return self.change_nexus(number);
        } else if is(restart) {
            return self.restart(number);
        }
        let is_preempting = is(preempt);
        if is_full { Ok(()) } else { self.give(number, is_preempting) }
    }

    fn give(&mut self, number: usize, is_preempting: bool) -> Outcome<()> {
        let Initiator { nexus, shard, key, .. } = self.initiators[number];
        let random = &mut self.random;
        let disk = random.range(0..=self.plan.disks as u64 - 1) as usize;
        let lba = random.range(0..=self.plan.blocks - 1);
        let mut blocks = random.range(1..=self.plan.blocks_max.min(self.plan.blocks - lba));
        let victim = random.range(1..=self.plan.initiators as u64);
        let kind = if is_preempting {
            Kind::Preempt { key, victim }
        } else {
            match random.range(0..=99) {
                0..40 => Kind::Write { is_stable: random.chance(200_000) },
                40..75 => Kind::Read,
                75..85 => Kind::Swap { expected: self.disks[disk].version(lba) },
                85..90 => Kind::Flush,
                90..95 => Kind::Register { key },
                _ => Kind::Ready,
            }
        };
        if let Kind::Swap { .. } = kind {
            blocks = 1;
        }
        let command = Command { nexus, number: self.next_command };
        self.next_command += 1;
        let asked = Asked { command, disk, kind, lba, blocks };
        if self.shards[shard].give(&asked, &self.units, &mut self.oracle, self.now) {
            self.initiators[number].left -= 1;
        }
        self.turn(shard)
    }

    /// ABORT TASK, or the loss of the connection by which a command came.
    fn abort_one(&mut self, number: usize, is_abandoned: bool) -> Outcome<()> {
        let Initiator { nexus, shard, .. } = self.initiators[number];
        let own: Vec<Command> =
            self.oracle.active().map(|asked| asked.command).filter(|command| command.nexus == nexus).collect();
        if own.is_empty() {
            return Ok(());
        }
        let command = self.random.choose(&own);
        let selection = Selection { by: nexus, which: Which::Command(command) };
        let what = format!("ABORT TASK of {command:?}");
        let barrier = self.wait(shard, AbortedBy::Function, what, |asked| asked.command == command);
        if is_abandoned {
            self.oracle.keep(|asked| asked.command == command);
            self.shards[shard].engine.leave(&selection, Some(&barrier));
        } else {
            self.shards[shard].engine.abort(&selection, Some(&barrier));
        }
        self.note_ended(shard)?;
        drop(barrier);
        self.turn(shard)
    }

    /// ABORT TASK SET.
    fn abort_own(&mut self, number: usize) -> Outcome<()> {
        let Initiator { nexus, shard, .. } = self.initiators[number];
        let all = self.units_by_number();
        let (at, disk) = self.random.choose(&all);
        let unit = self.units.get(disk).ok_or("no such unit")?.id();
        let is_covered = |asked: &Asked| asked.command.nexus == nexus && asked.disk == at;
        let barrier = self.wait(shard, AbortedBy::Function, "ABORT TASK SET".to_owned(), is_covered);
        let selection = Selection { by: nexus, which: Which::OwnOn(unit) };
        self.shards[shard].engine.abort(&selection, Some(&barrier));
        self.note_ended(shard)?;
        drop(barrier);
        self.turn(shard)
    }

    fn units_by_number(&self) -> Vec<(usize, Lun)> {
        self.units.iter().into_iter().enumerate().map(|(number, (lun, _))| (number, lun)).collect()
    }

    /// LOGICAL UNIT RESET, or TARGET RESET.
    fn reset(&mut self, number: usize, is_of_all: bool) -> Outcome<()> {
        let Initiator { nexus, shard, .. } = self.initiators[number];
        let all = self.units_by_number();
        let (chosen, _) = self.random.choose(&all);
        let meant = self.units.iter().into_iter().enumerate().filter(|(at, _)| is_of_all || *at == chosen);
        let meant: Vec<(Lun, UnitId)> = meant.map(|(_, (lun, unit))| (lun, unit.id())).collect();
        meant.iter().for_each(|(lun, _)| _ = self.units.logical_unit_reset(*lun));
        let which = Which::On(meant.into_iter().map(|(_, unit)| unit).collect());
        self.abort_everywhere(shard, AbortedBy::Function, Selection { by: nexus, which })?;
        self.turn(shard)
    }

    /// A nexus is lost: what its commands have at the disks ends there, with its blocks for itself.
    pub(super) fn lose(&mut self, shard: usize, nexus: NexusId) -> Outcome<()> {
        self.oracle.keep(|asked| asked.command.nexus == nexus);
        self.shards[shard].engine.leave(&Selection { by: nexus, which: Which::Own }, None);
        self.units.nexus_lost(nexus);
        self.shards[shard].close(nexus);
        self.turn(shard)
    }

    /// The initiator loses its nexus and comes back, perhaps to another shard.
    fn change_nexus(&mut self, number: usize) -> Outcome<()> {
        let Initiator { nexus, shard, .. } = self.initiators[number];
        self.lose(shard, nexus)?;
        self.open(number, None);
        Ok(())
    }

    /// The initiator was killed and runs again, in the same shard, before its former nexus is missed.
    fn restart(&mut self, number: usize) -> Outcome<()> {
        let Initiator { nexus, shard, .. } = self.initiators[number];
        self.oracle.keep(|asked| asked.command.nexus == nexus);
        self.open(number, Some(shard));
        self.shards[shard].engine.keep_blocks(nexus, self.initiators[number].nexus);
        let after = self.random.micros(0..=FORMER_MAX_US);
        self.schedule(after, Event::Close { shard, nexus });
        self.turn(shard)
    }
}
