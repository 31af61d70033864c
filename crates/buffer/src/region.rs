//! One mapping, handed out in runs of units.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::bitmap::Bitmap;
use crate::frame::Frame;
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
    base: NonNull<u8>,
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
    /// Who was denied what is guaranteed to it last, and what `releases` was then.
    denied: Option<(usize, u64)>,
}

/// Who was denied what is guaranteed to it has precedence until so many frames have gone home, unless it asks again.
const PRECEDENCE_RELEASES: u64 = 32;

impl State {
    fn free_bytes(&self) -> usize {
        self.taken.free_units() * UNIT_BYTES
    }

    fn allowed_bytes(&self, terms: &Terms) -> usize {
        match *terms {
            Terms::Whole => self.free_bytes(),
            Terms::Share(holder) if self.must_wait(holder) => 0,
            Terms::Share(holder) => self.shares[holder].allowed_bytes(self.free_bytes()),
            Terms::Nothing => 0,
        }
    }

    /// Whether a holder that has something gets no more before another has got what is guaranteed to it.
    fn must_wait(&self, holder: usize) -> bool {
        let is_other = |(denied, at): (usize, u64)| denied != holder && self.releases - at < PRECEDENCE_RELEASES;
        self.denied.is_some_and(is_other) && self.shares[holder].held_bytes() > 0
    }

    /// A holder did not get so many bytes.
    fn refuse(&mut self, holder: usize, bytes: usize) {
        self.shares[holder].refused(bytes);
        if self.shares[holder].is_denied() && !self.must_wait(holder) {
            self.denied = Some((holder, self.releases));
        }
    }

    /// Takes so many units for a holder.
    fn take(&mut self, units: usize, terms: &Terms) -> Option<usize> {
        let bytes = units * UNIT_BYTES;
        match *terms {
            Terms::Whole => self.taken.take(units),
            Terms::Share(holder) => {
                let is_allowed = !self.must_wait(holder) && self.shares[holder].allows(bytes, self.free_bytes());
                let start = if is_allowed { self.taken.take(units) } else { None };
                if start.is_some() {
                    self.shares[holder].took(bytes);
                    self.denied.take_if(|(denied, _)| *denied == holder);
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
        if let (false, Terms::Share(holder)) = (has_both, terms) {
            self.refuse(*holder, bytes);
        }
        has_both
    }

    fn give_back(&mut self, start: usize, units: usize, terms: &Terms) {
        self.taken.give_back(start, units);
        self.releases += 1;
        if let Terms::Share(holder) = *terms {
            self.shares[holder].gave_back(units * UNIT_BYTES);
        }
    }
}

// SAFETY: `base` points to a mapping that only its frames access, and each byte belongs to at most one frame (the
// bitmap, behind its lock, sees to that); the mapping itself is never read or written.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access reaches only the bitmap, which is locked.
unsafe impl Sync for Mapping {}

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
        // SAFETY: a fresh private anonymous mapping; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                units * UNIT_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        let state =
            State { taken: Bitmap::new(units), shares: Vec::new(), unused: Vec::new(), releases: 0, denied: None };
        let mapping = Mapping { base, units, state: Mutex::new(state), on_release: OnceLock::new() };
        Ok(Region(Arc::new(Handle { mapping: Arc::new(mapping), terms: Terms::Whole })))
    }

    /// A handle for one of several holders. It has no more than three times what it leaves free of the region, or than
    /// `guaranteed_bytes` if those are more and are there. When they are not, others that have something get no more before it
    /// has got that: many that ask for little do not keep one that asks for much from ever getting it.
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
        let pointer = unsafe { self.0.mapping.base.add(start * UNIT_BYTES) };
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

    /// Whether memory is short for this holder: what it asked for last was within what is guaranteed to it, and was not there.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        let Terms::Share(holder) = self.0.terms else { return false };
        self.lock().shares[holder].is_denied()
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
        self.0.mapping.base.as_ptr()
    }

    /// Calls `hook` after every frame that goes home, on the thread that dropped it: for who waits for room.
    ///
    /// A region has one hook; `false` means that it has one already. The hook must not own a handle to the region.
    pub fn on_release(&self, hook: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.mapping.on_release.set(Box::new(hook)).is_ok()
    }

    /// Takes the units of a frame back.
    pub(crate) fn take_back(&self, pointer: NonNull<u8>, capacity_bytes: usize) {
        let offset = pointer.as_ptr() as usize - self.0.mapping.base.as_ptr() as usize;
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

    /// Whether both handles stand for one holder.
    #[must_use]
    pub fn is_same_share(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
            state.denied.take_if(|(denied, _)| *denied == holder);
            state.unused.push(holder);
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} of {} bytes free)", self.free_bytes(), self.length_bytes())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Region::new` with this length; every frame holds a handle, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.units * UNIT_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_home_when_dropped() {
        let region = Region::new(4 * UNIT_BYTES).unwrap();
        let big = region.frame(3 * UNIT_BYTES).unwrap();
        assert!(region.frame(2 * UNIT_BYTES).is_none(), "back-pressure, not growth");
        let small = region.frame(1).unwrap();
        assert_eq!((small.len(), small.capacity()), (1, UNIT_BYTES));
        assert_eq!(region.free_bytes(), 0);
        drop((big, small));
        assert_eq!(region.free_bytes(), region.length_bytes());
    }

    #[test]
    fn a_frame_outlives_its_region_handle() {
        let mut frame = Region::new(UNIT_BYTES).unwrap().frame(16).unwrap();
        frame.copy_from_slice(&[7; 16]);
        assert_eq!(*frame, [7; 16]);
    }

    #[test]
    fn free_bytes_in_holes_are_no_run() {
        let region = Region::new(4 * UNIT_BYTES).unwrap();
        let mut frames: Vec<_> = (0..4).map(|_| region.frame(1)).collect();
        (frames[0], frames[2]) = (None, None);
        assert_eq!(region.free_bytes(), 2 * UNIT_BYTES);
        assert!(region.has_frames(UNIT_BYTES, UNIT_BYTES) && region.has_frames(0, 0));
        assert!(!region.has_frames(UNIT_BYTES + 1, 0) && !region.has_frames(0, UNIT_BYTES + 1));
        frames[1] = None;
        assert!(region.has_frames(3 * UNIT_BYTES, 0) && !region.has_frames(4 * UNIT_BYTES, 0));
        assert!(region.has_frames(UNIT_BYTES, 2 * UNIT_BYTES) && !region.has_frames(2 * UNIT_BYTES, 2 * UNIT_BYTES));
        assert_eq!(region.free_bytes(), 3 * UNIT_BYTES, "nothing was taken");
    }

    #[test]
    fn what_a_holder_takes_is_counted_wherever_it_goes() {
        let region = Region::new(16 * UNIT_BYTES).unwrap();
        let (one, other) = (region.share(0), region.share(0));
        let slices: Vec<_> = (0..4).map(|_| one.clone().frame(3 * UNIT_BYTES).unwrap().freeze()).collect();
        assert_eq!((one.held_bytes(), other.held_bytes(), region.held_bytes()), (12 * UNIT_BYTES, 0, 0));
        assert!(one.frame(1).is_none() && one.free_bytes() == 0, "it leaves a quarter");
        assert_eq!((other.free_bytes(), region.free_bytes()), (3 * UNIT_BYTES, 4 * UNIT_BYTES));
        assert!(other.has_frames(2 * UNIT_BYTES, 1) && !other.has_frames(2 * UNIT_BYTES, UNIT_BYTES + 1));
        let kept = slices[0].slice(5..6);
        let releases = region.releases();
        drop((slices, one));
        assert_eq!((other.free_bytes(), region.releases()), (39 * UNIT_BYTES / 4, releases + 3), "all but one frame");
        drop(kept);
        assert_eq!(region.free_bytes(), region.length_bytes());
        let next = region.share(0);
        assert_eq!(next.held_bytes(), 0, "who has the number of one that is gone begins with nothing");
    }

    #[test]
    fn what_is_guaranteed_is_denied_only_when_it_is_not_there() {
        let region = Region::new(4 * UNIT_BYTES).unwrap();
        let (one, other) = (region.share(4 * UNIT_BYTES), region.share(2 * UNIT_BYTES));
        let all = one.frame(4 * UNIT_BYTES).unwrap();
        assert!(one.frame(1).is_none() && !one.is_denied());
        assert!(other.frame(3 * UNIT_BYTES).is_none() && !other.is_denied());
        assert!(other.frame(1).is_none() && other.is_denied());
        drop(all);
        assert!(other.frame(1).is_some() && !other.is_denied());
        assert!(region.nothing().frame(1).is_none() && !region.nothing().has_frames(1, 0));
        assert!(region.is_same(&other.nothing()));
    }

    #[test]
    fn many_that_ask_for_little_do_not_keep_one_from_much() {
        let region = Region::new(16 * UNIT_BYTES).unwrap();
        let (much, little) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
        let first = little.frame(1).unwrap();
        let second = little.frame(1).unwrap();
        assert!(much.frame(16 * UNIT_BYTES).is_none() && much.is_denied());
        assert!(little.frame(1).is_none() && little.free_bytes() == 0, "it has some");
        drop((first, second));
        let again = little.frame(1);
        assert!(again.is_some() && little.frame(1).is_none(), "who has nothing is served");
        drop(again);
        let all = much.frame(16 * UNIT_BYTES).unwrap();
        drop(all);
        assert!((0..2).map(|_| little.frame(1)).all(|frame| frame.is_some()), "nobody is denied anything");
    }

    #[test]
    fn who_was_denied_and_asks_no_more_keeps_nobody_waiting() {
        let region = Region::new(16 * UNIT_BYTES).unwrap();
        let (gone, other) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
        let held = other.frame(1);
        assert!(!gone.has_frames(16 * UNIT_BYTES, 0));
        assert!(other.frame(1).is_none());
        (0..PRECEDENCE_RELEASES).for_each(|_| drop(region.frame(1)));
        assert!(other.frame(1).is_some());
        assert!(!gone.has_frames(16 * UNIT_BYTES, 0) && other.frame(1).is_none());
        drop(gone);
        assert!(other.frame(1).is_some() && held.is_some());
    }

    #[test]
    fn a_region_of_nothing_is_refused() {
        assert_eq!(Region::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
