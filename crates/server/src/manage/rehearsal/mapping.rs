//! Units of targets, and numbers, that are only looked at.

use sanwire_core::Lun;
use sanwire_scsi::IscsiName;

use super::told;
use crate::manage::slow::Step;
use crate::manage::usage::Way;
use crate::manage::{Answer, ManageError, Manager};

impl Manager {
    pub(super) fn rehearse_mapping(
        &self,
        name: &str,
        number: Option<u16>,
        target: Option<&str>,
        force: bool,
    ) -> Result<Step, ManageError> {
        let (_hold, served_as, lun) = self.begin_to_map(name, number)?;
        match (target, lun) {
            (Some(target), lun) => self.rehearse_unit(name, target, lun, force),
            (None, Some(lun)) => self.rehearse_number(name, (served_as, lun), force),
            (None, None) => Err(ManageError::Where(name.to_owned())),
        }
    }

    fn rehearse_unit(&self, name: &str, target: &str, lun: Option<Lun>, force: bool) -> Result<Step, ManageError> {
        let target: IscsiName = target.parse().map_err(|_| ManageError::TargetName(target.to_owned()))?;
        let mapped = self.mapped(name, &target, lun)?;
        let step = told(format!("volume {name} would be logical unit {} of {target}", mapped.lun));
        let is_asked = !force && mapped.is_moved;
        Ok(if is_asked { self.when_unused(name, Way::Target(target.to_string()), |_| Ok(step)) } else { step })
    }

    fn rehearse_number(&self, name: &str, (from, to): (Lun, Lun), force: bool) -> Result<Step, ManageError> {
        if from == to {
            return Ok(Step::Done(Answer::Changed(Vec::new())));
        }
        if self.is_taken(to) {
            return Err(ManageError::LunTaken { lun: to, place: "the server".into() });
        }
        let step = told(format!("volume {name} would be logical unit {to}, and is {from}"));
        Ok(if force { step } else { self.when_unused(name, Way::HyperScsi, |_| Ok(step)) })
    }

    pub(super) fn rehearse_unmapping(&self, name: &str, target: &str, force: bool) -> Result<Step, ManageError> {
        let _hold = self.busy.hold(name, "being unmapped")?;
        let known: Option<IscsiName> = target.parse().ok();
        let known = known.ok_or_else(|| ManageError::NoTarget(target.to_owned()))?;
        self.unmapped(name, &known)?;
        let step = told(format!("volume {name} would be no logical unit of {known} any more"));
        Ok(if force { step } else { self.when_unused(name, Way::Target(known.to_string()), |_| Ok(step)) })
    }
}
