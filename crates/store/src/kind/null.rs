//! `null:SIZE`: zeroes, for measuring.

use std::any::Any;
use std::sync::Arc;

use super::{Backing, Likeness, Place, Rewritten, StoreKind};
use crate::spec::{SpecError, Written};
use crate::{Expectation, Known, NullStore, OpenError, Store};

pub(super) struct NullKind;

#[derive(PartialEq, Debug)]
struct NullBacking {
    size_bytes: u64,
    block_bytes: u32,
}

/// Why what is in no file has none of a file's keys.
pub(super) fn lacks(key: &str) -> &'static str {
    match key {
        "size" => "the size stands right behind ram: or null:",
        "grow" => "only a file grows",
        "direct" => "only files and block devices have a page cache to go past",
        _ => "stores of its kind have no such key",
    }
}

impl StoreKind for NullKind {
    fn words(&self) -> &'static [&'static str] {
        &["null"]
    }

    fn form(&self) -> &'static str {
        "null:SIZE"
    }

    fn lacks(&self, key: &str) -> &'static str {
        lacks(key)
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let (size_bytes, block_bytes) = written.size_at_place()?;
        Ok(Arc::new(NullBacking { size_bytes, block_bytes }))
    }
}

impl Backing for NullBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        Ok((Arc::new(NullStore::new(self.size_bytes, self.block_bytes)), None))
    }

    fn place(&self) -> Place<'_> {
        Place::Memory
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other) if other == self => Likeness::Same,
            Some(other) if other.block_bytes == self.block_bytes => Likeness::OtherSize,
            _ => Likeness::Other,
        }
    }

    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn resized(&self, size_bytes: u64) -> Option<Rewritten> {
        Some(Rewritten { store: Some(format!("null:{size_bytes}")), keys: Vec::new() })
    }
}
