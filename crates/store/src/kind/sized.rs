//! `ram:SIZE`, memory that is taken as it is written, and `null:SIZE`, zeroes for measuring: stores of which their size says all.

use std::any::Any;
use std::sync::Arc;

use super::{Backing, Likeness, Place, Rewritten, StoreKind};
use crate::spec::{SpecError, Written};
use crate::{Expectation, Known, NullStore, OpenError, RamStore, Store, memory};

/// Makes a store of so many bytes, in blocks of so many.
type Make = fn(u64, u32) -> Result<Arc<dyn Store>, OpenError>;

/// One of these kinds.
#[derive(Debug)]
pub(super) struct SizedKind {
    words: &'static [&'static str; 1],
    form: &'static str,
    make: Make,
}

pub(super) const RAM: SizedKind = SizedKind { words: &["ram"], form: "ram:SIZE", make: make_ram };
pub(super) const NULL: SizedKind = SizedKind { words: &["null"], form: "null:SIZE", make: make_null };

#[derive(Debug)]
struct SizedBacking {
    word: &'static str,
    make: Make,
    size_bytes: u64,
    block_bytes: u32,
}

fn make_null(size_bytes: u64, block_bytes: u32) -> Result<Arc<dyn Store>, OpenError> {
    Ok(Arc::new(NullStore::new(size_bytes, block_bytes)))
}

/// Refuses what no machine of this kind could hold. Several volumes together may be larger: they take memory as they are written.
fn make_ram(size_bytes: u64, block_bytes: u32) -> Result<Arc<dyn Store>, OpenError> {
    match memory::total_bytes() {
        Some(total_bytes) if size_bytes > total_bytes => {
            Err(OpenError::Memory { wanted_bytes: size_bytes, total_bytes })
        }
        _ => Ok(Arc::new(RamStore::new(size_bytes, block_bytes))),
    }
}

impl StoreKind for SizedKind {
    fn words(&self) -> &'static [&'static str] {
        self.words
    }

    fn form(&self) -> &'static str {
        self.form
    }

    /// Why what is in no file has none of a file's keys.
    fn lacks(&self, key: &str) -> &'static str {
        match key {
            "size" => "the size stands right behind ram: or null:",
            "grow" => "only a file grows",
            "direct" => "only files and block devices have a page cache to go past",
            _ => "stores of its kind have no such key",
        }
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let (size_bytes, block_bytes) = written.size_at_place()?;
        Ok(Arc::new(SizedBacking { word: self.words[0], make: self.make, size_bytes, block_bytes }))
    }
}

impl Backing for SizedBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        Ok(((self.make)(self.size_bytes, self.block_bytes)?, None))
    }

    fn place(&self) -> Place<'_> {
        Place::Memory
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other) if (other.word, other.block_bytes) != (self.word, self.block_bytes) => Likeness::Other,
            Some(other) if other.size_bytes == self.size_bytes => Likeness::Same,
            Some(_) => Likeness::OtherSize,
            None => Likeness::Other,
        }
    }

    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn memory_bytes(&self) -> u64 {
        if self.word == RAM.words[0] { self.size_bytes } else { 0 }
    }

    fn resized(&self, size_bytes: u64) -> Option<Rewritten> {
        Some(Rewritten { store: Some(format!("{}:{size_bytes}", self.word)), keys: Vec::new() })
    }
}
