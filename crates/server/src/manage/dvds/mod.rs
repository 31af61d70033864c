//! Volumes that are derived from others: how they are made, looked at and revoked.

mod ending;
mod expiring;
mod lasting;
mod new;
mod owner;
mod owning;
mod refusals;
mod status;
mod together;

use std::collections::BTreeMap;
use std::path::Path;

use sanwire_core::Principal;
use sanwire_store::{Acceptance, VolumeSpec};

pub(super) use self::expiring::{Expiry, watch};
pub use self::lasting::DvdEnd;
pub use self::new::{NewDvd, NewDvds};
use self::status::missing_status;
pub use self::status::{DerivedStatus, DvdStatus, PrincipalStatus, ProgramStatus, RegionStatus};
use super::adding::Addition;
use super::conditions::Condition;
use super::response::VolumeStatus;
use super::slow::Step;
use super::{Answer, Asker, ManageError, Manager, Request, Response};
use crate::events::Happening;
use crate::programs::check_module;

impl Manager {
    /// Derives a volume from another one, and serves it; `by`: for an owner, who may not manage the server.
    pub(super) fn create_dvd(
        &mut self,
        new: &NewDvd,
        condition: Option<Condition>,
        by: Option<Principal>,
    ) -> Result<Step, ManageError> {
        let (spec, module) = self.asked_dvd(new)?;
        let addition = Addition { spec, target: new.target.clone(), acceptance: Acceptance::Known, condition, by };
        let Some(module) = module else { return self.add_volume(addition) };
        // The module of one that is served is not replaced by that of one that is refused.
        let (hold, _) = self.begin_to_add(addition.spec.clone(), addition.target.as_deref())?;
        let (programs, name) = (self.target.programs().clone(), addition.spec.name.to_string());
        let (keeper, of) = (programs.clone(), name.clone());
        let keep = move || {
            check_module(&module)?;
            keeper.keep_module(&of, &module).map_err(|error| format!("it cannot be kept: {error}"))
        };
        Ok(Step::slow_awaited(
            format!("keeping the program of {name}"),
            keep,
            move |manager, kept: Result<(), String>| {
                kept.map_err(|reason| ManageError::Module { name: name.clone(), reason })?;
                Ok(manager.add_made(addition, hold, || (), move || programs.forget(&name, None)))
            },
        ))
    }

    /// Tells what would come of that, and does nothing.
    pub(super) fn rehearse_dvd(&mut self, new: &NewDvd) -> Result<Step, ManageError> {
        let (spec, module) = self.asked_dvd(new)?;
        let (name, target) = (new.name.clone(), new.target.clone());
        let Some(module) = module else { return self.rehearse_addition(spec, target.as_deref()) };
        let check = move || check_module(&module);
        Ok(Step::slow(format!("checking the program of {name}"), check, move |manager, checked| {
            checked.map_err(|reason| ManageError::Module { name, reason })?;
            manager.rehearse_addition(spec, target.as_deref())
        }))
    }

    /// The volume that is asked for, and the module that comes with it, which is still to be checked: others do not wait for that.
    fn asked_dvd(&self, new: &NewDvd) -> Result<(VolumeSpec, Option<Vec<u8>>), ManageError> {
        let refused = |reason: String| ManageError::Module { name: new.name.clone(), reason };
        let Some(module) = new.module().map_err(|error| refused(format!("it is not in base64: {error}")))? else {
            return Ok((new.spec(None)?, None));
        };
        // Its name is that of a file only if it is one of a volume.
        new.spec(None)?;
        let file = self.target.programs().module_file(&new.name);
        let file = file.as_deref().and_then(Path::to_str).ok_or_else(|| {
            refused("this server has no state directory in which it could be kept (--state-directory)".to_owned())
        })?;
        Ok((new.spec(Some(file))?, Some(module)))
    }

    /// Serves a derived volume no longer, nor those that are derived from it, whoever uses them.
    pub(super) fn revoke_dvd(&mut self, name: &str) -> Result<Step, ManageError> {
        self.check_is_derived(name)?;
        self.remove_volume(name, true)
    }

    /// # Errors
    /// When there is no such volume, or it has a store of its own.
    pub(super) fn check_is_derived(&self, name: &str) -> Result<(), ManageError> {
        match self.spec_of(name) {
            None => Err(ManageError::NoVolume(name.to_owned())),
            Some(spec) if spec.parent().is_none() => Err(ManageError::NotDerived(name.to_owned())),
            Some(_) => Ok(()),
        }
    }

    /// The volumes that are derived from one, or from any, of which somebody may be told, served or not.
    pub(super) fn dvds(&self, parent: Option<&str>, is_shown: impl Fn(&str) -> bool) -> Result<Answer, ManageError> {
        let names = match parent {
            Some(parent) if self.spec_of(parent).is_none() => return Err(ManageError::NoVolume(parent.to_owned())),
            Some(parent) => self.derived_from(parent),
            None => {
                let missing = self.kept.missing.iter().map(|missing| &missing.volume);
                let derived = self.volumes.values().chain(missing).filter(|volume| volume.spec.parent().is_some());
                derived.map(|volume| volume.spec.name.to_string()).collect()
            }
        };
        let looker = self.looker();
        let missing = self.missing_dvds();
        let told = |name: &String| looker.volume(name).or_else(|| missing.get(&**name).cloned());
        let mut told: Vec<_> = names.iter().filter(|name| is_shown(name)).filter_map(told).collect();
        told.sort_by_key(|volume| volume.lun);
        Ok(Answer::Dvds(told))
    }

    /// Those that should be served and are not, by their names.
    fn missing_dvds(&self) -> BTreeMap<&str, VolumeStatus> {
        let missing = self.kept.missing.iter();
        let status = |missing| missing_status(missing, self.protection);
        missing.filter_map(|missing| Some((&*missing.volume.spec.name, status(missing)?))).collect()
    }

    /// A derived volume, with what was counted of those who use it.
    pub(super) fn dvd(&self, name: &str) -> Result<Answer, ManageError> {
        self.check_is_derived(name)?;
        if let Some(missing) = self.missing_dvds().remove(name) {
            return Ok(Answer::Dvd(Box::new(DvdStatus::of_missing(missing))));
        }
        let missing = || ManageError::NoVolume(name.to_owned());
        let (_, unit) = self.find(name).ok_or_else(missing)?;
        let volume = self.looker().volume(name).ok_or_else(missing)?;
        let derived = unit.derived().ok_or_else(missing)?;
        Ok(Answer::Dvd(Box::new(DvdStatus::of(volume, derived, self.target.programs().statistics(name)))))
    }

    /// Has those who watch know of a volume that was not derived.
    pub(super) fn note_refused_dvd(&self, by: &Asker, asked: &Request, response: &Response) {
        let new = match asked {
            Request::CreateDvd(new) => Some(new),
            // What is refused of one is refused of all.
            Request::CreateDvds(NewDvds { dvds }) => dvds.first(),
            _ => None,
        };
        if let (Some(new), Response::Refused(refusal)) = (new, response) {
            let NewDvd { name: volume, parent, .. } = new.clone();
            let (who, why) = (by.to_string(), refusal.reason.clone());
            self.target.events().note(Happening::DvdRefused { volume, parent, who, why });
        }
    }
}

#[cfg(test)]
mod tests;
