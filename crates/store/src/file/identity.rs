//! Which volume a file holds: what is known of it from before, and the mark that it carries itself.
//!
//! A file that is missing, or another one at its path (its file system is not mounted, say), must never be served as the
//! volume that clients know. So a server that serves a volume keeps what [`Known`] says of it, and the file carries the
//! volume's identity in an extended attribute, where its file system has such.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::open_error::OpenError;

/// The extended attribute of a file that holds a volume: a line for each name under which it was served, since under another name
/// the same file is another volume. A line is the uuid in hexadecimal, a space, the name.
pub(crate) const MARK: &str = "user.sanwire.volume";

/// The longest mark: lines of 32 digits, a space, a name. Many file systems have not more room.
const MARK_MAX_BYTES: usize = 4096;

/// What is known of a volume that was served: to be kept by who serves it, and told when it is opened again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Whether its file carries the identity; a file without it is another one then.
    pub is_marked: bool,
    /// The length it had; it never gets shorter.
    pub length_bytes: u64,
    /// The name of its block device that stays with the hardware, where it has one.
    pub device: Option<String>,
}

/// What is done with a file or device that is not what is known of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Acceptance {
    /// It is refused.
    #[default]
    Known,
    /// Another one is taken, as the same volume: its owner says that it is. Nothing, or less than there was, is refused.
    Adopted,
    /// Whatever is there is taken, or made, as another volume than before.
    Renewed,
}

/// Which volume a file is to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// What is known of it; `None` when it was never served before.
    pub known: Option<Known>,
    /// Whether what is known from now on will be kept.
    pub is_kept: bool,
    /// Whether something else is taken.
    pub acceptance: Acceptance,
    /// The identity of a volume that is made, or renewed: one that no volume has had.
    pub fresh: [u8; 16],
    /// The identity of a volume of which neither its file nor anybody else knows one.
    pub fallback: [u8; 16],
}

impl Expectation<'_> {
    /// Refuses to make a file that was there before.
    pub(super) fn check_absent(&self, path: &Path) -> Result<(), OpenError> {
        match self.known {
            Some(_) if self.acceptance != Acceptance::Renewed => {
                Err(OpenError::Vanished { path: path.into(), name: self.name.into() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a file or block device that is not the one that was served, or not all of it.
    pub(super) fn check_present(&self, path: &Path, present: &Present) -> Result<(), OpenError> {
        let Some(known) = self.known.as_ref().filter(|_| self.acceptance != Acceptance::Renewed) else { return Ok(()) };
        let is_same = match present.mark {
            Some(mark) => mark == known.uuid,
            None => !known.is_marked,
        };
        let is_same_device = match (&known.device, &present.device) {
            (Some(before), Some(now)) => before == now,
            _ => true,
        };
        if (!is_same || !is_same_device) && self.acceptance == Acceptance::Known {
            return Err(OpenError::Replaced { path: path.into(), name: self.name.into() });
        }
        if present.length_bytes < known.length_bytes {
            let (is_bytes, was_bytes) = (present.length_bytes, known.length_bytes);
            return Err(OpenError::CutShort { path: path.into(), name: self.name.into(), is_bytes, was_bytes });
        }
        Ok(())
    }

    /// The identity of the volume from now on, which its file carries where it can.
    pub(super) fn settle(&self, file: &File, present: &Present, read_only: bool) -> Known {
        let is_made = self.acceptance == Acceptance::Renewed || present.is_empty();
        let wanted = match (is_made, present.mark, &self.known) {
            (true, _, _) => self.fresh,
            (false, _, Some(known)) => known.uuid,
            (false, Some(mark), None) => mark,
            (false, None, None) => self.fallback,
        };
        let is_marked = present.mark == Some(wanted)
            || (!read_only && !present.is_block_device && write_mark(file, &present.others, wanted, self.name));
        // An identity that nobody remembers would be another one at the next start.
        let uuid = if is_made && !is_marked && !self.is_kept { self.fallback } else { wanted };
        Known { uuid, is_marked, length_bytes: present.length_bytes, device: present.device.clone() }
    }
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
