//! Where connections come in.

use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::socklen_t;

use super::{Stream, open};
use crate::{address, sys};

/// Connections that the kernel keeps until they are accepted (it may allow less: `net.core.somaxconn`).
const BACKLOG: libc::c_int = 1024;

/// A TCP port that takes connections. Readable when one has arrived.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Listens; port 0 lets the kernel choose one. An IPv6 listener takes IPv6 only.
    ///
    /// # Errors
    /// The kernel's: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn open(bind: SocketAddr) -> io::Result<Listener> {
        let socket = open(bind)?;
        // What an earlier server's connections still hold does not matter.
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &1)?;
        if bind.is_ipv6() {
            sys::set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)?;
        }
        let (raw, length) = address::to_raw(bind);
        // SAFETY: `raw` lives and is at least `length` bytes long.
        sys::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length) })?;
        // SAFETY: no memory is involved.
        sys::check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
        Ok(Listener { socket })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        address::local(self.socket.as_fd())
    }

    /// The next connection and where it comes from; `None` when no more are there.
    ///
    /// # Errors
    /// The kernel's, which is mostly short of something (descriptors, memory): wait a little before the next call.
    pub fn accept(&self) -> io::Result<Option<(Stream, SocketAddr)>> {
        loop {
            let (mut raw, mut length) = (address::empty(), size_of::<libc::sockaddr_storage>() as socklen_t);
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: the kernel writes at most `length` bytes, the size of `raw`.
            let fd = unsafe { libc::accept4(self.socket.as_raw_fd(), (&raw mut raw).cast(), &raw mut length, flags) };
            match sys::check(fd) {
                Ok(fd) => {
                    // SAFETY: `fd` was just opened and nobody else knows of it.
                    let stream = Stream::new(unsafe { OwnedFd::from_raw_fd(fd) });
                    let peer = address::from_raw(&raw).ok_or_else(|| io::Error::other("a peer of an unknown family"));
                    return peer.map(|peer| Some((stream, peer)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_over(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the error is that of a connection that ended before it was accepted (accept(2), "Error handling").
fn is_over(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNABORTED
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
        )
    )
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
