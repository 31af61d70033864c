//! What must hold in the end.

use std::time::Duration;

use super::initiator::{Initiator, Kind};
use super::oracle::{Asked, Command};
use super::shard::Shard;
use super::world::World;
use crate::world::Outcome;

/// So long after all is healed every command has ended.
pub(super) const RECOVERY: Duration = Duration::from_secs(120);

/// Steps that a world may take to come to rest.
const IDLE_STEPS_MAX: u32 = 100;

impl World {
    /// All have what they asked for: every block can be read, and nothing is left of anything.
    pub(super) fn finish(&mut self) -> Outcome<()> {
        let good = self.oracle.good;
        self.open(0, None);
        let Initiator { nexus, shard, .. } = self.initiators[0];
        // The first command of each unit tells of its unit attention.
        let looks = [None].into_iter().chain((0..self.plan.blocks).map(Some));
        let looks: Vec<_> = (0..self.plan.disks).flat_map(|disk| looks.clone().map(move |lba| (disk, lba))).collect();
        for (disk, lba) in looks {
            let command = Command { nexus, number: self.next_command };
            self.next_command += 1;
            let kind = if lba.is_some() { Kind::Read } else { Kind::Ready };
            let asked = Asked { command, disk, kind, lba: lba.unwrap_or(0), blocks: 1 };
            if !self.shards[shard].give(&asked, &self.units, &mut self.oracle, self.now) {
                return Err("there is no memory left".to_owned());
            }
            self.turn(shard)?;
            self.run(self.now + RECOVERY)?;
        }
        let expected = self.plan.disks as u64 * self.plan.blocks;
        if self.oracle.good - good != expected {
            return Err(format!("{} of {expected} blocks can be read in the end", self.oracle.good - good));
        }
        // Who looks after slow commands finds none, and looks no more.
        for _ in 0..IDLE_STEPS_MAX {
            let Some(next) = self.next_at() else { break };
            self.now = self.now.max(next);
            self.step()?;
        }
        if self.next_at().is_some() {
            return Err("an engine that has nothing to do does not rest".to_owned());
        }
        self.shards.iter().try_for_each(Shard::check_idle)?;
        let counted: u64 = self.shards.iter().map(Shard::counted).sum();
        if counted != self.oracle.ended {
            return Err(format!("{counted} commands were counted, {} have ended", self.oracle.ended));
        }
        match self.units.iter().iter().find(|(_, disk)| disk.stalls().waiting() > 0) {
            Some((lun, _)) => Err(format!("commands wait for the store of unit {lun} in the end")),
            None => Ok(()),
        }
    }
}
