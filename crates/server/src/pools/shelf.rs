//! Where the layers of a family are: nowhere, before the first snapshot, and then in a directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_snapshot::{LayerId, Shelf};
use sanwire_store::Store;

use super::reserve::Reserve;

/// Where the layers of a family are: nowhere, as long as there are none.
#[derive(Debug)]
pub(super) struct FamilyShelf {
    pub(super) path: PathBuf,
    /// That of the pool.
    reserve: Reserve,
    pub(super) inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) enum Inner {
    /// What is to be kept once there is a directory.
    Memory(Option<Vec<u8>>),
    Directory(Arc<dyn Shelf>),
}

impl Default for Inner {
    fn default() -> Self {
        Inner::Memory(None)
    }
}

pub(super) fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    // It is whole between any two changes.
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FamilyShelf {
    pub(super) fn new(path: PathBuf, inner: Inner) -> FamilyShelf {
        let pool = path.parent().and_then(Path::parent).unwrap_or(&path);
        FamilyShelf { reserve: Reserve::of(pool), inner: Mutex::new(inner), path }
    }

    fn directory(&self) -> io::Result<Arc<dyn Shelf>> {
        match &*lock(&self.inner) {
            Inner::Directory(layers) => Ok(Arc::clone(layers)),
            Inner::Memory(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Shelf for FamilyShelf {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        self.directory()?.create(layer, length_bytes)
    }

    fn open(&self, layer: LayerId) -> io::Result<Arc<dyn Store>> {
        self.directory()?.open(layer)
    }

    fn remove(&self, layer: LayerId) -> io::Result<()> {
        self.directory()?.remove(layer)
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        let inner = lock(&self.inner);
        match &*inner {
            Inner::Memory(kept) => Ok(kept.clone()),
            Inner::Directory(layers) => layers.load(),
        }
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        let layers = {
            match &mut *lock(&self.inner) {
                Inner::Memory(kept) => {
                    *kept = Some(catalogue.to_vec());
                    return Ok(());
                }
                Inner::Directory(layers) => Arc::clone(layers),
            }
        };
        match layers.keep(catalogue) {
            // What makes room, a deletion, is written first.
            Err(error) if is_full(&error) && self.reserve.give_up() => {
                let kept = layers.keep(catalogue);
                self.reserve.take();
                kept
            }
            kept => kept,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
