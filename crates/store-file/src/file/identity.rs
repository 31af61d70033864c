//! Which volume a file holds: what is known of it from before, and the mark that it carries itself.
//!
//! A file that is missing, or another one at its path (its file system is not mounted, say), must never be served as the
//! volume that clients know. So a server that serves a volume keeps what [`Known`] says of it, and the file carries the
//! volume's identity in an extended attribute, where its file system has such.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use sanwire_store::{Acceptance, Expectation, Known, OpenError, VOLUME_MARK as MARK};

/// The longest mark: lines of 32 digits, a space, a name. Many file systems have not more room.
const MARK_MAX_BYTES: usize = 4096;

/// Refuses to make a file that was there before.
pub(super) fn check_absent(expected: &Expectation<'_>, path: &Path) -> Result<(), OpenError> {
    match expected.known {
        Some(_) if expected.acceptance != Acceptance::Renewed => {
            Err(OpenError::Vanished { path: path.into(), name: expected.name.into() })
        }
        _ => Ok(()),
    }
}

/// Refuses a file or block device that is not the one that was served, or not all of it.
pub(super) fn check_present(expected: &Expectation<'_>, path: &Path, present: &Present) -> Result<(), OpenError> {
    let Some(known) = expected.known.as_ref().filter(|_| expected.acceptance != Acceptance::Renewed) else {
        return Ok(());
    };
    let is_same = match present.mark {
        Some(mark) => mark == known.uuid,
        None => !known.is_marked,
    };
    let is_same_device = match (&known.device, &present.device) {
        (Some(before), Some(now)) => before == now,
        _ => true,
    };
    if (!is_same || !is_same_device) && expected.acceptance == Acceptance::Known {
        return Err(OpenError::Replaced { path: path.into(), name: expected.name.into() });
    }
    if present.length_bytes < known.length_bytes {
        let (is_bytes, was_bytes) = (present.length_bytes, known.length_bytes);
        return Err(OpenError::CutShort { path: path.into(), name: expected.name.into(), is_bytes, was_bytes });
    }
    Ok(())
}

/// The identity of the volume from now on, which its file carries where it can.
pub(super) fn settle(expected: &Expectation<'_>, file: &File, present: &Present, read_only: bool) -> Known {
    let is_made = expected.acceptance == Acceptance::Renewed || present.is_empty();
    let wanted = match (is_made, present.mark, &expected.known) {
        (true, _, _) => expected.fresh,
        (false, _, Some(known)) => known.uuid,
        (false, Some(mark), None) => mark,
        (false, None, None) => expected.fallback,
    };
    let is_marked = present.mark == Some(wanted)
        || (!read_only && !present.is_block_device && write_mark(file, &present.others, wanted, expected.name));
    // An identity that nobody remembers would be another one at the next start.
    let uuid = if is_made && !is_marked && !expected.is_kept { expected.fallback } else { wanted };
    Known { uuid, is_marked, length_bytes: present.length_bytes, device: present.device.clone() }
}

/// What is found of a file, before anything of it changes.
pub(super) struct Present {
    length_bytes: u64,
    is_block_device: bool,
    mark: Option<[u8; 16]>,
    /// What it carries of volumes with other names.
    others: Marks,
    device: Option<String>,
}

impl Present {
    /// Looks at the file at `path` for the volume of that name.
    pub(super) fn of(
        path: &Path,
        file: &File,
        is_block_device: bool,
        expected: &Expectation<'_>,
    ) -> Result<Self, OpenError> {
        let fail = |source| OpenError::Io { path: path.into(), action: "ask the length of", source };
        // A block device's metadata says zero; its end says the truth.
        let length_bytes = (&*file).seek(SeekFrom::End(0)).map_err(fail)?;
        let marks = match read_marks(file) {
            // Whatever it was: it is replaced.
            Err(_) if expected.acceptance != Acceptance::Known => Marks::default(),
            read => read.map_err(|source| OpenError::Mark { path: path.into(), name: expected.name.into(), source })?,
        };
        let (ours, others): (Marks, Marks) = marks.into_iter().partition(|(_, name)| name == expected.name);
        Ok(Present {
            length_bytes,
            is_block_device,
            mark: ours.first().map(|(uuid, _)| *uuid),
            others,
            device: if is_block_device { device_name(file) } else { None },
        })
    }

    /// Whether there is nothing in it yet.
    fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }
}

/// What a file says which volumes it holds, as it was at one moment.
#[derive(PartialEq, Eq, Debug)]
pub struct VolumeMark(Option<Vec<u8>>);

impl VolumeMark {
    /// That of a file; `None` where there is none, or it cannot be read.
    #[must_use]
    pub fn of(path: &Path) -> Option<VolumeMark> {
        let mut bytes = [0; MARK_MAX_BYTES];
        match rustix::fs::getxattr(path, MARK, &mut bytes) {
            Ok(length) => Some(VolumeMark(Some(bytes[..length].to_vec()))),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Some(VolumeMark(None)),
            Err(_) => None,
        }
    }

    /// Puts it back, also through a crash, where it is not as it was.
    ///
    /// # Errors
    /// What the system says.
    pub fn put_back(&self, path: &Path) -> io::Result<()> {
        // Of a device node the kernel says that it has no mark, and does not let one be removed.
        if VolumeMark::of(path).as_ref() == Some(self) {
            return Ok(());
        }
        match &self.0 {
            Some(bytes) => rustix::fs::setxattr(path, MARK, bytes, XattrFlags::empty())?,
            None => match rustix::fs::removexattr(path, MARK) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno.into()),
            },
        }
        File::open(path)?.sync_all()
    }
}

/// Removes a file that was made for the volume of this name and identity, if that is all it says to hold and nothing was written to it. One
/// that is not there any more, or that another process has open, stays as it is.
///
/// # Errors
/// What the system says.
pub fn remove_made(path: &Path, uuid: [u8; 16], name: &str) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(()),
        locked => locked?,
    }
    match &*read_marks(&file)? {
        [(made, of)] if (*made, &**of) == (uuid, name) && is_hole(&file)? && is_at(path, &file)? => {
            fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

/// Whether nothing was ever written to a file.
fn is_hole(file: &File) -> io::Result<bool> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)) {
        Err(Errno::NXIO) => Ok(true),
        Err(errno) => Err(errno.into()),
        Ok(_) => Ok(false),
    }
}

/// Whether the path leads to this file, and not to it by a symbolic link.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    let (there, here) = (fs::symlink_metadata(path)?, file.metadata()?);
    Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
}

/// The volumes that a file says to hold.
type Marks = Vec<([u8; 16], String)>;

fn read_marks(file: &File) -> io::Result<Marks> {
    let mut bytes = [0; MARK_MAX_BYTES];
    match rustix::fs::fgetxattr(file, MARK, &mut bytes) {
        Ok(length) => parse(&bytes[..length]).ok_or_else(|| io::Error::other("it is not one of Sanwire's")),
        // There is none, or the file system has no such attributes.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Marks::default()),
        Err(errno) => Err(errno.into()),
    }
}

fn parse(bytes: &[u8]) -> Option<Marks> {
    let volume = |line: &str| {
        let (uuid, name) = line.split_once(' ')?;
        Some((u128::from_str_radix(uuid, 16).ok()?.to_be_bytes(), name.to_owned()))
    };
    std::str::from_utf8(bytes).ok()?.lines().map(volume).collect()
}

/// Whether the file carries the mark now, beside those of others, also after a crash.
///
/// Linux tells once for each open file description that what was written is lost, perhaps by a server that was killed before: the
/// one that serves must keep that for the next flush, so another one makes the mark stable.
fn write_mark(file: &File, others: &Marks, uuid: [u8; 16], name: &str) -> bool {
    let line = |uuid: &[u8; 16], name: &str| format!("{:032x} {name}", u128::from_be_bytes(*uuid));
    let mut lines = vec![line(&uuid, name)];
    lines.extend(others.iter().map(|(uuid, name)| line(uuid, name)));
    let text = lines.join("\n");
    text.len() <= MARK_MAX_BYTES
        && rustix::fs::fsetxattr(file, MARK, text.as_bytes(), XattrFlags::empty()).is_ok()
        && sync_beside(file).is_ok()
}

/// Makes a file stable by another description of it, whatever its path leads to by now.
pub(super) fn sync_beside(file: &File) -> io::Result<()> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.sync_all()
}

/// What the kernel calls the hardware behind a block device, whatever its path: a world wide name, a serial number, or the name
/// of a mapped device; of a partition, with its number.
fn device_name(file: &File) -> Option<String> {
    let device = file.metadata().ok()?.rdev();
    let directory = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let read = |name: &str| {
        let text = fs::read_to_string(format!("{directory}/{name}")).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let names = ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial"];
    if let Some(partition) = read("partition") {
        let disk = names.iter().find_map(|name| read(&format!("../{name}")))?;
        return Some(format!("{disk} partition {partition}"));
    }
    names.iter().find_map(|name| read(name))
}
