//! Volumes that are added while the server runs.

use std::time::SystemTime;

use sanwire_core::{Lun, Principal};
use sanwire_store::kind::Place;
use sanwire_store::{Acceptance, OpenError, VolumeSpec};

use super::busy::Hold;
use super::conditions::Condition;
use super::slow::Step;
use super::volumes::acceptance;
use super::{ManageError, Manager};
use crate::config::{Origin, VolumeConfig};
use crate::derived::DerivedSpec;
use crate::error::StartError;
use crate::events::Happening;
use crate::pools::own_place;
use crate::records::real_path;
use crate::volumes::OpenVolume;

/// A volume that is to be added.
#[derive(Clone)]
pub(super) struct Addition {
    pub(super) spec: VolumeSpec,
    /// The iSCSI target that gets it; `None`: one of its own.
    pub(super) target: Option<String>,
    /// What is done when it is not what is remembered of it.
    pub(super) acceptance: Acceptance,
    pub(super) condition: Option<Condition>,
    /// Who derives it from a volume of theirs, and may not manage the server.
    pub(super) by: Option<Principal>,
}

impl Addition {
    /// What is asked for: the volume as it is written, the target, and whether the volume is made anew or taken for the one of before.
    ///
    /// # Errors
    /// [`ManageError`] for what is no volume, or both at once.
    pub(super) fn of_request(
        volume: &str,
        target: Option<String>,
        (renew, adopt): (bool, bool),
        condition: Option<Condition>,
    ) -> Result<Self, ManageError> {
        let (spec, acceptance) = (volume.parse()?, acceptance(renew, adopt)?);
        Ok(Addition { spec, target, acceptance, condition, by: None })
    }
}

fn has_program(spec: &VolumeSpec) -> bool {
    DerivedSpec::of(spec).is_some_and(|derived| derived.program.is_some())
}

impl Manager {
    pub(super) fn add_volume(&mut self, addition: Addition) -> Result<Step, ManageError> {
        let (hold, spec) = self.begin_to_add(addition.spec, addition.target.as_deref())?;
        self.add_held(Addition { spec, ..addition }, hold)
    }

    /// The same for which something was made under its name, which `hold` has: `undo` takes that away when the volume is not served after
    /// all. Nobody else has the name before that is done, whose volume would lose what it has.
    pub(super) fn add_made(
        &mut self,
        addition: Addition,
        mut hold: Hold,
        done: impl FnOnce() + Send + 'static,
        undo: impl FnOnce() + Send + 'static,
    ) -> Step {
        let Addition { spec, target, .. } = &addition;
        let added = self.check_addition(spec.clone(), target.as_deref(), &mut hold).and_then(|spec| {
            let places = self.busy.begin();
            self.add_held(Addition { spec, ..addition }, places)
        });
        let undo = move || {
            undo();
            drop(hold);
        };
        match added {
            Ok(step) => step.done_or_undone(done, undo),
            Err(error) => Step::undoing(undo, error),
        }
    }

    /// Opens and serves a volume that may be added; others are told by `hold` what it takes.
    fn add_held(&mut self, addition: Addition, mut hold: Hold) -> Result<Step, ManageError> {
        let Addition { spec, acceptance, .. } = addition.clone();
        let name = spec.name.to_string();
        // What is left of another one of its name, where the server has crashed while that was revoked, is not its own.
        let is_new = spec.parent().is_some() && acceptance == Acceptance::Known;
        let acceptance = if is_new { Acceptance::Renewed } else { acceptance };
        let new = vec![VolumeConfig { lun: Lun::default(), spec, origin: Origin::Management }];
        let coming = self.coming(new, &mut hold)?.pop().ok_or(ManageError::Full)?;
        let opener = self.target.volume_opener();
        let open = move || {
            let opened = opener.open(&coming.volume, acceptance, coming.slot);
            (coming, opened)
        };
        Ok(Step::slow(format!("opening the store of {name}"), open, move |manager, (coming, opened)| {
            let _hold = hold;
            let opened = opened.map_err(|error| manager.name_holder(error))?;
            manager.put_added(coming.volume, opened, addition)
        }))
    }

    /// What of an addition is refused before anything is opened.
    pub(super) fn begin_to_add(
        &self,
        spec: VolumeSpec,
        target: Option<&str>,
    ) -> Result<(Hold, VolumeSpec), ManageError> {
        let mut hold = self.busy.hold(&spec.name, "being added")?;
        let spec = self.check_addition(spec, target, &mut hold)?;
        Ok((hold, spec))
    }

    /// The same for who has taken the name already.
    pub(super) fn check_addition(
        &self,
        spec: VolumeSpec,
        target: Option<&str>,
        hold: &mut Hold,
    ) -> Result<VolumeSpec, ManageError> {
        let name = spec.name.to_string();
        if self.find(&name).is_some() {
            return Err(ManageError::Taken(name));
        }
        spec.parent().map_or(Ok(()), |parent| self.busy.check_stays(parent))?;
        if let Some(missing) = self.kept.missing.iter().find(|missing| *missing.volume.spec.name == *name) {
            return Err(ManageError::Missing { name, reason: missing.reason.clone() });
        }
        let of_snapshot = spec.pool().and_then(|place| place.snapshot.as_ref()?.split_once('@'));
        if let Some((volume, _)) = of_snapshot.filter(|(volume, _)| *volume != name && !hold.has(volume)) {
            // It is not deleted while it is being opened.
            hold.add(volume, "having a snapshot served")?;
        }
        let derived = |source| ManageError::Derived { name: name.clone(), source };
        let spec = self.check_derived(&spec).map_err(derived)?;
        // Nothing is opened for what is refused then.
        target.map(|target| self.next_unit_of(target)).transpose()?;
        let spec = self
            .target
            .pools()
            .place(spec.with_absolute_path().settled(SystemTime::now()))
            .map_err(StartError::from)?;
        self.target.pools().check_alone(&spec, self.volumes.values())?;
        let is_protected = spec.protected || self.target.pools().protects(&spec);
        Ok(spec.with_protected(is_protected))
    }

    /// Says which volume of this server has a file that is in use, if one has.
    fn name_holder(&self, error: StartError) -> StartError {
        let StartError::Store { volume, source: OpenError::Locked { path } } = &error else { return error };
        let locked = real_path(path);
        let is_it = |place: Place<'_>| matches!(place, Place::File(file) if real_path(file) == locked);
        let has_it = |held: &&VolumeConfig| is_it(own_place(&held.spec)) || is_it(held.spec.store.backing.place());
        let Some(holder) = self.volumes.values().find(has_it) else { return error };
        let (file, holder) = (path.display(), &holder.spec.name);
        let reason = format!("{file} is in use by volume {holder} of this server: name another file");
        StartError::Volume { volume: volume.clone(), reason }
    }

    /// Serves a volume that was opened to be added.
    fn put_added(&mut self, volume: VolumeConfig, opened: OpenVolume, addition: Addition) -> Result<Step, ManageError> {
        let spec = volume.spec.clone();
        let Addition { target, condition, by, .. } = addition;
        let holds = condition.map_or(Ok(()), |condition| self.check(&condition));
        let still = holds.and_then(|()| self.still_derived(volume, &opened));
        let may = still.and_then(|volume| {
            if let Some((by, parent)) = by.as_ref().zip(spec.parent()) {
                self.check_may_derive(by, parent, has_program(&spec))?;
            }
            // Another one may have been added meanwhile.
            self.target.pools().check_alone(&spec, self.volumes.values())?;
            Ok(volume)
        });
        let kept = may.and_then(|volume| {
            let (place, targets) = self.place_of(&volume.spec, target.as_deref())?;
            self.keep_volume(&volume.spec.name, Some(&volume), &targets)?;
            Ok((volume, place, targets))
        });
        let (volume, place, targets) = match kept {
            Ok(kept) => kept,
            Err(error) => {
                self.give_up_opened(&spec, opened);
                return Err(error);
            }
        };
        let opened = self.put(volume, opened).inspect_err(|_| self.keep_served())?;
        if let Err(error) = self.serve_targets(targets) {
            return Ok(self.take_back(opened, error));
        }
        let lines = match spec.parent() {
            None => self.changed(format!("volume {} is served{place}", spec.name)),
            Some(parent) => {
                let (volume, parent) = (spec.name.to_string(), parent.to_owned());
                self.target.events().note(Happening::DvdCreated { volume, parent: parent.clone() });
                self.changed(format!("volume {} is derived from {parent}, and served{place}", spec.name))
            }
        };
        Ok(Step::Done(self.warned_of_memory(lines, &spec)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::pools::tests::{ask, start, status};
    use crate::manage::testing::{Kept, go_on, work};
    use crate::manage::{Answer, Request};
    use crate::pools::testing::copy_files;

    #[test]
    fn who_has_taken_a_name_and_a_snapshot_goes_on_with_both() {
        copy_files();
        let kept = Kept::new("adding-snapshot", &["a=pool:,size=1M"]);
        let mut manager = start(&kept).unwrap();
        ask(&mut manager, Request::Snapshot { volumes: vec!["a".into()], name: "one".into(), protected: false })
            .unwrap();
        let spec: VolumeSpec = "old=pool:fast/a@one,readonly".parse().unwrap();
        let (hold, _) = manager.begin_to_add(spec.clone(), None).unwrap();
        let acceptance = Acceptance::Known;
        let addition = Addition { spec, target: None, acceptance, condition: None, by: None };
        let step = manager.add_made(addition, hold, || (), || ());
        let Ok(Step::Done(Answer::Changed(lines))) = go_on(&mut manager, work(step)) else { panic!("it is served") };
        assert_eq!((lines, status(&mut manager).volumes.len()), (vec!["volume old is served".to_owned()], 2));
        manager.into_target().stop().unwrap();
    }
}
