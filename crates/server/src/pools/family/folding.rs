//! Putting what was written to a volume below its last layer, when nobody needs what is there for itself. What is below all layers may be a
//! store outside of the pool, which is far away or hangs: neither writes nor the family wait for that.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sanwire_snapshot::{Release, SnapshotError};
use sanwire_store_file::blocking::perform;

use super::{Begun, Family, FamilyError, new_layer};
use crate::pools::catalogue::SnapshotId;

/// How much is copied while writes are held, into a file of the pool, and into a store outside, which may be far away.
const FOLDED_MAX_BYTES: u64 = 16 << 20;
const FOLDED_ELSEWHERE_MAX_BYTES: u64 = 1 << 20;

/// How long writes wait for a store outside of the pool: then they go on, and what was to be copied is so by and by.
const ELSEWHERE_MAX: Duration = Duration::from_millis(250);

impl Family {
    /// Puts what was written to a volume into the layer below its last one, at once if that is little, and else by a new last layer.
    pub(in crate::pools) fn fold_volume(&self, volume: &str) -> Result<(), FamilyError> {
        let changing = self.changing();
        if changing.keys().any(|id| id.volume == volume) {
            // It is about to have a new last layer.
            return Ok(());
        }
        let _tidying = self.tidying();
        let store = self.tree.volume(volume, &mut perform)?;
        self.tree.flush(volume, &mut perform)?;
        // What is below all layers may hold the volume again.
        self.below.unseal()?;
        // Only who opens or removes the volume waits for what is below.
        let folding = self.begin_folding(volume);
        drop(changing);
        let folded = self.settle_volume(volume);
        let changing = self.changing();
        drop(folding);
        if matches!(folded, Ok(false)) && !changing.keys().any(|id| id.volume == volume) {
            let prepared = self.tree.prepare(volume, new_layer()?, &mut perform)?;
            return Ok(self.begin_layer(volume, Begun { prepared, store }, None)?);
        }
        drop(store);
        self.tree.close(volume);
        folded.map(drop)
    }

    /// Puts what was written to a volume into the layer below its last one, if that is little and does not take long; gives whether it was.
    fn settle_volume(&self, volume: &str) -> Result<bool, FamilyError> {
        let is_elsewhere = self.store_elsewhere().is_some();
        let most_bytes = if is_elsewhere { FOLDED_ELSEWHERE_MAX_BYTES } else { FOLDED_MAX_BYTES };
        let settling = match self.tree.prepare_settle(volume, most_bytes, &mut perform) {
            Err(SnapshotError::Unsettled) => None,
            settling => settling?,
        };
        let Some(settling) = settling else { return Ok(false) };
        let hold = self.hold_briefly(volume)?;
        let _watch = if is_elsewhere { Some(Watch::begin(hold.release())?) } else { None };
        // A snapshot that somebody wants comes first: it waits for the writes that are held.
        let admit = || match self.changing.try_lock() {
            Ok(changing) if !changing.keys().any(|id| id.volume == volume) => Ok(changing),
            _ => Err(SnapshotError::Busy),
        };
        match self.tree.settle(settling, &hold, admit, &mut perform) {
            Err(SnapshotError::Late) if is_elsewhere => Ok(false),
            settled => Ok(settled.map(|()| true)?),
        }
    }

    /// The same when the last layer of this volume is not just being put into what is below it: who does that has it open.
    pub(super) fn changing_unfolded(&self, volume: &str) -> MutexGuard<'_, BTreeMap<SnapshotId, Begun>> {
        let mut changing = self.changing();
        while self.folding().as_deref() == Some(volume) {
            changing = self.folded.wait(changing).unwrap_or_else(PoisonError::into_inner);
        }
        changing
    }

    /// From now on, until this is dropped while nothing else is changed.
    fn begin_folding(&self, volume: &str) -> Folding<'_> {
        *self.folding() = Some(volume.to_owned());
        Folding(self)
    }

    fn folding(&self) -> MutexGuard<'_, Option<String>> {
        // It is whole between any two changes.
        self.folding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something is put below the last layer of a volume.
struct Folding<'a>(&'a Family);

impl Drop for Folding<'_> {
    fn drop(&mut self) {
        *self.0.folding() = None;
        self.0.folded.notify_all();
    }
}

/// Gives writes back that are held for too long, until it is dropped. Nothing of the volume is in use by it after that.
struct Watch(Option<(Sender<()>, JoinHandle<()>)>);

impl Watch {
    fn begin(release: Release) -> io::Result<Watch> {
        let (watch, ended) = mpsc::channel();
        let work = move || {
            if ended.recv_timeout(ELSEWHERE_MAX) == Err(RecvTimeoutError::Timeout) {
                release.give_back();
            }
        };
        let thread = thread::Builder::new().name("hold".into()).spawn(work)?;
        Ok(Watch(Some((watch, thread))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((watch, thread)) = self.0.take() {
            drop(watch);
            let _ = thread.join();
        }
    }
}
