//! How a connection is set up, whatever the system's defaults are.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};

use crate::sys;

/// Socket buffers, where our privileges allow them; the kernel's own adaption of less is better than a lower fixed size.
const BUFFER_BYTES: c_int = 2 << 20;

/// The usual one: it needs no pacing timers, which cost more than they give on a short path.
const CONGESTION_CONTROL: &[u8] = b"cubic";

/// A silent peer is asked after so many seconds whether it is there, then so often, so many times.
const KEEPALIVE_IDLE_S: c_int = 30;
const KEEPALIVE_INTERVAL_S: c_int = 10;
const KEEPALIVE_PROBES: c_int = 3;

/// Data that is not acknowledged for so long ends the connection.
const UNACKNOWLEDGED_MAX_MS: c_int = 60_000;

/// Sets the options of a new socket. Connections that a listener accepts have those of the listener (tcp(7)).
pub(super) fn tune(socket: BorrowedFd<'_>) -> io::Result<()> {
    for (level, name, value) in [
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_PROBES),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, UNACKNOWLEDGED_MAX_MS),
    ] {
        sys::set_option(socket, level, name, &value)?;
    }
    // What follows only makes it faster: a kernel without the algorithm, or without the privilege, has its own way.
    for name in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        let _ = sys::set_option(socket, libc::SOL_SOCKET, name, &BUFFER_BYTES);
    }
    // SAFETY: the kernel reads as many bytes as the name has.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            CONGESTION_CONTROL.as_ptr().cast(),
            CONGESTION_CONTROL.len() as socklen_t,
        )
    };
    Ok(())
}
