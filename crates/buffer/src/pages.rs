//! Memory from the operating system, page-aligned and zero, given back when it is dropped.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// One piece of memory that belongs to whoever holds this, and that nobody else knows.
pub(crate) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
    #[cfg(not(all(unix, not(miri))))]
    alignment: usize,
}

// SAFETY: `base` is memory that this value owns alone and never reads or writes itself; who gives it out sees to it that no
// byte belongs to two.
unsafe impl Send for Pages {}
// SAFETY: as above; a shared reference tells only where the memory is.
unsafe impl Sync for Pages {}

impl Pages {
    /// Where it begins; a multiple of [`crate::UNIT_BYTES`].
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

/// From the kernel: pages that are touched on first use, so that those that never are cost address space only.
#[cfg(all(unix, not(miri)))]
impl Pages {
    /// Maps `bytes`, a multiple of the page's size and not zero.
    ///
    /// # Errors
    /// The kernel's, when it refuses the mapping.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        Pages::map(std::ptr::null_mut(), bytes)
    }

    /// Maps `bytes`, a power of two of at least a page, at a multiple of that. Directly below `above` if there is room, which
    /// is another such mapping: for the kernel, which has a limit for their number, both are one.
    ///
    /// # Errors
    /// The kernel's, when it refuses the mapping.
    pub(crate) fn aligned(bytes: usize, above: Option<usize>) -> io::Result<Self> {
        if let Some(wanted) = above.and_then(|above| above.checked_sub(bytes)) {
            let pages = Pages::map(std::ptr::without_provenance_mut(wanted), bytes)?;
            if pages.base.addr().get().is_multiple_of(bytes) {
                return Ok(pages);
            }
        }
        let mut left = Pages::map(std::ptr::null_mut(), 2 * bytes)?;
        let start = left.base.addr().get();
        let skipped = start.next_multiple_of(bytes) - start;
        let mut aligned = left.split(skipped);
        let rest = aligned.split(bytes);
        drop(left);
        drop(rest);
        Ok(aligned)
    }

    fn map(wanted: *mut core::ffi::c_void, bytes: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping where the kernel finds room, which is not the wanted place if there is none: no existing
        // memory is touched.
        let base = unsafe { mmap_anonymous(wanted, bytes, access, MapFlags::PRIVATE | MapFlags::NORESERVE) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        Ok(Pages { base, bytes })
    }

    /// Keeps the first `bytes`, which are no more than there are, and gives the others.
    fn split(&mut self, bytes: usize) -> Pages {
        let rest_bytes = self.bytes - bytes;
        self.bytes = bytes;
        // SAFETY: within the mapping, or at its end.
        Pages { base: unsafe { self.base.add(bytes) }, bytes: rest_bytes }
    }

    /// Has large pages from now on, as far as the kernel has such and is to give any.
    #[cfg(target_os = "linux")]
    pub(crate) fn prefer_large(&self) {
        use rustix::mm::{Advice, madvise};
        // SAFETY: advice on how to back a mapping that this value owns; what it contains does not change.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxHugepage) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn prefer_large(&self) {}

    /// Gives the memory of whole pages back, which are zero from now on. Nobody uses them.
    pub(crate) fn discard(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} is not within {} bytes", self.bytes);
        // SAFETY: within the mapping.
        let start = unsafe { self.base.add(range.start) };
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            // SAFETY: pages of a private anonymous mapping that this value owns and that nobody uses (the caller's promise): they
            // read as zeroes afterwards (madvise(2), MADV_DONTNEED).
            if unsafe { madvise(start.as_ptr().cast(), range.len(), Advice::LinuxDontNeed) }.is_ok() {
                return;
            }
        }
        // SAFETY: as above; the memory is writable.
        unsafe { start.as_ptr().write_bytes(0, range.len()) };
    }
}

#[cfg(all(unix, not(miri)))]
impl Drop for Pages {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: the mapping was made with this length, or is this part of one, and nothing of it is in use: this value owned it.
        // The kernel refuses only what is no mapping.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// From the allocator, where there is no such kernel: in Miri, which knows no mappings, and on WebAssembly.
#[cfg(not(all(unix, not(miri))))]
impl Pages {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        Pages::allocate(bytes, crate::UNIT_BYTES)
    }

    pub(crate) fn aligned(bytes: usize, _above: Option<usize>) -> io::Result<Self> {
        Pages::allocate(bytes, bytes)
    }

    pub(crate) fn prefer_large(&self) {}

    pub(crate) fn discard(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} is not within {} bytes", self.bytes);
        // SAFETY: within the memory, which this value owns and nobody uses (the caller's promise).
        unsafe { self.base.as_ptr().add(range.start).write_bytes(0, range.len()) };
    }

    fn allocate(bytes: usize, alignment: usize) -> io::Result<Self> {
        let layout = Pages::layout(bytes, alignment).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout is of `bytes`, which are not zero (the caller's promise, and checked by `layout`).
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pages { base, bytes, alignment })
    }

    fn layout(bytes: usize, alignment: usize) -> Option<std::alloc::Layout> {
        std::alloc::Layout::from_size_align(bytes, alignment).ok().filter(|layout| layout.size() > 0)
    }
}

#[cfg(not(all(unix, not(miri))))]
impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(layout) = Pages::layout(self.bytes, self.alignment) {
            // SAFETY: `allocate` made it with this very layout, and nothing of it is in use: this value owned it.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}
