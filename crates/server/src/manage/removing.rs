//! Volumes that go, with those that are derived from them.

use std::collections::BTreeMap;

use sanwire_core::Lun;
use sanwire_scsi::IscsiName;
use sanwire_store::VolumeSpec;

use super::busy::{Hold, REMOVED, REVOKED};
use super::slow::Step;
use super::usage::Way;
use super::{Answer, ManageError, Manager};
use crate::events::Happening;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::removal::Removal;
use crate::revisions::Collection;

impl Manager {
    pub(super) fn remove_volume(&mut self, name: &str, force: bool) -> Result<Step, ManageError> {
        let (hold, derived) = self.begin_to_remove(name, REMOVED, force)?;
        if self.find(name).is_none() {
            return self.remove_all_missing(name, &derived).map(Step::Done);
        }
        if force {
            return self.remove_now(name, &derived, hold);
        }
        let volume = name.to_owned();
        Ok(self.when_unused(name, Way::Any, move |manager| {
            manager.check_has_no_derived(&volume)?;
            manager.remove_now(&volume, &[], hold)
        }))
    }

    /// What of a removal is refused whoever uses the volume; gives those that are derived from it, each before its parent: with `force` they
    /// are revoked with it.
    pub(super) fn begin_to_remove(
        &self,
        name: &str,
        what: &'static str,
        force: bool,
    ) -> Result<(Hold, Vec<String>), ManageError> {
        let mut hold = self.busy.hold(name, what)?;
        if !force {
            self.check_has_no_derived(name)?;
        }
        let derived = self.derived_from(name);
        derived.iter().try_for_each(|derived| hold.add(derived, REVOKED))?;
        Ok((hold, derived))
    }

    /// # Errors
    /// [`ManageError::HasDerived`] when others would go with a volume. To be asked again after its users were sought: one that was just
    /// being derived then is there now.
    pub(super) fn check_has_no_derived(&self, name: &str) -> Result<(), ManageError> {
        match self.derived_from(name) {
            derived if derived.is_empty() => Ok(()),
            derived => Err(ManageError::HasDerived { name: name.to_owned(), derived }),
        }
    }

    fn remove_now(&mut self, name: &str, derived: &[String], hold: Hold) -> Result<Step, ManageError> {
        let (answer, removal) = self.take_out_with(name, derived)?;
        Ok(match removal {
            Some(removal) => Step::flush(name.to_owned(), removal, hold, Ok(answer)),
            None => Step::Done(answer),
        })
    }

    /// Serves a volume no longer, which is kept; before it those that are derived from it. All that these have written is its own.
    pub(super) fn take_out_with(
        &mut self,
        name: &str,
        derived: &[String],
    ) -> Result<(Answer, Option<Removal>), ManageError> {
        let (mut lines, mut not_kept) = (Vec::new(), None);
        let is_revoked = self.spec_of(name).is_some_and(|spec| spec.parent().is_some());
        for derived in derived {
            // One that could not be opened stands among those that are missing.
            let answer = match self.find(derived) {
                Some(_) => self.take_out(derived, is_revoked).map(|(answer, _)| answer),
                None => self.remove_missing(derived),
            };
            match answer {
                Ok(answer) => lines.extend(lines_of(answer)),
                Err(error @ ManageError::RevokedUntilStart { .. }) => not_kept = Some(error),
                Err(error) => return Err(error),
            }
        }
        let (answer, removal) = self.take_out(name, is_revoked)?;
        lines.extend(lines_of(answer));
        not_kept.map_or(Ok((Answer::Changed(lines), removal)), Err)
    }

    /// Takes a volume out of service; with `is_revoked` also if that cannot be kept: whoever may not read it any more must not wait until
    /// there is room on a disk.
    fn take_out(&mut self, name: &str, is_revoked: bool) -> Result<(Answer, Option<Removal>), ManageError> {
        let targets = self.target.targets_with(name).into_iter().map(|target| without_unit(target, name)).collect();
        let spec = self.volumes.get(name).map(|volume| volume.spec.clone());
        spec.iter().for_each(|spec| self.kept.begin_to_forget(spec));
        let not_kept = match self.keep_volume(name, None, &targets) {
            Err(error) if !is_revoked => {
                self.kept.end_forgetting(name);
                return Err(error);
            }
            kept => kept.err(),
        };
        if let Err(error) = self.serve_targets(targets) {
            self.kept.end_forgetting(name);
            self.keep_served();
            return Err(error);
        }
        let parent = spec.as_ref().and_then(VolumeSpec::parent);
        let line = match parent {
            Some(parent) => format!("volume {name}, which was derived from {parent}, is revoked"),
            None => format!("volume {name} is not served any more"),
        };
        let removal = self.begin_to_close(name);
        spec.iter().for_each(|spec| self.target.forget_derived(spec));
        self.kept.end_forgetting(name);
        if let Some(parent) = parent {
            let (volume, parent) = (name.to_owned(), parent.to_owned());
            self.target.events().note(Happening::DvdRevoked { volume, parent });
        }
        let Some(source) = not_kept else { return Ok((self.changed(line), removal)) };
        self.note_reloaded();
        Err(ManageError::RevokedUntilStart { name: name.to_owned(), source: Box::new(source) })
    }

    fn remove_all_missing(&mut self, name: &str, derived: &[String]) -> Result<Answer, ManageError> {
        let mut lines = Vec::new();
        for name in derived.iter().map(String::as_str).chain([name]) {
            lines.extend(lines_of(self.remove_missing(name)?));
        }
        Ok(Answer::Changed(lines))
    }

    /// Serves a volume no longer that could not be opened when the server started.
    pub(super) fn remove_missing(&mut self, name: &str) -> Result<Answer, ManageError> {
        let missing = &mut self.kept.missing;
        let at = missing.iter().position(|missing| *missing.volume.spec.name == *name);
        let gone = missing.remove(at.ok_or_else(|| ManageError::NoVolume(name.to_owned()))?);
        self.kept.begin_to_forget(&gone.volume.spec);
        if let Err(error) = self.keep_targets(&self.target.exports()) {
            self.kept.end_forgetting(name);
            self.kept.missing.push(gone);
            return Err(error);
        }
        self.target.forget_derived(&gone.volume.spec);
        self.kept.end_forgetting(name);
        Ok(self.changed(format!("volume {name}, which could not be opened, is not to be served any more")))
    }

    /// Serves a volume over HyperSCSI no longer; no target has it any more. What was written to it is being made stable.
    pub(super) fn begin_to_close(&mut self, name: &str) -> Option<Removal> {
        self.begin_to_close_all(vec![name.to_owned()]).pop().map(|(_, removal)| removal)
    }

    /// The same for some, as one change; gives those that were there. Who they were is still known: they may come again.
    pub(super) fn begin_to_close_all(&mut self, names: Vec<String>) -> Vec<(String, Removal)> {
        let found: Vec<_> = names.iter().filter_map(|name| Some((name.clone(), self.find(name)?))).collect();
        // With each what is derived from it, also what is just being opened.
        found.iter().for_each(|(_, (_, unit))| unit.revoke());
        let by_lun: BTreeMap<Lun, String> = found.into_iter().map(|(name, (lun, _))| (lun, name)).collect();
        let removed = self.target.remove_volumes(&by_lun.keys().copied().collect::<Vec<_>>());
        for name in names {
            if let Some(volume) = self.volumes.remove(&name) {
                self.derivations.remove(&volume.spec);
                self.expiry.remove(&name);
            }
            self.stores.remove(&name);
            self.kept.pending.remove(&name);
            self.stuck.remove(&name);
            self.target.revisions().removed(Collection::Volumes, &name);
            self.target.events().note(Happening::VolumeRemoved { volume: name });
        }
        removed.into_iter().filter_map(|(lun, removal)| Some((by_lun.get(&lun)?.clone(), removal))).collect()
    }
}

fn lines_of(answer: Answer) -> Vec<String> {
    match answer {
        Answer::Changed(lines) => lines,
        _ => Vec::new(),
    }
}

/// A target without this volume; one that has nothing left goes.
pub(super) fn without_unit(mut target: TargetNodeConfig, volume: &str) -> (IscsiName, Option<TargetNodeConfig>) {
    target.units.retain(|_, unit| unit != volume);
    let stays = !target.units.is_empty() || target.stays_empty();
    (target.name.clone(), stays.then_some(target))
}
