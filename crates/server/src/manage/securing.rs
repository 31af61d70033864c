//! Other protection of volumes.

use sanwire_core::{ParseProtectionError, Protection};
use sanwire_store::VolumeSpec;

use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;

impl Manager {
    /// Guards a volume's packets otherwise from now on.
    pub(super) fn secure_by_request(&mut self, name: &str, security: &str) -> Result<Answer, ManageError> {
        let security: Protection = security
            .parse()
            .map_err(|source: ParseProtectionError| ManageError::Security { name: name.to_owned(), source })?;
        let with_level =
            |volume: VolumeConfig| VolumeConfig { spec: volume.spec.clone().with_security(Some(security)), ..volume };
        self.keep(&self.volumes_with(name, with_level), &self.target.exports())?;
        let line = self.secure_volume(name, Some(security)).inspect_err(|_| self.keep_served())?;
        let pending = self.kept.pending.get_mut(name).into_iter();
        pending.for_each(|spec| *spec = spec.clone().with_security(Some(security)));
        Ok(line.map_or(Answer::Changed(Vec::new()), |line| self.changed(line)))
    }

    /// Whether a volume is to be guarded less than it is.
    pub(super) fn is_lower(&self, spec: &VolumeSpec) -> bool {
        let level = |spec: &VolumeSpec| spec.security.unwrap_or(self.protection);
        self.volumes.iter().any(|volume| volume.spec.name == spec.name && level(spec) < level(&volume.spec))
    }

    /// Guards volumes otherwise, as the configuration says; what has changed, for people.
    pub(super) fn secure_all(&mut self, specs: &[&VolumeSpec]) -> Vec<String> {
        specs.iter().filter_map(|spec| self.secure_configured(spec)).collect()
    }

    /// As the configuration says.
    fn secure_configured(&mut self, spec: &VolumeSpec) -> Option<String> {
        match self.secure_volume(&spec.name, spec.security) {
            Ok(line) => line,
            Err(error) => Some(format!("not changed: volume {}: {error}", spec.name)),
        }
    }

    /// What has changed, for people.
    fn secure_volume(&mut self, name: &str, security: Option<Protection>) -> Result<Option<String>, ManageError> {
        let missing = || ManageError::NoVolume(name.to_owned());
        let (lun, _) = self.find(name).ok_or_else(missing)?;
        let volume = self.volumes.iter_mut().find(|volume| *volume.spec.name == *name).ok_or_else(missing)?;
        let wanted = volume.spec.clone().with_security(security);
        let usual = self.protection;
        let [before, after] = [&volume.spec, &wanted].map(|spec| spec.security.unwrap_or(usual));
        self.target.secure_volume(lun, &wanted)?;
        volume.spec = wanted;
        Ok((before != after).then(|| format!("volume {name} is guarded by security {after} now, {before} before")))
    }
}
