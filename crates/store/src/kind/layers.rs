//! `layers=POOL`: a store of any kind, below layers that a pool keeps.

use std::any::Any;
use std::sync::Arc;

use super::{Backing, Likeness, Opened, Place, PoolFile, PoolPlace, Rewritten};
use crate::{Expectation, OpenError};

/// A store that is below the layers of a volume.
#[derive(Clone, Debug)]
pub struct BelowLayers {
    /// As it is written, with its keys: what is read from that ([`crate::StoreSpec`]) is the same store.
    pub written: String,
    /// As it is written to be opened again, whoever asks for it then: it means the same in every directory, is not made, nor longer, nor taken
    /// over from anybody once more.
    pub again: String,
    /// The same, read.
    pub backing: Arc<dyn Backing>,
}

/// What is written with that key: the pool opens it, with its layers over it.
#[derive(Debug)]
pub(crate) struct LayersBacking {
    pub(crate) below: BelowLayers,
    /// The volume in the pool.
    pub(crate) pool: Arc<dyn Backing>,
}

impl Backing for LayersBacking {
    fn open(&self, expected: Option<&Expectation<'_>>) -> Result<Opened, OpenError> {
        self.pool.open(expected)
    }

    /// Before the server has said where the pool has it, that of the store: it is what a configuration names.
    fn place(&self) -> Place<'_> {
        if self.pool.pool_file().is_some() { self.pool.place() } else { self.below.backing.place() }
    }

    fn places(&self) -> Vec<Place<'_>> {
        if self.pool.pool_file().is_some() { self.pool.places() } else { self.below.backing.places() }
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let Some(other) = (other as &dyn Any).downcast_ref::<Self>() else { return Likeness::Other };
        match self.pool.compare(&*other.pool) {
            Likeness::Same => self.below.backing.compare(&*other.below.backing),
            _ => Likeness::Other,
        }
    }

    fn size_bytes(&self) -> Option<u64> {
        self.below.backing.size_bytes()
    }

    fn check_length(&self, length_bytes: u64) -> Result<(), OpenError> {
        self.below.backing.check_length(length_bytes)
    }

    fn resized(&self, size_bytes: u64) -> Option<Rewritten> {
        self.below.backing.resized(size_bytes)
    }

    fn absolute(&self) -> Option<Rewritten> {
        self.below.backing.absolute()
    }

    fn pool(&self) -> Option<&PoolPlace> {
        self.pool.pool()
    }

    fn pool_file(&self) -> Option<&PoolFile> {
        self.pool.pool_file()
    }

    fn in_file(&self, file: PoolFile) -> Option<Arc<dyn Backing>> {
        Some(Arc::new(LayersBacking { below: self.below.clone(), pool: self.pool.in_file(file)? }))
    }

    fn below_layers(&self) -> Option<&BelowLayers> {
        Some(&self.below)
    }
}
