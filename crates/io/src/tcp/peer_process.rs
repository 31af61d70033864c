//! Whether the process at the other end of a unix socket still lives.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys;

/// `SO_PEERPIDFD` of asm-generic/socket.h.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that listened at the other end when the connection was made. What it has begun ends with it.
#[derive(Debug)]
pub struct PeerProcess(OwnedFd);

impl PeerProcess {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Option<PeerProcess> {
        let fd = sys::get_option_int(socket, libc::SOL_SOCKET, SO_PEERPIDFD).ok()?;
        // SAFETY: the kernel has just opened it for the caller, and nobody else knows of it.
        let process = PeerProcess(unsafe { OwnedFd::from_raw_fd(fd) });
        // One that has only handed its socket on says nothing about who has it.
        (!process.has_ended()).then_some(process)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut entry = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which lives during the call.
        unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
    }
}
