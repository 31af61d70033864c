//! Which of many streams are ready, asked of the kernel in one call (epoll(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys;

/// Answers of one call.
const EVENTS_MAX: usize = 64;

/// What a stream is watched for. Errors and the other end's leaving count as readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Something to receive (or to accept).
    pub readable: bool,
    /// Room to send, or the end of connecting.
    pub writable: bool,
}

impl Interest {
    /// Something to receive.
    pub const READABLE: Interest = Interest { readable: true, writable: false };

    fn mask(self) -> u32 {
        let readable = if self.readable { libc::EPOLLIN | libc::EPOLLRDHUP } else { 0 };
        let writable = if self.writable { libc::EPOLLOUT } else { 0 };
        (readable | writable).cast_unsigned()
    }
}

/// Streams under watch, each with a key that its owner chose. Level-triggered: what stays ready is told again.
#[derive(Debug)]
pub(crate) struct Streams {
    epoll: OwnedFd,
}

impl Streams {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = sys::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` was just opened and nobody else knows of it.
        Ok(Streams { epoll: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, key, interest)
    }

    pub(crate) fn change(&self, fd: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, key, interest)
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::default())
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.mask(), u64: key };
        // SAFETY: `event` lives during the call.
        sys::check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) })
            .map(drop)
    }

    /// Tells the key and readiness of each stream that is ready, at most [`EVENTS_MAX`]; gives their number.
    pub(crate) fn poll(&self, each: &mut dyn FnMut(u64, Interest)) -> io::Result<usize> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // SAFETY: the kernel writes at most EVENTS_MAX events to the array; a timeout of zero does not wait.
        let count =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS_MAX as libc::c_int, 0) };
        let count = sys::check(count)? as usize;
        for event in &events[..count] {
            let found = event.events.cast_signed();
            let readable = found & !libc::EPOLLOUT != 0;
            // A stream that has failed must be tried, whatever it was waiting for.
            let writable = found & (libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) != 0;
            each(event.u64, Interest { readable, writable });
        }
        Ok(count)
    }
}

impl AsFd for Streams {
    /// Readable while one of the streams is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
