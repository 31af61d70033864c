//! Memory from the operating system, page-aligned and zero, given back when it is dropped.

use std::io;
use std::ptr::NonNull;

/// One piece of memory that belongs to whoever holds this, and that nobody else knows.
pub(crate) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
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
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping at an address that the kernel chooses; no existing memory is touched.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE | MapFlags::NORESERVE) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        Ok(Pages { base, bytes })
    }
}

#[cfg(all(unix, not(miri)))]
impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing of it is in use: this value owned it. The kernel
        // refuses only what is no mapping.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// From the allocator, where there is no such kernel: in Miri, which knows no mappings, and on WebAssembly.
#[cfg(not(all(unix, not(miri))))]
impl Pages {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let layout = Pages::layout(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout is of `bytes`, which are not zero (the caller's promise, and checked by `layout`).
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pages { base, bytes })
    }

    fn layout(bytes: usize) -> Option<std::alloc::Layout> {
        std::alloc::Layout::from_size_align(bytes, crate::UNIT_BYTES).ok().filter(|layout| layout.size() > 0)
    }
}

#[cfg(not(all(unix, not(miri))))]
impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(layout) = Pages::layout(self.bytes) {
            // SAFETY: `new` allocated it with this very layout, and nothing of it is in use: this value owned it.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}
