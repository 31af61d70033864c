//! Other sizes of volumes.

use sanwire_core::Size;
use sanwire_device::LogicalUnit;
use sanwire_store::kind::Place;
use sanwire_store::{Capabilities, VolumeSpec};

use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;

impl Manager {
    /// As somebody asks who may not know what the configuration says.
    pub(super) fn resize_by_request(&mut self, name: &str, size: &str) -> Result<Answer, ManageError> {
        let size = size.parse::<Size>().map_err(|_| ManageError::Size(size.to_owned()))?;
        let (_, disk) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        if !may_become(&disk, size.0) {
            // It says why not. Were that kept first, a crash in between would leave a volume that cannot be opened.
            disk.resize(size.0).map_err(|source| ManageError::Resize { name: name.to_owned(), source })?;
        }
        let volumes = self.volumes_with(name, |volume| with_size(&volume, size.0));
        // A file that was kept to be longer is made so when it is opened: nothing is lost between this and that.
        self.keep(&volumes, &self.target.exports())?;
        let lines = self.resize_volume(name, size.0);
        let mut lines = lines.inspect_err(|_| self.keep_served())?;
        self.volumes = volumes;
        let pending = self.kept.pending.get_mut(name).into_iter();
        pending.for_each(|spec| *spec = spec.clone().with_size(size.0));
        let mut specs = self.volumes.iter().map(|volume| &volume.spec);
        if !lines.is_empty() && !self.is_kept() && specs.any(|spec| *spec.name == *name && must_have_size(spec)) {
            lines.push("if the configuration says its size, correct it: a file with another one is not served".into());
        }
        Ok(Answer::Changed(lines))
    }

    /// What has changed, for people.
    fn resize_volume(&mut self, name: &str, size_bytes: u64) -> Result<Vec<String>, ManageError> {
        let (lun, disk) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        let before = disk.store().geometry().length_bytes;
        if size_bytes == before {
            return Ok(Vec::new());
        }
        let refused = |source| ManageError::Resize { name: name.to_owned(), source };
        disk.resize(size_bytes).map_err(refused)?;
        if let Some(volume) = self.volumes.iter().find(|volume| *volume.spec.name == *name) {
            self.target.remember_length(&volume.spec, size_bytes);
        }
        self.target.volume_resized(lun);
        Ok(vec![format!("volume {name} has {} now, {} before", Size(size_bytes), Size(before))])
    }

    /// As the configuration says.
    pub(super) fn resize_configured(&mut self, name: &str, spec: &VolumeSpec, size_bytes: u64) -> Vec<String> {
        match self.resize_volume(name, size_bytes) {
            Ok(lines) => {
                let resized = self.volumes.iter_mut().filter(|volume| *volume.spec.name == *name);
                resized.for_each(|volume| volume.spec = spec.clone());
                lines
            }
            Err(error) => vec![format!("not changed: {error}")],
        }
    }
}

/// Whether nothing that is known speaks against this size.
fn may_become(disk: &LogicalUnit, size_bytes: u64) -> bool {
    let Capabilities { geometry, grows, .. } = disk.store().capabilities();
    let is_whole = size_bytes.is_multiple_of(u64::from(geometry.block_bytes));
    size_bytes == geometry.length_bytes || grows && is_whole && size_bytes > geometry.length_bytes
}

/// The volume with another size, if it has another one.
fn with_size(volume: &VolumeConfig, size_bytes: u64) -> VolumeConfig {
    let is_other = volume.spec.size_bytes() != Some(size_bytes);
    let spec = volume.spec.clone();
    VolumeConfig { spec: if is_other { spec.with_size(size_bytes) } else { spec }, ..volume.clone() }
}

/// Whether it is opened with one size only, whatever became of it meanwhile.
fn must_have_size(spec: &VolumeSpec) -> bool {
    matches!(spec.store.backing.place(), Place::File(_)) && spec.size_bytes().is_some()
}
