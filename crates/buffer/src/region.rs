//! One mapping, handed out in runs of units.

mod state;

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sanwire_core::quota::{MEMORY_OF_CLIENT, Usage};

use crate::frame::Frame;
use crate::pages::Pages;
use state::{State, Terms};

/// The grain of allocation, in bytes: one page, so that every frame may be used for direct I/O.
pub const UNIT_BYTES: usize = 4096;

/// One anonymous memory mapping, cut into page-sized units and handed out as [`Frame`]s.
///
/// Cloning gives another handle to the same mapping, which lives until the last handle and the last frame are gone.
/// Pages are touched on first use, so an idle region costs address space only.
///
/// A handle may stand for one of several holders ([`Region::share`]): what its frames take is counted, wherever they go, and
/// limited so that others find something.
#[derive(Clone)]
pub struct Region(Arc<Handle>);

struct Handle {
    mapping: Arc<Mapping>,
    terms: Terms,
}

struct Mapping {
    pages: Pages,
    units: usize,
    state: Mutex<State>,
    on_release: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Region {
    /// Maps `length_bytes`, rounded up to whole units.
    ///
    /// # Errors
    /// The kernel's, when it refuses the mapping; `InvalidInput` when the length is zero.
    pub fn new(length_bytes: usize) -> io::Result<Self> {
        let units = length_bytes.div_ceil(UNIT_BYTES);
        if units == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a region of no bytes"));
        }
        let pages = Pages::new(units * UNIT_BYTES)?;
        let mapping = Mapping { pages, units, state: Mutex::new(State::new(units)), on_release: OnceLock::new() };
        Ok(Region(Arc::new(Handle { mapping: Arc::new(mapping), terms: Terms::Whole })))
    }

    /// A handle for one of several holders. It has no more than three times what it leaves free of the region, or than
    /// `guaranteed_bytes` if those are more and are there. When they are not, others that have something leave to it what it was
    /// denied of them, until it has got that, or does not want it any more ([`Region::forgo`]): many that ask for little do not
    /// keep one that asks for much from ever getting it.
    #[must_use]
    pub fn share(&self, guaranteed_bytes: usize) -> Region {
        let holder = self.lock().add(guaranteed_bytes);
        Region(Arc::new(Handle { mapping: Arc::clone(&self.0.mapping), terms: Terms::Share(holder) }))
    }

    /// A handle that gives no frames: what can be done with it needs none.
    #[must_use]
    pub fn nothing(&self) -> Region {
        Region(Arc::new(Handle { mapping: Arc::clone(&self.0.mapping), terms: Terms::Nothing }))
    }

    /// A frame of `length_bytes`, aligned to a page, or `None` while no run of free units is long enough, or the holder may
    /// have no more.
    ///
    /// What the frame contains is unspecified (an earlier owner's bytes): the taker overwrites all of it.
    #[must_use]
    pub fn frame(&self, length_bytes: usize) -> Option<Frame> {
        let units = length_bytes.div_ceil(UNIT_BYTES).max(1);
        let start = self.0.mapping.change(|state| state.take(units, &self.0.terms))?;
        // SAFETY: `start + units` is within the mapping, so the offset stays inside one allocation.
        let pointer = unsafe { self.0.mapping.pages.base().add(start * UNIT_BYTES) };
        // SAFETY: the bitmap gave these units to us alone, and `from_region` keeps this handle until they go home.
        Some(unsafe { Frame::from_region(self.clone(), pointer, units * UNIT_BYTES, length_bytes) })
    }

    /// Bytes of the mapping that no frame holds, and that the holder may have. Another thread may take them at any time.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.lock().allowed_bytes(&self.0.terms)
    }

    /// Whether [`Region::frame`] would give a frame of each of these lengths, where they are not zero, one after the other. Another
    /// thread may take them at any time. For a holder that asks so it is the same as having asked for them.
    #[must_use]
    pub fn has_frames(&self, first_bytes: usize, second_bytes: usize) -> bool {
        let (first, second) = (first_bytes.div_ceil(UNIT_BYTES), second_bytes.div_ceil(UNIT_BYTES));
        self.0.mapping.change(|state| state.has_runs(first, second, &self.0.terms))
    }

    /// Bytes that the frames of this holder take; 0 for a handle that stands for none.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let Terms::Share(holder) = self.0.terms else { return 0 };
        self.lock().shares[holder].held_bytes()
    }

    /// Whether this holder has as much as those holders that have anything have on the average, or more. If it has less, others fill the
    /// region. Those that have nothing say nothing: whoever makes many holders, and fills the region by one of them, would be one of
    /// many that have their part. It takes as long however many there are.
    #[must_use]
    pub fn holds_its_part(&self) -> bool {
        let Terms::Share(holder) = self.0.terms else { return true };
        self.lock().holds_its_part(holder)
    }

    /// Whether memory is short for this holder: it asked for what is guaranteed to it, and has not got that yet.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        let Terms::Share(holder) = self.0.terms else { return false };
        self.lock().shares[holder].lacking_bytes() > 0
    }

    /// What this holder asked for in vain is not wanted any more. If something of it still is, ask again.
    pub fn forgo(&self) {
        let Terms::Share(holder) = self.0.terms else { return };
        self.0.mapping.change(|state| {
            let lacked_bytes = state.shares[holder].lacking_bytes();
            state.shares[holder].forgo();
            state.settle(holder, lacked_bytes);
        });
    }

    /// How the quota of holders is used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (most_bytes, refused) = {
            let state = self.lock();
            (state.most_bytes, state.refused)
        };
        let most = (100 * most_bytes).div_ceil(self.length_bytes()) as u64;
        Usage { most: Some(most), ..Usage::refused(&MEMORY_OF_CLIENT, refused) }
    }

    /// How many releases there were: an attempt that found no memory finds none before this changes. A release is a frame that is given
    /// back, and also a holder that has got what others had to leave to it, does not want it any more, or is gone.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.lock().releases
    }

    /// Has the hook called at the next release ([`Region::on_release`]), once, and tells how many releases there were. To be
    /// called before another attempt: either that finds memory, or the hook will tell of it.
    pub fn await_release(&self) -> u64 {
        let mut state = self.lock();
        state.is_awaited = true;
        state.releases
    }

    /// Bytes of the whole mapping.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.0.mapping.units * UNIT_BYTES
    }

    /// Where the mapping starts, for registration with a kernel ring. Its length is [`Region::length_bytes`].
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.0.mapping.pages.base().as_ptr()
    }

    /// Calls `hook` at the next release after each [`Region::await_release`], on the thread that caused it. While nobody waits, a frame
    /// that goes home costs nothing for it.
    ///
    /// A region has one hook; `false` means that it has one already. The hook must not block, nor own a handle to the region.
    pub fn on_release(&self, hook: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.mapping.on_release.set(Box::new(hook)).is_ok()
    }

    /// Takes the units of a frame back.
    pub(crate) fn take_back(&self, pointer: NonNull<u8>, capacity_bytes: usize) {
        let offset = pointer.as_ptr() as usize - self.0.mapping.pages.base().as_ptr() as usize;
        let (start, units) = (offset / UNIT_BYTES, capacity_bytes / UNIT_BYTES);
        self.0.mapping.change(|state| state.give_back(start, units, &self.0.terms));
    }

    /// Whether the two handles are of one mapping.
    #[must_use]
    pub fn is_same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.0.mapping, &other.0.mapping)
    }

    /// What all handles have in common that stand for one holder, as long as there is one of them.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether both handles stand for one holder.
    #[must_use]
    pub fn is_same_share(&self, other: &Region) -> bool {
        self.identity() == other.identity()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.mapping.lock()
    }
}

impl Mapping {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The bitmap's methods do not panic between two writes, so a poisoned lock still guards a sound map.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is taken, and calls the hook if that is a release that somebody awaits.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        let is_call_due = std::mem::take(&mut state.is_call_due);
        drop(state);
        if is_call_due && let Some(hook) = self.on_release.get() {
            hook();
        }
        changed
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Frames hold the handle that they were taken by: none is left.
        if let Terms::Share(holder) = self.terms {
            self.mapping.change(|state| state.forget(holder));
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} of {} bytes free)", self.free_bytes(), self.length_bytes())
    }
}

#[cfg(test)]
mod tests;
