//! This host's network interfaces: names, addresses, MTU.

mod watch;

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use libc::{c_int, ifaddrs, ifreq};
use sanwire_core::{MacAddress, Peer};

pub use self::watch::{Watch, watch};
use crate::sys;

/// One network interface, as it was when asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The name, like `eth0`.
    pub name: String,
    /// The kernel's number.
    pub index: u32,
    /// The hardware address, if the interface is an Ethernet (or the loopback, whose address is zero).
    pub mac_address: Option<MacAddress>,
    /// The largest packet that the link takes, without its Ethernet header.
    pub mtu_bytes: usize,
    /// What the link carries in a second, in Mbit, if its driver says so.
    pub speed_mbit: Option<u32>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Switched on by the administrator.
    pub is_up: bool,
    /// Has a carrier: something is at the other end.
    pub is_running: bool,
    /// The loopback.
    pub is_loopback: bool,
}

/// All interfaces of this network namespace, by index.
///
/// # Errors
/// The kernel's.
pub fn list() -> io::Result<Vec<Interface>> {
    let mut interfaces: Vec<Interface> = Vec::new();
    let asker = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    for entry in Entries::new()?.iter() {
        let Some(name) = entry.name() else { continue };
        let place = match interfaces.iter().position(|interface| interface.name == name) {
            Some(place) => place,
            None => {
                // An interface may vanish between the two calls.
                let Ok(mtu_bytes) = mtu_bytes(asker.as_fd(), name) else { continue };
                let speed_mbit = speed_mbit(asker.as_fd(), name);
                interfaces.push(Interface { speed_mbit, ..Interface::new(name, mtu_bytes, entry.flags()) });
                interfaces.len() - 1
            }
        };
        match entry.address() {
            Some(Address::Link { index, mac_address }) => {
                interfaces[place].index = index;
                interfaces[place].mac_address = mac_address;
            }
            Some(Address::Ip(address)) => interfaces[place].addresses.push(address),
            None => {}
        }
    }
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// The interface of that name.
///
/// # Errors
/// `NotFound` when there is none; else the kernel's.
pub fn by_name(name: &str) -> io::Result<Interface> {
    find(name, &list()?).cloned()
}

pub(crate) fn find<'a>(name: &str, interfaces: &'a [Interface]) -> io::Result<&'a Interface> {
    interfaces.iter().find(|interface| interface.name == name).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("there is no network interface {name} on this host"))
    })
}

fn is_loopback(peer: Peer) -> bool {
    matches!(peer, Peer::Udp(address) if address.ip().to_canonical().is_loopback())
}

/// Whether the peer is an address of one of these interfaces.
#[must_use]
pub fn is_among(peer: Peer, interfaces: &[Interface]) -> bool {
    match peer {
        Peer::Ethernet(mac) => interfaces.iter().any(|interface| interface.mac_address == Some(mac)),
        Peer::Udp(address) => {
            let ip = address.ip().to_canonical();
            interfaces.iter().any(|interface| interface.addresses.contains(&ip))
        }
    }
}

/// How this host would send to a UDP address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The address that packets would come from: binding to it makes the MTU of a port that of this route.
    pub source: IpAddr,
    /// The MTU of the route, in bytes with the IP header.
    pub mtu_bytes: usize,
}

/// The route to an address. Sends nothing.
///
/// # Errors
/// The kernel's, when there is no route.
pub fn route_to(address: SocketAddr) -> io::Result<Route> {
    let (any, level, name): (IpAddr, c_int, c_int) = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    let mtu_bytes = sys::get_option_int(socket.as_fd(), level, name)?;
    Ok(Route { source: socket.local_addr()?.ip(), mtu_bytes: usize::try_from(mtu_bytes).unwrap_or(0) })
}

impl Interface {
    fn new(name: &str, mtu_bytes: usize, flags: c_int) -> Self {
        Interface {
            name: name.to_owned(),
            index: 0,
            mac_address: None,
            mtu_bytes,
            speed_mbit: None,
            addresses: Vec::new(),
            is_up: flags & libc::IFF_UP != 0,
            is_running: flags & libc::IFF_RUNNING != 0,
            is_loopback: flags & libc::IFF_LOOPBACK != 0,
        }
    }
}

/// `linux/sockios.h` and `linux/ethtool.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSET: u32 = 1;

/// `struct ethtool_cmd` of `linux/ethtool.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct EthtoolCommand {
    command: u32,
    supported: u32,
    advertising: u32,
    speed_low: u16,
    /// Duplex, port, PHY address, transceiver, autonegotiation, MDIO.
    modes: [u8; 6],
    packets_max: [u32; 2],
    speed_high: u16,
    crossover: [u8; 2],
    partner_advertising: u32,
    reserved: [u32; 2],
}

/// A request about an interface.
fn request(name: &str) -> io::Result<ifreq> {
    // SAFETY: an ifreq of zeroes is a valid one.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed();
    }
    Ok(request)
}

fn speed_mbit(asker: BorrowedFd<'_>, name: &str) -> Option<u32> {
    let mut command = EthtoolCommand { command: ETHTOOL_GSET, ..EthtoolCommand::default() };
    let mut request = request(name).ok()?;
    request.ifr_ifru.ifru_data = (&raw mut command).cast();
    // SAFETY: SIOCETHTOOL reads the ifreq, and with this command reads and writes one EthtoolCommand; both live.
    sys::check(unsafe { libc::ioctl(asker.as_raw_fd(), SIOCETHTOOL, &raw mut request) }).ok()?;
    let speed = u32::from(command.speed_high) << 16 | u32::from(command.speed_low);
    // SPEED_UNKNOWN is -1; some drivers say 0, or 65535 as those of old did.
    Some(speed).filter(|speed| !matches!(*speed, 0 | 0xffff | u32::MAX))
}

fn mtu_bytes(asker: BorrowedFd<'_>, name: &str) -> io::Result<usize> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFMTU reads and writes one ifreq, which lives.
    sys::check(unsafe { libc::ioctl(asker.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: the call that succeeded has filled in this member of the union.
    usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).map_err(io::Error::other)
}

/// The list of `getifaddrs`.
struct Entries(*mut ifaddrs);

impl Entries {
    fn new() -> io::Result<Self> {
        let mut head = std::ptr::null_mut();
        // SAFETY: `head` is a place for one pointer.
        sys::check(unsafe { libc::getifaddrs(&raw mut head) })?;
        Ok(Entries(head))
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        // SAFETY: null or the head of a list that lives as long as `self`.
        let first = unsafe { self.0.as_ref() };
        // SAFETY: likewise for each link of the list.
        std::iter::successors(first, |entry| unsafe { entry.ifa_next.as_ref() }).map(Entry)
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: what `getifaddrs` gave, once, and nothing borrows from it any more.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

struct Entry<'a>(&'a ifaddrs);

enum Address {
    Link { index: u32, mac_address: Option<MacAddress> },
    Ip(IpAddr),
}

impl<'a> Entry<'a> {
    fn name(&self) -> Option<&'a str> {
        // SAFETY: the name is a C string that lives as long as the list.
        unsafe { CStr::from_ptr(self.0.ifa_name) }.to_str().ok()
    }

    fn flags(&self) -> c_int {
        self.0.ifa_flags.cast_signed()
    }

    fn address(&self) -> Option<Address> {
        let address = NonNull::new(self.0.ifa_addr)?;
        // SAFETY: a socket address starts with its family and has the size that the family says; it lives as long as
        // the list, and getifaddrs aligns it for any family.
        unsafe {
            match c_int::from(address.as_ref().sa_family) {
                libc::AF_PACKET => Some(link_address(address.cast().as_ref())),
                libc::AF_INET => {
                    let address: &libc::sockaddr_in = address.cast().as_ref();
                    Some(Address::Ip(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into()))
                }
                libc::AF_INET6 => {
                    let address: &libc::sockaddr_in6 = address.cast().as_ref();
                    Some(Address::Ip(Ipv6Addr::from(address.sin6_addr.s6_addr).into()))
                }
                _ => None,
            }
        }
    }
}

fn link_address(address: &libc::sockaddr_ll) -> Address {
    let is_ethernet = matches!(address.sll_hatype, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK);
    let mac: Option<[u8; 6]> = address.sll_addr[..6].try_into().ok();
    let mac_address = mac.filter(|_| is_ethernet && address.sll_halen == 6).map(MacAddress);
    Address::Link { index: address.sll_ifindex.cast_unsigned(), mac_address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_there() {
        let loopback = by_name("lo").unwrap();
        assert!(loopback.is_loopback && loopback.index > 0 && loopback.mtu_bytes >= 1280, "{loopback:?}");
        assert_eq!(by_name("no-such-interface").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(by_name("").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_route_has_a_source_and_an_mtu() {
        let route = route_to("127.0.0.1:5674".parse().unwrap()).unwrap();
        assert_eq!(route.source, IpAddr::from([127, 0, 0, 1]));
        // The kernel bounds the loopback's 65,536 by what an IP header can say.
        assert_eq!(route.mtu_bytes, by_name("lo").unwrap().mtu_bytes.min(65_535));
    }
}
