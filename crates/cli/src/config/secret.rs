//! Password files.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::defaults::is_credential;
use crate::failure::misuse;

/// The longest password line that is read.
const PASSWORD_MAX_BYTES: u64 = 1024;
/// The permission bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// A password. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(Vec<u8>);

impl Password {
    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(...)")
    }
}

/// The first line of the file, which nobody but its owner may be able to read.
///
/// # Errors
/// A [`crate::failure::Misuse`].
pub(crate) fn read_password(path: &Path) -> anyhow::Result<Password> {
    let shown = path.display();
    let unreadable = |error| misuse(format!("cannot read the password file {shown}: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    refuse_public(&file.metadata().map_err(unreadable)?, path, "password file")?;
    let mut line = Vec::new();
    BufReader::new(file).take(PASSWORD_MAX_BYTES + 2).read_until(b'\n', &mut line).map_err(unreadable)?;
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() as u64 {
        0 => Err(misuse(format!("the first line of the password file {shown} is empty: write the password there"))),
        1..=PASSWORD_MAX_BYTES => Ok(Password(line.to_vec())),
        _ => Err(misuse(format!("the password in {shown} is too long: use at most {PASSWORD_MAX_BYTES} bytes"))),
    }
}

/// Refuses a file that others than its owner can read.
///
/// # Errors
/// A [`crate::failure::Misuse`].
pub(super) fn check_private(path: &Path, what: &str) -> anyhow::Result<()> {
    let metadata =
        path.metadata().map_err(|error| misuse(format!("cannot read the {what} {}: {error}", path.display())))?;
    refuse_public(&metadata, path, what)
}

fn refuse_public(metadata: &Metadata, path: &Path, what: &str) -> anyhow::Result<()> {
    let (shown, mode) = (path.display(), metadata.mode() & 0o777);
    if mode & OTHERS == 0 || is_credential(path) {
        return Ok(());
    }
    Err(misuse(format!("others can read the {what} {shown} (mode {mode:o}): chmod 600 {shown}")))
}
