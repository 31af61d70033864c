//! What owners of volumes may ask who may not manage the server: to derive volumes from theirs, and to look at these and revoke them.

use sanwire_core::Principal;

use super::NewDvd;
use crate::manage::slow::Step;
use crate::manage::{ManageError, Manager, Request};

/// Volumes that owners have derived from one volume, and from these, at the most: all volumes share the numbers that a server has.
const OF_OWNERS_MAX: usize = 1024;

impl Request {
    /// Whether somebody may ask it who only owns volumes.
    pub(in crate::manage) fn is_for_owners(&self) -> bool {
        match self {
            Request::DryRun { request } | Request::Page { request, .. } => request.is_for_owners(),
            Request::CreateDvd(_) | Request::Dvds { .. } | Request::Dvd { .. } | Request::RevokeDvd { .. } => true,
            _ => false,
        }
    }
}

impl Manager {
    /// Begins with what an owner asks.
    ///
    /// # Errors
    /// [`ManageError::NotOwner`] when it is about a volume that is not theirs, or nothing that owners may ask.
    pub(in crate::manage) fn begin_as_owner(&mut self, by: &Principal, request: Request) -> Result<Step, ManageError> {
        match &request {
            Request::DryRun { request: asked } => self.check_owner(by, asked)?,
            asked => self.check_owner(by, asked)?,
        }
        match request {
            Request::Dvds { parent } => {
                let is_shown = |name: &str| self.owns_ancestor_of(by, name);
                self.dvds(parent.as_deref(), is_shown).map(Step::Done)
            }
            request => self.begin(request),
        }
    }

    fn check_owner(&self, by: &Principal, request: &Request) -> Result<(), ManageError> {
        let own = |is_own: bool, name: &str| if is_own { Ok(()) } else { Err(ManageError::NotOwner(name.to_owned())) };
        match request {
            Request::CreateDvd(new) => {
                own(self.owns(by, &new.parent), &new.parent)?;
                self.check_room(by, new)
            }
            Request::Dvd { name } | Request::RevokeDvd { name } => own(self.owns_ancestor_of(by, name), name),
            Request::Dvds { parent: Some(parent) } => own(self.owns(by, parent), parent),
            Request::Dvds { parent: None } => Ok(()),
            other => Err(ManageError::NotForOwners(other.name())),
        }
    }

    /// Whether somebody may derive volumes from one: who owns it, or one on which it stands.
    fn owns(&self, by: &Principal, volume: &str) -> bool {
        self.is_owner(by, volume) || self.owns_ancestor_of(by, volume)
    }

    fn owns_ancestor_of(&self, by: &Principal, volume: &str) -> bool {
        self.ancestors(volume).iter().any(|above| self.is_owner(by, above))
    }

    fn is_owner(&self, by: &Principal, volume: &str) -> bool {
        self.derivations.owners_of(volume).iter().any(|rule| rule.names(by))
    }

    /// What an owner derives has a target of its own, not a place in one that others use; and there is room for it.
    fn check_room(&self, by: &Principal, new: &NewDvd) -> Result<(), ManageError> {
        if new.target.is_some() {
            return Err(ManageError::NotForOwners("a place in an iSCSI target".to_owned()));
        }
        // That of the highest volume that is theirs counts.
        let above = [new.parent.clone()].into_iter().chain(self.ancestors(&new.parent));
        let highest = above.filter(|name| self.is_owner(by, name)).last().unwrap_or_default();
        match self.derived_from(&highest).len() {
            count if count < OF_OWNERS_MAX => Ok(()),
            count => Err(ManageError::TooManyDerived { volume: highest, count }),
        }
    }
}
