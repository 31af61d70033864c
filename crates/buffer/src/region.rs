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
        assert_eq!((region.usage().most, region.usage().refused), (Some(MEMORY_OF_CLIENT.limit), 1));
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
    fn who_was_denied_much_has_precedence_until_it_has_got_that() {
        let region = Region::new(16 * UNIT_BYTES).unwrap();
        let (much, little) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
        let held: Vec<_> = (0..4).map(|_| little.frame(1).unwrap()).collect();
        assert!(much.frame(14 * UNIT_BYTES).is_none() && much.is_denied());
        let some = much.frame(1).unwrap();
        assert!(much.is_denied() && little.frame(1).is_none(), "little of it is not what it was denied");
        drop((some, held));
        assert!(much.frame(14 * UNIT_BYTES).is_some() && !much.is_denied());
    }

    #[test]
    fn nobody_waits_for_what_its_holder_has_itself() {
        let region = Region::new(16 * UNIT_BYTES).unwrap();
        let (much, other) = (region.share(64 * UNIT_BYTES), region.share(0));
        let held = [much.frame(8 * UNIT_BYTES), other.frame(1)];
        assert!(much.frame(9 * UNIT_BYTES).is_none() && much.is_denied());
        assert!(other.frame(1).is_some());
        much.forgo();
        assert!(much.frame(8 * UNIT_BYTES).is_none() && other.frame(1).is_none());
        drop(held);
    }

    #[test]
    fn what_is_not_wanted_any_more_gives_no_precedence() {
        let region = Region::new(16 * UNIT_BYTES).unwrap();
        let (gone, other) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
        let held = other.frame(1).unwrap();
        assert!(gone.frame(16 * UNIT_BYTES).is_none() && gone.is_denied() && other.frame(1).is_none());
        gone.forgo();
        assert!(!gone.is_denied() && other.frame(1).is_some());
        drop(held);
    }

    #[test]
    fn precedence_keeps_others_from_no_more_than_was_denied() {
        let region = Region::new(16 * UNIT_BYTES).unwrap();
        let (first, other) = (region.share(8 * UNIT_BYTES), region.share(0));
        let mut held: Vec<_> = (0..12).map(|_| other.frame(1).unwrap()).collect();
        assert!(first.frame(8 * UNIT_BYTES).is_none());
        held.truncate(1);
        assert_eq!(other.free_bytes(), 7 * UNIT_BYTES);
        let more: Vec<_> = std::iter::from_fn(|| other.frame(1)).collect();
        assert_eq!(more.len(), 7);
        assert!(first.frame(8 * UNIT_BYTES).is_some());
    }

    #[test]
    fn a_region_of_nothing_is_refused() {
        assert_eq!(Region::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
