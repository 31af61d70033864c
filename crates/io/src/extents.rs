//! Where the bytes of a file lie on its device, and what keeps other programs from moving them.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use crate::sys::check;

/// `FS_IOC_FIEMAP` (`linux/fs.h`, `linux/fiemap.h`): `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
/// Write what is not written yet first: it has no place before.
const FIEMAP_FLAG_SYNC: u32 = 1;
/// No extent follows this one.
const FIEMAP_EXTENT_LAST: u32 = 1;

/// `FS_IOC_FSGETXATTR` (`linux/fs.h`): `_IOR('X', 31, struct fsxattr)`.
const FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
/// It lies on another device than the rest of its file system.
const FS_XFLAG_REALTIME: u32 = 1;

/// Extents that the kernel is asked for at a time.
const AT_A_TIME: usize = 256;

/// Extents of a file that are looked at, at the most: a file in more pieces is of no use as a disk.
const EXTENTS_MAX: usize = 1 << 18;

/// Some bytes of a file that lie together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Where they begin in the file.
    pub offset_bytes: u64,
    /// Where they begin on the device of its file system.
    pub physical_bytes: u64,
    /// How many there are.
    pub length_bytes: u64,
    /// What else is to be known of them.
    pub flags: u32,
}

/// What is to be known of an extent (`linux/fiemap.h`).
impl FileExtent {
    /// Where they are is not known.
    pub const UNKNOWN: u32 = 0x2;
    /// They have no place yet.
    pub const DELAYED: u32 = 0x4;
    /// What is there is compressed, or otherwise not what is read.
    pub const ENCODED: u32 = 0x8;
    /// What is there is encrypted.
    pub const ENCRYPTED: u32 = 0x80;
    /// They do not begin or end with a block.
    pub const UNALIGNED: u32 = 0x100;
    /// They lie among what the file system keeps about the file.
    pub const INLINE: u32 = 0x200;
    /// They lie in one block with those of other files.
    pub const TAIL: u32 = 0x400;
    /// Nothing was written there yet: it reads as zeroes, and the device has what was there before.
    pub const UNWRITTEN: u32 = 0x800;
    /// Other files have the same blocks.
    pub const SHARED: u32 = 0x2000;
}

/// `struct fiemap_extent`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved_64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap`, with room for extents.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; AT_A_TIME],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Map>() == 32 + 56 * AT_A_TIME);

/// `struct fsxattr`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

const _: () = assert!(size_of::<Attributes>() == 28);

/// Where the first so many bytes of a file lie, in their order. What was written is written back before; holes have no extent. The last one may
/// be longer than what was asked for.
///
/// # Errors
/// The kernel's, as where the file system does not tell; `FileTooLarge` when there are more than 262,144.
pub fn extents(file: &File, length_bytes: u64) -> io::Result<Vec<FileExtent>> {
    let mut found = Vec::new();
    let mut map = Box::new(Map {
        start: 0,
        length: 0,
        flags: 0,
        mapped: 0,
        count: 0,
        reserved: 0,
        extents: [Extent::default(); AT_A_TIME],
    });
    let mut start = 0;
    while start < length_bytes {
        *map = Map {
            start,
            length: length_bytes - start,
            flags: FIEMAP_FLAG_SYNC,
            mapped: 0,
            count: AT_A_TIME as u32,
            reserved: 0,
            extents: map.extents,
        };
        // SAFETY: FIEMAP reads and writes one `fiemap` with room for `count` extents, which is what `map` points at.
        check(unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, &raw mut *map) })?;
        let told = map.extents.get(..map.mapped as usize).ok_or(io::ErrorKind::InvalidData)?;
        found.extend(told.iter().map(|extent| FileExtent {
            offset_bytes: extent.logical,
            physical_bytes: extent.physical,
            length_bytes: extent.length,
            flags: extent.flags,
        }));
        if found.len() > EXTENTS_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let Some(last) = told.last().filter(|last| last.flags & FIEMAP_EXTENT_LAST == 0) else { break };
        // It goes on behind that, whatever the kernel says.
        start = last.logical.saturating_add(last.length).max(start + 1);
    }
    Ok(found)
}

/// Whether the bytes of a file lie on another device than the rest of its file system, as those of the realtime part of XFS.
///
/// # Errors
/// The kernel's, as where the file system has no such attributes.
pub fn is_elsewhere(file: &File) -> io::Result<bool> {
    let mut attributes = Attributes::default();
    // SAFETY: FSGETXATTR writes one `fsxattr`, which lives.
    check(unsafe { libc::ioctl(file.as_raw_fd(), FSGETXATTR, &raw mut attributes) })?;
    Ok(attributes.flags & FS_XFLAG_REALTIME != 0)
}

/// Takes a lease (fcntl(2)) on a file that nobody else has open: who opens it then has to wait until this one is closed, or the kernel's patience
/// (`/proc/sys/fs/lease-break-time`) is over. The process gets a SIGIO, which it must not be ended by.
///
/// # Errors
/// The kernel's: `WouldBlock` when somebody else has the file open.
pub fn lease(file: &File) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) }).map(drop)
}

/// Whether no process has the file open for writing now.
///
/// # Errors
/// The kernel's, where it cannot tell.
pub fn is_unwritten(file: &File) -> io::Result<bool> {
    // Who reads a file may have such a lease only if nobody writes it: what that says counts, and it is given back at once.
    // SAFETY: no memory is involved.
    match check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) }) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
    }
    // SAFETY: no memory is involved.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) }).map(|_| true)
}

/// Whether nobody has wanted to open the file since [`lease`].
///
/// # Errors
/// The kernel's.
pub fn is_leased(file: &File) -> io::Result<bool> {
    // SAFETY: no memory is involved.
    Ok(check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) })? == libc::F_WRLCK)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file in the directory of the build, which is on a disk where there is one.
    fn file() -> File {
        let path = std::env::current_exe().unwrap().with_extension(format!("extents-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn a_file_lies_where_it_was_written() {
        let mut file = file();
        file.write_all(&[7; 100_000]).unwrap();
        // Not each file system tells.
        let Ok(found) = extents(&file, 100_000) else { return };
        let covered: u64 = found.iter().map(|extent| extent.length_bytes).sum();
        assert!(found.is_empty() || covered >= 100_000, "{found:?}");
        assert!(found.is_sorted_by_key(|extent| extent.offset_bytes));
        assert!(found.iter().all(|extent| extent.flags & FileExtent::DELAYED == 0), "{found:?}");
        assert_eq!(extents(&file, 0).unwrap(), []);
    }

    #[test]
    fn who_has_a_file_alone_leases_it_until_somebody_opens_it() {
        let path = std::env::temp_dir().join(format!("sanwire-lease-{}", std::process::id()));
        std::fs::write(&path, b"x").unwrap();
        let file = File::open(&path).unwrap();
        let other = File::open(&path).unwrap();
        assert!(lease(&file).is_err() && !is_leased(&file).unwrap());
        drop(other);
        // Not each file system has leases.
        if lease(&file).is_ok() {
            assert!(is_leased(&file).unwrap());
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn who_writes_a_file_is_seen_and_who_reads_it_is_not() {
        let path = std::env::temp_dir().join(format!("sanwire-unwritten-{}", std::process::id()));
        std::fs::write(&path, b"x").unwrap();
        let (file, reader) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        // Not each file system has leases.
        if is_unwritten(&file).is_ok() {
            assert!(is_unwritten(&file).unwrap());
            let writer = File::options().write(true).open(&path).unwrap();
            assert!(!is_unwritten(&file).unwrap());
            drop(writer);
            assert!(is_unwritten(&file).unwrap() && !is_leased(&file).unwrap(), "nothing is left of that");
        }
        drop(reader);
        std::fs::remove_file(path).unwrap();
    }
}
