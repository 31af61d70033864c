//! What owners of volumes may ask who may not manage the server: to derive volumes from theirs, and to look at these, change when they end, and revoke them.

use sanwire_core::Principal;

use crate::allow::AllowList;
use crate::derived::{DerivedError, DerivedSpec};
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::manage::dvds::DvdEnd;
use crate::manage::slow::Step;
use crate::manage::{ManageError, Manager, Request};

/// Volumes that owners have derived from one volume, and from these, at the most: all volumes share the numbers that a server has.
const OF_OWNERS_MAX: usize = 1024;

/// Those of them that have programs, at the most: each takes some 13 MiB of memory, also after each start.
const PROGRAMS_OF_OWNERS_MAX: usize = 64;

/// The owners that an owner gives to a volume at the most: all of them are gone through when somebody asks.
const OWNERS_BY_OWNER_MAX: usize = 16;

impl Request {
    /// Whether somebody may ask it who only owns volumes.
    pub(in crate::manage) fn is_for_owners(&self) -> bool {
        match self {
            Request::DryRun { request } | Request::Page { request, .. } => request.is_for_owners(),
            Request::Start { request } => matches!(**request, Request::CopyOut(_)),
            Request::CreateDvd(_)
            | Request::Dvds { .. }
            | Request::Dvd { .. }
            | Request::SetDvd(_)
            | Request::RevokeDvd { .. }
            | Request::CopyOut(_)
            | Request::CopyTerms
            | Request::Job { .. }
            | Request::CancelJob { .. } => true,
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
            Request::CreateDvd(new) => self.create_dvd(&new, None, Some(by.clone())),
            request => self.begin(request),
        }
    }

    fn check_owner(&self, by: &Principal, request: &Request) -> Result<(), ManageError> {
        let own = |is_own: bool, name: &str| if is_own { Ok(()) } else { Err(ManageError::NotOwner(name.to_owned())) };
        match request {
            Request::CreateDvd(new) => {
                if new.target.is_some() {
                    own(self.owns(by, &new.parent), &new.parent)?;
                    return Err(ManageError::NotForOwners("a place in an iSCSI target".to_owned()));
                }
                self.check_may_derive(by, &new.parent, new.program.is_some())?;
                if new.owners.len() > OWNERS_BY_OWNER_MAX {
                    let source = DerivedError::TooManyOwners { count: new.owners.len(), max: OWNERS_BY_OWNER_MAX };
                    return Err(ManageError::Derived { name: new.name.clone(), source });
                }
                self.check_name_of_owner(&new.name)
            }
            Request::Dvd { name } | Request::SetDvd(DvdEnd { name, .. }) | Request::RevokeDvd { name } => {
                own(self.owns_ancestor_of(by, name), name)
            }
            Request::Dvds { parent: Some(parent) } => own(self.owns(by, parent), parent),
            // Whose job it is was looked at.
            Request::Dvds { parent: None } | Request::Job { .. } | Request::CancelJob { .. } => Ok(()),
            other => Err(ManageError::NotForOwners(other.name())),
        }
    }

    /// # Errors
    /// [`ManageError::NotOwner`] when somebody owns neither this volume nor one on which it stands.
    pub(in crate::manage) fn check_owns(&self, by: &Principal, volume: &str) -> Result<(), ManageError> {
        if self.owns(by, volume) { Ok(()) } else { Err(ManageError::NotOwner(volume.to_owned())) }
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

    /// # Errors
    /// [`ManageError::Taken`] for the name of a volume or an iSCSI target that is configured, served or not: initiators come back by it, and
    /// would find what somebody else has put there. No more is told to owners.
    fn check_name_of_owner(&self, name: &str) -> Result<(), ManageError> {
        let target = TargetNodeConfig::of_volume(name, AllowList::default());
        let is_target = target.is_ok_and(|target| self.kept.configured.target(&target.name).is_some());
        match is_target || self.spec_of(name).is_some() || self.kept.configured.volume(name).is_some() {
            true => Err(ManageError::Taken(name.to_owned())),
            false => Ok(()),
        }
    }

    /// # Errors
    /// When somebody may not derive volumes from this one, or owners have derived as many as they may. To be asked again when it is served:
    /// it may be owned by somebody else by then, and others derive, too.
    pub(in crate::manage) fn check_may_derive(
        &self,
        by: &Principal,
        parent: &str,
        has_program: bool,
    ) -> Result<(), ManageError> {
        if !self.owns(by, parent) {
            return Err(ManageError::NotOwner(parent.to_owned()));
        }
        // That of the highest volume with owners counts, whoever these are: one owner may give what is derived to another one.
        let above = [parent.to_owned()].into_iter().chain(self.ancestors(parent));
        let highest = above.filter(|name| !self.derivations.owners_of(name).is_empty()).last().unwrap_or_default();
        let derived = self.derived_from(&highest);
        if derived.len() >= OF_OWNERS_MAX {
            return Err(ManageError::TooManyDerived { volume: highest, count: derived.len() });
        }
        let programs = derived.iter().filter_map(|name| DerivedSpec::of(self.spec_of(name)?)?.program.as_ref()).count();
        match has_program && programs >= PROGRAMS_OF_OWNERS_MAX {
            true => Err(ManageError::TooManyPrograms { volume: highest, count: programs }),
            false => Ok(()),
        }
    }
}
