//! What a crash has left of a pool is brought to its end, or undone, before any volume of it is opened.

use crate::wall_time::{written_millis, written_unix_millis};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use sanwire_snapshot::{Kept, Snapshot};

use super::catalogue::{Catalogue, SnapshotId, SnapshotRecord};
use super::{Pool, PoolError};

/// What the file of a snapshot ends with that was not one yet.
const NEW: &str = ".img.new";
const SUFFIX: &str = ".img";

impl Pool {
    /// Brings snapshots and rollbacks to their end.
    pub(super) fn recover(&self) -> Result<(), PoolError> {
        self.end_temporary()?;
        let before = self.catalogue().clone();
        self.recover_families().map_err(|source| self.failed("look into", "its layers", source))?;
        for content in before.deleting.iter().filter(|content| content.contains('@')) {
            match self.remove(content) {
                // It is tried again: layers that cannot be opened are of some volumes only, and where there is no room there may be some later.
                Err(error)
                    if error.has_no_room()
                        || before.layered.contains_key(content.split('@').next().unwrap_or(content)) =>
                {
                    tracing::error!("{error}: its volume is served, and it is tried again from time to time");
                }
                removed => removed?,
            }
        }
        let found = Found::of(self.directory()).map_err(|source| self.failed("look into", "its directory", source))?;
        let is_committed = |id: &SnapshotId| before.snapshot(id).is_some() && !found.snapshots.contains_key(id);
        for id in &found.new {
            let path = self.new_path(id);
            let done = match is_committed(id) {
                true => self.files().rename(&path, &self.path_of(&id.to_string())),
                false => self.files().remove(&path),
            };
            done.map_err(|source| self.failed("recover the snapshot", id, source))?;
        }
        self.edit_left(|catalogue| reconcile(catalogue, &found, self.name()))?;
        for (volume, name) in before.rolling_back {
            tracing::warn!("pool {}: the rollback of {volume} to {name} is brought to its end", self.name());
            // It is tried again before the volume is opened. The others are served.
            if let Err(error) = self.end_rollback(&volume) {
                tracing::error!("pool {}: volume {volume} cannot be served: {error}", self.name());
            }
        }
        Ok(())
    }

    /// Changes the catalogue to what follows from what is there, when the pool is opened. Where there is no room for that in the file it is so all the
    /// same, and is written with the next change: the next start comes to it again.
    pub(super) fn edit_left(&self, change: impl Fn(&mut Catalogue)) -> Result<(), PoolError> {
        let changed = self.edit(|catalogue| {
            change(catalogue);
            Ok(())
        });
        match changed {
            Err(error) if error.has_no_room() => {
                let before = self.catalogue().clone();
                let mut changed = before.clone();
                change(&mut changed);
                if changed == before {
                    return Ok(());
                }
                tracing::error!("{error}: it is written with the next change, when there is room: see to that");
                let mut doubtful = self.doubtful();
                // The file stays as it was.
                if doubtful.as_ref().is_none_or(|written| *written == changed) {
                    *doubtful = Some(before);
                }
                drop(doubtful);
                *self.catalogue() = changed;
                Ok(())
            }
            changed => changed,
        }
    }

    /// Directories of layers that nobody needs go. One that nobody knows and that has layers is a family whose pool has lost what was said of it, or
    /// that was put there: its volumes and snapshots are there again.
    fn recover_families(&self) -> io::Result<()> {
        let entries = match fs::read_dir(self.families_directory()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(id) = name.to_str().filter(|_| entry.path().is_dir()) else { continue };
            if let Err(error) = self.recover_family(id, &entry.path()) {
                let directory = entry.path();
                tracing::error!(
                    "pool {}: {}, of which nothing is known, stays as it is: {error}",
                    self.name(),
                    directory.display()
                );
            }
        }
        Ok(())
    }

    fn recover_family(&self, id: &str, path: &Path) -> Result<(), Box<dyn Error>> {
        let kept = Kept::of(&*self.files().layers(path, false)?)?;
        let is_known = self.may_say(|catalogue| catalogue.layered.values().any(|of| of == id));
        let is_empty = kept.as_ref().is_none_or(|kept| !kept.has_layers || kept.volumes.is_empty());
        if !is_known && is_empty && !(kept.is_none() && has_layers(path)?) {
            return Ok(self.files().remove_directory(path)?);
        }
        let Kept { volumes, snapshots, .. } = kept.ok_or("its catalogue.json is missing")?;
        let before = self.catalogue().clone();
        // What is noted is undone; all else that is there is there again.
        let is_new = |volume: &&String| {
            before.layered.get(*volume).is_none_or(|of| of != id)
                && !before.making.contains(*volume)
                && !before.deleting.contains(*volume)
        };
        let volumes: Vec<&String> = volumes.iter().filter(is_new).collect();
        if let Some(volume) = volumes.iter().find(|volume| before.layered.contains_key(**volume)) {
            return Err(format!("it has layers of volume {volume}, which has others").into());
        }
        let of_snapshot =
            |snapshot: &Snapshot| SnapshotId { volume: snapshot.volume.clone(), name: snapshot.name.clone() };
        let snapshots = snapshots.iter().map(|snapshot| (of_snapshot(snapshot), snapshot)).filter(|(id, _)| {
            let content = id.to_string();
            let is_noted = before.taking.contains(&content) || before.deleting.contains(&content);
            before.snapshot(id).is_none() && !is_noted && !before.deleting.contains(&id.volume)
        });
        let snapshots: Vec<_> = snapshots.collect();
        if !volumes.is_empty() || !snapshots.is_empty() {
            let (pool, directory) = (self.name(), path.display());
            tracing::warn!(
                "pool {pool}: in {directory} are {} volumes and {} snapshots that were not known",
                volumes.len(),
                snapshots.len()
            );
        }
        Ok(self.edit(|catalogue| {
            for (id, Snapshot { made_ms, length_bytes: size_bytes, .. }) in &snapshots {
                let made = written_unix_millis(*made_ms);
                let record = SnapshotRecord { made, size_bytes: *size_bytes, protected: false, layered: true };
                catalogue.insert(id.clone(), record);
            }
            catalogue.layered.extend(volumes.iter().map(|volume| ((*volume).clone(), id.to_owned())));
            Ok(())
        })?)
    }

    /// Of volumes that were just made or deleted: those that are served are there, and the others are not. Gives those that are gone. What
    /// cannot be done now stays noted, and keeps no volume from being served.
    pub(super) fn settle(&self, is_served: impl Fn(&str) -> bool) -> Vec<String> {
        let Catalogue { making, deleting, .. } = self.catalogue().clone();
        let mut gone = Vec::new();
        for volume in making {
            match self.end_clone(&volume, is_served(&volume)) {
                Ok(()) => gone.extend((!is_served(&volume)).then_some(volume)),
                Err(error) => tracing::error!("{error}"),
            }
        }
        for volume in deleting {
            if is_served(&volume) {
                if let Err(error) = self.keep_after_all(&volume) {
                    tracing::error!("{error}");
                }
                continue;
            }
            tracing::warn!("pool {}: the deletion of volume {volume} is brought to its end", self.name());
            match self.delete(&volume) {
                Ok(()) => gone.push(volume),
                Err(error) => tracing::error!("{error}"),
            }
        }
        gone
    }
}

/// Whether there is a layer in a directory.
fn has_layers(path: &Path) -> io::Result<bool> {
    let mut names = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
    names.try_fold(false, |has, path| Ok(has || path?.extension().is_some_and(|end| end == "layer")))
}

/// The snapshots that are in a directory.
#[derive(Default)]
struct Found {
    /// With their lengths, and when they were last changed.
    snapshots: BTreeMap<SnapshotId, (u64, String)>,
    /// Those that were not snapshots yet.
    new: BTreeSet<SnapshotId>,
}

impl Found {
    fn of(directory: &Path) -> std::io::Result<Found> {
        let mut found = Found::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let id = |suffix| name.strip_suffix(suffix).and_then(|id| id.parse::<SnapshotId>().ok());
            // What else has such a name is nobody's snapshot: a named pipe has whoever opens it wait.
            if !entry.file_type()?.is_file() {
                continue;
            }
            if let Some(id) = id(NEW) {
                found.new.insert(id);
            } else if let Some(id) = id(SUFFIX) {
                let metadata = entry.metadata()?;
                let made = written_millis(metadata.modified()?);
                found.snapshots.insert(id, (metadata.len(), made));
            }
        }
        Ok(found)
    }
}

/// The catalogue says what is there: a snapshot that somebody has put there is one, and one that is missing is none any more.
fn reconcile(catalogue: &mut Catalogue, found: &Found, pool: &str) {
    for (id, (size_bytes, made)) in &found.snapshots {
        if catalogue.snapshot(id).is_none() {
            tracing::info!("pool {pool}: the snapshot {id} was put there");
            let (size_bytes, made) = (*size_bytes, made.clone());
            catalogue.insert(id.clone(), SnapshotRecord { made, size_bytes, protected: false, layered: false });
        }
        let record = catalogue.snapshots.get_mut(&id.volume).and_then(|named| named.get_mut(&id.name));
        let record = record.filter(|record| !record.layered);
        record.into_iter().for_each(|record| record.size_bytes = *size_bytes);
    }
    let known = catalogue.snapshots.keys().flat_map(|volume| catalogue.of_volume(volume));
    let known = known.filter(|(_, record)| !record.layered).map(|(id, _)| id);
    let is_there = |id: &SnapshotId| found.snapshots.contains_key(id) || found.new.contains(id);
    let missing: Vec<SnapshotId> = known.filter(|id| !is_there(id)).collect();
    for id in missing {
        tracing::warn!("pool {pool}: the file of the snapshot {id} is missing: there is no such snapshot any more");
        catalogue.remove(&id);
    }
}
