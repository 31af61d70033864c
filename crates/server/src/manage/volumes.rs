//! Volumes that come and go.

use std::collections::BTreeSet;
use std::time::SystemTime;

use sanwire_core::{Lun, Protection};
use sanwire_scsi::IscsiName;
use sanwire_store::kind::Place;
use sanwire_store::{Acceptance, OpenError, VolumeSpec, overcommitted};

use super::busy::Hold;
use super::conditions::Condition;
use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::config::{Origin, VolumeConfig};
use crate::derived::DerivedError;
use crate::error::StartError;
use crate::events::Happening;
use crate::free_number::free_lun;
use crate::front::iscsi::own_target::OwnTarget;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::pools::{check_alone, own_place};
use crate::records::real_path;
use crate::removal::Removal;
use crate::volumes::{Former, OpenVolume};

impl Manager {
    pub(super) fn add_volume(
        &mut self,
        spec: VolumeSpec,
        target: Option<String>,
        acceptance: Acceptance,
        condition: Option<Condition>,
    ) -> Result<Step, ManageError> {
        let name = spec.name.to_string();
        let (mut hold, spec) = self.begin_to_add(spec, target.as_deref())?;
        let lun = Lun::default();
        let new = vec![VolumeConfig { lun, spec, origin: Origin::Management }];
        let coming = self.coming(new, &mut hold)?.pop().ok_or(ManageError::Full)?;
        let opener = self.target.volume_opener();
        let open = move || {
            let opened = opener.open(&coming.volume, acceptance, coming.slot);
            (coming, opened)
        };
        Ok(Step::slow(format!("opening the store of {name}"), open, move |manager, (coming, opened)| {
            let _hold = hold;
            let opened = opened.map_err(|error| manager.name_holder(error))?;
            manager.put_added(coming.volume, opened, target.as_deref(), condition)
        }))
    }

    /// What of an addition is refused before anything is opened.
    pub(super) fn begin_to_add(
        &self,
        spec: VolumeSpec,
        target: Option<&str>,
    ) -> Result<(Hold, VolumeSpec), ManageError> {
        let name = spec.name.to_string();
        let mut hold = self.busy.hold(&name, "being added")?;
        if self.find(&name).is_some() {
            return Err(ManageError::Taken(name));
        }
        if let Some(missing) = self.kept.missing.iter().find(|missing| *missing.volume.spec.name == *name) {
            return Err(ManageError::Missing { name, reason: missing.reason.clone() });
        }
        let of_snapshot = spec.pool().and_then(|place| place.snapshot.as_ref()?.split_once('@'));
        if let Some((volume, _)) = of_snapshot.filter(|(volume, _)| *volume != name) {
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
        check_alone(&spec, self.volumes.values())?;
        let is_protected = spec.protected || self.target.pools().protects(&spec);
        Ok((hold, spec.with_protected(is_protected)))
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
    fn put_added(
        &mut self,
        volume: VolumeConfig,
        opened: OpenVolume,
        target: Option<&str>,
        condition: Option<Condition>,
    ) -> Result<Step, ManageError> {
        let spec = volume.spec.clone();
        let holds = condition.map_or(Ok(()), |condition| self.check(&condition));
        let holds = holds.and_then(|()| check_not_revoked(&spec, &opened));
        let kept = holds.and_then(|()| self.place_of(&spec, target)).and_then(|(place, targets)| {
            self.keep_volume(&spec.name, Some(&volume), &targets).map(|()| (place, targets))
        });
        let (place, targets) = match kept {
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

    /// These lines, and what is to be said of memory.
    pub(super) fn warned_of_memory(&self, answer: Answer, volume: &VolumeSpec) -> Answer {
        let Answer::Changed(mut lines) = answer else { return answer };
        lines.extend(self.memory_warning(volume));
        Answer::Changed(lines)
    }

    /// What is to be said when this volume is one of those in memory that this machine cannot hold together.
    pub(super) fn memory_warning(&self, volume: &VolumeSpec) -> Option<String> {
        if volume.store.backing.memory_bytes() == 0 {
            return None;
        }
        let others = self.volumes.values().map(|other| &other.spec).filter(|other| other.name != volume.name);
        overcommitted(others.chain([volume]))
    }

    /// Where a volume is to be besides its HyperSCSI number, for people, and the target that has it then.
    pub(super) fn place_of(
        &self,
        spec: &VolumeSpec,
        target: Option<&str>,
    ) -> Result<(String, TargetChanges), ManageError> {
        match target {
            Some(target) => self.as_unit_of(target, &spec.name),
            None if self.is_protected(spec) => Ok(Default::default()),
            None => Ok(self.own_target(spec)),
        }
    }

    /// A target, and the lowest number that is free there.
    fn next_unit_of(&self, target: &str) -> Result<(IscsiName, Lun), ManageError> {
        let name: Option<IscsiName> = target.parse().ok();
        let is_reserved = |lun| name.as_ref().is_some_and(|name| self.is_missing_at(name, lun));
        let free = |config: &TargetNodeConfig| free_lun(config.units.keys(), is_reserved).ok_or(ManageError::Full);
        let number = name.as_ref().and_then(|name| self.target.look_at_target(name, free));
        let found = name.clone().zip(number).map(|(name, lun)| lun.map(|lun| (name, lun)));
        found.ok_or_else(|| ManageError::NoTarget(target.to_owned()))?
    }

    /// Whether a volume that should be there, and is not, has this number in this target.
    pub(super) fn is_missing_at(&self, target: &IscsiName, lun: Lun) -> bool {
        let mut units = self.kept.missing.iter().flat_map(|missing| &missing.units);
        units.any(|(of, number)| *number == lun && of == target.as_str())
    }

    /// Makes a volume the next logical unit of a target; says which.
    fn as_unit_of(&self, target: &str, volume: &str) -> Result<(String, TargetChanges), ManageError> {
        let (name, lun) = self.next_unit_of(target)?;
        let config = self.target.target_node(&name).map(|mut config| {
            config.units.insert(lun, volume.to_owned());
            config
        });
        Ok((format!(", as logical unit {lun} of {name}"), TargetChanges::from([(name, config)])))
    }

    /// Whether a volume must not pass in the clear, as it does over iSCSI.
    fn is_protected(&self, spec: &VolumeSpec) -> bool {
        spec.security.unwrap_or(self.protection) > Protection::Checksum
    }

    /// Whether any clients must know a secret: then no target is made that is open without one.
    pub(super) fn has_secrets(&self) -> bool {
        self.has_password || self.target.clients().list().iter().any(|client| client.psk.is_some())
    }

    /// Gives a volume a target of its own, where iSCSI is served and its name can be that of a target; says so.
    fn own_target(&self, spec: &VolumeSpec) -> (String, TargetChanges) {
        if self.target.wires().iter().all(|wire| !wire.has_targets()) {
            return Default::default();
        }
        let others = spec.parent().map(|parent| self.target.targets_with(parent)).unwrap_or_default();
        let new = match OwnTarget::of(spec, self.allow.clone(), &others) {
            Ok(OwnTarget::Guarded(new)) => new,
            Ok(OwnTarget::Open(new)) if !self.has_secrets() => new,
            Ok(OwnTarget::Open(_)) => {
                let note = ", over HyperSCSI only: the password does not guard iSCSI targets, so none is made for it";
                return (note.to_owned(), TargetChanges::new());
            }
            Ok(OwnTarget::UsersUnknown(users)) => {
                let (users, parent) = (users.join(", "), spec.parent().unwrap_or_default());
                let note = format!(
                    ", not over iSCSI: no target of {parent} knows the secret of {users}; make it a unit of a [[target]] that does"
                );
                return (note, TargetChanges::new());
            }
            Err(_) => return Default::default(),
        };
        let name = new.name.clone();
        if self.target.look_at_target(&name, |_| ()).is_some() {
            return Default::default();
        }
        let new = match self.configured_target(&name) {
            Some(configured) => TargetNodeConfig { units: new.units, ..configured },
            None => new,
        };
        if new.units.keys().any(|lun| self.is_missing_at(&name, *lun)) {
            return Default::default();
        }
        (format!(", as logical unit 0 of {name}"), TargetChanges::from([(name, Some(new))]))
    }

    /// Volumes that are to have the lowest numbers that are free. Each number is looked at once, however many they are.
    ///
    /// # Errors
    /// [`ManageError::Full`] when there are not so many.
    pub(super) fn coming(&self, volumes: Vec<VolumeConfig>, hold: &mut Hold) -> Result<Vec<ComingVolume>, ManageError> {
        Ok(self.coming_at(self.numbered(volumes)?, hold))
    }

    /// The same, as long as nothing comes of it: they get no places among what is counted.
    pub(super) fn numbered(&self, mut volumes: Vec<VolumeConfig>) -> Result<Vec<VolumeConfig>, ManageError> {
        let missing: BTreeSet<Lun> = self.kept.missing.iter().map(|missing| missing.volume.lun).collect();
        let mut free = self.target.units().free_numbers(|lun| self.busy.has_lun(lun) || missing.contains(&lun));
        for volume in &mut volumes {
            volume.lun = free.next().ok_or(ManageError::Full)?;
        }
        Ok(volumes)
    }

    /// Volumes that are to have their numbers, which are free.
    pub(super) fn coming_at(&self, volumes: Vec<VolumeConfig>, hold: &mut Hold) -> Vec<ComingVolume> {
        let slots = self.target.take_slots(volumes.len(), |slot| self.busy.has_slot(slot));
        hold.add_places(volumes.iter().map(|volume| volume.lun).zip(slots.iter().copied()));
        volumes.into_iter().zip(slots).map(|(volume, slot)| ComingVolume { volume, slot }).collect()
    }

    /// Serves a volume over HyperSCSI that is open.
    pub(super) fn put(&mut self, volume: VolumeConfig, opened: OpenVolume) -> Result<Opened, ManageError> {
        self.put_together(vec![(volume, opened)])?.pop().ok_or(ManageError::Full)
    }

    /// The same for some: all of them, as one change, or none.
    pub(super) fn put_together(
        &mut self,
        volumes: Vec<(VolumeConfig, OpenVolume)>,
    ) -> Result<Vec<Opened>, ManageError> {
        let (mut units, mut coming) = (Vec::new(), Vec::new());
        for (volume, OpenVolume { unit, is_first, former }) in volumes {
            units.push(unit);
            coming.push((volume, (is_first, former)));
        }
        let put = self.target.put_volumes(coming.iter().map(|(volume, _)| volume).zip(units).collect());
        if let Err(error) = put {
            coming.iter().for_each(|(volume, before)| self.forget_opening(&volume.spec, before));
            return Err(error.into());
        }
        Ok(coming.into_iter().map(|(volume, before)| self.note_served(volume, before)).collect())
    }

    fn note_served(&mut self, volume: VolumeConfig, before: Before) -> Opened {
        let spec = volume.spec.clone();
        self.put_definition(volume);
        self.target.events().note(Happening::VolumeAdded { volume: spec.name.to_string() });
        Opened { spec, before }
    }

    fn forget_opening(&self, spec: &VolumeSpec, (is_first, former): &Before) {
        self.target.volume_opener().forget_opening(spec, *is_first, former.as_ref());
    }

    /// As if a volume had not been opened that nobody has found: who tries again later is not asked where the former volume is.
    pub(super) fn give_up_opened(&self, spec: &VolumeSpec, opened: OpenVolume) {
        let OpenVolume { unit, is_first, former } = opened;
        drop(unit);
        self.forget_opening(spec, &(is_first, former));
    }

    /// The same for all of these.
    pub(super) fn give_up_all(&self, attempts: impl IntoIterator<Item = Attempt>) {
        for (ComingVolume { volume, .. }, opened) in attempts {
            opened.into_iter().for_each(|opened| self.give_up_opened(&volume.spec, opened));
        }
    }

    /// As if a volume had not been opened, for this error. Nothing is kept of it.
    pub(super) fn take_back(&mut self, opened: Opened, error: ManageError) -> Step {
        let removal = self.close_again(opened);
        self.keep_served();
        let hold = self.busy.begin();
        Step::flush("what is not served after all".to_owned(), removal, hold, Err(error))
    }

    /// Serves a volume no longer that was opened just now. Nothing was written to it.
    pub(super) fn close_again(&mut self, opened: Opened) -> Removal {
        self.close_all_again(vec![opened]).pop().unwrap_or_default()
    }

    /// The same for some, as one change.
    pub(super) fn close_all_again(&mut self, opened: Vec<Opened>) -> Vec<Removal> {
        let removed = self.begin_to_close_all(opened.iter().map(|opened| opened.spec.name.to_string()).collect());
        opened.iter().for_each(|Opened { spec, before }| self.forget_opening(spec, before));
        removed.into_iter().map(|(_, removal)| removal).collect()
    }
}

/// # Errors
/// When the parent of a volume went while it was being derived from that.
fn check_not_revoked(spec: &VolumeSpec, opened: &OpenVolume) -> Result<(), ManageError> {
    match spec.parent().filter(|_| opened.unit.is_revoked()) {
        None => Ok(()),
        Some(parent) => {
            let source = DerivedError::NotServed { parent: parent.to_owned() };
            Err(ManageError::Derived { name: spec.name.to_string(), source })
        }
    }
}

/// A volume that is about to be opened.
pub(super) struct ComingVolume {
    pub(super) volume: VolumeConfig,
    /// Its place among what is counted.
    pub(super) slot: u16,
}

/// What came of that.
pub(super) type Attempt = (ComingVolume, Result<OpenVolume, StartError>);

/// A volume that was opened, and may have to be taken back.
pub(super) struct Opened {
    spec: VolumeSpec,
    before: Before,
}

/// Whether a volume was never served before, and what was known of it if another one was.
type Before = (bool, Option<Former>);

pub(super) fn acceptance(renew: bool, adopt: bool) -> Result<Acceptance, ManageError> {
    match (renew, adopt) {
        (false, false) => Ok(Acceptance::Known),
        (false, true) => Ok(Acceptance::Adopted),
        (true, false) => Ok(Acceptance::Renewed),
        (true, true) => Err(ManageError::RenewAndAdopt),
    }
}
