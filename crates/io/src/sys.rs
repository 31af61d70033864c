//! System calls with the results that Rust expects.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, c_void, socklen_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The result of a call that answers -1 and `errno`.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new non-blocking socket.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) })?;
    // SAFETY: `fd` was just opened and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option whose value is a plain C structure or integer.
pub(crate) fn set_option<T: Copy>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`, which lives.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), size_of::<T>() as socklen_t)
    })
    .map(drop)
}

/// Reads a socket option that is an integer.
pub(crate) fn get_option_int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    // SAFETY: every bit pattern is a c_int, and the kernel writes no more than its size.
    unsafe { get_option(fd, level, name, &mut value)? };
    Ok(value)
}

/// Reads a socket option into `value`.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
pub(crate) unsafe fn get_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut length = size_of::<T>() as socklen_t;
    let place: *mut c_void = (&raw mut *value).cast();
    // SAFETY: the kernel writes at most `length` bytes, the size of `value`.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, place, &raw mut length) }).map(drop)
}

/// Asks for socket buffers of `bytes` each way, as far as the system's limits (or our privileges) allow.
pub(crate) fn raise_buffers(fd: BorrowedFd<'_>, receive_bytes: c_int, send_bytes: c_int) {
    for (force, plain, bytes) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_bytes), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_bytes)]
    {
        if set_option(fd, libc::SOL_SOCKET, force, &bytes).is_err() {
            // The plain form takes what the sysctl allows; what was granted is read back by those who need to know.
            let _ = set_option(fd, libc::SOL_SOCKET, plain, &bytes);
        }
    }
}

/// Waits at most so long for room in the socket's send buffer; whether there is some.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut entry = [PollFd::new(&fd, PollFlags::OUT)];
    Timespec::try_from(timeout).is_ok_and(|timeout| poll(&mut entry, Some(&timeout)).is_ok_and(|ready| ready > 0))
}
