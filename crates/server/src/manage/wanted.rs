//! What a server is to be when its configuration is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use sanwire_store::{VolumeName, VolumeSpec};

use super::difference::Difference;
use super::slow::Step;
use super::{ManageError, Manager};
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::counting::User;
use crate::derived::Lineage;
use crate::error::StartError;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::kept::{self, Configured};
use crate::revisions::Collection;

/// What file and command line say.
#[derive(Clone)]
pub(super) struct Configuration {
    pub(super) configured: ServerConfig,
    /// Whether what was changed while the server ran is forgotten.
    pub(super) resets: bool,
}

/// What a server is to be.
pub(super) struct Wanted {
    /// What file and command line say now.
    pub(super) configured: ServerConfig,
    /// That, with what was changed while the server ran, and without what could not be opened when it started.
    pub(super) config: ServerConfig,
    /// What could not be opened, and is still to be served.
    pub(super) missing: Vec<VolumeConfig>,
    /// The targets with what could not be opened.
    pub(super) exports: Vec<TargetNodeConfig>,
    /// Changes that the configuration overrides now.
    pub(super) notes: Vec<String>,
}

impl Manager {
    /// Goes on with what file and command line say.
    pub(super) fn read_configuration(
        &self,
        resets: bool,
        then: impl FnOnce(&mut Manager, Configuration) -> Result<Step, ManageError> + Send + 'static,
    ) -> Step {
        let source = Arc::clone(&self.source);
        let read = move || source.lock().unwrap_or_else(PoisonError::into_inner)();
        Step::slow("reading the configuration", read, move |manager, configured| {
            let mut configured = configured.map_err(ManageError::Configuration)?;
            manager.target.pools().place_all(&mut configured.volumes).map_err(StartError::from)?;
            then(manager, Configuration { configured, resets })
        })
    }

    pub(super) fn wanted(&self, Configuration { configured, resets }: Configuration) -> Wanted {
        let (mut config, mut notes) = match resets {
            false => kept::merge(&configured, &self.kept.changes()),
            true => (configured.clone(), Vec::new()),
        };
        notes.extend(self.take_lost(&mut config));
        notes.extend(self.target.pools().place_all(&mut config.volumes).err().map(|error| error.to_string()));
        if configured.pools != self.kept.configured.pools {
            notes.push("not changed: pools are as they are configured from the next start on".to_owned());
        }
        let missing = self.kept.missing.iter().map(|missing| &missing.volume);
        let kept: BTreeMap<_, _> = missing.map(|volume| (&volume.spec.name, volume)).collect();
        let same = |wanted: &VolumeConfig| kept.get(&wanted.spec.name).filter(|kept| kept.spec == wanted.spec);
        let is_missing = |wanted: &&VolumeConfig| same(wanted).is_some();
        // As volumes that are served do, they keep their numbers: those of their places may be taken.
        let found = |wanted: &VolumeConfig| Some(VolumeConfig { lun: same(wanted)?.lun, ..wanted.clone() });
        let missing: Vec<VolumeConfig> = config.volumes.iter().filter_map(found).collect();
        let exports = config.exports.clone();
        config.volumes.retain(|volume| !is_missing(&volume));
        config.exports = without(&exports, &missing);
        Wanted { configured, config, missing, exports, notes }
    }

    /// Takes out those that were derived while the server ran from volumes that are not configured any more: they go with these. What could
    /// not be opened before stays as it is, and comes again when its parent does.
    fn take_lost(&self, config: &mut ServerConfig) -> Vec<String> {
        let lineage = Lineage::of(config.volumes.iter().map(|volume| &volume.spec));
        let is_lost =
            |volume: &VolumeConfig| volume.origin == Origin::Management && lineage.depth(&volume.spec.name).is_err();
        let lost: BTreeSet<_> = config.volumes.iter().filter(|it| is_lost(it)).map(|it| it.spec.name.clone()).collect();
        let missing = |name: &VolumeName| self.kept.missing.iter().find(|missing| missing.volume.spec.name == *name);
        let (mut going, mut notes) = (Vec::new(), Vec::new());
        config.volumes.retain_mut(|volume| {
            if !lost.contains(&volume.spec.name) {
                return true;
            }
            if let Some(missing) = missing(&volume.spec.name) {
                volume.spec = missing.volume.spec.clone();
                return true;
            }
            notes.push(format!(
                "volume {}, which was derived by ctl, is not served: that from which it was derived is not configured any more",
                volume.spec.name
            ));
            going.push(volume.clone());
            false
        });
        config.exports = without(&config.exports, &going);
        notes
    }

    /// What this configuration would take away from its users, a line for each.
    pub(super) fn taken_by(&self, configured: &Configuration, users: &[User]) -> Vec<String> {
        let Wanted { config: wanted, .. } = self.wanted(configured.clone());
        let difference = Difference::between(self.volumes.values(), &wanted.volumes);
        let prospect = self.target.clients().foresee_terms(wanted.terms(), configured.resets);
        let mut lines = self.revoked_by(&difference);
        lines.extend(self.taken_away(users, &difference, &prospect, &wanted.exports));
        if configured.resets {
            lines.extend(self.renumbered_in_use(users, &wanted.volumes));
        }
        lines
    }

    /// From now on changes are those of this configuration.
    pub(super) fn configured_anew(
        &mut self,
        configured: ServerConfig,
        wanted: &[VolumeConfig],
        pending: Vec<VolumeSpec>,
    ) {
        self.kept.configured = Arc::new(Configured::new(configured));
        self.kept.pending = pending.into_iter().map(|spec| (spec.name.to_string(), spec)).collect();
        let wanted: BTreeMap<_, _> = wanted.iter().map(|volume| (&volume.spec.name, volume.origin)).collect();
        for volume in self.volumes.values_mut() {
            let origin = wanted.get(&volume.spec.name).copied().unwrap_or(volume.origin);
            if std::mem::replace(&mut volume.origin, origin) != origin {
                self.target.revisions().changed(Collection::Volumes, &volume.spec.name);
            }
        }
    }
}

/// The targets without these volumes.
pub(super) fn without(exports: &[TargetNodeConfig], volumes: &[VolumeConfig]) -> Vec<TargetNodeConfig> {
    if volumes.is_empty() {
        return exports.to_vec();
    }
    let gone: BTreeSet<&str> = volumes.iter().map(|volume| &*volume.spec.name).collect();
    let mut left = exports.to_vec();
    left.iter_mut().for_each(|export| export.units.retain(|_, volume| !gone.contains(volume.as_str())));
    left.retain(|export| !export.units.is_empty() || export.stays_empty());
    left
}
