//! What an administrator does with the volumes of a world, while they are in use.

use sanwire_sim::world::Outcome;
use sanwire_snapshot::{SnapshotError, Tree};
use sanwire_store::{ErrorKind, Store};

use super::device::{Device, FOREIGN};
use super::model::{Frozen, Model};
use super::world::{Below, Doubt, GROUP_BLOCKS, SECTOR, What, World, kernel, text};

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
            Err(SnapshotError::NoRoom { .. } | SnapshotError::Unsettled) => Ok(false),
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
        // Without a name it is only another layer; first such a one, when something may be lost.
        let is_named = !self.tree().is_unsettled(&volume).unwrap_or(true) && self.random.chance(700_000);
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
        let done = self.tree().take(prepared, Some(&*name).filter(|_| is_named), 0, &hold, &mut kernel);
        drop(hold);
        if self.judge(done)? {
            let model = self.models.get_mut(&volume).expect("it has one");
            let now = model.now(0, u64::MAX);
            model.flushed(&now);
            if is_named {
                self.snapshots.insert((volume, name), frozen);
            }
        } else if self.is_in_doubt() && is_named {
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
        let tree = self.tree();
        let done = tree.prepare_rollback((&key.0, &key.1), layer, &mut kernel).and_then(|rollback| {
            let hold = tree.hold(&key.0)?;
            tree.roll_back(rollback, &hold)
        });
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
        let done = self.try_to_settle(&volume);
        self.judge(done.map(drop)).map(drop)
    }

    /// Whether the last layer of a volume was put into the one below it.
    pub(super) fn try_to_settle(&self, volume: &str) -> Result<bool, SnapshotError> {
        let tree = self.tree();
        let Some(settling) = tree.prepare_settle(volume, 16 << 20, &mut kernel)? else { return Ok(false) };
        let hold = tree.hold(volume)?;
        tree.settle(settling, &hold, || Ok(()), &mut kernel).map(|()| true)
    }

    pub(super) fn grow(&mut self) -> Outcome<()> {
        let volume = self.any_volume();
        let Some(store) = self.store(&volume)? else { return Ok(()) };
        let block = u64::from(self.plan.block_bytes);
        let (before, blocks) = (store.geometry().length_bytes, self.random.range(1..=10));
        let device = self.base.clone().filter(|_| self.plan.below == Below::Device).map(Device);
        if let Some(device) = &device
            && self.random.chance(500_000)
        {
            device.lengthen(self.random.range(1..=20) * block);
        }
        // Without layers a volume has what stands there.
        let disk_bytes = device.map(|device| device.geometry().length_bytes);
        let foreign_end = disk_bytes.filter(|_| self.tree().layers_count() == 0).unwrap_or(0) / SECTOR;
        if before > (GROUP_BLOCKS + 400) * block || store.resize(before + blocks * block).is_err() {
            return Ok(());
        }
        let model = self.models.get_mut(&volume).expect("any volume has one");
        let holds = |sector| if sector < foreign_end { FOREIGN } else { 0 };
        model.set((before / SECTOR..(before + blocks * block) / SECTOR).map(|sector| (sector, holds(sector))));
        Ok(())
    }
}
