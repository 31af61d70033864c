//! The few commands of bpf(2) that are needed to have an interface's packets: a map of sockets, a program, its link to the interface.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long};

const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const LINK_UPDATE: c_int = 29;
const LINK_DETACH: c_int = 34;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;

/// The program looks at no more of a packet than its first piece, so packets of several pieces may pass it (`BPF_F_XDP_HAS_FRAGS`).
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// Where the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the driver, before the kernel has memory of its own for the packet.
    Driver,
    /// Behind it, for drivers that have no place for one.
    Generic,
}

impl Place {
    fn flags(self) -> u32 {
        match self {
            // XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE of linux/if_link.h.
            Place::Driver => 1 << 2,
            Place::Generic => 1 << 1,
        }
    }
}

/// An instruction (`struct bpf_insn`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Instruction {
    pub(super) code: u8,
    /// The destination in the lower half, the source in the upper one.
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

/// A table that maps numbers below `entries` to AF_XDP sockets. A socket leaves it when it is closed.
pub(super) fn create_socket_map(entries: u32) -> io::Result<OwnedFd> {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
    }
    let attributes = Attributes { map_type: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries, flags: 0 };
    // SAFETY: a map is made of plain numbers.
    owned(unsafe { bpf(MAP_CREATE, &attributes) }?)
}

/// Puts a socket into the map.
pub(super) fn put_socket(map: BorrowedFd<'_>, number: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let value = number_of(socket.as_raw_fd());
    let attributes = Attributes {
        map: number_of(map.as_raw_fd()),
        padding: 0,
        key: address(&number),
        value: address(&value),
        flags: 0,
    };
    // SAFETY: key and value are of the lengths that the map was made with, and live during the call.
    unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }.map(drop)
}

/// Loads a program for packets that arrive.
pub(super) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        program_type: u32,
        instructions: u32,
        program: u64,
        licence: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let licence = c"MIT";
    let attributes = Attributes {
        program_type: PROG_TYPE_XDP,
        instructions: program.len() as u32,
        program: program.as_ptr().addr() as u64,
        licence: licence.as_ptr().addr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: XDP_HAS_FRAGS,
        name: *b"sanwire\0\0\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: the instructions and the licence live during the call; the kernel checks what they would do.
    owned(unsafe { bpf(PROG_LOAD, &attributes) }?)
}

/// A program at an interface, which goes with this value, and so with its process.
#[derive(Debug)]
pub(super) struct Link {
    fd: OwnedFd,
    pub(super) place: Place,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Closed alone it would go a little later, and who opens the interface at once would find it.
        // SAFETY: a plain number.
        _ = unsafe { bpf(LINK_DETACH, &number_of(self.fd.as_raw_fd())) };
    }
}

/// Has the program see what arrives on an interface.
pub(super) fn link(program: BorrowedFd<'_>, interface: u32, place: Place) -> io::Result<Link> {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = number_of(program.as_raw_fd());
    let attributes = Attributes { program, interface, attach_type: ATTACH_TYPE_XDP, flags: place.flags() };
    // SAFETY: plain numbers.
    let fd = owned(unsafe { bpf(LINK_CREATE, &attributes) }?)?;
    Ok(Link { fd, place })
}

/// Puts another program in the place of that of a link; no packet passes between the two.
pub(super) fn replace(link: &Link, program: BorrowedFd<'_>) -> io::Result<()> {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Attributes {
        link: u32,
        program: u32,
        flags: u32,
        former: u32,
    }
    let (link, program) = (number_of(link.fd.as_raw_fd()), number_of(program.as_raw_fd()));
    // SAFETY: plain numbers.
    unsafe { bpf(LINK_UPDATE, &Attributes { link, program, flags: 0, former: 0 }) }.map(drop)
}

fn number_of(fd: RawFd) -> u32 {
    fd.cast_unsigned()
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).addr() as u64
}

/// # Safety
/// What the attributes point to must be what the command reads, and live.
unsafe fn bpf<T: Copy>(command: c_int, attributes: &T) -> io::Result<c_long> {
    // SAFETY: the kernel reads as many bytes as the attributes have, and takes those after them as zero; the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it, close-on-exec, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
