//! What must hold after a loss of power, and at the end.

use sanwire_sim::world::Outcome;
use sanwire_store::{Outcome as Ended, Request};

use super::disk::{Faults, SECTOR_BYTES};
use super::model::{Frozen, Model, version_of};
use super::world::{Below, Doubt, SECTOR, World, kernel, text};

impl World {
    /// The power is back: all volumes hold what they may.
    pub(super) fn start_again(&mut self) -> Outcome<()> {
        self.flights.clear();
        self.is_doubtful = false;
        self.tree = None;
        self.machine.start_again(&self.disks());
        let _ = self.completions.take();
        self.reopen()?;
        self.resolve()?;
        for (volume, mut model) in std::mem::take(&mut self.models) {
            let shown = self.read(&volume, &model)?;
            for (sector, version) in shown {
                model.found(sector, version).map_err(|what| format!("{volume}: {what}"))?;
            }
            self.models.insert(volume, model);
        }
        if self.random.chance(300_000) {
            self.check_a_snapshot()?;
        }
        self.live();
        Ok(())
    }

    /// What was in doubt is done, or not.
    pub(super) fn resolve(&mut self) -> Outcome<()> {
        let (volumes, snapshots) = (self.tree().volumes(), self.tree().snapshots());
        let is_there = |(volume, name): &(String, String)| {
            snapshots.iter().any(|snapshot| (&snapshot.volume, &snapshot.name) == (volume, name))
        };
        match self.doubt.take() {
            Some(Doubt::Snapshot(key, frozen)) if is_there(&key) => _ = self.snapshots.insert(key, frozen),
            Some(Doubt::Forget(key)) if !is_there(&key) => _ = self.snapshots.remove(&key),
            Some(Doubt::Clone(clone, frozen)) if volumes.contains(&clone) => {
                self.models.insert(clone, Model::thaw(&frozen));
            }
            Some(Doubt::RollBack(volume, model)) => {
                let shown = self.read(&volume, &model)?;
                let is_back = shown.iter().all(|(sector, version)| model.clone().found(*sector, *version).is_ok());
                if is_back {
                    self.models.insert(volume, model);
                }
            }
            _ => {}
        }
        let known: Vec<_> = self.snapshots.keys().filter(|key| !is_there(key)).collect();
        if known.is_empty() && volumes.len() == self.models.len() && snapshots.len() == self.snapshots.len() {
            return Ok(());
        }
        Err(format!("there are {volumes:?} and {snapshots:?}, but not {known:?}"))
    }

    /// What the sectors of a volume hold of which something is known.
    pub(super) fn read(&mut self, volume: &str, model: &Model) -> Outcome<Vec<(u64, u64)>> {
        let Some(store) = self.store(volume)? else { return Ok(Vec::new()) };
        self.machine.set_quick(true);
        let block = u64::from(self.plan.block_bytes) / SECTOR;
        let mut blocks: Vec<u64> = model.sectors().map(|sector| sector / block).collect();
        blocks.dedup();
        let mut shown = Vec::new();
        for number in blocks {
            let (offset_bytes, buffer) = (number * block * SECTOR, vec![9; (block * SECTOR) as usize].into());
            match sanwire_store::run(&store, Request::Read { offset_bytes, buffer }, kernel) {
                Ok(Ended::Read(frame)) => {
                    for (sector, bytes) in (number * block..).zip(frame.chunks(SECTOR_BYTES)) {
                        let version = version_of(bytes, sector);
                        shown.push((sector, version.ok_or_else(|| format!("sector {sector} of {volume} is torn"))?));
                    }
                }
                Ok(_) => {}
                Err(_) if self.machine.is_off() => return Ok(Vec::new()),
                Err(error) => return Err(format!("{volume}: {error}")),
            }
        }
        Ok(shown)
    }

    /// A clone of a snapshot holds what the volume held then.
    pub(super) fn check_a_snapshot(&mut self) -> Outcome<()> {
        let Some((key, frozen)) = self.any_snapshot() else { return Ok(()) };
        self.check_snapshot(&key, frozen)
    }

    pub(super) fn check_snapshot(&mut self, key: &(String, String), frozen: Frozen) -> Outcome<()> {
        let (layer, check) = (self.fresh(), format!("check{}", self.next));
        self.machine.set_quick(true);
        let done = self.tree().clone_volume((&key.0, &key.1), &check, layer, &mut kernel);
        if !self.judge(done)? {
            self.doubt = Some(Doubt::Clone(check, frozen)).filter(|_| self.is_in_doubt());
            return Ok(());
        }
        let shown = self.read(&check, &Model::thaw(&frozen));
        for (sector, version) in shown? {
            let allowed = &frozen[&sector];
            if !allowed.contains(&version) {
                return Err(format!("snapshot {key:?}: sector {sector} holds {version}, not {allowed:?}"));
            }
            // So it stays, whatever it was of what it might have been.
            self.snapshots.get_mut(key).into_iter().for_each(|frozen| _ = frozen.insert(sector, vec![version]));
        }
        self.machine.set_quick(true);
        let done = self.tree().remove(&check);
        if !self.judge(done)? {
            self.doubt = Some(Doubt::Clone(check, frozen)).filter(|_| self.is_in_doubt());
        }
        Ok(())
    }

    /// At the end all snapshots are whole; and when nobody needs them any more, the base has it all, or a layer, and nothing else is there.
    pub(super) fn check_all(&mut self) -> Outcome<()> {
        self.machine.set_life(u64::MAX, Faults::default());
        for (key, frozen) in self.snapshots.clone() {
            self.check_snapshot(&key, frozen)?;
        }
        for (volume, name) in std::mem::take(&mut self.snapshots).into_keys() {
            self.quick(|tree| tree.forget(&volume, &name))?;
        }
        for volume in self.tree().volumes() {
            if volume != "a" {
                self.quick(|tree| tree.remove(&volume))?;
                self.models.remove(&volume);
            }
        }
        self.machine.set_quick(true);
        while self.tree().tidy(&mut kernel).map_err(text)?.is_some() {}
        while self.try_to_settle("a").map_err(text)? {}
        let model = self.models["a"].clone();
        for (sector, version) in self.read("a", &model)? {
            model.may_show(&model.now(sector, 1), sector, version)?;
        }
        self.machine.set_quick(true);
        let (layers, files) = (self.tree().layers().len(), self.shelf.disks().len());
        let expected = if self.plan.below != Below::Nothing { (1, 0) } else { (2, 1) };
        if (layers, files) == expected { Ok(()) } else { Err(format!("{layers} layers in {files} files are left")) }
    }
}
