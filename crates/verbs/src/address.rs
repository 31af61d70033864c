//! Addresses, as C has them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sa_family_t, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// An address with room for those of all families.
pub(crate) fn to_c(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all zeroes is an address of no family.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(address) => {
            let place = (&raw mut storage).cast::<sockaddr_in>();
            // SAFETY: the storage is as long as any address, and aligned for it; what is not written is zero.
            let place = unsafe { &mut *place };
            place.sin_family = AF_INET as sa_family_t;
            place.sin_port = address.port().to_be();
            place.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
        }
        SocketAddr::V6(address) => {
            let place = (&raw mut storage).cast::<sockaddr_in6>();
            // SAFETY: as above.
            let place = unsafe { &mut *place };
            place.sin6_family = AF_INET6 as sa_family_t;
            place.sin6_port = address.port().to_be();
            place.sin6_addr.s6_addr = address.ip().octets();
            place.sin6_scope_id = address.scope_id();
        }
    }
    storage
}

/// The address that this is; `None` for one of another family.
pub(crate) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        AF_INET => {
            // SAFETY: its family says that it is one, and the storage is long enough and aligned for it.
            let address = unsafe { &*(&raw const *storage).cast::<sockaddr_in>() };
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
        }
        AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { &*(&raw const *storage).cast::<sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(address.sin6_port), 0, address.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was() {
        for text in ["10.1.2.3:3260", "[fe80::1%3]:65535", "[2001:db8::7]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(address)), Some(address));
        }
        // SAFETY: as in `to_c`.
        assert_eq!(from_c(&unsafe { std::mem::zeroed() }), None);
    }
}
