//! One mapping, handed out in runs of units.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sanwire_core::quota::{MEMORY_OF_CLIENT, Usage};

use crate::bitmap::Bitmap;
use crate::frame::Frame;
use crate::pages::Pages;
use crate::share::Share;

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

/// What a handle gives.
enum Terms {
    /// All that is free.
    Whole,
    /// What the holder with this number may have.
    Share(usize),
    /// No frame at all.
    Nothing,
}

struct Mapping {
    pages: Pages,
    units: usize,
    state: Mutex<State>,
    on_release: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Which units are taken, and by whom.
struct State {
    taken: Bitmap,
    shares: Vec<Share>,
    /// Numbers of holders that are gone.
    unused: Vec<usize>,
    /// How many frames have gone home.
    releases: u64,
    /// Who has precedence, because it lacks something of what is guaranteed to it, and what `releases` was when it last asked.
    first: Option<(usize, u64)>,
    /// The most that a holder has had, and how often one was refused more.
    most_bytes: usize,
    refused: u64,
}

/// Precedence lasts until so many frames have gone home, unless its holder asks again.
const PRECEDENCE_RELEASES: u64 = 32;

impl State {
    fn free_bytes(&self) -> usize {
        self.taken.free_units() * UNIT_BYTES
    }

    fn allowed_bytes(&self, terms: &Terms) -> usize {
        match *terms {
            Terms::Whole => self.free_bytes(),
            Terms::Share(holder) => {
                let left_bytes = self.free_bytes().saturating_sub(self.reserved_bytes(holder));
                self.shares[holder].allowed_bytes(self.free_bytes()).min(left_bytes)
            }
            Terms::Nothing => 0,
        }
    }

    /// What a holder that has something must leave to one that lacks what is guaranteed to it.
    fn reserved_bytes(&self, holder: usize) -> usize {
        let Some((first, at)) = self.first else { return 0 };
        let is_over = first == holder || self.releases - at >= PRECEDENCE_RELEASES;
        let (held_bytes, lacking_bytes) = (self.shares[first].held_bytes(), self.shares[first].lacking_bytes());
        // Where it has itself what it lacks, nobody else can leave it that.
        let can_be_left = held_bytes + lacking_bytes <= self.taken.units() * UNIT_BYTES;
        if is_over || !can_be_left || self.shares[holder].held_bytes() == 0 { 0 } else { lacking_bytes }
    }

    /// Whether a run of what must be left is left by one of so many units.
    fn leaves_enough(&mut self, holder: usize, units: usize) -> bool {
        let reserved_units = self.reserved_bytes(holder).div_ceil(UNIT_BYTES);
        reserved_units == 0 || units == 0 || self.taken.has_runs(units, reserved_units)
    }

    /// A holder did not get so many bytes.
    fn refuse(&mut self, holder: usize, bytes: usize) {
        self.refused += 1;
        self.shares[holder].refused(bytes);
        if self.shares[holder].lacking_bytes() > 0 && self.reserved_bytes(holder) == 0 {
            self.first = Some((holder, self.releases));
        }
    }

    /// A holder lacks nothing, or nothing that it asks for.
    fn settle(&mut self, holder: usize) {
        if self.shares[holder].lacking_bytes() == 0 {
            self.first.take_if(|(first, _)| *first == holder);
        }
    }

    /// Takes so many units for a holder.
    fn take(&mut self, units: usize, terms: &Terms) -> Option<usize> {
        let bytes = units * UNIT_BYTES;
        match *terms {
            Terms::Whole => self.taken.take(units),
            Terms::Share(holder) => {
                let is_allowed = self.shares[holder].allows(bytes, self.free_bytes());
                let may_take = is_allowed && self.leaves_enough(holder, units);
                let start = if may_take { self.taken.take(units) } else { None };
                if start.is_some() {
                    self.shares[holder].took(bytes);
                    self.most_bytes = self.most_bytes.max(self.shares[holder].held_bytes());
                    self.settle(holder);
                } else {
                    self.refuse(holder, bytes);
                }
                start
            }
            Terms::Nothing => None,
        }
    }

    /// Whether a holder could take both of these runs now.
    fn has_runs(&mut self, first: usize, second: usize, terms: &Terms) -> bool {
        let bytes = (first + second) * UNIT_BYTES;
        let has_both = bytes <= self.allowed_bytes(terms) && self.taken.has_runs(first, second);
        let Terms::Share(holder) = *terms else { return has_both };
        let may_take = has_both && self.leaves_enough(holder, first + second);
        if !may_take {
            self.refuse(holder, bytes);
        }
        may_take
    }

    fn give_back(&mut self, start: usize, units: usize, terms: &Terms) {
        self.taken.give_back(start, units);
        self.releases += 1;
        if let Terms::Share(holder) = *terms {
            self.shares[holder].gave_back(units * UNIT_BYTES);
        }
    }
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
        let state = State {
            taken: Bitmap::new(units),
            shares: Vec::new(),
            unused: Vec::new(),
            releases: 0,
            first: None,
            most_bytes: 0,
            refused: 0,
        };
        let mapping = Mapping { pages, units, state: Mutex::new(state), on_release: OnceLock::new() };
        Ok(Region(Arc::new(Handle { mapping: Arc::new(mapping), terms: Terms::Whole })))
    }

    /// A handle for one of several holders. It has no more than three times what it leaves free of the region, or than
    /// `guaranteed_bytes` if those are more and are there. When they are not, others that have something leave to it what it was
    /// denied of them, until it has got that, or does not want it any more ([`Region::forgo`]): many that ask for little do not
    /// keep one that asks for much from ever getting it.
    #[must_use]
    pub fn share(&self, guaranteed_bytes: usize) -> Region {
        let share = Share::new(guaranteed_bytes);
        let mut state = self.lock();
        let holder = match state.unused.pop() {
            Some(holder) => {
                state.shares[holder] = share;
                holder
            }
            None => {
                state.shares.push(share);
                state.shares.len() - 1
            }
        };
        drop(state);
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
        let start = self.lock().take(units, &self.0.terms)?;
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
        self.lock().has_runs(first, second, &self.0.terms)
    }

    /// Bytes that the frames of this holder take; 0 for a handle that stands for none.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let Terms::Share(holder) = self.0.terms else { return 0 };
        self.lock().shares[holder].held_bytes()
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
        let mut state = self.lock();
        state.shares[holder].forgo();
        state.settle(holder);
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

    /// How many frames have gone home: what found no memory finds none before this changes.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.lock().releases
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

    /// Calls `hook` after every frame that goes home, on the thread that dropped it: for who waits for room.
    ///
    /// A region has one hook; `false` means that it has one already. The hook must not own a handle to the region.
    pub fn on_release(&self, hook: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.mapping.on_release.set(Box::new(hook)).is_ok()
    }

    /// Takes the units of a frame back.
    pub(crate) fn take_back(&self, pointer: NonNull<u8>, capacity_bytes: usize) {
        let offset = pointer.as_ptr() as usize - self.0.mapping.pages.base().as_ptr() as usize;
        self.lock().give_back(offset / UNIT_BYTES, capacity_bytes / UNIT_BYTES, &self.0.terms);
        if let Some(hook) = self.0.mapping.on_release.get() {
            hook();
        }
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
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Frames hold the handle that they were taken by: none is left.
        if let Terms::Share(holder) = self.terms {
            let mut state = self.mapping.lock();
            state.first.take_if(|(first, _)| *first == holder);
            state.unused.push(holder);
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
