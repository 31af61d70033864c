//! Which records of writes to a file are true: others may have served it in between, with records of their own or none.

use std::fs::File;
use std::path::Path;

use rustix::fs::XattrFlags;

/// The extended attribute that says so.
const MARK: &str = "user.sanwire.records";

const MARK_MAX_BYTES: usize = 64;

/// What tells the records of writes to this file that are true; `None` where there is nothing, or can be nothing.
#[must_use]
pub fn records_mark(path: &Path) -> Option<String> {
    let mut bytes = [0; MARK_MAX_BYTES];
    let length = rustix::fs::getxattr(path, MARK, &mut bytes).ok()?;
    String::from_utf8(bytes.get(..length)?.to_vec()).ok()
}

/// Whether the file says so from now on, also after a crash.
#[must_use]
pub fn mark_records(path: &Path, mark: Option<&str>) -> bool {
    let is_changed = match mark {
        Some(mark) => rustix::fs::setxattr(path, MARK, mark.as_bytes(), XattrFlags::empty()).is_ok(),
        None => rustix::fs::removexattr(path, MARK).is_ok(),
    };
    is_changed && File::open(path).and_then(|file| file.sync_all()).is_ok()
}
