//! What a crash has left of a pool is brought to its end, or undone, before any volume of it is opened.

use crate::wall_time::written_millis;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::catalogue::{Catalogue, SnapshotId, SnapshotRecord};
use super::{Pool, PoolError};

/// What the file of a snapshot ends with that was not one yet.
const NEW: &str = ".img.new";
const SUFFIX: &str = ".img";

impl Pool {
    /// Brings snapshots and rollbacks to their end.
    pub(super) fn recover(&self) -> Result<(), PoolError> {
        let before = self.catalogue().clone();
        before.deleting.iter().filter(|content| content.contains('@')).try_for_each(|content| self.remove(content))?;
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
        self.edit(|catalogue| {
            reconcile(catalogue, &found, self.name());
            Ok(())
        })?;
        for (volume, name) in before.rolling_back {
            tracing::warn!("pool {}: the rollback of {volume} to {name} is brought to its end", self.name());
            // It is tried again before the volume is opened. The others are served.
            if let Err(error) = self.end_rollback(&volume) {
                tracing::error!("pool {}: volume {volume} cannot be served: {error}", self.name());
            }
        }
        Ok(())
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
            catalogue.insert(id.clone(), SnapshotRecord { made, size_bytes, protected: false });
        }
        let record = catalogue.snapshots.get_mut(&id.volume).and_then(|named| named.get_mut(&id.name));
        record.into_iter().for_each(|record| record.size_bytes = *size_bytes);
    }
    let known = catalogue.snapshots.keys().flat_map(|volume| catalogue.of_volume(volume)).map(|(id, _)| id);
    let is_there = |id: &SnapshotId| found.snapshots.contains_key(id) || found.new.contains(id);
    let missing: Vec<SnapshotId> = known.filter(|id| !is_there(id)).collect();
    for id in missing {
        tracing::warn!("pool {pool}: the file of the snapshot {id} is missing: there is no such snapshot any more");
        catalogue.remove(&id);
    }
}
