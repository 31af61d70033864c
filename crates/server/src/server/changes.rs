//! Changes of a running server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use sanwire_core::quota::Usage;
use sanwire_core::{Lun, NexusId, Protection};
use sanwire_device::{AddError, LogicalUnit};
use sanwire_scsi::IscsiName;
use sanwire_scsi::port_groups::{AccessState, PortGroup};
use sanwire_store::{Acceptance, VolumeSpec};

use super::counter::Counter;
use super::{MissingVolume, Server, VolumeOpener, refuse_in_the_clear};
use crate::config::VolumeConfig;
use crate::counting::Counted;
use crate::error::StartError;
use crate::front::NexusSelection;
use crate::front::hyperscsi::clients::{Clients, ClientsConfig};
use crate::front::iscsi::target_node::{TargetNodeConfig, TargetNodeError};
use crate::front::iscsi::target_table::TargetChanges;
use crate::management_queue::Letters;
use crate::messages::{Mailbox, ShardMessage};
use crate::pools::Pools;
use crate::removal::Removal;
use crate::revisions::Collection;
use crate::volumes::{OpenVolume, put_among, remember_length};

impl Server {
    /// Serves these iSCSI targets from now on. Sessions with a target that stays go on, and learn of units that come and go, unless they are
    /// of somebody who may not use it any more; sessions with others are ended, those with targets that have moved asked to go there.
    ///
    /// # Errors
    /// [`TargetNodeError`]; then nothing has changed.
    pub fn set_exports(&self, configs: Vec<TargetNodeConfig>) -> Result<(), TargetNodeError> {
        self.set_exports_where(configs, &[])
    }

    /// As [`Server::set_exports`], where volumes are about to be guarded as these say, and no worse before that is done.
    pub(crate) fn set_exports_where(
        &self,
        configs: Vec<TargetNodeConfig>,
        lower: &[&VolumeSpec],
    ) -> Result<(), TargetNodeError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.exports.table().changes_to(configs)?;
        self.change_targets_locked(changes, lower)
    }

    /// As [`Server::set_exports`], for the targets that are named; the others are not looked at.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn change_targets(&self, changes: TargetChanges) -> Result<(), TargetNodeError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.change_targets_locked(changes, &[])
    }

    fn change_targets_locked(&self, changes: TargetChanges, lower: &[&VolumeSpec]) -> Result<(), TargetNodeError> {
        // Units that stay were looked at when they came, and none of them is guarded better since.
        let lower: BTreeMap<&str, &VolumeSpec> = lower.iter().map(|spec| (&*spec.name, *spec)).collect();
        refuse_in_the_clear((&self.exports, &changes), &self.units, |lun, volume| {
            lower.get(volume).map_or_else(|| self.levels.of(Some(lun)), |spec| self.levels.wanted(spec))
        })?;
        let changed: Vec<_> = changes.iter().map(|(name, config)| (name.clone(), config.is_some())).collect();
        let departures = self.exports.change(changes, &self.units)?;
        for (name, is_there) in changed {
            match is_there {
                true => self.revisions.changed(Collection::Targets, name.as_str()),
                false => self.revisions.removed(Collection::Targets, name.as_str()),
            }
        }
        departures.gone.iter().for_each(|target| self.post(|| ShardMessage::Drop(NexusSelection::With(target.0))));
        departures.moved.iter().for_each(|target| self.post(|| ShardMessage::Redirect(target.0)));
        self.exports.outcasts(&departures.for_others).into_iter().for_each(|nexus| self.drop_nexus(nexus));
        Ok(())
    }

    /// The portal groups through which an iSCSI target is reached, with their states; none when there is no such target.
    #[must_use]
    pub fn portal_groups(&self, target: &IscsiName) -> Vec<PortGroup> {
        let export = self.exports.table().by_name(target).map(Arc::clone);
        export.map(|export| export.units.target_port_groups()).unwrap_or_default()
    }

    /// Gives the ports of an iSCSI portal group another state, for one target or all; their initiators are told. The names of
    /// the targets that had another one; `None` when none of them is reached through that group.
    #[must_use]
    pub fn set_access_state(
        &self,
        group_tag: u16,
        state: AccessState,
        only: Option<&IscsiName>,
    ) -> Option<Vec<String>> {
        self.exports.set_access_state(group_tag, state, only)
    }

    /// Serves one more volume; `acceptance` says what is done when it is not what is remembered of it. iSCSI targets have it only
    /// when [`Server::set_exports`] says so. Whether it was never served before.
    ///
    /// # Errors
    /// [`StartError`], as for a volume at the start; then nothing is remembered of it that was not before.
    pub fn add_volume(&self, volume: &VolumeConfig, acceptance: Acceptance) -> Result<bool, StartError> {
        let slot = self.take_slots(1, |_| false).pop().unwrap_or_default();
        let OpenVolume { unit, is_first, .. } = self.volume_opener().open(volume, acceptance, slot)?;
        self.put_volumes(vec![(volume, unit)]).map(|()| is_first)
    }

    /// Where what is to survive it is kept.
    pub(crate) fn state_directory(&self) -> Option<&Path> {
        self.state_directory.as_deref()
    }

    /// The pools.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Who opens volumes, which may take long.
    pub(crate) fn volume_opener(&self) -> VolumeOpener {
        VolumeOpener {
            state: self.state_directory.clone(),
            pools: self.pools.clone(),
            units: Arc::clone(&self.units),
            clock: self.clock.clone(),
            programs: self.programs.clone(),
        }
    }

    /// Places for so many volumes among what is counted: none that some volume has, or that `is_taken`.
    pub(crate) fn take_slots(&self, count: usize, is_taken: impl Fn(u16) -> bool) -> Vec<u16> {
        let slots = self.slots.lowest_free(count, is_taken);
        if !slots.is_empty() {
            let shared: Arc<[u16]> = slots.as_slice().into();
            self.post(|| ShardMessage::CountFromZero(Arc::clone(&shared)));
        }
        slots
    }

    /// Serves volumes over HyperSCSI that are open: all of them, as one change of the list, or none.
    ///
    /// # Errors
    /// [`StartError::Volume`] when the number of one is taken.
    pub(crate) fn put_volumes(&self, volumes: Vec<(&VolumeConfig, Arc<LogicalUnit>)>) -> Result<(), StartError> {
        // A change of the list copies a page at least.
        #[cfg(test)]
        crate::visits::count(volumes.len().max(256));
        let slots: Vec<u16> = volumes.iter().map(|(_, unit)| unit.slot()).collect();
        let luns: Vec<Lun> = volumes.iter().map(|(volume, _)| volume.lun).collect();
        // From when clients find them on, they demand what they should. Another volume that has a number keeps its level.
        let coming = volumes.iter().filter(|(volume, _)| self.units.get(volume.lun).is_none());
        let new: Vec<&VolumeConfig> = coming.map(|(volume, _)| *volume).collect();
        new.iter().for_each(|volume| self.levels.set(volume.lun, &volume.spec));
        put_among(&self.units, volumes).inspect_err(|_| new.iter().for_each(|volume| self.levels.clear(volume.lun)))?;
        self.slots.take(&slots);
        self.clients.follow_volumes(&luns);
        self.addresses.serve(new.iter().copied(), &self.units);
        self.disks.serve(new, &self.units);
        Ok(())
    }

    /// Serves a volume no longer, over HyperSCSI; take it out of the iSCSI targets first. What its commands have begun goes on
    /// to its end, and all becomes stable. `None` when there is none.
    pub fn remove_volume(&self, lun: Lun) -> Option<Removal> {
        self.remove_volumes(&[lun]).pop().map(|(_, removal)| removal)
    }

    /// The same for those of these volumes that are there, as one change of the list.
    pub(crate) fn remove_volumes(&self, luns: &[Lun]) -> Vec<(Lun, Removal)> {
        let begin = |(lun, disk)| (lun, Removal::begin(disk, self.state_directory.clone()));
        self.unlist_volumes(luns).into_iter().map(begin).collect()
    }

    /// The same without an end of what they have begun: gives them.
    pub(crate) fn unlist_volumes(&self, luns: &[Lun]) -> Vec<(Lun, Arc<LogicalUnit>)> {
        let removed = luns.iter().filter_map(|lun| Some((*lun, self.units.get(*lun)?)));
        let removed: Vec<(Lun, Arc<LogicalUnit>)> = removed.collect();
        // Where none is there the list stays as it is, and nobody is told of a change.
        let there: Vec<Lun> = removed.iter().map(|(lun, _)| *lun).collect();
        let is_changed = self.units.change(&there, Vec::new());
        debug_assert!(is_changed.is_ok(), "numbers become free");
        for (_, disk) in &removed {
            disk.stalls().give_up();
            self.slots.give_back(disk);
        }
        self.past_uses.forget(removed.iter().map(|(_, disk)| disk.identity().uuid()));
        self.clients.follow_volumes(&there);
        if !there.is_empty() {
            self.post(|| ShardMessage::VolumesRemoved);
        }
        there.iter().for_each(|lun| self.addresses.remove(*lun));
        there.iter().for_each(|lun| self.disks.remove(*lun));
        // Last: as long as clients find a volume, it demands what it did.
        removed.iter().for_each(|(lun, _)| self.levels.clear(*lun));
        removed
    }

    /// Gives a volume another HyperSCSI number: for its clients one unit goes and another comes. `false` when there is none.
    ///
    /// # Errors
    /// [`AddError`] when the number is taken; then nothing has changed.
    pub fn renumber_volume(&self, from: Lun, to: Lun) -> Result<bool, AddError> {
        if self.units.get(to).is_some() {
            return Err(AddError::Occupied(to));
        }
        let Some(disk) = self.units.get(from) else { return Ok(false) };
        // As long as clients find the volume under either number, it demands there what it does.
        self.levels.copy(from, to);
        let added = self.units.change(&[from], vec![(to, disk)]);
        self.clients.follow_volumes(&[from, to]);
        if added.is_ok() {
            self.addresses.renumber(from, to);
            self.disks.renumber(from, to);
        }
        self.levels.clear(if added.is_ok() { from } else { to });
        added.map(|()| true)
    }

    /// How a volume's packets are guarded over HyperSCSI.
    #[must_use]
    pub fn security(&self, lun: Lun) -> Protection {
        self.levels.of(Some(lun))
    }

    /// Guards a volume's packets so from now on; `spec` is the volume as it is to be. Its clients go on: what they send by the old
    /// level is not executed, and comes again. A level below which nobody goes rises and falls with it.
    ///
    /// # Errors
    /// [`TargetNodeError::Protected`] when it also passes in the clear, over iSCSI; then nothing has changed.
    pub fn secure_volume(&self, lun: Lun, spec: &VolumeSpec) -> Result<(), TargetNodeError> {
        if self.begin_to_secure(lun, spec)? {
            // A shard that has counted has read its mail.
            self.count();
        }
        self.finish_securing(lun, spec)
    }

    /// The first half of [`Server::secure_volume`]: tells the shards, when the volume will demand more, which have to read that before
    /// the second half. Whether that is so.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn begin_to_secure(&self, lun: Lun, spec: &VolumeSpec) -> Result<bool, TargetNodeError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_out_of_the_clear(spec)?;
        let (before, after) = (self.levels.of(Some(lun)), self.levels.wanted(spec));
        if after > before {
            self.post(|| ShardMessage::DemandsMore(lun, before));
        }
        Ok(after > before)
    }

    /// The second half.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn finish_securing(&self, lun: Lun, spec: &VolumeSpec) -> Result<(), TargetNodeError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_out_of_the_clear(spec)?;
        self.levels.set(lun, spec);
        self.addresses.secured(lun, spec, &self.units);
        self.terms_changed();
        Ok(())
    }

    /// Refuses to protect what also passes in the clear, over iSCSI.
    ///
    /// # Errors
    /// [`TargetNodeError`], with the target that has it.
    pub(crate) fn check_out_of_the_clear(&self, spec: &VolumeSpec) -> Result<(), TargetNodeError> {
        if self.levels.wanted(spec) <= Protection::Checksum {
            return Ok(());
        }
        match self.targets_with(&spec.name).first() {
            Some(export) => {
                Err(TargetNodeError::Protected { target: export.name.clone(), volume: spec.name.to_string() })
            }
            None => Ok(()),
        }
    }

    /// Tells who uses a volume that its store has grown. `false` when there is none.
    pub fn volume_resized(&self, lun: Lun) -> bool {
        let disk = self.units.get(lun);
        if let Some(disk) = &disk {
            disk.capacity_changed();
        }
        disk.is_some()
    }

    /// Remembers how long a volume is now: a shorter file is not the same volume any more.
    pub(crate) fn remember_length(&self, spec: &VolumeSpec, length_bytes: u64) {
        remember_length(spec, self.state_directory.as_deref(), length_bytes);
    }

    /// The volumes that could not be opened at the start, for who manages the server.
    pub(crate) fn take_missing(&self) -> Vec<MissingVolume> {
        std::mem::take(&mut self.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What comes in band for who manages the server: there is one.
    pub(crate) fn take_letters(&self) -> Option<Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The HyperSCSI clients that the server knows.
    pub(crate) fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// Has the shards see to what holds for clients now: who is not served any more is dropped.
    pub(crate) fn terms_changed(&self) {
        self.post(|| ShardMessage::ClientsConfig);
    }

    /// Takes over what a new configuration says of clients; a line for each change that it overrides. One that `resets` overrides all.
    ///
    /// # Errors
    /// [`crate::ClientError`]; then nothing has changed.
    pub(crate) fn configure_clients(
        &self,
        terms: ClientsConfig,
        resets: bool,
    ) -> Result<Vec<String>, crate::ClientError> {
        let overridden = self.clients.configure(terms, resets)?;
        self.terms_changed();
        Ok(overridden)
    }

    /// Lets the commands of a principal wait (a client by its id, or an initiator by its name), or go on.
    pub(crate) fn pause_principal(&self, principal: &str, is_paused: bool) {
        self.post(|| ShardMessage::Pause(principal.to_owned(), is_paused));
    }

    /// Ends the sessions of a principal; it may come again.
    pub(crate) fn drop_principal(&self, principal: &str) {
        self.post(|| ShardMessage::Drop(NexusSelection::Of(principal.to_owned())));
    }

    /// Ends this session; its client may come again.
    pub(crate) fn drop_nexus(&self, nexus: NexusId) {
        self.post(|| ShardMessage::Drop(NexusSelection::Dropped(nexus)));
    }

    /// How many shards there are.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// How the quotas are used that all shards share.
    pub(crate) fn usages(&self) -> impl Iterator<Item = Usage> {
        let of_logins = self.logins.usages().into_iter().chain(self.registry.usages());
        of_logins.chain(self.exports.usages()).chain(self.letters_usage.usages())
    }

    /// What the shards have counted; a shard that does not answer is left out.
    pub(crate) fn count(&self) -> Vec<Counted> {
        self.counter().count()
    }

    /// Who asks the shards for what they have counted.
    pub(crate) fn counter(&self) -> Counter {
        Counter::of(self.mailboxes())
    }

    pub(crate) fn mailboxes(&self) -> Arc<[Mailbox]> {
        Arc::clone(&self.shards)
    }

    pub(crate) fn post(&self, mail: impl Fn() -> ShardMessage) {
        #[cfg(test)]
        crate::visits::count(self.shards.len());
        self.shards.iter().for_each(|shard| shard.send(mail()));
    }
}
