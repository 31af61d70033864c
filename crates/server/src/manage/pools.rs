//! Pools, and what is protected there.

use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;

impl Manager {
    /// Asks the file systems of the pools, which may take their time.
    pub(super) fn pools(&self) -> Step {
        let pools = self.target.pools().clone();
        let ask = move || pools.iter().map(|pool| pool.status(pools.is_default(pool))).collect::<Result<_, _>>();
        Step::slow("looking at the pools", ask, |_, statuses| Ok(Step::Done(Answer::Pools(statuses?))))
    }

    /// From now on the content of a volume is neither deleted nor rolled back, or can be again.
    pub(super) fn protect(&mut self, name: &str, protected: bool) -> Result<Answer, ManageError> {
        let _hold = self.busy.hold(name, "being protected")?;
        let set = |volume: VolumeConfig| VolumeConfig { spec: volume.spec.clone().with_protected(protected), ..volume };
        let spec = self.volume_with(name, |volume| volume)?.spec;
        // Its pool knows it also when the volume is not served.
        self.target.pools().protect(&spec, protected)?;
        if spec.protected == protected {
            return Ok(Answer::Changed(Vec::new()));
        }
        let volume = self.volume_with(name, set)?;
        self.keep_definition(&volume)?;
        self.put_definition(volume);
        let pending = self.kept.pending.get_mut(name).into_iter();
        pending.for_each(|spec| *spec = spec.clone().with_protected(protected));
        Ok(self.changed(of_protection(name, protected)))
    }

    /// As the configuration says; what has changed, for people.
    pub(super) fn protect_as_configured(&mut self, wanted: &[(String, bool)]) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, protected) in wanted {
            let Some(volume) = self.volumes.get_mut(name) else { continue };
            volume.spec = volume.spec.clone().with_protected(*protected);
            if let Err(error) = self.target.pools().protect(&volume.spec, *protected) {
                tracing::error!("{error}");
            }
            self.revise_volume(name);
            lines.push(of_protection(name, *protected));
        }
        lines
    }
}

fn of_protection(name: &str, protected: bool) -> String {
    match protected {
        true => format!("volume {name} is protected: its content is neither deleted nor rolled back"),
        false => format!("volume {name} is not protected any more"),
    }
}

#[cfg(test)]
pub(super) mod tests;
