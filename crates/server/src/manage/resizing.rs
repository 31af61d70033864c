//! Other sizes of volumes.

use std::sync::Arc;

use sanwire_core::Size;
use sanwire_device::LogicalUnit;
use sanwire_store::kind::Place;
use sanwire_store::{Capabilities, ResizeError, VolumeSpec};

use super::busy::Hold;
use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::config::VolumeConfig;
use crate::events::Happening;
use crate::pools::Room;

impl Manager {
    /// As somebody asks who may not know what the configuration says.
    pub(super) fn resize_by_request(&mut self, name: &str, size: &str) -> Result<Step, ManageError> {
        let (hold, disk, size) = self.begin_to_resize(name, size)?;
        let longer = self.volume_with(name, |volume| with_size(&volume, size.0))?;
        let room = self.target.pools().take_room_of(&longer.spec, size.0)?;
        // A file that was kept to be longer is made so when it is opened: nothing is lost between this and that.
        self.keep_definition(&longer)?;
        let resize = move || Resized::of(&disk, size.0, room);
        let name = name.to_owned();
        Ok(Step::slow(format!("making {name} longer"), resize, move |manager, resized| {
            let _hold = hold;
            manager.resized_by_request(&name, resized).map(Step::Done)
        }))
    }

    /// What of that is refused before anything is kept.
    pub(super) fn begin_to_resize(
        &self,
        name: &str,
        size: &str,
    ) -> Result<(Hold, Arc<LogicalUnit>, Size), ManageError> {
        let size = size.parse::<Size>().map_err(|_| ManageError::Size(size.to_owned()))?;
        let hold = self.busy.hold(name, "being resized")?;
        let (_, disk) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        if !may_become(&disk, size.0) {
            // It says why not. Were that kept first, a crash in between would leave a volume that cannot be opened.
            disk.resize(size.0).map_err(|source| ManageError::Resize { name: name.to_owned(), source })?;
        }
        Ok((hold, disk, size))
    }

    fn resized_by_request(&mut self, name: &str, resized: Resized) -> Result<Answer, ManageError> {
        let size_bytes = resized.after_bytes;
        let lines = self.resized(name, resized);
        let mut lines = lines.inspect_err(|_| self.keep_served())?;
        let longer = self.volume_with(name, |volume| with_size(&volume, size_bytes))?;
        let must_have_size = must_have_size(&longer.spec);
        lines.extend(self.memory_warning(&longer.spec).filter(|_| !lines.is_empty()));
        self.put_definition(longer);
        let pending = self.kept.pending.get_mut(name).into_iter();
        pending.for_each(|spec| *spec = spec.clone().with_size(size_bytes));
        self.keep_again(name);
        if !lines.is_empty() && !self.is_kept() && must_have_size {
            lines.push("this server keeps no changes: update `size` in the configuration: it is smaller than the volume now, and the server warns at each start until then".into());
        }
        Ok(Answer::Changed(lines))
    }

    /// Tells of another size; what has changed, for people.
    pub(super) fn resized(&mut self, name: &str, resized: Resized) -> Result<Vec<String>, ManageError> {
        let Resized { before_bytes, after_bytes, result } = resized;
        result.map_err(|source| ManageError::Resize { name: name.to_owned(), source })?;
        if let Some((_, unit)) = self.find(name) {
            self.lengths.note(name, unit.store(), unit.store().geometry().length_bytes);
        }
        if before_bytes == after_bytes {
            return Ok(Vec::new());
        }
        let (lun, _) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        if let Some(volume) = self.volumes.get(name) {
            self.target.remember_length(&volume.spec, after_bytes);
        }
        self.target.volume_resized(lun);
        self.target.events().note(Happening::VolumeResized { volume: name.to_owned(), size_bytes: after_bytes });
        Ok(vec![format!("volume {name} has {} now, {} before", Size(after_bytes), Size(before_bytes))])
    }

    /// As the configuration says.
    pub(super) fn resized_as_configured(&mut self, spec: &VolumeSpec, resized: Resized) -> Vec<String> {
        match self.resized(&spec.name, resized) {
            Ok(lines) => {
                self.volumes.get_mut(&*spec.name).into_iter().for_each(|volume| volume.spec = spec.clone());
                self.revise_volume(&spec.name);
                lines
            }
            Err(error) => vec![format!("not changed: {error}")],
        }
    }
}

/// What came of making a volume longer.
pub(super) struct Resized {
    before_bytes: u64,
    after_bytes: u64,
    result: Result<(), ResizeError>,
}

impl Resized {
    /// It has become so long by itself.
    pub(super) fn by_itself(before_bytes: u64, after_bytes: u64) -> Resized {
        Resized { before_bytes, after_bytes, result: Ok(()) }
    }

    /// Makes it so long, if it is not.
    pub(super) fn of(disk: &LogicalUnit, size_bytes: u64, room: Option<Room>) -> Resized {
        let before_bytes = disk.store().geometry().length_bytes;
        let result = if size_bytes == before_bytes { Ok(()) } else { disk.resize(size_bytes) };
        // It is longer also where that could not be made stable.
        room.into_iter().for_each(|room| room.settle(disk.store().geometry().length_bytes));
        Resized { before_bytes, after_bytes: size_bytes, result }
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
