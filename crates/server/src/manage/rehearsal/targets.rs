//! Targets that are made, set and removed, and only looked at.

use super::told;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::manage::slow::Step;
use crate::manage::{ManageError, Manager};

impl Manager {
    pub(super) fn rehearse_new_target(&self, name: &str, settings: &TargetSettings) -> Result<Step, ManageError> {
        let target = self.target_to_add(name, settings)?;
        Ok(told(format!("target {} would be there: {}", target.name, settings.shown())))
    }

    pub(super) fn rehearse_set_target(
        &mut self,
        name: &str,
        settings: &TargetSettings,
        force: bool,
    ) -> Result<Step, ManageError> {
        self.when_target_may_be_set(name, settings, force, |_, target, settings| {
            Ok(told(format!("target {} would be set: {}", target.name, settings.shown())))
        })
    }

    pub(super) fn rehearse_removed_target(&mut self, name: &str, force: bool) -> Result<Step, ManageError> {
        self.when_target_may_go(name, force, |manager, target| Ok(told(manager.gone(target, "would go"))))
    }
}
