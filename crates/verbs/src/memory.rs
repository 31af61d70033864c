//! Memory that an adapter reaches.

use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;
use sanwire_buffer::{Frame, Region};

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::{
    self, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, ACCESS_WINDOWS, MemoryRegion, ScatterGather,
};

/// Data of up to so many bytes is copied, to or from memory that is registered already: registering its own would take longer.
pub const COPIED_MAX_BYTES: usize = 32 << 10;

/// What is done with memory by an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    /// It writes there for this end.
    pub(crate) local_write: bool,
    /// The other end reads there.
    pub(crate) remote_read: bool,
    /// The other end writes there, which needs the right to write for this end, too.
    pub(crate) remote_write: bool,
    /// Windows open it to the other end; those that are written to need the right to write for this end, too.
    pub(crate) windows: bool,
}

impl Access {
    fn flags(self) -> c_int {
        let local = if self.local_write || self.remote_write { ACCESS_LOCAL_WRITE } else { 0 };
        let read = if self.remote_read { ACCESS_REMOTE_READ } else { 0 };
        let write = if self.remote_write { ACCESS_REMOTE_WRITE } else { 0 };
        local | read | write | if self.windows { ACCESS_WINDOWS } else { 0 }
    }
}

/// A run of bytes that an adapter reaches as long as this exists.
pub(crate) struct Registered {
    pointer: *mut MemoryRegion,
    _domain: Arc<Domain>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Registered {}
// SAFETY: what is shared is only read.
unsafe impl Sync for Registered {}

impl Registered {
    /// # Safety
    /// The bytes stay where they are as long as this exists. Meanwhile the adapter is told to write there, or the other end given the
    /// key for that, only while nobody else looks there.
    ///
    /// # Errors
    /// The adapter's, or the kernel's when no more memory may be locked.
    pub(crate) unsafe fn new(
        domain: &Arc<Domain>,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self, Error> {
        let api = ffi::load()?;
        // SAFETY: the domain lives as long as what belongs to it; the caller promises that the bytes do.
        let pointer = unsafe { (api.ibv_reg_mr)(domain.pointer, address.cast(), length, access.flags()) };
        if pointer.is_null() {
            return Err(Error::last("memory cannot be registered with an RDMA adapter"));
        }
        Ok(Registered { pointer, _domain: Arc::clone(domain) })
    }

    /// By which this end reaches it.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: it lives until this is dropped.
        unsafe { (*self.pointer).local_key }
    }

    /// By which the other end does.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.pointer).remote_key }
    }

    /// What windows are bound to.
    pub(crate) fn pointer(&self) -> *mut MemoryRegion {
        self.pointer
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.pointer).address.addr() as u64 }
    }

    /// All of it, as what is to be done names it.
    pub(crate) fn whole(&self) -> ScatterGather {
        // SAFETY: as above.
        let length = unsafe { (*self.pointer).length };
        ScatterGather { address: self.address(), length: length as u32, local_key: self.local_key() }
    }
}

impl Registered {
    /// Ends it: no adapter reaches the memory any more.
    ///
    /// # Errors
    /// The adapter's: it may still reach it, as long as the connection's queue pair is there.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.deregister()
    }

    fn deregister(&mut self) -> Result<(), Error> {
        let pointer = mem::replace(&mut self.pointer, ptr::null_mut());
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: it was registered, and this was the only handle to it.
        match unsafe { (ffi::load()?.ibv_dereg_mr)(pointer) } {
            0 => Ok(()),
            failed => Err(Error::number("memory stays registered with an RDMA adapter", failed)),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Whoever has memory that is written to meanwhile ends it. All else goes behind its queue pair, or was only read from for this end.
        let _ = self.deregister();
    }
}

/// Bytes that were kept out of use.
static KEPT_OUT_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes of this process that are out of use, because an adapter has not let go of them.
#[must_use]
pub fn kept_out_bytes() -> u64 {
    KEPT_OUT_BYTES.load(Ordering::Relaxed)
}

/// Takes memory out of use for good, which an adapter may still reach for its other end, for the reason that is told once.
pub(crate) fn keep_out<T>(memory: T, length_bytes: usize, reason: &Error) {
    mem::forget(memory);
    if KEPT_OUT_BYTES.fetch_add(length_bytes as u64, Ordering::Relaxed) == 0 {
        tracing::error!(
            "{reason}: so that the other end reaches nothing else there, {length_bytes} bytes are not used again, nor is what follows of \
             such (sanwire_rdma_kept_out_bytes_total in the metrics); end this program when there is time for it"
        );
    }
}

/// The same with a frame, of which a copy is given.
pub(crate) fn keep_frame_out(frame: Frame, reason: &Error) -> Frame {
    let copy = Frame::from(frame.to_vec());
    let length_bytes = frame.len();
    keep_out(frame, length_bytes, reason);
    copy
}

/// Memory that is registered once and given out in frames.
pub(crate) struct Pool {
    // What is registered goes before its memory.
    registered: Registered,
    region: Region,
}

impl Pool {
    /// # Errors
    /// When there is no such memory, or it cannot be registered.
    pub(crate) fn new(domain: &Arc<Domain>, length_bytes: usize, access: Access) -> Result<Self, Error> {
        let region = Region::new(length_bytes)
            .map_err(|source| Error::Adapter { what: "no memory for an RDMA connection", source })?;
        // SAFETY: the region stays as long as it is registered. Its frames are looked at by whoever has them, who hands them to the
        // adapter.
        let registered = unsafe { Registered::new(domain, region.base(), region.length_bytes(), access)? };
        Ok(Pool { registered, region })
    }

    /// A frame, if there is room for one.
    pub(crate) fn frame(&self, length_bytes: usize) -> Option<Frame> {
        self.region.frame(length_bytes)
    }

    /// One of its frames, as what is to be done names it.
    pub(crate) fn piece(&self, frame: &Frame) -> ScatterGather {
        ScatterGather {
            address: frame.as_ptr().addr() as u64,
            length: frame.len() as u32,
            local_key: self.registered.local_key(),
        }
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> *mut u8 {
        self.region.base()
    }

    pub(crate) fn local_key(&self) -> u32 {
        self.registered.local_key()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_which_an_adapter_does_not_let_go_is_not_used_again() {
        let region = Region::new(64 << 10).unwrap();
        let free_bytes = region.free_bytes();
        let mut frame = region.frame(8192).unwrap();
        frame.fill(7);
        let before = kept_out_bytes();
        let given = keep_frame_out(frame, &Error::number("memory stays registered", libc::EBUSY));
        assert!(given.len() == 8192 && given.iter().all(|byte| *byte == 7) && given.region().is_none());
        drop(given);
        assert!(region.free_bytes() <= free_bytes - 8192);
        assert!(kept_out_bytes() >= before + 8192);
    }
}
