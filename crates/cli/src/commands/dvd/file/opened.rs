//! A file that is to be a device: whether it can be, and what is done so that nobody moves it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, IFlags, Mode, OFlags, fadvise, fstatfs, ioctl_getflags, ioctl_setflags, major, minor};
use rustix::io::Errno;
use sanwire_io::extents::{is_elsewhere, is_leased, is_unwritten, lease};

use super::layout::Layout;

/// What statfs(2) tells of the file systems whose places are those on their disks: ext2, ext3 and ext4 are one.
const EXT: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;

/// Others, by what they tell, with what people call them.
const OTHERS: [(u32, &str); 12] = [
    (0x9123_683e, "btrfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0x794c_7630, "an overlay"),
    (0x0000_6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0x6573_5546, "FUSE"),
    (0x0000_4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
    (0x0102_1994, "tmpfs"),
    (0x7371_7368, "squashfs"),
];

/// Flags of a file (`linux/fs.h`) with which its blocks do not have what is read, or nobody could write them.
const UNFIT: [(u32, &str); 4] = [
    (0x0000_0004, "it is compressed"),
    (0x0000_0800, "it is encrypted, so that its blocks do not have what is read"),
    (0x0010_0000, "it is sealed (fs-verity), and a disk would not be"),
    (0x1000_0000, "it lies among what the file system keeps about it (inline_data): make it longer than a block"),
];

/// Its data goes through the journal.
const JOURNAL_DATA: u32 = 0x0000_4000;

const JOURNALED: &str = "its data goes through the journal of the file system (data=journal, or chattr +j), so that its blocks do not have what was \
                         written last: mount it with data=ordered";

/// A file that can be a device.
pub(super) struct Opened {
    file: File,
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Nobody else has it open on this host.
    is_alone: bool,
    /// It was made immutable, and is what it was when this is dropped.
    pin: Option<Pin>,
}

impl Opened {
    /// Opens it. `alone`: nobody else may have it open here; `pinned`: it is made immutable meanwhile.
    pub(super) fn open(path: &Path, alone: bool, pinned: bool) -> Result<Opened, String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            Errno::LOOP => "it is a symbolic link: name the file itself".to_owned(),
            _ => format!("it cannot be opened: {error}"),
        })?;
        let file = File::from(file);
        let failed = |error: io::Error| format!("it cannot be looked at: {error}");
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err("it is no regular file".to_owned());
        }
        check_file_system(&file, found.dev())?;
        if alone {
            lease(&file).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => {
                    "somebody has it open on this host, and would not see what is written, or write something else: end that first (`fuser` \
                     shows who), or leave --writable out"
                        .to_owned()
                }
                _ => format!("nobody can see whether somebody opens it: {error}"),
            })?;
        }
        let pin = pinned.then(|| Pin::put(&file)).transpose()?;
        // Being immutable keeps nobody from writing who has it open for that already.
        if pinned && !alone {
            match is_unwritten(&file) {
                Ok(true) => {}
                Ok(false) => {
                    return Err("somebody has it open for writing on this host, whom --pin does not keep from that: end that first (`fuser` \
                                shows who), or use --pin off"
                        .to_owned());
                }
                Err(error) => {
                    return Err(format!("nobody can see whether somebody writes it: {error}; --pin off does without"));
                }
            }
        }
        // What is read here later comes from the disk.
        file.sync_all().map_err(|error| format!("it cannot be written back: {error}"))?;
        forget_pages(&file);
        let (device, inode, path) = (found.dev(), found.ino(), path.to_owned());
        Ok(Opened { file, path, device, inode, is_alone: alone, pin })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the device of its file system.
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// Whether others of this host are kept from it, which must last as long as it may be used elsewhere.
    pub(super) fn is_guarded(&self) -> bool {
        self.is_alone || self.pin.is_some()
    }

    /// What is not as it was any more; `None` if all is.
    pub(super) fn difference(&self, before: &Layout, block_bytes: u32) -> Option<String> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => {}
            Ok(_) => return Some("another file has its name now".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Some(
                    "it is not there any more: it was deleted or renamed, or its file system unmounted".to_owned(),
                );
            }
            Err(error) => return Some(format!("it cannot be looked at: {error}")),
        }
        if self.is_alone && !is_leased(&self.file).unwrap_or(false) {
            return Some("somebody opens it on this host".to_owned());
        }
        if self.pin.as_ref().is_some_and(|pin| !pin.holds()) {
            return Some("it is not immutable any more".to_owned());
        }
        match Layout::of(&self.file, block_bytes, self.is_alone) {
            Ok(now) => now.difference(before),
            Err(why) => Some(why),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Others may have written it.
        if self.is_alone {
            forget_pages(&self.file);
        }
    }
}

fn forget_pages(file: &File) {
    if let Err(error) = fadvise(file, 0, None, Advice::DontNeed) {
        tracing::warn!("the kernel keeps what it has read of the file: {error}");
    }
}

fn check_file_system(file: &File, device: u64) -> Result<(), String> {
    let failed = |error: Errno| format!("its file system cannot be looked at: {error}");
    // The number has 32 bits, and types of another length on some machines.
    let kind = fstatfs(file).map_err(failed)?.f_type as u32;
    if kind != EXT && kind != XFS {
        let name = OTHERS.iter().find(|(other, _)| *other == kind).map(|(_, name)| *name);
        let name = name.map_or_else(|| format!("another file system ({kind:08x}h)"), str::to_owned);
        return Err(format!(
            "it is on {name}, of which nobody can say that its blocks lie at the places that it tells: ext2, ext3, ext4 and XFS can be used"
        ));
    }
    let flags = ioctl_getflags(file).map_err(failed)?.bits();
    if let Some((_, why)) = UNFIT.iter().find(|(flag, _)| flags & flag != 0) {
        return Err((*why).to_owned());
    }
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    if flags & JOURNAL_DATA != 0 || journals_data(&mounts, device) {
        return Err(JOURNALED.to_owned());
    }
    match is_elsewhere(file) {
        Ok(false) => Ok(()),
        Ok(true) => Err("it is on the realtime device of its file system, not on its disk".to_owned()),
        // ext2 and ext3 of old kernels have no such device, and do not tell.
        Err(_) if kind == EXT => Ok(()),
        Err(error) => Err(format!("its file system cannot be looked at: {error}")),
    }
}

/// Whether the file system of this device puts data into its journal: the options of the file system are the last word of its line (proc(5)).
fn journals_data(mounts: &str, device: u64) -> bool {
    let number = format!("{}:{}", major(device), minor(device));
    mounts.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let options = line.rsplit(' ').next().unwrap_or_default();
        words.nth(2) == Some(&number) && options.split(',').any(|option| option == "data=journal")
    })
}

/// A file that is immutable until this is dropped.
struct Pin {
    file: File,
    /// As they were before.
    flags: IFlags,
}

impl Pin {
    /// One that is immutable already stays so afterwards.
    fn put(file: &File) -> Result<Pin, String> {
        let failed = |error: io::Error| {
            format!("it cannot be made immutable while it is served: {error} (that takes root); --pin off does without")
        };
        let flags = ioctl_getflags(file).map_err(|error| failed(error.into()))?;
        let file = file.try_clone().map_err(failed)?;
        if flags.contains(IFlags::IMMUTABLE) {
            tracing::warn!("the file is immutable already, and stays so: `chattr -i` takes that back");
        } else {
            ioctl_setflags(&file, flags | IFlags::IMMUTABLE).map_err(|error| failed(error.into()))?;
        }
        Ok(Pin { file, flags })
    }

    fn holds(&self) -> bool {
        ioctl_getflags(&self.file).is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.flags.contains(IFlags::IMMUTABLE) {
            return;
        }
        if let Err(error) = ioctl_setflags(&self.file, self.flags) {
            tracing::warn!("the file stays immutable: {error}; `chattr -i` takes that back");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn data_that_goes_through_a_journal_is_seen() {
        let mounts = "29 1 7:0 / /mnt/a rw,relatime shared:1 - ext4 /dev/loop0 rw,data=journal\n\
                      30 1 7:1 / /mnt/data=journal rw - ext4 /dev/loop1 rw,data=ordered\n\
                      31 1 7:2 / /mnt/c rw master:2 - xfs /dev/loop2 rw,attr2\n";
        let journals = |minor| journals_data(mounts, makedev(7, minor));
        assert_eq!([0, 1, 2, 3].map(journals), [true, false, false, false]);
    }

    #[test]
    fn what_is_no_file_of_a_disk_is_refused() {
        let refused = |path: &str| Opened::open(Path::new(path), false, false).err().expect("it is refused");
        assert!(refused("/").contains("no regular file"));
        assert!(refused("/nobody/has/this").contains("cannot be opened"));
        assert!(refused("/proc/self/exe").contains("symbolic link"));
        assert!(refused("/proc/self/status").contains("it is on another file system (00009fa0h)"));
    }
}
