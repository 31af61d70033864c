//! `ram:SIZE`: memory, taken as it is written.

use std::any::Any;
use std::sync::Arc;

use super::null::lacks;
use super::{Backing, Likeness, Place, Rewritten, StoreKind};
use crate::spec::{SpecError, Written};
use crate::{Expectation, Known, OpenError, RamStore, Store, memory};

pub(super) struct RamKind;

#[derive(PartialEq, Debug)]
struct RamBacking {
    size_bytes: u64,
    block_bytes: u32,
}

impl StoreKind for RamKind {
    fn words(&self) -> &'static [&'static str] {
        &["ram"]
    }

    fn form(&self) -> &'static str {
        "ram:SIZE"
    }

    fn lacks(&self, key: &str) -> &'static str {
        lacks(key)
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let (size_bytes, block_bytes) = written.size_at_place()?;
        Ok(Arc::new(RamBacking { size_bytes, block_bytes }))
    }
}

impl Backing for RamBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        check_memory(self.size_bytes)?;
        Ok((Arc::new(RamStore::new(self.size_bytes, self.block_bytes)), None))
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
        Some(Rewritten { store: Some(format!("ram:{size_bytes}")), keys: Vec::new() })
    }
}

/// Refuses what no machine of this kind could hold. Several volumes together may be larger: they take memory as they are written.
fn check_memory(wanted_bytes: u64) -> Result<(), OpenError> {
    match memory::total_bytes() {
        Some(total_bytes) if wanted_bytes > total_bytes => Err(OpenError::Memory { wanted_bytes, total_bytes }),
        _ => Ok(()),
    }
}
