//! Windows of an adapter (memory windows of type 2): each opens a part of memory that is registered, to one queue pair, for as long as it
//! is bound.

use std::mem;
use std::ptr;
use std::sync::Arc;

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::{self, WINDOW_TYPE_2};

/// A window of an adapter.
pub(crate) struct MemoryWindow {
    pointer: *mut ffi::MemoryWindow,
    domain: Arc<Domain>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for MemoryWindow {}
// SAFETY: what is shared is only read.
unsafe impl Sync for MemoryWindow {}

impl MemoryWindow {
    /// One that opens nothing yet.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) fn new(domain: &Arc<Domain>) -> Result<Self, Error> {
        // SAFETY: the context lives as long as the domain.
        let allocate = unsafe { (*domain.context).operations.alloc_mw };
        let none = || Error::number("an RDMA adapter has no memory windows", libc::EOPNOTSUPP);
        // SAFETY: the domain lives, and is of this adapter.
        let pointer = unsafe { allocate.ok_or_else(none)?(domain.pointer, WINDOW_TYPE_2) };
        if pointer.is_null() {
            return Err(Error::last("an RDMA adapter has no memory window left"));
        }
        Ok(MemoryWindow { pointer, domain: Arc::clone(domain) })
    }

    pub(crate) fn pointer(&self) -> *mut ffi::MemoryWindow {
        self.pointer
    }

    /// The key that it gets when it is bound next: a window has as many as there are numbers of eight bits, one after the other, so that
    /// one that is known from before opens nothing.
    pub(crate) fn next_key(&self) -> u32 {
        // SAFETY: it lives until this is dropped.
        next(unsafe { (*self.pointer).remote_key })
    }

    /// The adapter was told to bind it, with that key.
    pub(crate) fn note_bound(&mut self) {
        let key = self.next_key();
        // SAFETY: as above; nobody else looks there.
        unsafe { (*self.pointer).remote_key = key };
    }

    /// Gives it back to the adapter: whatever it was bound to, nothing is reached by it any more.
    ///
    /// # Errors
    /// The adapter's: by its key memory may still be reached, as long as the connection's queue pair is there.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), Error> {
        let pointer = mem::replace(&mut self.pointer, ptr::null_mut());
        // SAFETY: the context lives as long as the domain.
        let free = unsafe { (*self.domain.context).operations.dealloc_mw };
        let Some(free) = free.filter(|_| !pointer.is_null()) else { return Ok(()) };
        // SAFETY: this was the only handle to the window.
        match unsafe { free(pointer) } {
            0 => Ok(()),
            failed => Err(Error::number("a memory window stays open with an RDMA adapter", failed)),
        }
    }
}

fn next(key: u32) -> u32 {
    key & !0xff | u32::from((key as u8).wrapping_add(1))
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // Whoever has opened memory by it ends it. All others go behind the queue pair, or open nothing.
        let _ = self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_another_key_each_time_and_stays_the_same_window() {
        assert_eq!([next(0x1234_5600), next(0x1234_56ff)], [0x1234_5601, 0x1234_5600]);
    }
}
