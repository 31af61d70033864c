//! The kinds of stores: each has words before the colon, keys of its own, and a way to open what they mean.
//!
//! Kinds that need more than memory, like files and clients of other servers, are added by the crates that have them ([`register`]),
//! before any volume is read.

mod layers;
mod none;
mod sized;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

pub use self::layers::BelowLayers;
pub(crate) use self::layers::LayersBacking;
use crate::spec::{SpecError, Written};
use crate::{Expectation, Known, OpenError, Store};

/// One kind of store.
pub trait StoreKind: Send + Sync {
    /// The words that may stand before the colon.
    fn words(&self) -> &'static [&'static str];

    /// Whether an absolute path alone, without a word, is of this kind.
    fn takes_paths(&self) -> bool {
        false
    }

    /// How a store of this kind is written, for those who wrote something else: `ram:SIZE`.
    fn form(&self) -> &'static str;

    /// Its keys, beside those that all kinds have.
    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Why it does not have this key, which another kind has.
    fn lacks(&self, _key: &str) -> &'static str {
        "stores of its kind have no such key"
    }

    /// Reads what is written. Nothing is opened.
    ///
    /// # Errors
    /// When it does not mean such a store.
    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError>;
}

/// What is at the bottom of a volume: what was written of it, read and checked.
pub trait Backing: Any + fmt::Debug + Send + Sync {
    /// Opens it. With `expected` only if that volume is there; gives then what is to be known of it from now on, where it has a
    /// memory of that itself. It may block.
    ///
    /// # Errors
    /// When it cannot be opened, or is another volume.
    fn open(&self, expected: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError>;

    /// Where the blocks are.
    fn place(&self) -> Place<'_>;

    /// The same with all other places where a part of it is: what is written at one of them is written to it.
    fn places(&self) -> Vec<Place<'_>> {
        vec![self.place()]
    }

    /// How it differs from another one.
    fn compare(&self, other: &dyn Backing) -> Likeness;

    /// The size that is written, where one is: what has the size that it has, like a block device, says none.
    fn size_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether what has this length now can be opened as it is written, by its size and its blocks.
    ///
    /// # Errors
    /// What opening it would say.
    fn check_length(&self, _length_bytes: u64) -> Result<(), OpenError> {
        Ok(())
    }

    /// The memory of this process that it takes when all of it is written.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// How the same with another size is written, if it says one.
    fn resized(&self, _size_bytes: u64) -> Option<Rewritten> {
        None
    }

    /// How the same is written so that it means the same in every directory.
    fn absolute(&self) -> Option<Rewritten> {
        None
    }

    /// How the same is written when what counts from now on (a time in two hours) is written as what it means.
    fn settled(&self, _now: SystemTime) -> Option<Rewritten> {
        None
    }

    /// The volume of the same server from which it is derived, by its name: that one is opened first.
    fn parent(&self) -> Option<&str> {
        None
    }

    /// The pool in which it is, when it is in one.
    fn pool(&self) -> Option<&PoolPlace> {
        None
    }

    /// Where its pool has it, once the server has said so.
    fn pool_file(&self) -> Option<&PoolFile> {
        None
    }

    /// The store that is below layers which that pool keeps, where it is not in the pool itself.
    fn below_layers(&self) -> Option<&BelowLayers> {
        None
    }

    /// The same in this file, which the pool has for it; `None` of what is in no pool.
    fn in_file(&self, _file: PoolFile) -> Option<Arc<dyn Backing>> {
        None
    }
}

impl PartialEq for dyn Backing {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Likeness::Same
    }
}

/// Where a volume's blocks are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place<'a> {
    /// In the memory of this process, and gone with it: another volume each time.
    Memory,
    /// In a file or on a block device of this machine.
    File(&'a Path),
    /// Nowhere: there is no medium, until one is put into the drive.
    Nowhere,
    /// Elsewhere. The text tells one such place from all others.
    Elsewhere(&'a str),
    /// In another volume of the same server, which has this name.
    Volume(&'a str),
}

/// A pool as it is written: a directory that the server knows by a name, with a file for each volume. Which directory that is, and so where
/// the blocks are, only the server knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolPlace {
    /// The pool's name; `None`: the one that has the volume, else the default one.
    pub pool: Option<String>,
    /// The snapshot that is there, as `VOLUME@SNAPSHOT`; `None`: the content of the volume itself.
    pub snapshot: Option<String>,
}

/// Where a pool has a volume.
#[derive(Clone, Debug)]
pub struct PoolFile {
    /// The file by which it is known: that carries its identity, and is locked while it is served.
    pub path: PathBuf,
    /// Opens what the volume holds, where that is not just what stands in the file.
    pub content: Option<Arc<dyn PoolContent>>,
}

/// What a volume holds that is in a pool.
pub trait PoolContent: fmt::Debug + Send + Sync {
    /// Opens it. `file` opens the file by which it is known; `true` where that is locked already.
    ///
    /// # Errors
    /// When it cannot be opened, or is another volume.
    fn open(&self, options: &ContentOptions<'_>, file: &mut OpenFile<'_>) -> Result<Opened, OpenError>;
}

/// How what a volume holds is opened.
#[derive(Debug)]
pub struct ContentOptions<'a> {
    /// The logical block of the volume; `None`: that which its content has.
    pub block_bytes: Option<u32>,
    /// Past the page cache.
    pub direct: bool,
    /// Nothing is written to it.
    pub read_only: bool,
    /// Only if it is this one.
    pub expected: Option<&'a Expectation<'a>>,
}

/// A store that was opened, and what is to be known of the volume from now on.
pub type Opened = (Arc<dyn Store>, Option<Known>);

/// Opens a file; `true` where it is locked already.
pub type OpenFile<'a> = dyn FnMut(bool) -> Result<Opened, OpenError> + 'a;

/// How one thing at the bottom of a volume differs from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Likeness {
    /// Not at all.
    Same,
    /// In its size.
    OtherSize,
    /// In more than that.
    Other,
}

/// A change of what is written.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rewritten {
    /// The store.
    pub store: Option<String>,
    /// Values of keys, each the only one.
    pub keys: Vec<(&'static str, String)>,
}

static ADDED: RwLock<Vec<&'static dyn StoreKind>> = RwLock::new(Vec::new());

/// Adds a kind, for all that is read from now on; what comes first keeps a word that several have.
pub fn register(kind: &'static dyn StoreKind) {
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    if !added.iter().any(|known| known.words() == kind.words()) {
        added.push(kind);
    }
}

/// All kinds, in the order in which they are told to people.
fn kinds() -> Vec<&'static dyn StoreKind> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    let first: [&dyn StoreKind; 3] = [&sized::RAM, &sized::NULL, &none::NoneKind];
    let (last, added): (Vec<_>, Vec<_>) = added.iter().copied().partition(|kind| kind.takes_paths());
    first.into_iter().chain(added).chain(last).collect()
}

/// The forms of all kinds, for people.
pub(crate) fn forms() -> String {
    let forms: Vec<_> = kinds().into_iter().map(|kind| kind.form()).collect();
    match forms.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The keys that only some kinds have.
pub(crate) fn keys() -> Vec<&'static str> {
    let mut keys = Vec::new();
    for key in kinds().into_iter().flat_map(|kind| kind.keys()) {
        if !keys.contains(key) {
            keys.push(key);
        }
    }
    keys
}

/// The kind that a store is of, and what stands behind the colon. A path is a device's, and stands there whole.
pub(crate) fn find(store: &str) -> Option<(&'static dyn StoreKind, &str)> {
    if store.starts_with('/') {
        return kinds().into_iter().find(|kind| kind.takes_paths()).map(|kind| (kind, store));
    }
    let (word, place) = store.split_once(':')?;
    kinds().into_iter().find(|kind| kind.words().contains(&word)).map(|kind| (kind, place))
}
