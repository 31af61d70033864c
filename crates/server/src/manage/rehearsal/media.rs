//! What is only looked at of how a volume is guarded, of its medium, and of its copies.

use sanwire_core::{ParseProtectionError, Protection};

use super::told;
use crate::manage::slow::Step;
use crate::manage::{Answer, ArrayGrowth, ManageError, Manager};

impl Manager {
    pub(super) fn rehearse_setting(
        &self,
        name: &str,
        security: Option<&str>,
        protected: Option<bool>,
        owners: Option<Vec<String>>,
    ) -> Result<Step, ManageError> {
        let _hold = self.busy.hold(name, "being changed")?;
        match (security, protected, owners) {
            (Some(security), None, None) => self.rehearse_securing(name, security),
            (None, Some(protected), None) => self.rehearse_protecting(name, protected),
            (None, None, Some(owners)) => {
                let spec = self.with_owners(name, owners)?.spec;
                let owners = if spec.owners.is_empty() { "nobody".to_owned() } else { spec.owners.join(", ") };
                Ok(told(format!("volume {name} would be owned by {owners}")))
            }
            _ => Err(ManageError::OneSetting),
        }
    }

    fn rehearse_securing(&self, name: &str, security: &str) -> Result<Step, ManageError> {
        let wanted: Protection = security
            .parse()
            .map_err(|source: ParseProtectionError| ManageError::Security { name: name.to_owned(), source })?;
        self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        let spec = self.volume_with(name, |volume| volume)?.spec;
        self.check_level(name, wanted)?;
        self.target.check_out_of_the_clear(&spec.clone().with_security(Some(wanted)))?;
        let now = spec.security.unwrap_or(self.protection);
        Ok(match now == wanted {
            true => Step::Done(Answer::Changed(Vec::new())),
            false => told(format!("volume {name} would be protected by security {wanted}, and is by {now}")),
        })
    }

    fn rehearse_protecting(&self, name: &str, protected: bool) -> Result<Step, ManageError> {
        let spec = self.volume_with(name, |volume| volume)?.spec;
        Ok(match (spec.protected, protected) {
            (now, wanted) if now == wanted => Step::Done(Answer::Changed(Vec::new())),
            (_, true) => told(format!("volume {name} would be protected: its content neither deleted nor rolled back")),
            (_, false) => told(format!("volume {name} would not be protected any more")),
        })
    }

    pub(super) fn rehearse_ejection(&self, name: &str, force: bool) -> Result<Step, ManageError> {
        let _hold = self.busy.hold(name, "being ejected")?;
        self.check_eject(name, force)?;
        Ok(told(format!("the medium of {name} would be out")))
    }

    pub(super) fn rehearse_loading(&self, name: &str, store: Option<&str>) -> Result<Step, ManageError> {
        let _hold = self.busy.hold(name, "getting another medium")?;
        // What can be ejected can be loaded.
        self.check_eject(name, true)?;
        let Some(store) = store else { return Ok(told(format!("the medium of {name} would be in"))) };
        self.with_disc(name, store)?;
        Ok(told(format!("{store} would be in {name}, if it can be opened and is a disc")))
    }

    pub(super) fn rehearse_scrub(&self, name: &str) -> Result<Step, ManageError> {
        self.array(name)?;
        Ok(told(format!("the copies of {name} would be compared, and what differs made the same")))
    }

    pub(super) fn rehearse_replacement(&self, name: &str, member: usize, store: &str) -> Result<Step, ManageError> {
        let _hold = self.busy.hold(name, "getting another member")?;
        self.array(name)?;
        Ok(told(format!(
            "{store} would be member {member} of {name}, if that one is gone and it can be opened and is empty"
        )))
    }

    pub(super) fn rehearse_growth(&self, new: &ArrayGrowth) -> Result<Step, ManageError> {
        let (_hold, _) = self.begin_to_grow(new)?;
        let others =
            if new.add.is_empty() { String::new() } else { format!(", and {} behind them", new.add.join(", ")) };
        Ok(told(format!(
            "{} would take all that its members have room for{others}, if all of them are there and others can be opened and are empty",
            new.name
        )))
    }
}
