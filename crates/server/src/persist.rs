//! Files that a server keeps for itself: replaced as a whole, for its user alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Puts `content` in the place of the file: written beside, made stable, and renamed, so that a crash leaves the old one or
/// the new one. Its directory, below one that is there, is made when it is missing.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = make_directory_of(path)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(directory)?.sync_all()
}

/// The content of the file, if there is one.
pub(crate) fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the directory in which a file is to be; gives it.
pub(crate) fn make_directory_of(path: &Path) -> io::Result<&Path> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        if let Some(above) = directory.parent().filter(|above| !above.as_os_str().is_empty()) {
            File::open(above)?.sync_all()?;
        }
    }
    Ok(directory)
}
