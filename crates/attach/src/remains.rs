//! What a process that died has left: a mount that answers nothing, and loop devices over its file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::io::Errno;

use crate::attachment::unmount_once;
use crate::loop_device::{self, LoopError};

/// A FUSE mount whose process is gone answers "not connected" to everything that the kernel asks it. What a directory is, the
/// kernel remembers for a while; what room is in the file system, it asks.
pub(crate) fn is_dead_mount(mount_point: &Path) -> bool {
    matches!(statvfs(mount_point), Err(Errno::NOTCONN))
}

/// Removes a dead mount, and what the kernel has over its file. Gives whether there was one; `source`, if it is told, is what it
/// must be a mount of.
pub(crate) fn remove_dead_mount(mount_point: &Path, source: Option<&str>) -> Result<bool, LoopError> {
    if !is_dead_mount(mount_point) {
        return Ok(false);
    }
    let Some(mount_point) = mounted_at(mount_point, source) else { return Ok(false) };
    // Before the unmount: after it the kernel tells the files' places no more.
    for device in loop_device::devices_within(&mount_point) {
        loop_device::detach_dead(&device)?;
    }
    if let Err(error) = unmount_once(&mount_point, true) {
        tracing::warn!(error, mount_point = %mount_point.display(), "a dead mount could not be removed");
    }
    Ok(true)
}

/// The place as the kernel's list of mounts has it, if a FUSE file system is there.
fn mounted_at(mount_point: &Path, source: Option<&str>) -> Option<PathBuf> {
    // The dead mount itself cannot be looked at.
    let absolute = std::path::absolute(mount_point).ok()?;
    let place = absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?);
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    mounts.split(|byte| *byte == b'\n').any(|line| is_at(line, &place, source)).then_some(place)
}

/// A line of `/proc/PID/mountinfo` (proc_pid_mountinfo(5)): the fifth field is the place; type and source come after a hyphen.
fn is_at(line: &[u8], place: &Path, source: Option<&str>) -> bool {
    let mut fields = line.split(|byte| *byte == b' ');
    let at = fields.nth(4).map(unescape);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let is_fuse = rest.next().is_some_and(|kind| kind == b"fuse" || kind.starts_with(b"fuse."));
    let found = rest.next().map(unescape);
    let is_right = source.is_none_or(|source| found.is_some_and(|found| found == source));
    at.is_some_and(|at| at == place.as_os_str()) && is_fuse && is_right
}

/// Spaces, tabs, line feeds and backslashes stand as three octal digits behind a backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut plain = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(3));
        let code = OsStr::from_bytes(digits).to_str().and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.extend(code);
        plain.extend_from_slice(rest);
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_in_the_list_by_its_place_and_its_volume() {
        let line = b"36 35 0:45 / /mnt/a\\040disk rw,nosuid shared:1 - fuse box/my\\040disk rw,user_id=0";
        let is_found = |place: &str, source| is_at(line, Path::new(place), source);
        assert!(is_found("/mnt/a disk", None) && is_found("/mnt/a disk", Some("box/my disk")));
        assert!(!is_found("/mnt/a disk", Some("box/other")));
        assert!(!is_found("/mnt/a", None));
        assert!(is_at(b"36 35 0:45 / /mnt/a rw - fuse.sanwire box/disk rw", Path::new("/mnt/a"), Some("box/disk")));
        assert!(!is_at(b"36 35 0:45 / /mnt/a rw - ext4 /dev/sda rw", Path::new("/mnt/a"), None));
        assert!(!is_at(b"", Path::new("/"), None));
        assert_eq!(unescape(b"a\\134b\\011"), "a\\b\t");
    }
}
