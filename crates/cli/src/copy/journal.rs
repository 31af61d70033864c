//! How far an interrupted copy got: one small file for each pair of source and destination.

use std::fs;
use std::path::{Path, PathBuf};

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
    /// When the source was changed, if it is a file (nanoseconds since 1970, as text: JSON has no such numbers).
    pub(crate) changed: Option<String>,
    /// The destination's inode, if it is a file.
    pub(crate) inode: Option<u64>,
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

    /// Up to where the interrupted copy is done. A journal of another source, or one that cannot be read, counts as none.
    pub(crate) fn load(&self) -> Option<u64> {
        let record: Record = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        (record.key == self.key).then_some(record.done_bytes)
    }

    /// Says that everything below `done_bytes` is on stable storage.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn save(&self, done_bytes: u64) -> anyhow::Result<()> {
        let unfinished = self.path.with_extension("tmp");
        let text = serde_json::to_vec(&Record { key: self.key.clone(), done_bytes })?;
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &self.path));
        written.with_context(|| format!("cannot write the journal {}", self.path.display()))
    }

    /// The copy is complete.
    pub(crate) fn remove(&self) {
        // What stays behind no longer matches once the source changes, and only saves work while it does not.
        let _ = fs::remove_file(&self.path);
    }
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo): the same in every build, unlike the standard library's hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
