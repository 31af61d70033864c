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
//! | `ram:SIZE` | memory, taken as it is written ([`crate::RamStore`]); no more than the machine has with its swap space |
//! | `null:SIZE` | zeroes, for measuring ([`crate::NullStore`]) |
//! | `none:` | with `type=optical` only: no disc, until one is put into the drive |
//! | `pool:[POOL]` | a file in a directory that the server knows by a name (of the crate `sanwire-store-file`) |
//! | `file:PATH` | a regular file or a block device (of the crate `sanwire-store-file`) |
//! | `/dev/...` | a block device, and nothing else, given by its absolute path |
//!
//! Other crates add kinds with keys of their own ([`crate::kind::register`]).
//!
//! | key | meaning |
//! |---|---|
//! | `type=disk\|optical` | volumes only: what it is to initiators; of an optical drive the store is the disc, an ISO image for one |
//! | `size=SIZE` | `file:` only: the length; an absent file is made, sparse |
//! | `grow` | `file:` only: `size` may make an existing file longer |
//! | `block=512\|4096` | the logical block |
//! | `readonly` | no writes |
//! | `removable` | volumes only: initiators can eject and load the medium |
//! | `security=LEVEL` | volumes only: how HyperSCSI guards it: `none`, `hash`, `aes-128-gcm`, `aes-256-gcm`, `chacha20-poly1305` |
//! | `compression=off` | volumes only: HyperSCSI never compresses its data; `allowed`: with clients with whom that is agreed on |
//! | `shelf=N`, `slot=N` | volumes only: where it is for ATA over Ethernet; both or none |
//! | `disk-address=N` | volumes only: where it is for HDSP |
//! | `when-full=error\|wait:TIME` | volumes only: whether commands that find no space fail, or wait for some so long at the most |
//! | `when-gone=error\|wait:TIME` | volumes only: the same for a store that is gone, and may come back |
//! | `protected` | volumes only: its content is neither deleted nor rolled back |
//! | `owner=WHO` | volumes only: who may derive volumes from it, and revoke these; may be given several times (in TOML: an array) |
//! | `layers=POOL` | volumes only: not in a pool, and kept below layers that this pool has, from its first snapshot on |
//! | `thick` | no space is given back |
//! | `direct` | files and devices only: past the page cache |
//! | `delay=[WHICH:]TIME` | [`DelayRule`]; may be given several times (in TOML: an array) |
//! | `error=RULE` | [`ErrorRule`]; may be given several times (in TOML: an array) |
//! | `seed=NUMBER` | for the chance in `error` |
//!
//! In the one-line form a comma that belongs to a path is written `\,` and a backslash before a comma or a backslash
//! `\\`; any other backslash stands for itself.

mod error;
mod layers;
mod name;
mod raw;
mod written;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use sanwire_core::{DeviceType, Protection};
use serde::Deserialize;

pub use error::SpecError;
pub use name::VolumeName;
pub use written::Written;

use crate::kind::{Backing, BelowLayers, Likeness, PoolFile, PoolPlace, Rewritten};
use crate::layer::{DelayLayer, DelayRule, ErrorLayer, ErrorRule, Over, ReadOnlyLayer, SplitLayer, ThickLayer};
use crate::{Expectation, Known, OpenError, Patience, Store};

/// A volume: its name and its store. Made from text by `parse`, or from a TOML table by serde; as text it is the form of one
/// line, from which the same volume is made again. Two are equal that mean the same, however they were written.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "raw::RawVolume")]
pub struct VolumeSpec {
    /// What clients call it.
    pub name: VolumeName,
    /// What it is to those who use it.
    pub device_type: DeviceType,
    /// Where its blocks live.
    pub store: StoreSpec,
    /// Whether its medium can be ejected.
    pub removable: bool,
    /// How HyperSCSI guards it on the wire; `None`: as the server's other volumes.
    pub security: Option<Protection>,
    /// Whether HyperSCSI may compress its data, with clients with whom that is agreed on.
    pub compressible: bool,
    /// Where it is for ATA over Ethernet; `None`: at an address that the server chooses and keeps.
    pub aoe: Option<ShelfSlot>,
    /// Its disk address for HDSP, from 0 to 254; `None`: one that the server chooses and keeps.
    pub disk_address: Option<u8>,
    /// How long its commands wait for a store that cannot do its work now.
    pub patience: Patience,
    /// Whether its content is neither deleted nor rolled back.
    pub protected: bool,
    /// Who may derive volumes from it, as written: the server knows what that means.
    pub owners: Vec<String>,
    /// As it was written, in either form.
    written: raw::RawVolume,
}

/// An address of ATA over Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShelfSlot {
    /// The shelf, from 0 to 4094.
    pub shelf: u16,
    /// The slot, from 0 to 254.
    pub slot: u8,
}

impl PartialEq for VolumeSpec {
    fn eq(&self, other: &Self) -> bool {
        let VolumeSpec {
            name,
            device_type,
            store,
            removable,
            security,
            compressible,
            aoe,
            disk_address,
            patience,
            protected,
            owners,
            written: _,
        } = self;
        (name, device_type, protected) == (&other.name, &other.device_type, &other.protected)
            && *owners == other.owners
            && *store == other.store
            && (removable, security, compressible) == (&other.removable, &other.security, &other.compressible)
            && (aoe, disk_address, patience) == (&other.aoe, &other.disk_address, &other.patience)
    }
}

impl fmt::Display for VolumeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

impl VolumeSpec {
    /// A volume of this name on this store, with keys and their values as they are written.
    ///
    /// # Errors
    /// [`SpecError`] as for what a user has written.
    pub fn of_parts(name: &VolumeName, store: &str, keys: &[(&str, String)]) -> Result<Self, SpecError> {
        let start = format!("{name}={}", raw::escaped(store));
        keys.iter().fold(start, |text, (key, value)| format!("{text},{key}={}", raw::escaped(value))).parse()
    }

    /// The same volume with another protection on the wire; `None`: as the server's other volumes.
    #[must_use]
    pub fn with_security(mut self, security: Option<Protection>) -> Self {
        self.written.set("security", security.map(|level| level.to_string()));
        self.security = security;
        self
    }

    /// Its store as it was written, without its keys: `file:/srv/disk0.img`.
    #[must_use]
    pub fn store_text(&self) -> &str {
        &self.written.store
    }

    /// Its keys with their values, as they are written.
    pub fn written_keys(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        raw::all_keys().map(|key| (key, self.written.values(key))).filter(|(_, values)| !values.is_empty())
    }

    /// The same volume with its content protected, or not any more.
    #[must_use]
    pub fn with_protected(mut self, protected: bool) -> Self {
        self.written.set("protected", protected.then(|| protected.to_string()));
        self.protected = protected;
        self
    }

    /// The same volume with other owners.
    #[must_use]
    pub fn with_owners(mut self, owners: Vec<String>) -> Self {
        self.written.set_all("owner", owners.clone());
        self.owners = owners;
        self
    }

    /// The same volume, whenever it is read: a time that counts from now on is written as the time that it means.
    #[must_use]
    pub fn settled(self, now: SystemTime) -> Self {
        let rewritten = self.store.backing.settled(now);
        self.rewritten(rewritten)
    }

    /// The volume of the same server from which it is derived, if it is.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.store.backing.parent()
    }

    /// The same volume, wherever the process that opens it stands: a relative path is made absolute.
    #[must_use]
    pub fn with_absolute_path(self) -> Self {
        let rewritten = self.store.backing.absolute();
        self.rewritten(rewritten)
    }

    /// The same drive with another disc in it: `STORE` as in the text of a volume.
    ///
    /// # Errors
    /// [`SpecError`] when that is no store.
    pub fn with_disc(self, store: &str) -> Result<Self, SpecError> {
        let mut written = self.written;
        store.clone_into(&mut written.store);
        written.try_into()
    }

    /// The size that is written, where one is: what has the size that it has, like a block device, says none.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        self.store.backing.size_bytes()
    }

    /// The same volume with another size, if it says one; a file that is shorter is made longer when it is opened.
    #[must_use]
    pub fn with_size(self, size_bytes: u64) -> Self {
        let rewritten = self.store.backing.resized(size_bytes);
        self.rewritten(rewritten)
    }

    /// The same volume, written so; nothing: as it is. What cannot be read is not written.
    fn rewritten(self, rewritten: Option<Rewritten>) -> Self {
        let Some(rewritten) = rewritten else { return self };
        let mut written = self.written.clone();
        written.rewrite(rewritten);
        let spec: VolumeSpec = written.try_into().unwrap_or_else(|_| self.clone());
        match self.store.backing.pool_file() {
            Some(file) => spec.in_file(file.clone()),
            None => spec,
        }
    }

    /// The pool in which it is, when it is in one.
    #[must_use]
    pub fn pool(&self) -> Option<&PoolPlace> {
        self.store.backing.pool()
    }

    /// The store that is below its layers, where that is not in the pool which keeps these.
    #[must_use]
    pub fn below_layers(&self) -> Option<&BelowLayers> {
        self.store.backing.below_layers()
    }

    /// The same volume in the pool of this name, where it has this file.
    #[must_use]
    pub fn in_pool(self, pool: &str, file: PoolFile) -> Self {
        let Some(place) = self.pool() else { return self };
        if self.below_layers().is_some() {
            return self.in_file(file);
        }
        let snapshot = place.snapshot.as_ref().map(|snapshot| format!("/{snapshot}")).unwrap_or_default();
        let store = Some(format!("pool:{pool}{snapshot}"));
        self.rewritten(Some(Rewritten { store, keys: Vec::new() })).in_file(file)
    }

    fn in_file(mut self, file: PoolFile) -> Self {
        self.store.backing = self.store.backing.in_file(file).unwrap_or(self.store.backing);
        self
    }

    /// The same volume under another name, on another store: `STORE` as in the text of a volume.
    ///
    /// # Errors
    /// [`SpecError`] when that is no name or no store, or the keys are not for it.
    pub fn with_name_and_store(self, name: &str, store: &str) -> Result<Self, SpecError> {
        self.written.named(name, store).try_into()
    }

    /// A volume as this one, but for its store, which is in a pool and has this size: what is written about the store here is not said
    /// of that.
    ///
    /// # Errors
    /// [`SpecError`] when that is no name, or no pool's.
    pub fn cloned_in_pool(self, name: &str, pool: &str, size_bytes: u64) -> Result<Self, SpecError> {
        let mut written = self.written.without_store_keys().named(name, &format!("pool:{pool}"));
        written.set("size", Some(size_bytes.to_string()));
        written.try_into()
    }

    /// The size that this volume is to have as `other`, if they differ in nothing else.
    #[must_use]
    pub fn differs_in_size(&self, other: &VolumeSpec) -> Option<u64> {
        let backing = Arc::clone(&other.store.backing);
        let is_size = self.store.backing.compare(&*backing) == Likeness::OtherSize;
        let resized = VolumeSpec { store: StoreSpec { backing, ..self.store.clone() }, ..self.clone() };
        other.size_bytes().filter(|_| is_size && resized == *other)
    }
}

/// A store and the layers over it. Made from `STORE[,KEY[=VALUE]]...` by `parse`.
#[derive(Clone, Debug)]
pub struct StoreSpec {
    /// What is at the bottom.
    pub backing: Arc<dyn Backing>,
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

impl PartialEq for StoreSpec {
    fn eq(&self, other: &Self) -> bool {
        let StoreSpec { backing, read_only, thick, errors, seed, delays } = self;
        **backing == *other.backing
            && (read_only, thick, seed) == (&other.read_only, &other.thick, &other.seed)
            && (errors, delays) == (&other.errors, &other.delays)
    }
}

impl StoreSpec {
    /// Opens what is at the bottom and lays the layers over it: ranges cut where it takes short ones only, errors, delays, thick,
    /// read-only at the top.
    ///
    /// # Errors
    /// Those of [`Backing::open`].
    pub fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        self.open_backing(None).map(|(store, _)| store)
    }

    /// The same, if a file or device holds the volume that is expected; and what is to be known of that from now on. Memory is
    /// not known from before.
    ///
    /// # Errors
    /// Those of [`Backing::open`].
    pub fn open_volume(&self, expected: &Expectation<'_>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        self.open_backing(Some(expected))
    }

    fn open_backing(&self, expected: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        let (store, known) = self.backing.open(expected)?;
        Ok((self.over(store), known))
    }

    /// The layers, over what was opened at the bottom.
    #[must_use]
    pub fn over(&self, mut store: Arc<dyn Store>) -> Arc<dyn Store> {
        if store.capabilities().range_max_bytes.is_some() {
            store = Arc::new(Over::new(SplitLayer, store));
        }
        if !self.errors.is_empty() {
            store = Arc::new(Over::new(ErrorLayer::new(self.errors.clone(), self.seed), store));
        }
        if !self.delays.is_empty() {
            store = Arc::new(Over::new(DelayLayer::new(self.delays.clone()), store));
        }
        if self.thick {
            store = Arc::new(Over::new(ThickLayer, store));
        }
        if self.read_only {
            store = Arc::new(Over::new(ReadOnlyLayer, store));
        }
        store
    }
}
