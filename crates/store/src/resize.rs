//! Making a store longer while it is in use.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_core::Size;

use crate::request::Geometry;

/// Why a store keeps the length it has.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// Nothing that is stored is ever cut off.
    #[error("the volume has {} and is never made shorter: what it holds would be lost", Size(*is_bytes))]
    Shorter {
        /// The length it has.
        is_bytes: u64,
    },
    /// The length is not a whole number of blocks.
    #[error("{length_bytes} bytes are not a multiple of the {block_bytes}-byte block")]
    Blocks {
        /// The length that was asked for.
        length_bytes: u64,
        /// The block.
        block_bytes: u32,
    },
    /// The store cannot grow.
    #[error("the volume cannot grow: {0}")]
    Fixed(&'static str),
    /// The kernel refuses.
    #[error("cannot make the volume longer: {0}")]
    Io(io::Error),
    /// It is longer, and that could not be made stable. Nobody else may hear of it who flushes: what was written before may be lost.
    #[error("cannot make the new length of the volume stable: {0}; what was written to it and not flushed may be lost")]
    Unstable(io::Error),
}

/// A geometry whose length may grow while others read it.
#[derive(Debug)]
pub struct GrowingGeometry {
    geometry: Geometry,
    length_bytes: AtomicU64,
}

impl GrowingGeometry {
    /// It may grow from this one.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        GrowingGeometry { geometry, length_bytes: AtomicU64::new(geometry.length_bytes) }
    }

    /// What it is now.
    #[must_use]
    pub fn get(&self) -> Geometry {
        Geometry { length_bytes: self.length_bytes.load(Ordering::Acquire), ..self.geometry }
    }

    /// Whether the store may have this length.
    ///
    /// # Errors
    /// When it is less than it has, or not a whole number of blocks.
    pub fn check(&self, length_bytes: u64) -> Result<(), ResizeError> {
        let now = self.get();
        if length_bytes < now.length_bytes {
            return Err(ResizeError::Shorter { is_bytes: now.length_bytes });
        }
        if !length_bytes.is_multiple_of(u64::from(now.block_bytes)) {
            return Err(ResizeError::Blocks { length_bytes, block_bytes: now.block_bytes });
        }
        Ok(())
    }

    /// The store has this length now, if it had less.
    pub fn grow(&self, length_bytes: u64) {
        self.length_bytes.fetch_max(length_bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Outcome, Request, Store};
    use crate::run::run_pure;
    use crate::{NullStore, RamStore};

    const OLD: u64 = 1 << 20;
    /// In another group of the RAM store.
    const NEW: u64 = 1 << 30;

    fn grows(store: &dyn Store) {
        assert!(matches!(store.resize(OLD - 512), Err(ResizeError::Shorter { is_bytes: OLD })));
        assert!(matches!(store.resize(NEW + 1), Err(ResizeError::Blocks { .. })));
        assert_eq!(store.geometry().length_bytes, OLD);
        store.resize(NEW).unwrap();
        assert_eq!(store.geometry().length_bytes, NEW);
    }

    #[test]
    fn what_is_stored_stays_when_a_store_grows() {
        let store = RamStore::new(OLD, 512);
        let write = |offset_bytes| run_pure(&store, Request::Write { offset_bytes, data: vec![7; 512].into() });
        assert!(write(OLD - 512).is_ok());
        assert!(write(NEW - 512).is_err(), "beyond the end");
        grows(&store);
        assert!(write(NEW - 512).is_ok());
        for (offset_bytes, byte) in [(OLD - 512, 7), (OLD, 0), (NEW - 1024, 0), (NEW - 512, 7)] {
            let read = run_pure(&store, Request::Read { offset_bytes, buffer: vec![1; 512].into() });
            let Ok(Outcome::Read(frame)) = read else { panic!("RAM answers at once") };
            assert_eq!(*frame, [byte; 512], "at {offset_bytes}");
        }
    }

    #[test]
    fn nothing_grows_too() {
        grows(&NullStore::new(OLD, 512));
    }
}
