//! Other protection of volumes.

use sanwire_core::{Lun, ParseProtectionError, Protection};
use sanwire_store::VolumeSpec;

use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::derived::DerivedError;

impl Manager {
    /// Changes one thing of a volume: how its packets are guarded, whether its content is protected, or who owns it.
    pub(super) fn set_volume(
        &mut self,
        name: &str,
        security: Option<String>,
        protected: Option<bool>,
        owners: Option<Vec<String>>,
    ) -> Result<Step, ManageError> {
        match (security, protected, owners) {
            (Some(security), None, None) => self.secure_by_request(name, &security),
            (None, Some(protected), None) => self.protect(name, protected),
            (None, None, Some(owners)) => self.give_owners(name, owners).map(Step::Done),
            _ => Err(ManageError::OneSetting),
        }
    }

    /// Guards a volume's packets otherwise from now on.
    fn secure_by_request(&mut self, name: &str, security: &str) -> Result<Step, ManageError> {
        let security: Protection = security
            .parse()
            .map_err(|source: ParseProtectionError| ManageError::Security { name: name.to_owned(), source })?;
        let hold = self.busy.hold(name, "getting another protection level")?;
        self.check_level(name, security)?;
        let with_level =
            |volume: VolumeConfig| VolumeConfig { spec: volume.spec.clone().with_security(Some(security)), ..volume };
        self.keep_definition(&self.volume_with(name, with_level)?)?;
        let must_read = self.begin_to_secure(name, Some(security)).inspect_err(|_| self.keep_served())?;
        if !must_read {
            return self.secured_by_request(name, security).map(Step::Done);
        }
        let (counter, name) = (self.target.counter(), name.to_owned());
        // A shard that has counted has read its mail.
        Ok(Step::slow(
            "telling all threads that serve",
            move || drop(counter.count()),
            move |manager, ()| {
                let _hold = hold;
                manager.secured_by_request(&name, security).map(Step::Done)
            },
        ))
    }

    /// A derived volume shows what its parent does: it is guarded as that one at least.
    pub(super) fn check_level(&self, name: &str, level: Protection) -> Result<(), ManageError> {
        let level_of =
            |volume: &str| self.volumes.get(volume).map(|volume| volume.spec.security.unwrap_or(self.protection));
        let refused = |name: &str, level, parent: &str, parent_level| {
            let source = DerivedError::Level { level, parent: parent.to_owned(), parent_level };
            Err(ManageError::Derived { name: name.to_owned(), source })
        };
        let parent = self.spec_of(name).and_then(VolumeSpec::parent);
        if let Some((parent, parent_level)) = parent.and_then(|parent| Some((parent, level_of(parent)?)))
            && level < parent_level
        {
            return refused(name, level, parent, parent_level);
        }
        for derived in self.derivations.descendants(name) {
            match level_of(&derived) {
                Some(lower) if lower < level => return refused(&derived, lower, name, level),
                _ => {}
            }
        }
        Ok(())
    }

    fn secured_by_request(&mut self, name: &str, security: Protection) -> Result<Answer, ManageError> {
        let line = self.finish_securing(name, Some(security)).inspect_err(|_| self.keep_served())?;
        let pending = self.kept.pending.get_mut(name).into_iter();
        pending.for_each(|spec| *spec = spec.clone().with_security(Some(security)));
        self.keep_again(name);
        Ok(line.map_or(Answer::Changed(Vec::new()), |line| self.changed(line)))
    }

    /// Whether a volume is to be guarded less than it is.
    pub(super) fn is_lower(&self, spec: &VolumeSpec) -> bool {
        let level = |spec: &VolumeSpec| spec.security.unwrap_or(self.protection);
        self.volumes.get(&*spec.name).is_some_and(|volume| level(spec) < level(&volume.spec))
    }

    /// Guards volumes otherwise, as the configuration says; what has changed, for people.
    pub(super) fn secure_all(&mut self, specs: &[&VolumeSpec]) -> Vec<String> {
        specs.iter().filter_map(|spec| self.secure_configured(spec)).collect()
    }

    /// As the configuration says, where less is demanded than before, or all shards know.
    fn secure_configured(&mut self, spec: &VolumeSpec) -> Option<String> {
        match self.finish_securing(&spec.name, spec.security) {
            Ok(line) => line,
            Err(error) => Some(format!("not changed: volume {}: {error}", spec.name)),
        }
    }

    /// Whether the shards have to read first that the volume demands more from now on.
    pub(super) fn begin_to_secure(&self, name: &str, security: Option<Protection>) -> Result<bool, ManageError> {
        let (lun, wanted) = self.secured(name, security)?;
        Ok(self.target.begin_to_secure(lun, &wanted)?)
    }

    /// What has changed, for people.
    fn finish_securing(&mut self, name: &str, security: Option<Protection>) -> Result<Option<String>, ManageError> {
        let (lun, wanted) = self.secured(name, security)?;
        self.target.finish_securing(lun, &wanted)?;
        let usual = self.protection;
        let level = |spec: &VolumeSpec| spec.security.unwrap_or(usual);
        let Some(volume) = self.volumes.get_mut(name) else { return Ok(None) };
        let [before, after] = [&volume.spec, &wanted].map(level);
        volume.spec = wanted;
        self.revise_volume(name);
        self.review_copies();
        Ok((before != after).then(|| format!("volume {name} is protected by security {after} now, {before} before")))
    }

    /// A volume as it is to be, and its number.
    fn secured(&self, name: &str, security: Option<Protection>) -> Result<(Lun, VolumeSpec), ManageError> {
        let missing = || ManageError::NoVolume(name.to_owned());
        let (lun, _) = self.find(name).ok_or_else(missing)?;
        let volume = self.volumes.get(name).ok_or_else(missing)?;
        Ok((lun, volume.spec.clone().with_security(security)))
    }
}
