//! What a pool keeps of itself, in its directory: the snapshots, and what is just being done to the content of its volumes.
//!
//! It is replaced as a whole, and each time is the moment at which something is done: what a crash leaves unfinished is undone, or brought to
//! its end, when the pool is opened again ([`super::recovery`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::str::FromStr;

use sanwire_store::VolumeName;
use serde::{Deserialize, Serialize};

use super::PoolError;
use crate::kept::StateFile;

/// What a pool keeps of itself.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Catalogue {
    /// Tells it from all others, wherever its directory is.
    pub(super) id: String,
    /// By volumes, then by names.
    pub(super) snapshots: BTreeMap<String, BTreeMap<String, SnapshotRecord>>,
    /// Volumes whose content is just being made from a snapshot. It is theirs when they are served.
    pub(super) making: BTreeSet<String>,
    /// Volumes, and snapshots as `VOLUME@SNAPSHOT`, whose content is just being deleted. That of a volume which is served is not.
    pub(super) deleting: BTreeSet<String>,
    /// Volumes whose content is neither deleted nor rolled back, served or not.
    pub(super) protected: BTreeSet<String>,
    /// Volumes whose content is just being replaced by that of their snapshot of this name.
    pub(super) rolling_back: BTreeMap<String, String>,
    /// Snapshots in layers, as `VOLUME@SNAPSHOT`, that are just being taken.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) taking: BTreeSet<String>,
    /// Volumes that are made of layers, and the family of each. What they hold is not in their files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) layered: BTreeMap<String, String>,
    /// Snapshots, as `VOLUME@SNAPSHOT`, that go when this run of the server is over, at the latest.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) temporary: BTreeSet<String>,
}

/// What is known of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    /// When it was taken, as in RFC 3339.
    pub(super) made: String,
    pub(super) size_bytes: u64,
    #[serde(default)]
    pub(super) protected: bool,
    /// Whether it is made of layers, and no file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) layered: bool,
}

impl Catalogue {
    /// Writes it. A program that does not know layers would serve what is below them: it is not to understand this.
    pub(super) fn save(&self, file: &StateFile) -> io::Result<()> {
        if self.layered.is_empty() { file.save(self) } else { file.save_newest(self) }
    }

    pub(super) fn snapshot(&self, SnapshotId { volume, name }: &SnapshotId) -> Option<&SnapshotRecord> {
        self.snapshots.get(volume)?.get(name)
    }

    /// Those of a volume.
    pub(super) fn of_volume(&self, volume: &str) -> impl Iterator<Item = (SnapshotId, &SnapshotRecord)> {
        let named = self.snapshots.get(volume).into_iter().flatten();
        named.map(move |(name, record)| (SnapshotId { volume: volume.to_owned(), name: name.clone() }, record))
    }

    /// Whether the content of a volume may be deleted, with its snapshots if that is said.
    pub(super) fn check_deletion(&self, volume: &str, with_snapshots: bool) -> Result<(), PoolError> {
        if let Some((id, _)) = self.of_volume(volume).find(|(_, record)| record.protected) {
            self.check_not_copied(&id)?;
            return Err(PoolError::Protected(format!("snapshot {id}")));
        }
        match self.of_volume(volume).count() {
            count if count > 0 && !with_snapshots => Err(PoolError::HasSnapshots { volume: volume.to_owned(), count }),
            _ => Ok(()),
        }
    }

    /// Refuses what would take a snapshot away from a copy that reads it.
    pub(super) fn check_not_copied(&self, id: &SnapshotId) -> Result<(), PoolError> {
        let content = id.to_string();
        let is_read = self.temporary.contains(&content) && self.snapshot(id).is_some_and(|record| record.protected);
        if is_read { Err(PoolError::Copied(content)) } else { Ok(()) }
    }

    pub(super) fn insert(&mut self, SnapshotId { volume, name }: SnapshotId, record: SnapshotRecord) {
        self.snapshots.entry(volume).or_default().insert(name, record);
    }

    pub(super) fn remove(&mut self, id: &SnapshotId) {
        let SnapshotId { volume, name } = id;
        self.temporary.remove(&id.to_string());
        if let Some(snapshots) = self.snapshots.get_mut(volume) {
            snapshots.remove(name);
            if snapshots.is_empty() {
                self.snapshots.remove(volume);
            }
        }
    }
}

/// Which snapshot: `VOLUME@SNAPSHOT`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SnapshotId {
    pub(crate) volume: String,
    pub(crate) name: String,
}

impl SnapshotId {
    /// The snapshot of this name of a volume.
    ///
    /// # Errors
    /// [`PoolError::SnapshotName`]: it is no name.
    pub(crate) fn new(volume: &str, name: &str) -> Result<Self, PoolError> {
        let is_name = |text: &str| text.parse::<VolumeName>().is_ok();
        if is_name(volume) && is_name(name) {
            Ok(SnapshotId { volume: volume.to_owned(), name: name.to_owned() })
        } else {
            Err(PoolError::SnapshotName(format!("{volume}@{name}")))
        }
    }
}

impl FromStr for SnapshotId {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Self, PoolError> {
        let (volume, name) = text.split_once('@').ok_or_else(|| PoolError::SnapshotName(text.to_owned()))?;
        SnapshotId::new(volume, name)
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.name)
    }
}
