//! Calls of AF_XDP sockets, with what their refusals mean.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use libc::{sockaddr_xdp, socklen_t, xdp_mmap_offsets};
use sanwire_buffer::{Region, UNIT_BYTES};

use super::memory::Layout;
use crate::sys;

/// A queue whose socket was just closed, or an interface whose program's process has died, is busy for some milliseconds.
const BUSY_WAIT: Duration = Duration::from_millis(10);
const BUSY_TRIES: u32 = 20;

/// Makes a region the memory of a socket.
pub(super) fn register(socket: BorrowedFd<'_>, region: &Region, layout: Layout) -> io::Result<()> {
    let length_bytes = region.length_bytes();
    let memory = libc::xdp_umem_reg {
        addr: region.base().addr() as u64,
        len: length_bytes as u64,
        chunk_size: UNIT_BYTES as u32,
        headroom: layout.headroom_bytes as u32,
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => {
            let mib = length_bytes >> 20;
            io::Error::other(format!(
                "{mib} MiB may not be locked in memory: raise RLIMIT_MEMLOCK (LimitMEMLOCK= of a unit)"
            ))
        }
        _ => explain("memory", error),
    })
}

pub(super) fn offsets(socket: BorrowedFd<'_>) -> io::Result<xdp_mmap_offsets> {
    // SAFETY: plain numbers, valid with any bits.
    let mut offsets: xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { sys::get_option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets) }?;
    Ok(offsets)
}

pub(super) fn bind(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    (flags, owner): (u16, Option<BorrowedFd<'_>>),
) -> io::Result<()> {
    let address = sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: owner.map_or(0, |owner| owner.as_raw_fd().cast_unsigned()),
    };
    let length = size_of::<sockaddr_xdp>() as socklen_t;
    while_busy(|| {
        // SAFETY: `address` lives and has that length.
        sys::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
    })
}

/// Tries again for a while: what had a queue or an interface before may be on its way out.
pub(super) fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BUSY_TRIES {
        match attempt() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => thread::sleep(BUSY_WAIT),
            result => return result,
        }
    }
    attempt()
}

pub(super) fn no_zero_copy() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "its driver has no zero-copy mode")
}

pub(super) fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "packets of its MTU are longer than a page of memory")
}

/// What the kernel's refusal means.
pub(super) fn explain(what: &str, error: io::Error) -> io::Error {
    let message = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            format!("the kernel refuses {what}: it takes the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")
        }
        Some(libc::EBUSY | libc::EEXIST) => format!("the kernel refuses {what}: another program has the interface"),
        Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP".into(),
        _ => format!("the kernel refuses {what}: {error}"),
    };
    io::Error::new(error.kind(), message)
}
