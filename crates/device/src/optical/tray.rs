//! The tray of a drive: a store that holds the disc in it, whichever that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use sanwire_buffer::Slices;
use sanwire_scsi::mmc::BLOCK_BYTES;
use sanwire_store::{CompletionQueue, Geometry, Outcome, RemoteCount, Request, Space, Started, Store};

use crate::medium::MediumError;

/// What a disc is read from. Requests that have begun end on the disc on which they began; their command learns by
/// [`Tray::changes`] that it was another one.
#[derive(Default, Debug)]
pub(crate) struct Tray {
    disc: ArcSwapOption<Arc<dyn Store>>,
    changes: AtomicU32,
}

impl Tray {
    /// Puts a disc in, in place of the one that is there.
    pub(super) fn put(&self, disc: Arc<dyn Store>) -> Result<(), MediumError> {
        check(&disc)?;
        self.disc.store(Some(Arc::new(disc)));
        // Counted last: a command that sees this number has no part of the disc before.
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// How often a disc was put in.
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.disc.load().is_none()
    }

    fn disc(&self) -> Option<Arc<dyn Store>> {
        self.disc.load().as_ref().map(|disc| Arc::clone(&**disc))
    }
}

/// Whether this can be a disc.
pub(super) fn check(disc: &Arc<dyn Store>) -> Result<(), MediumError> {
    let Geometry { length_bytes, block_bytes, .. } = disc.geometry();
    if block_bytes == 0 || !BLOCK_BYTES.is_multiple_of(block_bytes) {
        return Err(MediumError::BlockSize(block_bytes));
    }
    match length_bytes / u64::from(BLOCK_BYTES) {
        0 => Err(MediumError::Empty),
        blocks if u32::try_from(blocks).is_err() => Err(MediumError::TooLong),
        _ => Ok(()),
    }
}

impl Store for Tray {
    /// Whole blocks only: what is behind the last one cannot be read.
    fn geometry(&self) -> Geometry {
        let blocks = self.disc().map_or(0, |disc| disc.geometry().length_bytes / u64::from(BLOCK_BYTES));
        Geometry {
            length_bytes: blocks * u64::from(BLOCK_BYTES),
            block_bytes: BLOCK_BYTES,
            physical_block_bytes: BLOCK_BYTES,
            read_only: true,
            discards: false,
            atomic_write_bytes: 0,
        }
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        self.disc()?.share(offset_bytes, length_bytes)
    }

    fn space(&self) -> Option<Space> {
        self.disc()?.space()
    }

    fn remote(&self) -> Option<RemoteCount> {
        self.disc()?.remote()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        // It may be another disc than the one for which the request was checked.
        match (self.geometry().check(&request), self.disc()) {
            (Ok(()), Some(disc)) => disc.start(request, completions),
            // A flush, of nothing.
            (Ok(()), None) => Started::Done(Ok(Outcome::Done)),
            (Err(error), _) => Started::Done(Err(error)),
        }
    }
}
