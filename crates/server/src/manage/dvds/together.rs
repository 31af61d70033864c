//! Volumes that are derived together, as one change: all of them, or none.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::Lun;
use sanwire_scsi::IscsiName;
use sanwire_store::{Acceptance, VolumeSpec};

use super::{NewDvd, NewDvds};
use crate::config::{Origin, VolumeConfig};
use crate::events::Happening;
use crate::free_number::free_lun;
use crate::front::iscsi::target_table::TargetChanges;
use crate::manage::busy::Hold;
use crate::manage::conditions::Condition;
use crate::manage::slow::{FLUSH_TIMEOUT, Step};
use crate::manage::volumes::{Attempt, ComingVolume, Opened};
use crate::manage::{Answer, ManageError, Manager};
use crate::volumes::OpenVolume;

/// So many are named in an answer.
const NAMED_MAX: usize = 8;

/// Where volumes are to be besides their HyperSCSI numbers.
#[derive(Default)]
struct Places {
    /// The targets that have them then.
    targets: TargetChanges,
    /// Why some are in no target, for people, with how many these are.
    notes: BTreeMap<String, usize>,
}

impl Manager {
    /// Derives volumes from others, and serves them.
    pub(in crate::manage) fn create_dvds(
        &mut self,
        new: &[NewDvd],
        condition: Option<Condition>,
    ) -> Result<Step, ManageError> {
        let (volumes, mut hold) = self.begin_together(new)?;
        let coming = self.coming(volumes, &mut hold)?;
        let wanted: Vec<Option<String>> = new.iter().map(|new| new.target.clone()).collect();
        let opener = self.target.volume_opener();
        let open = move || {
            let mut attempts: Vec<Attempt> = Vec::new();
            for coming in coming {
                // What is left of another one of its name is not its own.
                let opened = opener.open(&coming.volume, Acceptance::Renewed, coming.slot);
                let is_over = opened.is_err();
                attempts.push((coming, opened));
                if is_over {
                    break;
                }
            }
            attempts
        };
        Ok(Step::slow(format!("opening {} derived volumes", new.len()), open, move |manager, attempts| {
            let _hold = hold;
            manager.put_derived(attempts, &wanted, condition)
        }))
    }

    /// Tells what would come of that, and does nothing.
    pub(in crate::manage) fn rehearse_dvds(&mut self, new: &[NewDvd]) -> Result<Step, ManageError> {
        let (volumes, _hold) = self.begin_together(new)?;
        let volumes = self.numbered(volumes)?;
        let wanted: Vec<Option<String>> = new.iter().map(|new| new.target.clone()).collect();
        let places = self.derived_places(&volumes, &wanted)?;
        let (what, _) = shown(&volumes);
        let line = format!("{what} would be derived, and served, if all of them can be opened{}", places.noted());
        Ok(Step::Done(Answer::Changed(vec![line])))
    }

    /// What of that is refused before anything is opened: the volumes, whose numbers are still to be chosen.
    fn begin_together(&self, new: &[NewDvd]) -> Result<(Vec<VolumeConfig>, Hold), ManageError> {
        let refused = |reason: String| Err(ManageError::Together(reason));
        let max = NewDvds::COUNT_MAX;
        if new.is_empty() || new.len() > max {
            return refused(format!("the list has {} volumes: give 1 to {max} at a time", new.len()));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = new.iter().find(|new| !names.insert(&*new.name)) {
            return refused(format!("two volumes of the list are called {}: choose another name", twice.name));
        }
        let (mut volumes, mut hold) = (Vec::new(), self.busy.begin());
        for (new, number) in new.iter().zip(1..) {
            let (name, parent) = (&new.name, &new.parent);
            if new.program.is_some() {
                return refused(format!("volume {name} of the list has a program: derive it by itself"));
            }
            if names.contains(&**parent) {
                return refused(format!("volume {name} is derived from {parent} of the same list: derive that first"));
            }
            let spec = new.spec(None);
            let spec = spec.map_err(|source| ManageError::TogetherText(number, source))?;
            hold.add(&spec.name, "being added")?;
            let spec = self.check_addition(spec, new.target.as_deref(), &mut hold)?;
            volumes.push(VolumeConfig { lun: Lun::default(), spec, origin: Origin::Management });
        }
        Ok((volumes, hold))
    }

    /// Serves what was opened: all of it, or nothing.
    fn put_derived(
        &mut self,
        attempts: Vec<Attempt>,
        wanted: &[Option<String>],
        condition: Option<Condition>,
    ) -> Result<Step, ManageError> {
        let opened = self.all_opened(attempts)?;
        let holds = condition.map_or(Ok(()), |condition| self.check(&condition));
        let still = |(volume, opened): &(VolumeConfig, OpenVolume)| self.still_derived(volume.clone(), opened);
        let volumes: Result<Vec<VolumeConfig>, _> = holds.and_then(|()| opened.iter().map(still).collect());
        let kept = volumes.and_then(|volumes| {
            let places = self.derived_places(&volumes, wanted)?;
            self.keep_all_added(&volumes, &places.targets)?;
            Ok((volumes, places))
        });
        let (volumes, places) = match kept {
            Ok(kept) => kept,
            Err(error) => {
                opened.into_iter().for_each(|(volume, opened)| self.give_up_opened(&volume.spec, opened));
                return Err(error);
            }
        };
        let opened = volumes.iter().cloned().zip(opened.into_iter().map(|(_, opened)| opened)).collect();
        let notes = places.noted();
        let served = self.put_together(opened).inspect_err(|_| self.keep_served())?;
        if let Err(error) = self.serve_targets(places.targets) {
            return Ok(self.take_derived_back(served, error));
        }
        for VolumeConfig { spec, .. } in &volumes {
            let (volume, parent) = (spec.name.to_string(), parent_of(spec));
            self.target.events().note(Happening::DvdCreated { volume, parent });
        }
        let (what, are) = shown(&volumes);
        Ok(Step::Done(self.changed(format!("{what} {are} derived, and served{notes}"))))
    }

    /// What was opened, if all of it was.
    fn all_opened(&self, attempts: Vec<Attempt>) -> Result<Vec<(VolumeConfig, OpenVolume)>, ManageError> {
        let (mut all, mut failure) = (Vec::new(), None);
        for (ComingVolume { volume, .. }, opened) in attempts {
            match opened {
                Ok(opened) => all.push((volume, opened)),
                Err(error) => failure = Some(error.into()),
            }
        }
        let Some(error) = failure else { return Ok(all) };
        all.into_iter().for_each(|(volume, opened)| self.give_up_opened(&volume.spec, opened));
        Err(error)
    }

    /// As if nothing had been opened, for this error. Nothing is kept of it.
    fn take_derived_back(&mut self, served: Vec<Opened>, error: ManageError) -> Step {
        let removals = self.close_all_again(served);
        self.keep_served();
        let wait = move || removals.into_iter().for_each(|removal| drop(removal.wait(FLUSH_TIMEOUT)));
        Step::slow_awaited("closing what is not served after all", wait, move |_, ()| Err(error))
    }

    /// Where these are to be; `wanted` are the targets that are to get them.
    fn derived_places(&self, volumes: &[VolumeConfig], wanted: &[Option<String>]) -> Result<Places, ManageError> {
        let mut places = Places::default();
        for (VolumeConfig { spec, .. }, target) in volumes.iter().zip(wanted) {
            let name: Option<IscsiName> = target.as_ref().and_then(|target| target.parse().ok());
            // One that gets several of them has those before this one.
            let there = match &name {
                Some(name) => places.targets.get_mut(name).and_then(Option::as_mut),
                None => None,
            };
            if let Some((name, config)) = name.as_ref().zip(there) {
                let lun = free_lun(config.units.keys(), |lun| self.is_missing_at(name, lun));
                config.units.insert(lun.ok_or(ManageError::Full)?, spec.name.to_string());
                continue;
            }
            let (note, targets) = self.place_of(spec, target.as_deref())?;
            if targets.is_empty() && !note.is_empty() {
                *places.notes.entry(note).or_insert(0) += 1;
            }
            for (name, config) in targets {
                places.targets.entry(name).or_insert(config);
            }
        }
        Ok(places)
    }
}

impl Places {
    /// What is to be said of them, behind how many there are.
    fn noted(&self) -> String {
        self.notes.iter().map(|(note, count)| format!("; {count} of them {}", note.trim_start_matches(", "))).collect()
    }
}

fn parent_of(spec: &VolumeSpec) -> String {
    spec.parent().unwrap_or_default().to_owned()
}

/// How many there are, and the first of them, with the verb for as many.
fn shown(volumes: &[VolumeConfig]) -> (String, &'static str) {
    let names: Vec<&str> = volumes.iter().take(NAMED_MAX).map(|volume| &*volume.spec.name).collect();
    let others = if volumes.len() > names.len() { ", ..." } else { "" };
    match &names[..] {
        [one] => (format!("volume {one}"), "is"),
        _ => (format!("{} volumes ({}{others})", volumes.len(), names.join(", ")), "are"),
    }
}
