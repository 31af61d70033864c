//! What the driver of an interface says of itself (ethtool).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

/// `ETHTOOL_GCHANNELS`, `ETHTOOL_GFLAGS` and `ETH_FLAG_RXVLAN` of `linux/ethtool.h`.
const GET_CHANNELS: u32 = 0x3c;
const GET_FLAGS: u32 = 0x25;
const TAKES_TAGS_OUT: u32 = 1 << 8;

/// `struct ethtool_channels`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Value {
    command: u32,
    value: u32,
}

/// Asks the driver of one interface.
pub(super) struct Asker {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Asker {
    pub(super) fn of(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        for (place, byte) in name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
            *place = byte.cast_signed();
        }
        Ok(Asker { socket: sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?, name })
    }

    /// How many receive queues there are. A driver that does not say has one.
    pub(super) fn receive_queues(&self) -> u16 {
        let channels = self.ask(Channels { command: GET_CHANNELS, ..Channels::default() });
        let queues = channels.map_or(1, |channels| channels.receive + channels.combined);
        u16::try_from(queues).unwrap_or(u16::MAX).max(1)
    }

    /// Whether VLAN tags are gone from packets when they come: what is of a VLAN then looks as if it were of none.
    pub(super) fn takes_tags_out(&self) -> bool {
        let flags = self.ask(Value { command: GET_FLAGS, value: 0 });
        flags.is_some_and(|flags| flags.value & TAKES_TAGS_OUT != 0)
    }

    /// Gives the structure as the driver has filled it in.
    fn ask<T: Copy>(&self, mut question: T) -> Option<T> {
        // SAFETY: an ifreq of zeroes is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = (&raw mut question).cast();
        // SAFETY: the kernel writes the structure that the command, its first field, stands for, which is this one, and lives.
        let result = sys::check(unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) });
        result.is_ok().then_some(question)
    }
}
