//! What is kept of targets that are made, set and removed by themselves, and of those in which volumes are missing.

use std::collections::{BTreeMap, BTreeSet};

use super::Keeping;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::front::iscsi::target_table::TargetChanges;
use crate::kept::{self, Changed};
use crate::manage::{ManageError, Manager};
use crate::server::MissingVolume;

impl Manager {
    /// Keeps a target as it is about to be, with all its units.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(in crate::manage) fn keep_target(&mut self, now: &TargetNodeConfig) -> Result<(), ManageError> {
        let targets = TargetChanges::from([(now.name.clone(), Some(now.clone()))]);
        if !self.kept.is_missing_in(&targets) {
            return self.kept.keep_edit(kept::edit_of_target(&self.kept.configured, now));
        }
        let mut exports = self.target.exports();
        exports.retain(|export| export.name != now.name);
        exports.push(now.clone());
        self.keep_targets(&exports)
    }

    /// Keeps that a target will not be there: what is missing in it has no number there any more.
    ///
    /// # Errors
    /// As there.
    pub(in crate::manage) fn keep_removal(&mut self, target: &TargetNodeConfig) -> Result<(), ManageError> {
        let with_missing = self.kept.with_missing(vec![target.clone()]);
        let gone = with_missing.first().unwrap_or(target);
        self.kept.keep_edit(kept::edit_of_removal(&self.kept.configured, gone))?;
        for missing in &mut self.kept.missing {
            missing.units.retain(|(name, _)| name != target.name.as_str());
        }
        Ok(())
    }
}

impl Keeping {
    /// The targets that were removed, and are configured still.
    pub(super) fn removed_targets(&self, exports: &[TargetNodeConfig]) -> BTreeMap<String, Changed<TargetSettings>> {
        let record = self.changes();
        let removed = record.target_settings.iter().filter(|(_, change)| change.now.is_none());
        let names: Vec<String> = removed.map(|(name, _)| name.clone()).collect();
        drop(record);
        if names.is_empty() {
            return BTreeMap::new();
        }
        let there: BTreeSet<&str> = exports.iter().map(|export| export.name.as_str()).collect();
        let removed = names.into_iter().filter(|name| !there.contains(name.as_str()));
        removed
            .filter_map(|name| {
                let configured = self.configured.target(&name.parse().ok()?)?;
                Some((name, kept::removed(configured)))
            })
            .collect()
    }

    /// Whether a volume that is missing has a number in one of these targets.
    pub(super) fn is_missing_in(&self, targets: &TargetChanges) -> bool {
        let mut units = self.missing.iter().flat_map(|missing| &missing.units);
        units.any(|(target, _)| targets.keys().any(|name| name.as_str() == target))
    }

    /// The targets, with what is missing in them.
    pub(super) fn with_missing(&self, mut exports: Vec<TargetNodeConfig>) -> Vec<TargetNodeConfig> {
        let mut places: BTreeMap<String, usize> =
            exports.iter().zip(0..).map(|(export, at)| (export.name.to_string(), at)).collect();
        for MissingVolume { volume, units, .. } in &self.missing {
            for (target, lun) in units {
                let name = volume.spec.name.to_string();
                match places.get(target).and_then(|at| exports.get_mut(*at)) {
                    Some(export) => drop(export.units.entry(*lun).or_insert(name)),
                    None => {
                        let like = TargetNodeConfig::of_volume(&name, self.configured.allow.clone()).ok();
                        let units = BTreeMap::from([(*lun, name)]);
                        let Some((like, name)) = like.zip(target.parse().ok()) else { continue };
                        places.insert(target.clone(), exports.len());
                        exports.push(TargetNodeConfig { name, units, ..like });
                    }
                }
            }
        }
        exports
    }
}
