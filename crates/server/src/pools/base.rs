//! The file or store below the layers of a family, and whether it is what they were written over.
//!
//! It holds what the volume does and nothing else, so it cannot say that itself: its seal does (`seal.rs`).

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_snapshot::Base;
use sanwire_store::kind::{BelowLayers, Place};
use sanwire_store::layer::Over;
use sanwire_store::{OpenError, Store};
use sanwire_store_file::{FileOptions, FileStore};

use super::below::KeptBelow;
use super::family::{FamilyError, FamilyOptions};
use super::seal::{Guard, Look, Seal};

/// It has this name, beside the layers.
pub(super) const BASE: &str = "base";

/// What tells it from others: it is where it is.
const IDENTITY: &str = "base";

/// What is below all layers, which nobody else has open: a file of the pool, which is locked, or a store that is not in the pool.
#[derive(Debug)]
pub(super) struct Below {
    /// Of a file of the pool, its device and number.
    number: Option<(u64, u64)>,
    elsewhere: Option<Elsewhere>,
    look: Look,
    seal: Arc<Seal>,
    /// Why it is not what the layers were written over.
    mixture: Option<String>,
}

/// A store that is not in the pool.
#[derive(Debug)]
pub(super) struct Elsewhere {
    /// The volume that is written there when there are no layers, and only that one.
    volume: String,
    /// That volume is gone. Another one of its name was cloned.
    is_orphaned: AtomicBool,
    pub(super) store: Arc<dyn Store>,
}

impl Elsewhere {
    /// The volume that is written there when there are no layers.
    pub(super) fn owner(&self) -> Option<&str> {
        (!self.is_orphaned()).then_some(&self.volume)
    }

    /// Whether that is this one.
    pub(super) fn is_of(&self, volume: &str) -> bool {
        self.owner() == Some(volume)
    }

    /// Whether that is this one, or was one of this name.
    pub(super) fn was_of(&self, volume: &str) -> bool {
        self.volume == volume
    }

    pub(super) fn is_orphaned(&self) -> bool {
        self.is_orphaned.load(Ordering::Acquire)
    }

    /// From now on nothing is written there.
    pub(super) fn orphan(&self) {
        self.is_orphaned.store(true, Ordering::Release);
    }
}

impl Below {
    /// This one, below a family that is to have this directory.
    pub(super) fn of_file(file: &Path, directory: &Path, options: FamilyOptions) -> Result<(Below, Base), FamilyError> {
        Ok(Below::of_pool(directory, open(file, options)?, (Seal::none(directory), None)))
    }

    /// The same for a family that was kept.
    pub(super) fn kept(directory: &Path, options: FamilyOptions) -> Result<(Below, Base), FamilyError> {
        let file = directory.join(BASE);
        let seal = Seal::checked(directory, &Look::File(file.clone()))?;
        Ok(Below::of_pool(directory, open_kept(&file, options)?, seal))
    }

    fn of_pool(
        directory: &Path,
        (file, number): (Arc<FileStore>, (u64, u64)),
        seal: (Arc<Seal>, Option<String>),
    ) -> (Below, Base) {
        Below::new(file, Look::File(directory.join(BASE)), seal, |below| below.number = Some(number))
    }

    /// A store that is not in the pool, below a family in this directory; `found`: its file, before it was opened. With layers, it is to be
    /// what these were written over.
    pub(super) fn elsewhere(
        directory: &Path,
        kept: &KeptBelow,
        (store, below): (Arc<dyn Store>, &BelowLayers),
        (has_layers, found): (bool, Option<Metadata>),
    ) -> Result<(Below, Base), FamilyError> {
        let look = match (below.backing.place(), found) {
            (Place::File(path), Some(found)) if found.is_file() => {
                Look::FileElsewhere(path.to_owned(), Arc::clone(&store), found)
            }
            _ => Look::Store(Arc::clone(&store), below.written.clone()),
        };
        // What stands there from former layers, which are gone, says nothing of what has been written since.
        let seal = match has_layers {
            true => Seal::checked(directory, &look)?,
            false => (Seal::removed(directory)?, None),
        };
        let (volume, is_orphaned) = (kept.volume.clone(), kept.orphaned.into());
        let elsewhere = Elsewhere { volume, is_orphaned, store: Arc::clone(&store) };
        let (below, base) = Below::new(store, look, seal, |below| below.elsewhere = Some(elsewhere));
        Ok((below, Base { may_be_longer: true, ..base }))
    }

    fn new(
        store: Arc<dyn Store>,
        look: Look,
        (seal, mixture): (Arc<Seal>, Option<String>),
        complete: impl FnOnce(&mut Below),
    ) -> (Below, Base) {
        let store = Arc::new(Over::new(Guard(Arc::clone(&seal)), store));
        let base = Base { store, identity: IDENTITY.to_owned(), may_be_longer: false };
        let mut below = Below { number: None, elsewhere: None, look, seal, mixture };
        complete(&mut below);
        (below, base)
    }

    /// The store, if it is not in the pool.
    pub(super) fn store_elsewhere(&self) -> Option<&Elsewhere> {
        self.elsewhere.as_ref()
    }

    /// Whether it is this file.
    pub(super) fn is(&self, file: &Path) -> bool {
        self.number.is_some() && fs::metadata(file).is_ok_and(|file| Some(number_of(&file)) == self.number)
    }

    /// Refuses to have anything served of it, or merged into it, that was written over something else.
    pub(super) fn check(&self) -> io::Result<()> {
        self.mixture.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }

    /// Nobody writes it any more for now.
    pub(super) fn seal(&self) -> io::Result<()> {
        self.seal.put(&self.look)
    }

    /// Whether that is known to last.
    pub(super) fn is_sealed(&self) -> bool {
        self.seal.is_there()
    }

    /// From now on a volume may be written there.
    pub(super) fn unseal(&self) -> io::Result<()> {
        self.seal.take_off()
    }
}

fn number_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Opens it, and locks it.
fn open(
    file: &Path,
    FamilyOptions { block_bytes, direct, .. }: FamilyOptions,
) -> Result<(Arc<FileStore>, (u64, u64)), FamilyError> {
    let options = FileOptions { block_bytes: Some(block_bytes), direct, ..FileOptions::default() };
    let store = FileStore::open(file, &options)?;
    Ok((Arc::new(store), number_of(&fs::metadata(file)?)))
}

/// The same below layers, which stay as they are though the device may want longer blocks than theirs for direct I/O.
fn open_kept(file: &Path, options: FamilyOptions) -> Result<(Arc<FileStore>, (u64, u64)), FamilyError> {
    match open(file, options) {
        Err(FamilyError::Open(OpenError::Direct { needed_bytes, .. })) => {
            tracing::warn!(
                "{} is used through the page cache: its layers have blocks of {} bytes, and direct I/O needs {needed_bytes}",
                file.display(),
                options.block_bytes
            );
            open(file, FamilyOptions { direct: false, ..options })
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests;
