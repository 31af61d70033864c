//! Volumes that come and go.

use sanwire_core::Protection;
use sanwire_scsi::IscsiName;
use sanwire_store::{Acceptance, VolumeSpec};

use super::slow::{FLUSH_TIMEOUT, Slow, Step};
use super::usage::Way;
use super::{Answer, ManageError, Manager};
use crate::config::{Origin, VolumeConfig};
use crate::free_number::free_lun;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::removal::Removal;

impl Manager {
    pub(super) fn add_volume(
        &mut self,
        spec: VolumeSpec,
        target: Option<String>,
        acceptance: Acceptance,
    ) -> Result<Answer, ManageError> {
        let name = spec.name.to_string();
        if self.find(&name).is_some() {
            return Err(ManageError::Taken(name));
        }
        if let Some(missing) = self.kept.missing.iter().find(|missing| *missing.volume.spec.name == *name) {
            return Err(ManageError::Missing { name, reason: missing.reason.clone() });
        }
        let mut exports = self.target.exports();
        let place = match target {
            Some(target) => add_unit(&mut exports, &target, &name)?,
            None if self.is_protected(&spec) => String::new(),
            None => self.own_target(&mut exports, &name),
        };
        let opened = self.open_volume(spec.with_absolute_path(), Origin::Management, acceptance)?;
        let kept = self.keep_targets(&exports);
        if let Err(error) = kept.and_then(|()| self.serve_targets(exports)) {
            self.take_back(opened);
            self.keep_served();
            return Err(error);
        }
        Ok(self.changed(format!("volume {name} is served{place}")))
    }

    /// Whether a volume must not pass in the clear, as it does over iSCSI.
    fn is_protected(&self, spec: &VolumeSpec) -> bool {
        spec.security.unwrap_or(self.protection) > Protection::Checksum
    }

    /// Whether any clients must know a secret: then no target is made that is open without one.
    pub(super) fn has_secrets(&self) -> bool {
        self.has_password || self.target.clients().list().iter().any(|client| client.psk.is_some())
    }

    /// Gives a volume a target of its own, where iSCSI is served and its name can be that of a target; says so.
    fn own_target(&self, exports: &mut Vec<TargetNodeConfig>, volume: &str) -> String {
        if self.target.wires().iter().all(|wire| wire.portal().is_none()) {
            return String::new();
        }
        if self.has_secrets() {
            return ", over HyperSCSI only: the password does not guard iSCSI targets, so none is made for it".into();
        }
        match TargetNodeConfig::of_volume(volume, self.allow.clone()) {
            Ok(export) if exports.iter().all(|other| other.name != export.name) => {
                let export = self
                    .configured_target(export.name.as_str())
                    .map_or(export.clone(), |configured| TargetNodeConfig { units: export.units, ..configured });
                let place = format!(", as logical unit 0 of {}", export.name);
                exports.push(export);
                place
            }
            _ => String::new(),
        }
    }

    pub(super) fn remove_volume(&mut self, name: &str, force: bool) -> Result<Step, ManageError> {
        if self.find(name).is_none() {
            return self.remove_missing(name).map(Step::Done);
        }
        if !force {
            self.check_unused(name, Way::Any)?;
        }
        let mut exports = self.target.exports();
        for export in &mut exports {
            export.units.retain(|_, volume| volume != name);
        }
        exports.retain(|export| !export.units.is_empty() || export.redirect.is_some());
        let left: Vec<VolumeConfig> =
            self.volumes.iter().filter(|volume| *volume.spec.name != *name).cloned().collect();
        self.keep(&left, &exports)?;
        if let Err(error) = self.serve_targets(exports) {
            self.keep_served();
            return Err(error);
        }
        let answer = self.changed(format!("volume {name} is not served any more"));
        Ok(match self.begin_to_close(name) {
            Some(removal) => Step::Slow(Slow::Flush { name: name.to_owned(), removal, answer }),
            None => Step::Done(answer),
        })
    }

    /// Serves a volume no longer that could not be opened when the server started.
    fn remove_missing(&mut self, name: &str) -> Result<Answer, ManageError> {
        let missing = &mut self.kept.missing;
        let at = missing.iter().position(|missing| *missing.volume.spec.name == *name);
        let gone = missing.remove(at.ok_or_else(|| ManageError::NoVolume(name.to_owned()))?);
        if let Err(error) = self.keep_targets(&self.target.exports()) {
            self.kept.missing.push(gone);
            return Err(error);
        }
        Ok(self.changed(format!("volume {name}, which could not be opened, is not to be served any more")))
    }

    /// Serves a volume over HyperSCSI, with the lowest number that is free.
    pub(super) fn open_volume(
        &mut self,
        spec: VolumeSpec,
        origin: Origin,
        acceptance: Acceptance,
    ) -> Result<Opened, ManageError> {
        let units = self.target.units().iter();
        let lun = free_lun(units.iter().map(|(lun, _)| lun), |lun| self.is_missing(lun)).ok_or(ManageError::Full)?;
        self.open_at(VolumeConfig { lun, spec, origin }, acceptance)
    }

    /// Serves a volume over HyperSCSI with its number, which is free.
    pub(super) fn open_at(&mut self, volume: VolumeConfig, acceptance: Acceptance) -> Result<Opened, ManageError> {
        let is_first = self.target.add_volume(&volume, acceptance)?;
        self.volumes.push(volume.clone());
        Ok(Opened { spec: volume.spec, is_first })
    }

    /// As if it had not been opened: who tries again later is not asked where the former volume is.
    pub(super) fn take_back(&mut self, Opened { spec, is_first }: Opened) {
        // Nothing was written to it.
        let _ = self.close_volume(&spec.name);
        if is_first {
            self.target.forget_volume(&spec);
        }
    }

    /// Serves a volume over HyperSCSI no longer; no target has it any more. All that was written to it is stable then.
    ///
    /// # Errors
    /// [`ManageError::Unstable`] when it is not: the volume is gone all the same.
    pub(super) fn close_volume(&mut self, name: &str) -> Result<(), ManageError> {
        let unstable = |source| ManageError::Unstable { name: name.to_owned(), source };
        self.begin_to_close(name).map_or(Ok(()), |removal| removal.wait(FLUSH_TIMEOUT)).map_err(unstable)
    }

    /// Serves a volume over HyperSCSI no longer; what was written to it is being made stable.
    fn begin_to_close(&mut self, name: &str) -> Option<Removal> {
        let lun = self.find(name).map(|(lun, _)| lun);
        let removal = lun.and_then(|lun| self.target.remove_volume(lun));
        self.volumes.retain(|volume| *volume.spec.name != *name);
        self.kept.pending.remove(name);
        removal
    }
}

/// A volume that was opened, and may have to be taken back.
pub(super) struct Opened {
    spec: VolumeSpec,
    /// Whether it was never served before.
    is_first: bool,
}

pub(super) fn acceptance(renew: bool, adopt: bool) -> Result<Acceptance, ManageError> {
    match (renew, adopt) {
        (false, false) => Ok(Acceptance::Known),
        (false, true) => Ok(Acceptance::Adopted),
        (true, false) => Ok(Acceptance::Renewed),
        (true, true) => Err(ManageError::RenewAndAdopt),
    }
}

/// Makes a volume the next logical unit of a target; says which.
fn add_unit(exports: &mut [TargetNodeConfig], target: &str, volume: &str) -> Result<String, ManageError> {
    let name: Option<IscsiName> = target.parse().ok();
    let export = exports.iter_mut().find(|export| Some(&export.name) == name.as_ref());
    let export = export.ok_or_else(|| ManageError::NoTarget(target.to_owned()))?;
    let lun = free_lun(export.units.keys(), |_| false).ok_or(ManageError::Full)?;
    export.units.insert(lun, volume.to_owned());
    Ok(format!(", as logical unit {lun} of {}", export.name))
}
