//! One mapping, handed out in runs of units.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::bitmap::Bitmap;
use crate::frame::Frame;

/// The grain of allocation, in bytes: one page, so that every frame may be used for direct I/O.
pub const UNIT_BYTES: usize = 4096;

/// One anonymous memory mapping, cut into page-sized units and handed out as [`Frame`]s.
///
/// Cloning gives another handle to the same mapping, which lives until the last handle and the last frame are gone.
/// Pages are touched on first use, so an idle region costs address space only.
#[derive(Clone)]
pub struct Region(Arc<Mapping>);

struct Mapping {
    base: NonNull<u8>,
    units: usize,
    taken: Mutex<Bitmap>,
    on_release: OnceLock<Box<dyn Fn() + Send + Sync>>,
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
        Ok(Region(Arc::new(Mapping {
            base,
            units,
            taken: Mutex::new(Bitmap::new(units)),
            on_release: OnceLock::new(),
        })))
    }

    /// A frame of `length_bytes`, aligned to a page, or `None` while no run of free units is long enough.
    ///
    /// What the frame contains is unspecified (an earlier owner's bytes): the taker overwrites all of it.
    #[must_use]
    pub fn frame(&self, length_bytes: usize) -> Option<Frame> {
        let units = length_bytes.div_ceil(UNIT_BYTES).max(1);
        let start = self.lock().take(units)?;
        // SAFETY: `start + units` is within the mapping, so the offset stays inside one allocation.
        let pointer = unsafe { self.0.base.add(start * UNIT_BYTES) };
        // SAFETY: the bitmap gave these units to us alone, and `from_region` keeps this handle until they go home.
        Some(unsafe { Frame::from_region(self.clone(), pointer, units * UNIT_BYTES, length_bytes) })
    }

    /// Bytes of the mapping that no frame holds. Another thread may take them at any time.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.lock().free_units() * UNIT_BYTES
    }

    /// Whether [`Region::frame`] would give a frame of each of these lengths, where they are not zero, one after the other. Another
    /// thread may take them at any time.
    #[must_use]
    pub fn has_frames(&self, first_bytes: usize, second_bytes: usize) -> bool {
        self.lock().has_runs(first_bytes.div_ceil(UNIT_BYTES), second_bytes.div_ceil(UNIT_BYTES))
    }

    /// Bytes of the whole mapping.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.0.units * UNIT_BYTES
    }

    /// Where the mapping starts, for registration with a kernel ring. Its length is [`Region::length_bytes`].
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.0.base.as_ptr()
    }

    /// Calls `hook` after every frame that goes home, on the thread that dropped it: for who waits for room.
    ///
    /// A region has one hook; `false` means that it has one already. The hook must not own a handle to the region.
    pub fn on_release(&self, hook: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.on_release.set(Box::new(hook)).is_ok()
    }

    /// Takes the units of a frame back.
    pub(crate) fn take_back(&self, pointer: NonNull<u8>, capacity_bytes: usize) {
        let offset = pointer.as_ptr() as usize - self.0.base.as_ptr() as usize;
        self.lock().give_back(offset / UNIT_BYTES, capacity_bytes / UNIT_BYTES);
        if let Some(hook) = self.0.on_release.get() {
            hook();
        }
    }

    /// Whether the two handles are of one mapping.
    #[must_use]
    pub fn is_same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn lock(&self) -> MutexGuard<'_, Bitmap> {
        // The bitmap's methods do not panic between two writes, so a poisoned lock still guards a sound map.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_region_of_nothing_is_refused() {
        assert_eq!(Region::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
