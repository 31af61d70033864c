//! Changes that are only looked at: they are checked as if they were made, and what they would do is told.

use sanwire_core::Size;
use sanwire_store::VolumeSpec;

mod clients;
mod contents;
mod mapping;
mod media;
mod sessions;
mod targets;

use super::busy::REMOVED;
use super::clients::{ClientChange, check_settings, client_id};
use super::slow::Step;
use super::usage::Way;
use super::{AccessChange, Answer, Clearing, ManageError, Manager, MemberReplacement, Request};
use crate::config::{Origin, VolumeConfig};

impl Manager {
    /// Tells what a change would do, and changes nothing.
    ///
    /// # Errors
    /// Why it would be refused, as far as that is known without opening a store, or that nothing is known of such a change.
    pub(super) fn rehearse(&mut self, request: Request) -> Result<Step, ManageError> {
        match request {
            Request::AddVolume { volume, target, .. } => self.rehearse_addition(volume.parse()?, target.as_deref()),
            Request::RemoveVolume { name, force } => self.rehearse_removal(&name, force),
            Request::CreateDvd(new) => self.rehearse_dvd(&new),
            Request::CreateDvds(new) => self.rehearse_dvds(&new.dvds),
            Request::SetDvd(end) => self.rehearse_set_dvd(&end),
            Request::RevokeDvd { name } => {
                self.check_is_derived(&name)?;
                self.rehearse_removal(&name, true)
            }
            Request::DeleteVolume { name, force, snapshots } => self.rehearse_deletion(&name, force, snapshots),
            Request::ResizeVolume { name, size } => self.rehearse_resizing(&name, &size),
            Request::Snapshot { volumes, name, protected } => self.rehearse_snapshots(&volumes, &name, protected),
            Request::SetSnapshot { snapshot, protected } => self.rehearse_protection(&snapshot, protected),
            Request::DeleteSnapshot { snapshot } => self.rehearse_deletion_of_snapshot(&snapshot),
            Request::Clone { snapshot, name, target } => self.rehearse_clone(&snapshot, &name, target.as_deref()),
            Request::Rollback { snapshot, force, keep } => self.rehearse_rollback(&snapshot, force, keep.as_deref()),
            Request::MapVolume { name, lun, target, force } => {
                self.rehearse_mapping(&name, lun, target.as_deref(), force)
            }
            Request::UnmapVolume { name, target, force } => self.rehearse_unmapping(&name, &target, force),
            Request::AddTarget { name, settings } => self.rehearse_new_target(&name, &settings),
            Request::SetTarget { name, settings, force } => self.rehearse_set_target(&name, &settings, force),
            Request::RemoveTarget { name, force } => self.rehearse_removed_target(&name, force),
            Request::AddClient { id, settings, force } => {
                self.rehearse_client(ClientChange::Add(client_id(&id)?, settings), force)
            }
            Request::SetClient { client, settings, force } => {
                check_settings(&settings)?;
                self.rehearse_client(ClientChange::Set(client, settings), force)
            }
            Request::RemoveClient { client, force } => self.rehearse_client(ClientChange::Remove(client), force),
            Request::ResetClient { client, force } => self.rehearse_client(ClientChange::Reset(client), force),
            Request::Reload { reset, .. } => Ok(self.compare(reset)),
            Request::SetVolume { name, security, protected, owners } => {
                self.rehearse_setting(&name, security.as_deref(), protected, owners)
            }
            Request::ClearReservations(Clearing { name, key, force }) => {
                self.rehearse_clearing(&name, key.as_deref(), force)
            }
            Request::EjectVolume { name, force } => self.rehearse_ejection(&name, force),
            Request::LoadVolume { name, store } => self.rehearse_loading(&name, store.as_deref()),
            Request::ScrubVolume { name } => self.rehearse_scrub(&name),
            Request::ReplaceMember(MemberReplacement { name, member, store }) => {
                self.rehearse_replacement(&name, member, &store)
            }
            Request::GrowArray(new) => self.rehearse_growth(&new),
            Request::ForgetPool { name } => self.rehearse_forgetting(&name),
            Request::SetAccessState(AccessChange { group, state, target }) => {
                self.rehearse_access_state(group, state, target.as_deref())
            }
            Request::DropClient { client } => self.rehearse_dropping(&client),
            Request::DropSession { session } => self.rehearse_dropping_session(&session, None),
            Request::PauseClient { client } => self.rehearse_pause(&client, true),
            Request::ResumeClient { client } => self.rehearse_pause(&client, false),
            other => Err(ManageError::NoRehearsal(other.name())),
        }
    }

    pub(super) fn rehearse_addition(&mut self, spec: VolumeSpec, target: Option<&str>) -> Result<Step, ManageError> {
        let (_hold, spec) = self.begin_to_add(spec, target)?;
        let new = vec![VolumeConfig { lun: Default::default(), spec, origin: Origin::Management }];
        let coming = self.numbered(new)?.pop().ok_or(ManageError::Full)?;
        let spec = &coming.spec;
        // What it takes there comes back when this is over.
        let _room =
            spec.size_bytes().map(|size_bytes| self.target.pools().take_room_of(spec, size_bytes)).transpose()?;
        let (place, _) = self.place_of(spec, target)?;
        let line = format!("volume {} would be served{place}, if {} can be opened", spec.name, spec.store_text());
        Ok(Step::Done(self.warned_of_memory(Answer::Changed(vec![line]), spec)))
    }

    fn rehearse_removal(&mut self, name: &str, force: bool) -> Result<Step, ManageError> {
        let (hold, derived) = self.begin_to_remove(name, REMOVED, force)?;
        let is_missing = self.kept.missing.iter().any(|missing| *missing.volume.spec.name == *name);
        let mut lines: Vec<String> =
            derived.iter().map(|derived| format!("volume {derived} would be revoked")).collect();
        lines.push(format!("volume {name} would not be served any more; its content would stay"));
        let step = Step::Done(Answer::Changed(lines));
        if self.find(name).is_none() {
            return if is_missing { Ok(step) } else { Err(ManageError::NoVolume(name.to_owned())) };
        }
        drop(hold);
        Ok(if force { step } else { self.when_unused(name, Way::Any, |_| Ok(step)) })
    }

    fn rehearse_deletion(&mut self, name: &str, force: bool, snapshots: bool) -> Result<Step, ManageError> {
        let (_hold, content, _) = self.begin_to_delete(name, force, snapshots)?;
        let count = content.pool.snapshots(Some(name)).len();
        let with = if count > 0 { format!(", and its {count} snapshots") } else { String::new() };
        let step = told(format!("the content of volume {name}{with} would be deleted"));
        let is_asked = !force && content.unit.is_some();
        Ok(if is_asked { self.when_unused(name, Way::Any, |_| Ok(step)) } else { step })
    }

    fn rehearse_resizing(&mut self, name: &str, size: &str) -> Result<Step, ManageError> {
        let (_hold, disk, size) = self.begin_to_resize(name, size)?;
        let before = disk.store().geometry().length_bytes;
        if before == size.0 {
            return Ok(Step::Done(Answer::Changed(Vec::new())));
        }
        let volume = self.volumes.get(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        let _room = self.target.pools().take_room_of(&volume.spec, size.0)?;
        Ok(told(format!("volume {name} would have {size}, and has {}", Size(before))))
    }
}

fn told(line: String) -> Step {
    Step::Done(Answer::Changed(vec![line]))
}

#[cfg(test)]
mod tests;
