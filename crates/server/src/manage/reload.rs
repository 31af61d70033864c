//! A configuration that is read again.

use std::collections::BTreeMap;

use sanwire_store::{Acceptance, VolumeSpec};

use super::difference::{self, Difference};
use super::volumes::Opened;
use super::{Answer, ManageError, Manager};
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::kept;

/// What a server is to be.
struct Wanted {
    /// What file and command line say now.
    configured: ServerConfig,
    /// That, with what was changed while the server ran, and without what could not be opened when it started.
    config: ServerConfig,
    /// What could not be opened, and is still to be served.
    missing: Vec<VolumeConfig>,
    /// The targets with what could not be opened.
    exports: Vec<TargetNodeConfig>,
    /// Changes that the configuration overrides now.
    notes: Vec<String>,
}

impl Manager {
    fn wanted(&self) -> Result<Wanted, ManageError> {
        let configured = (self.source)().map_err(ManageError::Configuration)?;
        let (mut config, notes) = kept::merge(&configured, &self.kept.changes);
        let is_missing =
            |wanted: &&VolumeConfig| self.kept.missing.iter().any(|missing| missing.volume.spec == wanted.spec);
        let missing: Vec<VolumeConfig> = config.volumes.iter().filter(is_missing).cloned().collect();
        let exports = config.exports.clone();
        config.volumes.retain(|volume| !is_missing(&volume));
        config.exports = without(&exports, &missing);
        Ok(Wanted { configured, config, missing, exports, notes })
    }

    /// Brings the server to what the configuration says now, with what was changed while it ran. Without `force` nothing is done
    /// when that takes volumes away from sessions that use them.
    pub(super) fn reload(&mut self, force: bool) -> Result<Answer, ManageError> {
        let Wanted { configured, config: wanted, missing, exports, notes } = self.wanted()?;
        let terms = wanted.terms();
        terms.check()?;
        let difference = Difference::between(&self.volumes, &wanted.volumes);
        if !force {
            let prospect = self.target.clients().foresee_terms(terms.clone());
            let taken = self.taken_away(&difference, &prospect, &wanted.exports)?;
            if !taken.is_empty() {
                return Err(ManageError::TakesAway(taken.join(", ")));
            }
        }
        let (mut opened, mut changed) = self.open_wanted(difference.added)?;
        let still_missing = self.open_missing(missing, &mut opened, &mut changed);
        let exports = without(&exports, &still_missing);
        let before = self.target.exports();
        // What may pass in the clear from now on may have a target, and what has none any more need not.
        let (lowered, raised): (Vec<_>, Vec<_>) = difference.secured.iter().partition(|spec| self.is_lower(spec));
        if let Err(error) = self.target.set_exports_where(exports.clone(), &lowered) {
            opened.into_iter().for_each(|volume| self.take_back(volume));
            return Err(error.into());
        }
        self.restore_access_states();
        changed.extend(self.secure_all(&lowered));
        changed.extend(difference::of_exports(&before, &exports));
        changed.extend(self.configure_clients(terms)?);
        for name in difference.removed {
            let closed = self.close_volume(&name);
            changed.push(
                closed
                    .map_or_else(|unstable| unstable.to_string(), |()| format!("volume {name} is not served any more")),
            );
        }
        changed.extend(self.secure_all(&raised));
        for (name, spec, size_bytes) in difference.resized {
            changed.extend(self.resize_configured(&name, &spec, size_bytes));
        }
        changed.extend(difference.kept.iter().map(|spec| {
            let name = &spec.name;
            format!("not changed: volume {name}: only its size and its security can be changed while it is served; remove and add it")
        }));
        changed.extend(notes);
        self.has_password = wanted.has_password();
        self.allow = wanted.allow;
        self.kept.missing.retain(|missing| still_missing.iter().any(|volume| volume.spec == missing.volume.spec));
        let kept = self.configured_anew(configured, &wanted.volumes, difference.kept);
        changed.extend(kept.err().map(|error| match error {
            ManageError::Keep { path, source } => format!(
                "what ctl has changed cannot be kept beside this configuration in {}: {source}; see to that, and reload again",
                path.display()
            ),
            error => error.to_string(),
        }));
        Ok(Answer::Changed(changed))
    }

    /// Opens what is new in the configuration: all of it, or nothing.
    fn open_wanted(&mut self, added: Vec<VolumeConfig>) -> Result<(Vec<Opened>, Vec<String>), ManageError> {
        let (mut opened, mut lines) = (Vec::new(), Vec::new());
        for VolumeConfig { spec, origin, .. } in added {
            let name = spec.name.to_string();
            match self.open_volume(spec, origin, Acceptance::Known) {
                Ok(volume) => opened.push(volume),
                Err(error) => {
                    opened.into_iter().for_each(|volume| self.take_back(volume));
                    return Err(error);
                }
            }
            lines.push(format!("volume {name} is served"));
        }
        Ok((opened, lines))
    }

    /// Opens what could not be opened when the server started; gives what still cannot.
    fn open_missing(
        &mut self,
        missing: Vec<VolumeConfig>,
        opened: &mut Vec<Opened>,
        lines: &mut Vec<String>,
    ) -> Vec<VolumeConfig> {
        let mut still_missing = Vec::new();
        for volume in missing {
            let name = volume.spec.name.to_string();
            match self.open_at(volume.clone(), Acceptance::Known) {
                Ok(found) => {
                    opened.push(found);
                    lines.push(format!("volume {name} is served"));
                }
                Err(error) => {
                    lines.push(format!("volume {name} is still not served: {error}"));
                    still_missing.push(volume);
                }
            }
        }
        still_missing
    }

    /// From now on changes are those of this configuration.
    fn configured_anew(
        &mut self,
        configured: ServerConfig,
        wanted: &[VolumeConfig],
        pending: Vec<VolumeSpec>,
    ) -> Result<(), ManageError> {
        self.kept.configured = configured;
        self.kept.pending = pending.into_iter().map(|spec| (spec.name.to_string(), spec)).collect();
        let origins: BTreeMap<&str, Origin> = wanted.iter().map(|wanted| (&*wanted.spec.name, wanted.origin)).collect();
        for volume in &mut self.volumes {
            volume.origin = origins.get(&*volume.spec.name).copied().unwrap_or(volume.origin);
        }
        self.keep_targets(&self.target.exports())
    }

    /// Tells what a reload would do, and does nothing.
    pub(super) fn compare(&self) -> Result<Answer, ManageError> {
        let Wanted { config: wanted, missing, notes, .. } = self.wanted()?;
        let terms = wanted.terms();
        terms.check()?;
        let difference = Difference::between(&self.volumes, &wanted.volumes);
        let before = self.target.exports();
        let prospect = self.target.clients().foresee_terms(terms);
        let taken = self.taken_away(&difference, &prospect, &wanted.exports)?;
        let mut lines: Vec<String> = difference.would().collect();
        lines.extend(missing.iter().map(|volume| format!("volume {} would be sought again", volume.spec.name)));
        lines.extend(
            difference::of_exports(&before, &wanted.exports).into_iter().map(|line| format!("would be: {line}")),
        );
        lines.extend(notes);
        lines.extend(taken.into_iter().map(|line| format!("{line}: a reload is refused without --force")));
        Ok(Answer::Changed(lines))
    }
}

/// The targets without these volumes.
pub(super) fn without(exports: &[TargetNodeConfig], volumes: &[VolumeConfig]) -> Vec<TargetNodeConfig> {
    if volumes.is_empty() {
        return exports.to_vec();
    }
    let is_left = |name: &str| volumes.iter().all(|volume| *volume.spec.name != *name);
    let mut left = exports.to_vec();
    left.iter_mut().for_each(|export| export.units.retain(|_, volume| is_left(volume)));
    left.retain(|export| !export.units.is_empty() || export.redirect.is_some());
    left
}
