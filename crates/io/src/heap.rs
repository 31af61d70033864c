//! The heap of this process.

/// Gives memory back that was allocated and freed, as after a start: the allocator keeps it otherwise, and it stays resident.
///
/// Does nothing where the C library has no such call.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` has no conditions; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
