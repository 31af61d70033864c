//! Under which numbers volumes are found.

use std::collections::BTreeMap;

use sanwire_core::Lun;
use sanwire_scsi::IscsiName;

use super::busy::Hold;
use super::response::Answer;
use super::slow::Step;
use super::usage::Way;
use super::{ManageError, Manager};
use crate::config::VolumeConfig;
use crate::free_number::free_lun;
use crate::front::iscsi::target_node::TargetNodeConfig;

impl Manager {
    pub(super) fn map_volume(
        &mut self,
        name: &str,
        number: Option<u16>,
        target: Option<&str>,
        force: bool,
    ) -> Result<Step, ManageError> {
        let hold = self.busy.hold(name, "being mapped")?;
        let (served_as, _) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        let lun = number.map(|number| Lun::new(number).ok_or(ManageError::Lun(number))).transpose()?;
        match (target, lun) {
            (Some(target), lun) => self.map_to_target(name, target, lun, (force, hold)),
            (None, Some(lun)) => self.renumber(name, (served_as, lun), force, hold),
            (None, None) => Err(ManageError::Where(name.to_owned())),
        }
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
        let taken = |()| ManageError::LunTaken { lun: to, place: "the server".into() };
        if self.is_taken(to) {
            return Err(taken(()));
        }
        let volumes = self.volumes_with(name, |volume| VolumeConfig { lun: to, ..volume });
        self.keep(&volumes, &self.target.exports())?;
        if self.target.renumber_volume(from, to).is_err() {
            self.keep_served();
            return Err(taken(()));
        }
        self.volumes = volumes;
        Ok(self.changed(format!("volume {name} is logical unit {to} now, {from} before")))
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

    /// The targets, of which one has this volume too, as its next unit when no number is said.
    fn mapped(&self, volume: &str, target: &IscsiName, lun: Option<Lun>) -> Result<Mapped, ManageError> {
        let mut exports = self.target.exports();
        let at = match exports.iter().position(|export| export.name == *target) {
            Some(at) => at,
            None => {
                exports.push(self.new_target(target.clone(), volume)?);
                exports.len() - 1
            }
        };
        let units = &mut exports[at].units;
        let before = units.len();
        units.retain(|_, mapped| mapped != volume);
        let is_moved = units.len() != before;
        let lun = lun.or_else(|| free_lun(units.keys(), |_| false)).ok_or(ManageError::Full)?;
        if units.insert(lun, volume.to_owned()).is_some() {
            return Err(ManageError::LunTaken { lun, place: target.to_string() });
        }
        Ok(Mapped { exports, lun, is_moved })
    }

    fn map_now(&mut self, volume: &str, target: &IscsiName, mapped: Mapped) -> Result<Answer, ManageError> {
        let Mapped { exports, lun, .. } = mapped;
        self.set_exports(exports)?;
        Ok(self.changed(format!("volume {volume} is logical unit {lun} of {target}")))
    }

    /// Keeps other targets, and serves them.
    fn set_exports(&mut self, exports: Vec<TargetNodeConfig>) -> Result<(), ManageError> {
        self.keep_targets(&exports)?;
        if let Err(error) = self.serve_targets(exports) {
            self.keep_served();
            return Err(error);
        }
        Ok(())
    }

    /// A target without units: as it is configured, else for whom the server's `allow` names.
    fn new_target(&self, name: IscsiName, volume: &str) -> Result<TargetNodeConfig, ManageError> {
        if let Some(configured) = self.configured_target(name.as_str()) {
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
        let exports = self.unmapped(volume, &name)?;
        if force {
            return self.unmap_now(volume, &name, exports).map(Step::Done);
        }
        let (volume, way) = (volume.to_owned(), Way::Target(name.to_string()));
        Ok(self.when_unused(&volume.clone(), way, move |manager| {
            let _hold = hold;
            let exports = manager.unmapped(&volume, &name)?;
            manager.unmap_now(&volume, &name, exports).map(Step::Done)
        }))
    }

    /// The targets, of which one has this volume no longer.
    fn unmapped(&self, volume: &str, target: &IscsiName) -> Result<Vec<TargetNodeConfig>, ManageError> {
        let mut exports = self.target.exports();
        let export = exports.iter_mut().find(|export| export.name == *target);
        let export = export.ok_or_else(|| ManageError::NoTarget(target.to_string()))?;
        let before = export.units.len();
        export.units.retain(|_, mapped| mapped != volume);
        if export.units.len() == before {
            return Err(ManageError::NotThere { volume: volume.to_owned(), target: target.to_string() });
        }
        exports.retain(|export| !export.units.is_empty() || export.redirect.is_some());
        Ok(exports)
    }

    fn unmap_now(
        &mut self,
        volume: &str,
        target: &IscsiName,
        exports: Vec<TargetNodeConfig>,
    ) -> Result<Answer, ManageError> {
        self.set_exports(exports)?;
        Ok(self.changed(format!("volume {volume} is no logical unit of {target} any more")))
    }
}

/// The targets as they are to be when a volume is mapped.
struct Mapped {
    exports: Vec<TargetNodeConfig>,
    lun: Lun,
    /// Whether the volume was a unit of that target already.
    is_moved: bool,
}
