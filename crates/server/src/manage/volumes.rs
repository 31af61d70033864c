//! Volumes that come and go.

use std::collections::BTreeSet;

use sanwire_core::{Lun, Protection};
use sanwire_scsi::IscsiName;
use sanwire_store::{Acceptance, VolumeSpec, overcommitted};

use super::busy::Hold;
use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::derived::DerivedError;
use crate::error::StartError;
use crate::events::Happening;
use crate::free_number::free_lun;
use crate::front::iscsi::own_target::OwnTarget;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::removal::Removal;
use crate::volumes::{Former, OpenVolume};

impl Manager {
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
    pub(super) fn next_unit_of(&self, target: &str) -> Result<(IscsiName, Lun), ManageError> {
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

    /// Volumes that are served, to be served otherwise, under the numbers that they have.
    pub(super) fn as_numbered(&self, mut volumes: Vec<VolumeConfig>) -> Vec<VolumeConfig> {
        for volume in &mut volumes {
            volume.lun = self.volumes.get(&*volume.spec.name).map_or(volume.lun, |served| served.lun);
        }
        volumes
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
        if let Some(error) = volumes.iter().find_map(|(volume, opened)| check_not_revoked(&volume.spec, opened).err()) {
            volumes.into_iter().for_each(|(volume, opened)| self.give_up_opened(&volume.spec, opened));
            return Err(error);
        }
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

    /// A volume as it is to be now that it is open: meanwhile that from which it is derived may have gone, end earlier, or be guarded better.
    pub(super) fn still_derived(&self, volume: VolumeConfig, opened: &OpenVolume) -> Result<VolumeConfig, ManageError> {
        check_not_revoked(&volume.spec, opened)?;
        let spec = self.check_derived(&volume.spec);
        let spec = spec.map_err(|source| ManageError::Derived { name: volume.spec.name.to_string(), source })?;
        Ok(VolumeConfig { spec, ..volume })
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
        // What was known of them before is known on.
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
