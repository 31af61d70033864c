//! Unique frames, and the shared slices that they freeze into.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::Arena;
use crate::region::Region;

#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

/// A unique, contiguous piece of memory: a run of a [`Region`], or memory of its own (from a `Vec`).
///
/// It dereferences to its bytes. It cannot be copied or cloned: whoever has it may write to it, nobody else may.
pub struct Frame {
    pointer: NonNull<u8>,
    capacity: usize,
    length: usize,
    home: Home,
}

enum Home {
    Region(Region),
    Heap,
    /// The heap, too; the bytes are part of what a store keeps.
    Store,
    /// The same, in the store's own memory.
    Arena(Arena),
}

// SAFETY: a frame owns its bytes alone, wherever it is.
unsafe impl Send for Frame {}
// SAFETY: shared access to a frame only reads.
unsafe impl Sync for Frame {}

impl Frame {
    /// # Safety
    /// `pointer..pointer + capacity` lies in `region`, is initialised, and belongs to nobody else until it is given back.
    pub(crate) unsafe fn from_region(region: Region, pointer: NonNull<u8>, capacity: usize, length: usize) -> Self {
        debug_assert!(length <= capacity);
        Frame { pointer, capacity, length, home: Home::Region(region) }
    }

    /// # Safety
    /// `pointer..pointer + capacity` is a frame of `arena`, is initialised, and belongs to nobody else until it is given back.
    pub(crate) unsafe fn from_arena(arena: Arena, pointer: NonNull<u8>, capacity: usize) -> Self {
        Frame { pointer, capacity, length: capacity, home: Home::Arena(arena) }
    }

    /// Bytes that the frame could hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shortens the frame to `length` bytes; a longer length changes nothing.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// The region that the frame is a run of, if it is one.
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        match &self.home {
            Home::Region(region) => Some(region),
            Home::Heap | Home::Store | Home::Arena(_) => None,
        }
    }

    /// The same, kept by a store, which shares it with its answers: see [`Slice::lent_bytes`].
    #[must_use]
    pub fn of_store(mut self) -> Frame {
        if let Home::Heap = self.home {
            self.home = Home::Store;
        }
        self
    }

    /// Gives up the right to write, for slices that may be shared.
    #[must_use]
    pub fn freeze(self) -> Slice {
        let end = self.length;
        Slice { frame: Arc::new(self), range: 0..end }
    }
}

impl Frame {
    /// A frame of zeroes with memory of its own, outside any region; `None` when there is no memory for it.
    #[must_use]
    pub fn zeroed(length: usize) -> Option<Frame> {
        let layout = std::alloc::Layout::array::<u8>(length).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not one of no bytes.
        let pointer = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        // It goes home as the box of bytes that it could be: memory of the global allocator with this very layout.
        Some(Frame { pointer, capacity: length, length, home: Home::Heap })
    }
}

impl From<Vec<u8>> for Frame {
    /// A frame with memory of its own, outside any region.
    fn from(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes.into_boxed_slice());
        let length = bytes.len();
        // SAFETY: a box's pointer is never null, also for no bytes.
        let pointer = unsafe { NonNull::new_unchecked(bytes.as_mut_ptr()) };
        Frame { pointer, capacity: length, length, home: Home::Heap }
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length <= capacity` bytes from `pointer` are initialised and ours while `self` lives.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        match &self.home {
            Home::Region(region) => region.take_back(self.pointer, self.capacity),
            Home::Arena(arena) => arena.take_back(self.pointer.addr().get()),
            Home::Heap | Home::Store => {
                let bytes = std::ptr::slice_from_raw_parts_mut(self.pointer.as_ptr(), self.capacity);
                // SAFETY: pointer and capacity are those of the box that `From<Vec<u8>>` took apart, or of memory of the global
                // allocator with a box's layout.
                drop(unsafe { Box::from_raw(bytes) });
            }
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.length)
    }
}

/// A shared, read-only part of a frozen [`Frame`]. Cloning it shares the frame; the last one sends it home.
#[derive(Clone)]
pub struct Slice {
    frame: Arc<Frame>,
    range: Range<usize>,
}

impl Slice {
    /// The part `range` of this slice, sharing its frame.
    ///
    /// # Panics
    /// When the range is not within the slice.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} is not within {} bytes", self.len());
        let start = self.range.start + range.start;
        Slice { frame: Arc::clone(&self.frame), range: start..start + range.len() }
    }

    /// Takes in `next` as well where that begins in the same frame at its own end; else nothing changes, and it says so by `false`.
    pub(crate) fn extend_to(&mut self, next: &Slice) -> bool {
        let follows = Arc::ptr_eq(&self.frame, &next.frame) && self.range.end == next.range.start;
        if follows {
            self.range.end = next.range.end;
        }
        follows
    }

    /// Which frame it keeps, and how long that is, in bytes.
    pub(crate) fn kept(&self) -> (*const Frame, usize) {
        (Arc::as_ptr(&self.frame), self.frame.capacity)
    }

    /// The region that its frame is a run of, if it is one.
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        self.frame.region()
    }

    /// Bytes of it that nobody accounts for elsewhere: it is neither of a region, which has its shares, nor of a store.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        if matches!(self.frame.home, Home::Heap) { self.len() } else { 0 }
    }

    /// What it keeps of a store's memory, in bytes: the whole frame, however short it is itself. If the store is written to
    /// meanwhile, that is memory which the store has not any more.
    #[must_use]
    pub fn lent_bytes(&self) -> usize {
        if matches!(self.frame.home, Home::Store | Home::Arena(_)) { self.frame.capacity } else { 0 }
    }

    /// The frame, writable again, when no other slice of it is left; else the slice as it was.
    ///
    /// # Errors
    /// Gives `self` back while the frame is shared.
    pub fn thaw(self) -> Result<Frame, Slice> {
        let range = self.range;
        Arc::try_unwrap(self.frame).map_err(|frame| Slice { frame, range })
    }
}

impl Slice {
    /// Has the processor fetch the bytes into its cache while it goes on, where there is such an instruction.
    pub fn prefetch(&self) {
        prefetch(self);
    }

    /// The bytes, to be changed, while nobody else shares the frame.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.frame).map(|frame| &mut frame[self.range.clone()])
    }
}

/// As [`Slice::prefetch`], of any bytes.
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(CACHE_LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint, which neither reads nor faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame[self.range.clone()]
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Frame::from(bytes).freeze()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_one_frame_until_the_last_is_gone() {
        let region = Region::new(8192).unwrap();
        let mut frame = region.frame(6000).unwrap();
        frame.fill(1);
        frame[100] = 9;
        let mut whole = frame.freeze();
        whole.get_mut().unwrap()[101] = 8;
        let part = whole.slice(100..200);
        assert!(whole.get_mut().is_none(), "shared");
        assert_eq!((part.len(), part[0], part.slice(1..2)[0]), (100, 9, 8));
        let whole = whole.thaw().expect_err("still shared");
        drop(whole);
        assert_eq!(region.free_bytes(), 0);
        let frame = part.thaw().expect("the last one");
        assert_eq!(frame.len(), 6000);
        drop(frame);
        assert_eq!(region.free_bytes(), region.length_bytes());
    }

    #[test]
    fn frames_of_their_own_need_no_region() {
        let mut frame = Frame::from(vec![1, 2, 3]);
        frame[1] = 5;
        frame.truncate(2);
        assert_eq!((&*frame, frame.capacity()), (&[1, 5][..], 3));
        assert!(Frame::from(Vec::new()).is_empty());
        assert_eq!(*Frame::zeroed(5000).unwrap(), [0; 5000]);
        let (own, lent) = (Frame::from(vec![1; 9]).freeze(), Frame::from(vec![1; 9]).of_store().freeze());
        assert_eq!((own.slice(2..5).heap_bytes(), own.lent_bytes()), (3, 0));
        assert_eq!((lent.heap_bytes(), lent.slice(2..5).lent_bytes()), (0, 9));
        assert!(Frame::zeroed(0).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends a program that asks for more memory than there is")]
    fn a_frame_that_memory_cannot_hold_is_none_and_not_the_end_of_the_process() {
        assert!(Frame::zeroed(1 << 62).is_none());
    }
}
