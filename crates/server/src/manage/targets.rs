//! iSCSI targets that are made, set and removed while the server runs.

mod following;

use std::collections::BTreeSet;

use sanwire_core::limits::LUNS_MAX;
use sanwire_scsi::IscsiName;

use super::response::Answer;
use super::slow::Step;
use super::usage::{Way, named, names, users_among};
use super::{ManageError, Manager};
use crate::counting::User;
use crate::events::Happening;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_settings::{TargetSettings, TargetSettingsError};
use crate::front::iscsi::target_table::TargetChanges;

/// As many targets as there may be volumes, each of which may have one for itself.
const TARGETS_MAX: usize = LUNS_MAX;

impl Manager {
    pub(super) fn add_target(&mut self, name: &str, settings: &TargetSettings) -> Result<Answer, ManageError> {
        let target = self.target_to_add(name, settings)?;
        self.keep_and_serve(&target)?;
        self.target.events().note(Happening::TargetAdded { target: target.name.to_string() });
        let mut lines = vec![format!("target {} is there: {}", target.name, settings.shown())];
        if self.target.wires().iter().all(|wire| !wire.has_targets()) {
            lines.push("nobody reaches it: the server has no iscsi: wire".to_owned());
        }
        Ok(self.all_changed(lines))
    }

    pub(super) fn set_target(
        &mut self,
        name: &str,
        settings: &TargetSettings,
        force: bool,
    ) -> Result<Step, ManageError> {
        self.when_target_may_be_set(name, settings, force, |manager, target, settings| {
            manager.keep_and_serve(target)?;
            manager.target.events().note(Happening::TargetChanged { target: target.name.to_string() });
            let line = format!("target {}: {}", target.name, settings.shown());
            Ok(Step::Done(manager.changed(line)))
        })
    }

    pub(super) fn remove_target(&mut self, name: &str, force: bool) -> Result<Step, ManageError> {
        self.when_target_may_go(name, force, |manager, target| {
            let changes = manager.changes_when_gone(target);
            manager.keep_removal(target)?;
            if let Err(error) = manager.serve_targets(changes) {
                manager.keep_served();
                return Err(error);
            }
            manager.target.events().note(Happening::TargetRemoved { target: target.name.to_string() });
            Ok(Step::Done(manager.changed(manager.gone(target, "is gone"))))
        })
    }

    /// What becomes of a target that goes.
    pub(super) fn gone(&self, target: &TargetNodeConfig, is_gone: &str) -> String {
        let back = match self.kept.configured.target(&target.name) {
            Some(_) => ", until it is added again or its configuration is edited",
            None => "",
        };
        let volumes: Vec<String> = target.units.values().cloned().collect();
        let volumes = if volumes.is_empty() { String::new() } else { format!("; volumes stay: {}", named(&volumes)) };
        format!("target {} {is_gone}{back}{volumes}", target.name)
    }

    /// A target that is to be made. One that is configured, and was removed, comes back with those of its units that are served.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn target_to_add(&self, name: &str, settings: &TargetSettings) -> Result<TargetNodeConfig, ManageError> {
        let name = target_name(name)?;
        if self.target.look_at_target(&name, |_| ()).is_some() {
            return Err(ManageError::TargetTaken(name.to_string()));
        }
        if self.target.target_count() >= TARGETS_MAX {
            return Err(ManageError::TooManyTargets);
        }
        let target = match self.kept.configured.target(&name).cloned() {
            Some(mut configured) => {
                configured.units.retain(|_, volume| self.find(volume).is_some());
                configured
            }
            None => {
                let own = self.own_target_called(&name);
                own.unwrap_or_else(|| TargetNodeConfig::new(name, self.allow.clone()))
            }
        };
        self.set_so(target, settings)
    }

    /// Goes on with a target as it is to be when nobody who uses it is kept out by that.
    pub(super) fn when_target_may_be_set(
        &mut self,
        name: &str,
        settings: &TargetSettings,
        force: bool,
        then: impl FnOnce(&mut Manager, &TargetNodeConfig, &TargetSettings) -> Result<Step, ManageError> + Send + 'static,
    ) -> Result<Step, ManageError> {
        if settings.is_empty() {
            return Err(invalid(name, TargetSettingsError::Nothing));
        }
        let target = self.target_to_set(name, settings)?;
        let changes = self.changes_when_set(&target);
        if force || self.outcasts_of(&changes).is_empty() {
            return then(self, &target, settings);
        }
        let (name, settings) = (name.to_owned(), settings.clone());
        let find = move |manager: &Manager, users: &[User]| users_among(&manager.outcasts_of(&changes), users);
        Ok(Step::seen_twice(self, find, move |manager, users| {
            let target = manager.target_to_set(&name, &settings)?;
            check_unused(&target.name, &users)?;
            then(manager, &target, &settings)
        }))
    }

    /// Goes on with a target that is to go when nobody has a session with it, or may come back to it.
    pub(super) fn when_target_may_go(
        &mut self,
        name: &str,
        force: bool,
        then: impl FnOnce(&mut Manager, &TargetNodeConfig) -> Result<Step, ManageError> + Send + 'static,
    ) -> Result<Step, ManageError> {
        let target = self.known_target(name)?;
        if force {
            return then(self, &target);
        }
        let name = target.name.clone();
        let find = move |manager: &Manager, users: &[User]| {
            let way = Way::Target(target.name.to_string());
            let used = target.units.values().flat_map(|volume| manager.users_of(users, volume, &way));
            names(manager.target.guests_of(&target.name).into_iter().chain(used))
        };
        Ok(Step::seen_twice(self, find, move |manager, users| {
            check_unused(&name, &users)?;
            let target = manager.known_target(name.as_str())?;
            then(manager, &target)
        }))
    }

    /// The ports of those who have sessions with targets and could not have them if these were so.
    fn outcasts_of(&self, changes: &TargetChanges) -> BTreeSet<String> {
        changes.values().flatten().flat_map(|target| self.target.outcasts_of(target)).collect()
    }

    fn known_target(&self, name: &str) -> Result<TargetNodeConfig, ManageError> {
        let known = target_name(name).ok().and_then(|name| self.target.target_node(&name));
        known.ok_or_else(|| ManageError::NoTarget(name.to_owned()))
    }

    fn target_to_set(&self, name: &str, settings: &TargetSettings) -> Result<TargetNodeConfig, ManageError> {
        self.set_so(self.known_target(name)?, settings)
    }

    /// A target with these settings. Where that is how it is configured, nothing is set of it.
    fn set_so(&self, target: TargetNodeConfig, settings: &TargetSettings) -> Result<TargetNodeConfig, ManageError> {
        let name = target.name.to_string();
        let mut target = target.with(settings).map_err(|source| invalid(&name, source))?;
        if target.is_open() && self.has_secrets() {
            return Err(ManageError::TargetOpen(name));
        }
        let configured = self.kept.configured.target(&target.name).zip(target.set.as_deref());
        if !target.units.is_empty() && configured.is_some_and(|(configured, set)| set.are_those_of(configured)) {
            target.set = None;
        }
        Ok(target)
    }

    fn keep_and_serve(&mut self, target: &TargetNodeConfig) -> Result<(), ManageError> {
        let changes = self.changes_when_set(target);
        self.keep_target(target)?;
        if let Err(error) = self.serve_targets(changes) {
            self.keep_served();
            return Err(error);
        }
        Ok(())
    }

    /// A change of several lines.
    fn all_changed(&self, mut lines: Vec<String>) -> Answer {
        let last = lines.pop().unwrap_or_default();
        if let Answer::Changed(more) = self.changed(last) {
            lines.extend(more);
        }
        Answer::Changed(lines)
    }
}

/// The name that is meant.
pub(super) fn target_name(text: &str) -> Result<IscsiName, ManageError> {
    TargetNodeConfig::name_of(text).map_err(|_| ManageError::TargetName(text.to_owned()))
}

fn invalid(target: &str, source: TargetSettingsError) -> ManageError {
    ManageError::TargetSettings { target: target.to_owned(), source }
}

fn check_unused(target: &IscsiName, users: &[String]) -> Result<(), ManageError> {
    if users.is_empty() {
        return Ok(());
    }
    Err(ManageError::TargetInUse { target: target.to_string(), users: named(users) })
}

#[cfg(test)]
mod tests;
