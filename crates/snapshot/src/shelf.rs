//! Where the layers of a family of volumes are.

use std::fmt;
use std::io;
use std::sync::Arc;

use sanwire_store::Store;

use crate::LayerId;

/// Keeps layers, each in a store of its own, and what says how they belong together. A directory, as a rule. All of it may block.
pub trait Shelf: Send + Sync + fmt::Debug {
    /// Makes a store for a layer, of exactly this length, which reads as zeroes and can be found again after a loss of power.
    ///
    /// # Errors
    /// When it cannot.
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>>;

    /// Opens the store of a layer.
    ///
    /// # Errors
    /// When it cannot.
    fn open(&self, layer: LayerId) -> io::Result<Arc<dyn Store>>;

    /// Removes the store of a layer, if it is there. Who has it open goes on.
    ///
    /// # Errors
    /// When it is still there.
    fn remove(&self, layer: LayerId) -> io::Result<()>;

    /// What was kept last; `None`: nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Keeps this instead: whatever happens, afterwards there is what was kept before, or this, and this once it has returned.
    ///
    /// # Errors
    /// When it cannot: then either may be there.
    fn keep(&self, catalogue: &[u8]) -> io::Result<()>;
}
