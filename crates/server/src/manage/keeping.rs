//! What differs from the configuration is kept, before it is done: a change that would not survive a restart is none.

mod added;
mod edits;
mod file;
mod revoked;
mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sanwire_core::Lun;
use sanwire_scsi::IscsiName;
use sanwire_store::VolumeSpec;

pub(super) use self::file::not_kept;
use self::revoked::forget_revoked;
use super::busy::Busy;
use super::derivations::Derivations;
use super::deviations::deviations;
use super::dvds::Expiry;
use super::lengths::Lengths;
use super::metrics::RequestCounts;
use super::run_status::Beginning;
use super::store_texts::StoreTexts;
use super::{Answer, AuditLog, Follower, ManageError, Manager, Source, WebLinks};
use crate::config::{ServerConfig, VolumeConfig};
use crate::error::StartError;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::kept::{self, AccessStates, Changes, ChangesFile, Configured, Edit};
use crate::revisions::{Collection, Revisions};
use crate::server::{Grounds, MissingVolume, Server};

/// What is kept of a server, and what it is compared with.
pub(super) struct Keeping {
    /// What file and command line say.
    pub(super) configured: Arc<Configured>,
    /// Nowhere: then changes end with the server.
    pub(super) file: Option<ChangesFile>,
    record: SharedRecord,
    /// Whether the file still says something else than the record, which holds, or may.
    is_behind: bool,
    /// Of the record, what is written with the next change.
    unwritten: Edit,
    /// Volumes that were derived while the server ran, and are being revoked: it is kept that they are to be forgotten until that is done, so
    /// that no volume of their names takes what a crash has left of them for its own.
    revoked: BTreeSet<String>,
    /// What should be served and is not.
    pub(super) missing: Vec<MissingVolume>,
    /// The port groups that are not active and optimized.
    pub(super) access_states: AccessStates,
    revisions: Revisions,
    /// Volumes that are configured otherwise in what cannot be changed while they are served: so from the next start on.
    pub(super) pending: BTreeMap<String, VolumeSpec>,
}

/// For those too who only look. Nobody holds it longer than it takes to read or write memory.
#[derive(Clone, Default)]
pub(super) struct SharedRecord(Arc<RwLock<Changes>>);

impl SharedRecord {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Changes> {
        // It is whole between any two changes.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Changes> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Manager {
    /// Starts the server of this configuration, with what was changed of it while earlier runs went on; `source` is where the
    /// configuration comes from when it is read again.
    ///
    /// # Errors
    /// [`StartError`], as for [`Server::start`]; and when what was changed cannot be brought back: then nothing is overwritten.
    pub fn start(configured: ServerConfig, source: Source) -> Result<Manager, StartError> {
        let mut configured = configured;
        let grounds = Grounds::take(&mut configured)?;
        let mut file = configured.changes_file();
        let kept: Option<Changes> = file.as_mut().map(ChangesFile::load).transpose()?.flatten();
        let kept = kept.unwrap_or_default();
        let (mut wanted, notes) = kept::merge(&configured, &kept);
        grounds.pools.place_all(&mut wanted.volumes)?;
        forget_revoked(&configured, &kept, &wanted.volumes);
        grounds.pools.settle(&wanted.volumes, configured.state_directory.as_deref())?;
        let specs = configured.volumes.iter().map(|volume| (&volume.spec.name, unguarded(&volume.spec)));
        let specs: BTreeMap<_, _> = specs.collect();
        // What a change has brought about keeps nothing else from being served.
        let may_be_missing = |volume: &VolumeConfig| specs.get(&volume.spec.name) != Some(&unguarded(&volume.spec));
        let target = Server::start_on(wanted.clone(), grounds, may_be_missing).map_err(|source| match &file {
            Some(file) if !kept.is_empty() => {
                StartError::Changed { path: file.path().to_owned(), source: Box::new(source) }
            }
            _ => source,
        })?;
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        let missing = target.take_missing();
        let names: BTreeSet<_> = missing.iter().map(|missing| missing.volume.spec.name.clone()).collect();
        let (audit, has_password) = (configured.audit_file().map(AuditLog::new), configured.has_password());
        let ServerConfig { name, allow, protection, .. } = configured.clone();
        let volumes = wanted.volumes.into_iter().filter(|volume| !names.contains(&volume.spec.name));
        let volumes: BTreeMap<_, _> = volumes.map(|volume| (volume.spec.name.to_string(), volume)).collect();
        let access_states = kept.access_states.clone();
        let (configured, record) = (Arc::new(Configured::new(configured)), SharedRecord::default());
        *record.write() = kept;
        let is_left_open = file.as_ref().is_some_and(ChangesFile::is_left_open);
        let (revisions, is_behind) = (target.revisions().clone(), is_left_open);
        let kept = Keeping {
            configured,
            file,
            record,
            is_behind,
            unwritten: Edit::default(),
            revoked: BTreeSet::new(),
            missing,
            access_states,
            revisions,
            pending: BTreeMap::new(),
        };
        let mut manager = Manager {
            name,
            stores: StoreTexts::of(volumes.values()),
            derivations: Derivations::of(volumes.values().map(|volume| &volume.spec), Arc::clone(target.owners())),
            expiry: Expiry::default(),
            volumes,
            allow,
            protection,
            has_password,
            kept,
            source: Arc::new(Mutex::new(source)),
            busy: Busy::default(),
            jobs: Arc::default(),
            audit,
            requests: RequestCounts::default(),
            web_links: WebLinks::default(),
            follower: Follower::default(),
            began: Beginning::now(),
            paused: BTreeSet::new(),
            stuck: BTreeMap::new(),
            lengths: Lengths::default(),
            target,
        };
        manager.begin_to_keep(!notes.is_empty());
        Ok(manager)
    }

    /// Keeps what is served by a server that has just started, and says whether that is what is configured.
    fn begin_to_keep(&mut self, is_overridden: bool) {
        self.await_ends();
        self.await_forgetting();
        self.remove_litter_of_programs();
        self.restore_access_states();
        if let Err(error) = self.drop_overridden(is_overridden) {
            tracing::warn!("{error}");
        }
        let differs = deviations(&self.kept.changes(), self.target.clients()).len();
        if differs > 0 {
            tracing::info!(
                "{differs} things are not as configured, since ctl has changed them: `sanwire ctl status` shows which"
            );
        }
    }

    /// Keeps no longer what the configuration has overridden: an older change does not come back when the configuration does.
    fn drop_overridden(&mut self, is_overridden: bool) -> Result<(), ManageError> {
        if let Some(file) = self.kept.file.as_ref().filter(|_| is_overridden) {
            file.put_aside().map_err(|source| not_kept(file, source))?;
        }
        self.keep_targets(&self.target.exports())
    }

    /// Keeps a volume as it is about to be, or that it will not be there, with its numbers in the targets that are about to change.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(super) fn keep_volume(
        &mut self,
        name: &str,
        now: Option<&VolumeConfig>,
        targets: &TargetChanges,
    ) -> Result<(), ManageError> {
        if !self.kept.is_missing_in(targets) {
            return self.kept.keep_edit(self.kept.edit(name, now, targets));
        }
        let mut volumes = self.volumes.clone();
        match now {
            Some(now) => drop(volumes.insert(name.to_owned(), now.clone())),
            None => drop(volumes.remove(name)),
        }
        let exports = self.exports_with(targets);
        self.kept.keep_all(self.kept.changes_to(volumes.values(), &exports))
    }

    /// As [`Manager::keep_volume`], of a volume whose targets stay as they are.
    pub(super) fn keep_definition(&mut self, volume: &VolumeConfig) -> Result<(), ManageError> {
        self.keep_volume(&volume.spec.name, Some(volume), &TargetChanges::new())
    }

    /// Keeps these targets, with the volumes as they are.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(super) fn keep_targets(&mut self, exports: &[TargetNodeConfig]) -> Result<(), ManageError> {
        self.kept.keep_all(self.kept.changes_to(self.volumes.values(), exports))
    }

    /// What is served differs so from the configuration that was read again. It is written down when the reload is over, or with a change
    /// that comes before: until then a restart makes the same of the new configuration and what is kept beside the old one.
    pub(super) fn note_reloaded(&mut self) {
        let changes = self.kept.changes_to(self.volumes.values(), &self.target.exports());
        self.kept.note(changes);
    }

    /// Keeps what is served after a reload. It also holds when that fails: the next change keeps it too.
    ///
    /// # Errors
    /// [`ManageError::Keep`].
    pub(super) fn keep_reloaded(&mut self) -> Result<(), ManageError> {
        self.note_reloaded();
        self.kept.catch_up()
    }

    /// Keeps what is served: what was about to be has failed. The next change does so, too, when this cannot be kept.
    pub(super) fn keep_served(&mut self) {
        if let Err(error) = self.keep_reloaded() {
            tracing::error!("what was kept for a change that has failed is kept until the next change: {error}");
        }
    }

    /// Keeps a volume as it is, which was kept so before that was done: others may have kept it as it was meanwhile, and what is configured from
    /// the next start on may be otherwise since.
    pub(super) fn keep_again(&mut self, name: &str) {
        let Some(volume) = self.volumes.get(name).cloned() else { return };
        if let Err(error) = self.keep_definition(&volume) {
            tracing::error!("volume {name} is not kept as it is now until the next change: {error}");
            self.note_reloaded();
        }
    }

    /// A volume as it is to be, if it is there.
    pub(super) fn volume_with(
        &self,
        name: &str,
        change: impl FnOnce(VolumeConfig) -> VolumeConfig,
    ) -> Result<VolumeConfig, ManageError> {
        let volume = self.volumes.get(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        Ok(change(volume.clone()))
    }

    /// A volume is so from now on.
    pub(super) fn put_definition(&mut self, volume: VolumeConfig) {
        self.revise_volume(&volume.spec.name);
        self.put_renewed(volume);
    }

    /// The same, and nobody need look at it again for that.
    pub(super) fn put_renewed(&mut self, volume: VolumeConfig) {
        let name = volume.spec.name.to_string();
        self.derivations.put(&volume.spec);
        self.await_end(&name);
        self.stores.put(&volume);
        self.volumes.insert(name, volume);
    }

    /// A volume is not what it was.
    pub(super) fn revise_volume(&self, name: &str) {
        self.target.revisions().changed(Collection::Volumes, name);
    }

    /// Whether a volume, or one that should be there, has this HyperSCSI number.
    pub(super) fn is_taken(&self, lun: Lun) -> bool {
        self.target.units().get(lun).is_some() || self.is_coming(lun)
    }

    /// Whether a volume that should be there, and is not, has this HyperSCSI number.
    pub(super) fn is_coming(&self, lun: Lun) -> bool {
        self.busy.has_lun(lun) || self.kept.missing.iter().any(|missing| missing.volume.lun == lun)
    }

    /// A target of this name as it is configured, without its units.
    pub(super) fn configured_target(&self, name: &IscsiName) -> Option<TargetNodeConfig> {
        let configured = self.kept.configured.target(name)?;
        Some(TargetNodeConfig { units: BTreeMap::new(), ..configured.clone() })
    }

    /// Whether changes survive a restart.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.file.is_some()
    }

    /// A change that was made; where nothing is kept, that is said.
    pub(super) fn changed(&self, line: String) -> Answer {
        let note = "this is forgotten when the server ends: it has no state directory";
        Answer::Changed([Some(line), (!self.is_kept()).then(|| note.to_owned())].into_iter().flatten().collect())
    }
}

impl Keeping {
    /// What differs from the configuration.
    pub(super) fn changes(&self) -> RwLockReadGuard<'_, Changes> {
        self.record.read()
    }

    /// The same, for those who only look.
    pub(super) fn shared(&self) -> SharedRecord {
        self.record.clone()
    }

    /// Something has changed that is kept elsewhere.
    pub(super) fn revise(&self) {
        self.revisions.server_changed();
    }

    /// What [`Keeping::changes_to`] says of one volume, and of targets in which none is missing.
    fn edit(&self, name: &str, now: Option<&VolumeConfig>, targets: &TargetChanges) -> Edit {
        let pending = now.zip(self.pending.get(name));
        let pending = pending.map(|(now, spec)| VolumeConfig { spec: spec.clone(), ..now.clone() });
        let edit = kept::edit_of_volume(&self.configured, name, pending.as_ref().or(now), targets);
        self.with_revoked(name, edit)
    }

    /// What leads from the configuration to these volumes and targets, with what is missing.
    fn changes_to<'a>(
        &self,
        volumes: impl IntoIterator<Item = &'a VolumeConfig>,
        exports: &[TargetNodeConfig],
    ) -> Changes {
        let volumes: Vec<&VolumeConfig> = volumes.into_iter().collect();
        let with_missing = (!self.missing.is_empty()).then(|| self.with_missing(exports.to_vec()));
        let pending: BTreeMap<&str, VolumeConfig> = if self.pending.is_empty() {
            BTreeMap::new()
        } else {
            let pending = |volume: &VolumeConfig| Some((self.pending.get(&*volume.spec.name)?, volume.clone()));
            let intended = volumes.iter().filter_map(|volume| pending(volume));
            intended.map(|(spec, volume)| (&*spec.name, VolumeConfig { spec: spec.clone(), ..volume })).collect()
        };
        let intended = volumes.into_iter().map(|volume| pending.get(&*volume.spec.name).unwrap_or(volume));
        let intended = intended.chain(self.missing.iter().map(|missing| &missing.volume));
        let exports = with_missing.as_deref().unwrap_or(exports);
        let access_states = self.access_states.clone();
        let mut changes = Changes { access_states, ..kept::difference(&self.configured, intended, exports) };
        changes.target_settings.extend(self.removed_targets(exports));
        self.revoked.iter().for_each(|name| self.note_revoked(name, &mut changes));
        changes
    }
}

/// The volume, however its packets are guarded and its content is protected.
fn unguarded(spec: &VolumeSpec) -> VolumeSpec {
    spec.clone().with_security(None).with_protected(false)
}

#[cfg(test)]
mod tests;
