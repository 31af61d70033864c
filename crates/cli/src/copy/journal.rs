//! How far an interrupted copy got: one small file for each pair of source and destination.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// What must be the same for a copy to go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Key {
    /// The source: a URL or an absolute path.
    pub(crate) from: String,
    /// The destination.
    pub(crate) to: String,
    /// The source's size.
    pub(crate) size_bytes: u64,
    /// What a source with any other content would not have; `None` where its content may change without a trace.
    pub(crate) source_version: Option<String>,
    /// What tells the destination from any other of its name.
    pub(crate) destination_identity: String,
}

/// A copy that was interrupted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interrupted {
    /// Everything below was copied.
    pub(crate) done_bytes: u64,
    /// When that was.
    pub(crate) at: SystemTime,
    /// Why it cannot go on.
    pub(crate) obstacle: Option<&'static str>,
}

/// The journal of one copy.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    key: Key,
}

#[derive(Serialize, Deserialize)]
struct Record {
    key: Key,
    done_bytes: u64,
    /// Since 1970.
    at_seconds: u64,
}

impl Journal {
    /// The journal of this copy in a directory, which is made when it is missing.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn new(directory: &Path, key: Key) -> anyhow::Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {} for the journal", directory.display()))?;
        let name = fnv1a(format!("{}\0{}", key.from, key.to).as_bytes());
        Ok(Journal { path: directory.join(format!("{name:016x}.json")), key })
    }

    /// The interrupted copy of these two ends, if there is one. A journal that cannot be read counts as none.
    pub(crate) fn load(&self) -> Option<Interrupted> {
        let record: Record = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        let (then, now) = (&record.key, &self.key);
        if (&then.from, &then.to) != (&now.from, &now.to) {
            return None;
        }
        let obstacle = if then.size_bytes != now.size_bytes || record.done_bytes > now.size_bytes {
            Some("the source has another size now")
        } else if then.source_version != now.source_version {
            Some("the source has been changed since")
        } else if then.destination_identity != now.destination_identity {
            Some("the destination is not the one of that copy")
        } else {
            None
        };
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(record.at_seconds))?;
        Some(Interrupted { done_bytes: record.done_bytes, at, obstacle })
    }

    /// Whether what was copied before must be compared with the source again.
    pub(crate) fn must_compare(&self) -> bool {
        self.key.source_version.is_none()
    }

    /// Says that everything below `done_bytes` is on stable storage.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn save(&self, done_bytes: u64) -> anyhow::Result<()> {
        let unfinished = self.path.with_extension("tmp");
        let at_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let text = serde_json::to_vec(&Record { key: self.key.clone(), done_bytes, at_seconds })?;
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &self.path));
        written.with_context(|| format!("cannot write the journal {}", self.path.display()))
    }

    /// The copy is complete, or begins anew.
    ///
    /// # Errors
    /// When the file cannot be removed: it would speak of another copy.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove the journal {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo): the same in every build, unlike the standard library's hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
