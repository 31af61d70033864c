//! What differs from the configuration is kept, before it is done: a change that would not survive a restart is none.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use sanwire_core::Lun;
use sanwire_store::VolumeSpec;

use super::busy::Busy;
use super::{Answer, AuditLog, ManageError, Manager, Source};
use crate::config::{ServerConfig, VolumeConfig};
use crate::error::StartError;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::kept::{self, AccessStates, Changes, StateFile};
use crate::server::{MissingVolume, Server};

/// What is kept of a server, and what it is compared with.
pub(super) struct Keeping {
    /// What file and command line say.
    pub(super) configured: ServerConfig,
    /// Nowhere: then changes end with the server.
    file: Option<StateFile>,
    pub(super) changes: Changes,
    /// What should be served and is not.
    pub(super) missing: Vec<MissingVolume>,
    /// The port groups that are not active and optimized.
    pub(super) access_states: AccessStates,
    /// Volumes that are configured otherwise in what cannot be changed while they are served: so from the next start on.
    pub(super) pending: BTreeMap<String, VolumeSpec>,
}

impl Manager {
    /// Starts the server of this configuration, with what was changed of it while earlier runs went on; `source` is where the
    /// configuration comes from when it is read again.
    ///
    /// # Errors
    /// [`StartError`], as for [`Server::start`]; and when what was changed cannot be brought back: then nothing is overwritten.
    pub fn start(configured: ServerConfig, source: Source) -> Result<Manager, StartError> {
        let lock = configured.lock()?;
        let file = configured.changes_file();
        let kept: Option<Changes> = file.as_ref().map(StateFile::load).transpose()?.flatten();
        let kept = kept.unwrap_or_default();
        let (wanted, notes) = kept::merge(&configured, &kept);
        let specs = configured.volumes.iter().map(|volume| (&volume.spec.name, unguarded(&volume.spec)));
        let specs: BTreeMap<_, _> = specs.collect();
        // What a change has brought about keeps nothing else from being served.
        let may_be_missing = |volume: &VolumeConfig| specs.get(&volume.spec.name) != Some(&unguarded(&volume.spec));
        let target = Server::start_locked(wanted.clone(), lock, may_be_missing).map_err(|source| match &file {
            Some(file) if !kept.is_empty() => {
                StartError::Changed { path: file.path().to_owned(), source: Box::new(source) }
            }
            _ => source,
        })?;
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        let missing = target.take_missing();
        let is_missing = |volume: &VolumeConfig| missing.iter().any(|other| other.volume.spec.name == volume.spec.name);
        let (audit, has_password) = (configured.audit_file().map(AuditLog::new), configured.has_password());
        let ServerConfig { name, allow, protection, .. } = configured.clone();
        let volumes = wanted.volumes.into_iter().filter(|volume| !is_missing(volume)).collect();
        let access_states = kept.access_states.clone();
        let kept = Keeping { configured, file, changes: kept, missing, access_states, pending: BTreeMap::new() };
        let source = Arc::new(Mutex::new(source));
        let mut manager = Manager {
            target,
            name,
            volumes,
            allow,
            protection,
            has_password,
            kept,
            source,
            busy: Busy::default(),
            jobs: Arc::default(),
            audit,
            revision: 1,
        };
        manager.restore_access_states();
        if let Err(error) = manager.drop_overridden(!notes.is_empty()) {
            tracing::warn!("{error}");
        }
        Ok(manager)
    }

    /// Keeps no longer what the configuration has overridden: an older change does not come back when the configuration does.
    fn drop_overridden(&mut self, is_overridden: bool) -> Result<(), ManageError> {
        if let Some(file) = self.kept.file.as_ref().filter(|_| is_overridden) {
            file.put_aside().map_err(|source| not_kept(file, source))?;
        }
        self.keep_targets(&self.target.exports())
    }

    /// Keeps what is about to be served in place of what is.
    ///
    /// # Errors
    /// [`ManageError::Keep`]; then what was kept still is.
    pub(super) fn keep(&mut self, volumes: &[VolumeConfig], exports: &[TargetNodeConfig]) -> Result<(), ManageError> {
        let changes = self.kept.changes_to(volumes, exports);
        if changes != self.kept.changes {
            if let Some(file) = &self.kept.file {
                file.save(&changes).map_err(|source| not_kept(file, source))?;
            }
            self.kept.changes = changes;
            self.revision += 1;
        }
        Ok(())
    }

    /// As [`Manager::keep`], with the volumes as they are.
    pub(super) fn keep_targets(&mut self, exports: &[TargetNodeConfig]) -> Result<(), ManageError> {
        let volumes = std::mem::take(&mut self.volumes);
        let kept = self.keep(&volumes, exports);
        self.volumes = volumes;
        kept
    }

    /// Keeps what is served: what was about to be has failed.
    pub(super) fn keep_served(&mut self) {
        if let Err(error) = self.keep_targets(&self.target.exports()) {
            tracing::error!("what was kept for a change that has failed is still kept: {error}");
        }
    }

    /// The volumes, of which one is to be otherwise.
    pub(super) fn volumes_with(&self, name: &str, change: impl Fn(VolumeConfig) -> VolumeConfig) -> Vec<VolumeConfig> {
        let change = |volume: &VolumeConfig| {
            if *volume.spec.name == *name { change(volume.clone()) } else { volume.clone() }
        };
        self.volumes.iter().map(change).collect()
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
    pub(super) fn configured_target(&self, name: &str) -> Option<TargetNodeConfig> {
        let configured = self.kept.configured.exports.iter().find(|export| export.name.as_str() == name)?;
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
    /// What leads from the configuration to these volumes and targets, with what is missing.
    fn changes_to(&self, volumes: &[VolumeConfig], exports: &[TargetNodeConfig]) -> Changes {
        let with_missing = (!self.missing.is_empty()).then(|| self.with_missing(exports.to_vec()));
        let pending: BTreeMap<&str, VolumeConfig> = if self.pending.is_empty() {
            BTreeMap::new()
        } else {
            let pending = |volume: &VolumeConfig| Some((self.pending.get(&*volume.spec.name)?, volume.clone()));
            let intended = volumes.iter().filter_map(pending);
            intended.map(|(spec, volume)| (&*spec.name, VolumeConfig { spec: spec.clone(), ..volume })).collect()
        };
        let intended = volumes.iter().map(|volume| pending.get(&*volume.spec.name).unwrap_or(volume));
        let intended = intended.chain(self.missing.iter().map(|missing| &missing.volume));
        let exports = with_missing.as_deref().unwrap_or(exports);
        let access_states = self.access_states.clone();
        Changes { access_states, ..kept::difference(&self.configured, intended, exports) }
    }

    /// The targets, with what is missing in them.
    fn with_missing(&self, mut exports: Vec<TargetNodeConfig>) -> Vec<TargetNodeConfig> {
        for MissingVolume { volume, units, .. } in &self.missing {
            for (target, lun) in units {
                let name = volume.spec.name.to_string();
                match exports.iter_mut().find(|export| export.name.as_str() == target) {
                    Some(export) => drop(export.units.entry(*lun).or_insert(name)),
                    None => {
                        let like = TargetNodeConfig::of_volume(&name, self.configured.allow.clone()).ok();
                        let units = BTreeMap::from([(*lun, name)]);
                        let named = like.zip(target.parse().ok());
                        exports.extend(named.map(|(like, name)| TargetNodeConfig { name, units, ..like }));
                    }
                }
            }
        }
        exports
    }
}

/// The volume, however its packets are guarded.
fn unguarded(spec: &VolumeSpec) -> VolumeSpec {
    spec.clone().with_security(None)
}

fn not_kept(file: &StateFile, source: io::Error) -> ManageError {
    ManageError::Keep { path: file.path().to_owned(), source }
}

#[cfg(test)]
mod tests;
