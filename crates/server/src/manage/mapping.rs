//! Under which numbers volumes are found.

use std::collections::BTreeMap;

use sanwire_core::Lun;
use sanwire_scsi::IscsiName;

use super::busy::Hold;
use super::removing::without_unit;
use super::response::Answer;
use super::slow::Step;
use super::usage::Way;
use super::{ManageError, Manager};
use crate::config::VolumeConfig;
use crate::free_number::free_lun;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;

impl Manager {
    pub(super) fn map_volume(
        &mut self,
        name: &str,
        number: Option<u16>,
        target: Option<&str>,
        force: bool,
    ) -> Result<Step, ManageError> {
        let (hold, served_as, lun) = self.begin_to_map(name, number)?;
        match (target, lun) {
            (Some(target), lun) => self.map_to_target(name, target, lun, (force, hold)),
            (None, Some(lun)) => self.renumber(name, (served_as, lun), force, hold),
            (None, None) => Err(ManageError::Where(name.to_owned())),
        }
    }

    /// What of that is refused whatever the place: the number that it has now, and the one that is wanted.
    pub(super) fn begin_to_map(
        &self,
        name: &str,
        number: Option<u16>,
    ) -> Result<(Hold, Lun, Option<Lun>), ManageError> {
        let hold = self.busy.hold(name, "being mapped")?;
        let (served_as, _) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        let lun = number.map(|number| Lun::new(number).ok_or(ManageError::Lun(number))).transpose()?;
        Ok((hold, served_as, lun))
    }

    fn renumber(&mut self, name: &str, numbers: (Lun, Lun), force: bool, hold: Hold) -> Result<Step, ManageError> {
        let (from, to) = numbers;
        if from == to {
            return Ok(Step::Done(Answer::Changed(Vec::new())));
        }
        if force {
            return self.renumber_now(name, from, to).map(Step::Done);
        }
        let volume = name.to_owned();
        Ok(self.when_unused(name, Way::HyperScsi, move |manager| {
            let _hold = hold;
            manager.renumber_now(&volume, from, to).map(Step::Done)
        }))
    }

    fn renumber_now(&mut self, name: &str, from: Lun, to: Lun) -> Result<Answer, ManageError> {
        let taken = || ManageError::LunTaken { lun: to, place: "the server".into() };
        if self.is_taken(to) {
            return Err(taken());
        }
        let volume = self.volume_with(name, |volume| VolumeConfig { lun: to, ..volume })?;
        self.keep_definition(&volume)?;
        let failure = match self.target.renumber_volume(from, to) {
            Ok(true) => None,
            Ok(false) => Some(ManageError::NoVolume(name.to_owned())),
            Err(_) => Some(taken()),
        };
        if let Some(failure) = failure {
            self.keep_served();
            return Err(failure);
        }
        self.put_definition(volume);
        Ok(self.changed(format!("volume {name} is logical unit {to} now, {from} before")))
    }

    /// Gives a volume another number; who calls this keeps it. `false`: it has the old one still.
    pub(super) fn renumber_unkept(&mut self, name: &str, from: Lun, to: Lun) -> bool {
        let is_done = matches!(self.target.renumber_volume(from, to), Ok(true));
        if is_done && let Some(volume) = self.volumes.get(name).cloned() {
            self.put_definition(VolumeConfig { lun: to, ..volume });
        }
        is_done
    }

    fn map_to_target(
        &mut self,
        volume: &str,
        target: &str,
        lun: Option<Lun>,
        (force, hold): (bool, Hold),
    ) -> Result<Step, ManageError> {
        let target: IscsiName = target.parse().map_err(|_| ManageError::TargetName(target.to_owned()))?;
        let mapped = self.mapped(volume, &target, lun)?;
        if force || !mapped.is_moved {
            return self.map_now(volume, &target, mapped).map(Step::Done);
        }
        let (volume, way) = (volume.to_owned(), Way::Target(target.to_string()));
        Ok(self.when_unused(&volume.clone(), way, move |manager| {
            let _hold = hold;
            let mapped = manager.mapped(&volume, &target, lun)?;
            manager.map_now(&volume, &target, mapped).map(Step::Done)
        }))
    }

    /// The target, which has this volume too, as its next unit when no number is said.
    pub(super) fn mapped(&self, volume: &str, target: &IscsiName, lun: Option<Lun>) -> Result<Mapped, ManageError> {
        let there = self.target.target_node(target);
        let mut config = there.map_or_else(|| self.new_target(target.clone(), volume), Ok)?;
        let units = &mut config.units;
        let before = units.len();
        units.retain(|_, mapped| mapped != volume);
        let is_moved = units.len() != before;
        let is_reserved = |lun| self.is_missing_at(target, lun);
        let lun = lun.or_else(|| free_lun(units.keys(), is_reserved)).ok_or(ManageError::Full)?;
        if is_reserved(lun) || units.insert(lun, volume.to_owned()).is_some() {
            return Err(ManageError::LunTaken { lun, place: target.to_string() });
        }
        Ok(Mapped { config, lun, is_moved })
    }

    fn map_now(&mut self, volume: &str, target: &IscsiName, mapped: Mapped) -> Result<Answer, ManageError> {
        let Mapped { config, lun, .. } = mapped;
        self.change_targets_of(volume, TargetChanges::from([(target.clone(), Some(config))]))?;
        Ok(self.changed(format!("volume {volume} is logical unit {lun} of {target}")))
    }

    /// Keeps targets with another number of a volume, and serves them.
    fn change_targets_of(&mut self, volume: &str, targets: TargetChanges) -> Result<(), ManageError> {
        let now = self.volumes.get(volume).cloned();
        self.keep_volume(volume, now.as_ref(), &targets)?;
        if let Err(error) = self.serve_targets(targets) {
            self.keep_served();
            return Err(error);
        }
        Ok(())
    }

    /// A target without units: as it is configured, else for whom the server's `allow` names.
    fn new_target(&self, name: IscsiName, volume: &str) -> Result<TargetNodeConfig, ManageError> {
        if let Some(configured) = self.configured_target(&name) {
            return Ok(configured);
        }
        if self.has_secrets() {
            return Err(ManageError::OpenTarget(name.to_string()));
        }
        let like = TargetNodeConfig::of_volume(volume, self.allow.clone());
        let like = like.map_err(|_| ManageError::TargetName(name.to_string()))?;
        Ok(TargetNodeConfig { name, units: BTreeMap::new(), ..like })
    }

    pub(super) fn unmap_volume(&mut self, volume: &str, target: &str, force: bool) -> Result<Step, ManageError> {
        let hold = self.busy.hold(volume, "being unmapped")?;
        let name: Option<IscsiName> = target.parse().ok();
        let name = name.ok_or_else(|| ManageError::NoTarget(target.to_owned()))?;
        let targets = self.unmapped(volume, &name)?;
        if force {
            return self.unmap_now(volume, &name, targets).map(Step::Done);
        }
        let (volume, way) = (volume.to_owned(), Way::Target(name.to_string()));
        Ok(self.when_unused(&volume.clone(), way, move |manager| {
            let _hold = hold;
            let targets = manager.unmapped(&volume, &name)?;
            manager.unmap_now(&volume, &name, targets).map(Step::Done)
        }))
    }

    /// The target, which has this volume no longer.
    pub(super) fn unmapped(&self, volume: &str, target: &IscsiName) -> Result<TargetChanges, ManageError> {
        let config = self.target.target_node(target).ok_or_else(|| ManageError::NoTarget(target.to_string()))?;
        if config.units.values().all(|unit| unit != volume) {
            return Err(ManageError::NotThere { volume: volume.to_owned(), target: target.to_string() });
        }
        Ok(TargetChanges::from([without_unit(config, volume)]))
    }

    fn unmap_now(&mut self, volume: &str, target: &IscsiName, targets: TargetChanges) -> Result<Answer, ManageError> {
        self.change_targets_of(volume, targets)?;
        Ok(self.changed(format!("volume {volume} is no logical unit of {target} any more")))
    }
}

/// A target as it is to be when a volume is mapped.
pub(super) struct Mapped {
    config: TargetNodeConfig,
    pub(super) lun: Lun,
    /// Whether the volume was a unit of that target already.
    pub(super) is_moved: bool,
}

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::*;

    #[test]
    fn a_volume_that_has_not_the_number_any_more_that_was_asked_about_stays_where_it_is() {
        let config = config(&["a=ram:1M"]);
        let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
        let lun = |number| Lun::new(number).unwrap();
        let error = manager.renumber_now("a", lun(7), lun(9)).unwrap_err();
        assert_eq!(error.code(), "volume-unknown");
        assert_eq!((manager.find("a").unwrap().0, manager.volumes["a"].lun), (lun(0), lun(0)));
        assert!(manager.kept.changes().is_empty());
        manager.renumber_now("a", lun(0), lun(9)).unwrap();
        assert_eq!((manager.find("a").unwrap().0, manager.volumes["a"].lun), (lun(9), lun(9)));
        manager.into_target().stop().unwrap();
    }
}
