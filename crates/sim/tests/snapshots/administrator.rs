//! What an administrator does with the volumes of a world, while they are in use.

use sanwire_sim::world::Outcome;
use sanwire_snapshot::{SnapshotError, Tree};
use sanwire_store::{ErrorKind, Store};

use super::model::{Frozen, Model};
use super::world::{Doubt, GROUP_BLOCKS, SECTOR, What, World, kernel, text};

impl World {
    /// Something of the administrator's that changes nothing for anybody.
    pub(super) fn quick(&mut self, act: impl FnOnce(&Tree) -> Result<(), SnapshotError>) -> Outcome<()> {
        self.machine.set_quick(true);
        let done = act(self.tree());
        self.judge(done).map(drop)
    }

    /// Whether it was done; what fails otherwise than by a failing disk is an error.
    pub(super) fn judge(&mut self, done: Result<(), SnapshotError>) -> Outcome<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(_) if self.machine.is_off() => Ok(false),
            // A flush that was lost.
            Err(SnapshotError::Store { source, .. }) if source.kind == ErrorKind::Unwritable => {
                self.models.values_mut().for_each(Model::lost);
                Ok(false)
            }
            Err(SnapshotError::Store { source, .. }) if source.kind == ErrorKind::Full => Ok(false),
            Err(SnapshotError::Resize { .. }) => Ok(false),
            Err(SnapshotError::Keep(_)) => {
                self.is_doubtful = true;
                self.machine.set_life(self.random.range(0..=20), self.plan.faults);
                Ok(false)
            }
            // The base is never written once more as a whole.
            Err(SnapshotError::NoSnapshot | SnapshotError::TooMany | SnapshotError::Unsure) => Ok(false),
            Err(error) => Err(text(error)),
        }
    }

    /// Whether what has failed may be done all the same, as is seen when there is power again.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.machine.is_off() || self.is_doubtful
    }

    pub(super) fn snapshot(&mut self) -> Outcome<()> {
        if self.snapshots.len() >= 12 {
            return Ok(());
        }
        let (volume, layer, name) = (self.any_volume(), self.fresh(), format!("s{}", self.next));
        self.machine.set_quick(true);
        let prepared = self.tree().prepare(&volume, layer, &mut kernel);
        self.machine.set_quick(false);
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return self.judge(Err(error)).map(drop),
        };
        let hold = self.tree().hold(&volume).map_err(text)?;
        while !hold.is_quiet() {
            self.machine.step();
            self.deliver()?;
            // What comes now is held.
            if self.random.chance(100_000) {
                self.begin(What::Change)?;
            }
        }
        self.machine.set_quick(true);
        let frozen = self.models[&volume].freeze();
        let done = self.tree().take(prepared, Some(&name), 0, &hold, &mut kernel);
        drop(hold);
        if self.judge(done)? {
            let model = self.models.get_mut(&volume).expect("it has one");
            let now = model.now(0, u64::MAX);
            model.flushed(&now);
            self.snapshots.insert((volume, name), frozen);
        } else if self.is_in_doubt() {
            self.doubt = Some(Doubt::Snapshot((volume, name), frozen));
        }
        self.machine.set_quick(false);
        self.deliver()
    }

    pub(super) fn clone_volume(&mut self) -> Outcome<()> {
        let Some((key, frozen)) = self.any_snapshot().filter(|_| self.models.len() < 4) else { return Ok(()) };
        let (layer, clone) = (self.fresh(), format!("c{}", self.next));
        self.machine.set_quick(true);
        let done = self.tree().clone_volume((&key.0, &key.1), &clone, layer, &mut kernel);
        if self.judge(done)? {
            self.store(&clone)?;
            self.models.insert(clone, Model::thaw(&frozen));
        } else if self.is_in_doubt() {
            self.doubt = Some(Doubt::Clone(clone, frozen));
        }
        Ok(())
    }

    pub(super) fn roll_back(&mut self) -> Outcome<()> {
        let Some((key, frozen)) = self.any_snapshot().filter(|(key, _)| self.models.contains_key(&key.0)) else {
            return Ok(());
        };
        self.drain()?;
        if self.machine.is_off() {
            return Ok(());
        }
        let layer = self.fresh();
        self.machine.set_quick(true);
        let hold = self.tree().hold(&key.0).map_err(text)?;
        let done = self.tree().roll_back((&key.0, &key.1), layer, &hold, &mut kernel);
        drop(hold);
        let model = self.grown(&key.0, &frozen);
        if self.judge(done)? {
            self.models.insert(key.0, model);
        } else if self.is_in_doubt() {
            self.doubt = Some(Doubt::RollBack(key.0, model));
        }
        Ok(())
    }

    /// What a volume that may have grown since holds when it is rolled back.
    pub(super) fn grown(&self, volume: &str, frozen: &Frozen) -> Model {
        let mut model = Model::thaw(frozen);
        let new: Vec<u64> = self.models[volume].sectors().filter(|sector| !frozen.contains_key(sector)).collect();
        model.set(new.into_iter().map(|sector| (sector, 0)));
        model
    }

    pub(super) fn forget(&mut self) -> Outcome<()> {
        let Some((key, _)) = self.any_snapshot() else { return Ok(()) };
        self.machine.set_quick(true);
        let done = self.tree().forget(&key.0, &key.1);
        if self.judge(done)? {
            self.snapshots.remove(&key);
            return Ok(());
        }
        if self.is_in_doubt() {
            self.doubt = Some(Doubt::Forget(key));
        }
        Ok(())
    }

    pub(super) fn settle(&mut self) -> Outcome<()> {
        let volume = self.any_volume();
        self.drain()?;
        if self.machine.is_off() {
            return Ok(());
        }
        self.machine.set_quick(true);
        let hold = self.tree().hold(&volume).map_err(text)?;
        let done = self.tree().settle(&volume, &hold, &mut kernel).map(drop);
        drop(hold);
        self.judge(done).map(drop)
    }

    pub(super) fn grow(&mut self) -> Outcome<()> {
        let volume = self.any_volume();
        let Some(store) = self.store(&volume)? else { return Ok(()) };
        let block = u64::from(self.plan.block_bytes);
        let (before, blocks) = (store.geometry().length_bytes, self.random.range(1..=10));
        if before > (GROUP_BLOCKS + 400) * block || store.resize(before + blocks * block).is_err() {
            return Ok(());
        }
        let model = self.models.get_mut(&volume).expect("any volume has one");
        model.set((before / SECTOR..(before + blocks * block) / SECTOR).map(|sector| (sector, 0)));
        Ok(())
    }
}
