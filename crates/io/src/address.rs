//! Socket addresses as the kernel writes them.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_int, sockaddr_in, sockaddr_in6, sockaddr_storage, sockaddr_un, socklen_t};

use crate::sys;

/// An address of no family.
pub(crate) fn empty() -> sockaddr_storage {
    // SAFETY: integers, valid with zeroes.
    unsafe { std::mem::zeroed() }
}

/// The kernel's form, and how many bytes of it count.
pub(crate) fn to_raw(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    let mut storage = empty();
    let length = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: sockaddr_storage is made to hold and align any socket address.
            let raw: &mut sockaddr_in = unsafe { &mut *(&raw mut storage).cast() };
            raw.sin_family = libc::AF_INET as u16;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = v4.ip().to_bits().to_be();
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let raw: &mut sockaddr_in6 = unsafe { &mut *(&raw mut storage).cast() };
            raw.sin6_family = libc::AF_INET6 as u16;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_flowinfo = v6.flowinfo();
            raw.sin6_scope_id = v6.scope_id();
            size_of::<sockaddr_in6>()
        }
    };
    (storage, length as socklen_t)
}

/// The kernel's form of a unix socket's path, and how many bytes of it count.
pub(crate) fn local_to_raw(path: &Path) -> io::Result<(sockaddr_un, socklen_t)> {
    // SAFETY: integers, valid with zeroes.
    let mut raw: sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as u16;
    let bytes = path.as_os_str().as_bytes();
    // A zero has to stand behind it.
    if bytes.is_empty() || bytes.len() >= raw.sun_path.len() || bytes.contains(&0) {
        let most = raw.sun_path.len() - 1;
        let reason = format!("the path of a unix socket has 1 to {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    for (place, byte) in raw.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    Ok((raw, size_of::<sockaddr_un>() as socklen_t))
}

/// Reads the kernel's form; `None` for what is no IP address.
pub(crate) fn from_raw(storage: &sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage holds and aligns any socket address, and every bit pattern is a valid one.
            let raw: &sockaddr_in = unsafe { &*std::ptr::from_ref(storage).cast() };
            let ip = Ipv4Addr::from_bits(u32::from_be(raw.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw: &sockaddr_in6 = unsafe { &*std::ptr::from_ref(storage).cast() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            // No flow label: a peer must not become another one by changing it.
            Some(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Where a socket is bound.
pub(crate) fn local(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut storage = empty();
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `storage`.
    sys::check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut storage).cast(), &raw mut length) })?;
    from_raw(&storage).ok_or_else(|| io::Error::other("the socket's address is of an unknown family"))
}

/// Where a socket is connected to; `NotConnected` while it is not.
pub(crate) fn remote(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut storage = empty();
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `storage`.
    sys::check(unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut storage).cast(), &raw mut length) })?;
    from_raw(&storage).ok_or_else(|| io::Error::other("the peer's address is of an unknown family"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["192.0.2.7:5674", "0.0.0.0:0", "[2001:db8::1]:65535", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_raw(&to_raw(address).0), Some(address));
        }
        assert_eq!(from_raw(&empty()), None);
    }
}
