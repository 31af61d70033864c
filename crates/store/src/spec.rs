//! What the user wrote about a volume: read whole and checked, before anything is opened.
//!
//! On the command line a volume is `NAME=STORE[,KEY[=VALUE]]...`, in the configuration file a table with the same keys:
//!
//! ```text
//! disk0=file:/srv/a.img,size=10G,block=4096,readonly
//! ```
//! ```toml
//! name = "disk0"
//! store = "file:/srv/a.img"
//! size = "10G"
//! block = 4096
//! readonly = true
//! ```
//!
//! | store | what it is |
//! |---|---|
//! | `ram:SIZE` | memory, taken as it is written ([`RamStore`]); no more than the machine has with its swap space |
//! | `null:SIZE` | zeroes, for measuring ([`NullStore`]) |
//! | `file:PATH` | a regular file or a block device ([`FileStore`]) |
//! | `/dev/...` | a block device, and nothing else, given by its absolute path |
//!
//! | key | meaning |
//! |---|---|
//! | `size=SIZE` | `file:` only: the length; an absent file is made, sparse |
//! | `grow` | `file:` only: `size` may make an existing file longer |
//! | `block=512\|4096` | the logical block |
//! | `readonly` | no writes |
//! | `removable` | volumes only: initiators can eject and load the medium |
//! | `security=LEVEL` | volumes only: how HyperSCSI guards it: `none`, `hash`, `aes-128-gcm`, `aes-256-gcm`, `chacha20-poly1305` |
//! | `compression=off` | volumes only: HyperSCSI never compresses its data; `allowed`: with clients with whom that is agreed on |
//! | `when-full=error\|wait:TIME` | volumes only: whether commands that find no space fail, or wait for some so long at the most |
//! | `when-gone=error\|wait:TIME` | volumes only: the same for a store that is gone, and may come back |
//! | `thick` | no space is given back |
//! | `direct` | files and devices only: past the page cache |
//! | `delay=[WHICH:]TIME` | [`DelayRule`]; may be given several times (in TOML: an array) |
//! | `error=RULE` | [`ErrorRule`]; may be given several times (in TOML: an array) |
//! | `seed=NUMBER` | for the chance in `error` |
//!
//! In the one-line form a comma that belongs to a path is written `\,` and a backslash before a comma or a backslash
//! `\\`; any other backslash stands for itself.

mod name;
mod raw;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sanwire_core::Protection;
use serde::Deserialize;

pub use name::VolumeName;
pub use raw::SpecError;

use crate::layer::{DelayLayer, DelayRule, ErrorLayer, ErrorRule, ReadOnlyLayer, ThickLayer};
use crate::memory;
use crate::{Expectation, FileOptions, FileStore, Known, NullStore, OpenError, Patience, RamStore, Store};

/// A volume: its name and its store. Made from text by `parse`, or from a TOML table by serde; as text it is the form of one
/// line, from which the same volume is made again. Two are equal that mean the same, however they were written.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "raw::RawVolume")]
pub struct VolumeSpec {
    /// What clients call it.
    pub name: VolumeName,
    /// Where its blocks live.
    pub store: StoreSpec,
    /// Whether its medium can be ejected.
    pub removable: bool,
    /// How HyperSCSI guards it on the wire; `None`: as the server's other volumes.
    pub security: Option<Protection>,
    /// Whether HyperSCSI may compress its data, with clients with whom that is agreed on.
    pub compressible: bool,
    /// How long its commands wait for a store that cannot do its work now.
    pub patience: Patience,
    /// As it was written, in either form.
    written: raw::RawVolume,
}

impl PartialEq for VolumeSpec {
    fn eq(&self, other: &Self) -> bool {
        let VolumeSpec { name, store, removable, security, compressible, patience, written: _ } = self;
        *name == other.name
            && *store == other.store
            && (removable, security, compressible) == (&other.removable, &other.security, &other.compressible)
            && *patience == other.patience
    }
}

impl fmt::Display for VolumeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

impl VolumeSpec {
    /// The same volume with another protection on the wire; `None`: as the server's other volumes.
    #[must_use]
    pub fn with_security(mut self, security: Option<Protection>) -> Self {
        self.written.set("security", security.map(|level| level.to_string()));
        self.security = security;
        self
    }

    /// The same volume, wherever the process that opens it stands: a relative path is made absolute.
    #[must_use]
    pub fn with_absolute_path(mut self) -> Self {
        if let Backing::File { path, options } = &mut self.store.backing
            && let Ok(absolute) = std::path::absolute(&*path)
            && let (false, Some(text)) = (options.only_block_device, absolute.to_str())
        {
            self.written.store = format!("file:{text}");
            *path = absolute;
        }
        self
    }

    /// The size that is written, where one is: what has the size that it has, like a block device, says none.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        match &self.store.backing {
            Backing::Ram { size_bytes } | Backing::Null { size_bytes } => Some(*size_bytes),
            Backing::File { options, .. } => options.size_bytes,
        }
    }

    /// The same volume with another size, if it says one; a file that is shorter is made longer when it is opened.
    #[must_use]
    pub fn with_size(mut self, size_bytes: u64) -> Self {
        match &mut self.store.backing {
            Backing::Ram { size_bytes: size } | Backing::Null { size_bytes: size } => {
                *size = size_bytes;
                let kind = self.written.store.split(':').next().unwrap_or_default();
                self.written.store = format!("{kind}:{size_bytes}");
            }
            Backing::File { options, .. } if options.size_bytes.is_some() => {
                (options.size_bytes, options.grow) = (Some(size_bytes), true);
                self.written.set("size", Some(size_bytes.to_string()));
                self.written.set("grow", Some(true.to_string()));
            }
            Backing::File { .. } => {}
        }
        self
    }
}

/// What is at the bottom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Memory.
    Ram {
        /// Its length.
        size_bytes: u64,
    },
    /// Nothing.
    Null {
        /// Its pretended length.
        size_bytes: u64,
    },
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// How to open it.
        options: FileOptions,
    },
}

/// A store and the layers over it. Made from `STORE[,KEY[=VALUE]]...` by `parse`.
#[derive(Clone, PartialEq, Debug)]
pub struct StoreSpec {
    /// What is at the bottom.
    pub backing: Backing,
    /// The logical block, when the user chose one.
    pub block_bytes: Option<u32>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether no space is given back.
    pub thick: bool,
    /// Failures, right over the bottom.
    pub errors: Vec<ErrorRule>,
    /// Where the chance of failures starts.
    pub seed: u64,
    /// Delays, over the failures: a failure takes its time too.
    pub delays: Vec<DelayRule>,
}

impl StoreSpec {
    /// Opens what is at the bottom and lays the layers over it: errors, delays, thick, read-only at the
    /// top.
    ///
    /// # Errors
    /// Those of [`FileStore::open`].
    pub fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        self.open_backing(None).map(|(store, _)| store)
    }

    /// The same, if a file or device holds the volume that is expected; and what is to be known of that from now on. Memory is
    /// not known from before.
    ///
    /// # Errors
    /// Those of [`FileStore::open_volume`].
    pub fn open_volume(&self, expected: &Expectation<'_>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        self.open_backing(Some(expected))
    }

    fn open_backing(&self, expected: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        let block_bytes = self.block_bytes.unwrap_or(512);
        let mut known = None;
        let mut store: Arc<dyn Store> = match (&self.backing, expected) {
            (Backing::Ram { size_bytes }, _) => {
                check_memory(*size_bytes)?;
                Arc::new(RamStore::new(*size_bytes, block_bytes))
            }
            (Backing::Null { size_bytes }, _) => Arc::new(NullStore::new(*size_bytes, block_bytes)),
            (Backing::File { path, options }, None) => Arc::new(FileStore::open(path, options)?),
            (Backing::File { path, options }, Some(expected)) => {
                let (store, found) = FileStore::open_volume(path, options, expected)?;
                known = found;
                Arc::new(store)
            }
        };
        if !self.errors.is_empty() {
            store = Arc::new(ErrorLayer::new(store, self.errors.clone(), self.seed));
        }
        if !self.delays.is_empty() {
            store = Arc::new(DelayLayer::new(store, self.delays.clone()));
        }
        if self.thick {
            store = Arc::new(ThickLayer::new(store));
        }
        if self.read_only {
            store = Arc::new(ReadOnlyLayer::new(store));
        }
        Ok((store, known))
    }
}

/// Refuses what no machine of this kind could hold. Several volumes together may be larger: they take memory as they are written.
fn check_memory(wanted_bytes: u64) -> Result<(), OpenError> {
    match memory::total_bytes() {
        Some(total_bytes) if wanted_bytes > total_bytes => Err(OpenError::Memory { wanted_bytes, total_bytes }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
