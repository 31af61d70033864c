//! Who owns a volume, as that is changed while the server runs.

use sanwire_store::VolumeSpec;

use crate::config::VolumeConfig;
use crate::derived::owners;
use crate::manage::{Answer, ManageError, Manager};

impl Manager {
    /// From now on these may derive volumes from this one, and from what is derived from it.
    pub(in crate::manage) fn give_owners(&mut self, name: &str, owners: Vec<String>) -> Result<Answer, ManageError> {
        let _hold = self.busy.hold(name, "getting other owners")?;
        let volume = self.with_owners(name, owners)?;
        self.keep_definition(&volume)?;
        let line = of_owners(&volume.spec);
        let pending = self.kept.pending.get_mut(name).into_iter();
        pending.for_each(|spec| *spec = spec.clone().with_owners(volume.spec.owners.clone()));
        self.put_definition(volume);
        self.keep_again(name);
        self.review_copies();
        Ok(self.changed(line))
    }

    /// A volume as it is to be.
    pub(in crate::manage) fn with_owners(&self, name: &str, who: Vec<String>) -> Result<VolumeConfig, ManageError> {
        let volume =
            self.volume_with(name, |volume| VolumeConfig { spec: volume.spec.clone().with_owners(who), ..volume })?;
        owners(&volume.spec).map_err(|source| ManageError::Derived { name: name.to_owned(), source })?;
        Ok(volume)
    }

    /// As the configuration says; what has changed, for people.
    pub(in crate::manage) fn own_as_configured(&mut self, wanted: &[VolumeSpec]) -> Vec<String> {
        let mut lines = Vec::new();
        for spec in wanted {
            let Some(volume) = self.volumes.get(&*spec.name).cloned() else { continue };
            let volume = VolumeConfig { spec: volume.spec.with_owners(spec.owners.clone()), ..volume };
            lines.push(of_owners(&volume.spec));
            self.put_definition(volume);
        }
        lines
    }
}

fn of_owners(spec: &VolumeSpec) -> String {
    match &spec.owners[..] {
        [] => format!("volume {} is owned by nobody now", spec.name),
        owners => format!("volume {} is owned by {} now", spec.name, owners.join(", ")),
    }
}
