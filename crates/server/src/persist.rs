//! Files that a server keeps for itself: replaced as a whole, for its user alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Puts `content` in the place of the file: written beside, made stable, and renamed, so that a crash leaves the old one or
/// the new one. Its directory, below one that is there, is made when it is missing.
///
/// # Errors
/// Those of the file system; then the old one is there, or the new one, if only that it has its name could not be made stable.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    // What a full disk has taken of it leaves no room for others.
    replace_file_by_steps(path, content, |_| Ok(())).inspect_err(|_| remove_unfinished(path))
}

/// The steps, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Create,
    Write,
    Sync,
    Rename,
    SyncDirectory,
}

/// `before` is called before each step, and may fail in its place.
fn replace_file_by_steps(
    path: &Path,
    content: &[u8],
    mut before: impl FnMut(Step) -> io::Result<()>,
) -> io::Result<()> {
    let directory = make_directory_of(path)?;
    let beside = beside(path);
    before(Step::Create)?;
    // One that a crash has left there may be open to others.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    before(Step::Write)?;
    file.write_all(content)?;
    before(Step::Sync)?;
    file.sync_all()?;
    before(Step::Rename)?;
    fs::rename(&beside, path)?;
    before(Step::SyncDirectory)?;
    File::open(directory)?.sync_all()
}

/// Removes what a crash has left of a replacement, as far as that can be done. Only for who alone replaces that file.
pub(crate) fn remove_unfinished(path: &Path) {
    let _ = fs::remove_file(beside(path));
}

/// Copies a file that cannot be understood to `PATH.damaged`, as far as that can be done, before another one takes its place; gives where it
/// is.
pub(crate) fn copy_aside(path: &Path) -> Option<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    fs::copy(path, &aside).ok().map(|_| aside)
}

/// Where the new content of a file is before it is that file's.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    beside.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 5] = [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncDirectory];

    /// What a power failure leaves of a file that was not made stable may be anything; so is what a full disk leaves.
    #[test]
    fn a_crash_at_any_step_leaves_the_old_content_or_the_new_one() {
        let directory = std::env::temp_dir().join(format!("sanwire-persist-{}", std::process::id()));
        let path = directory.join("file");
        let beside = directory.join("file.new");
        for at in STEPS {
            let _ = fs::remove_dir_all(&directory);
            replace_file(&path, b"old").unwrap();
            let mut seen = Vec::new();
            let crash = |step| {
                seen.push(step);
                let unstable = matches!(step, Step::Write | Step::Sync) && step == at;
                if unstable {
                    fs::write(&beside, b"rubbish")?;
                }
                if step == at { Err(io::Error::other("the power fails")) } else { Ok(()) }
            };
            replace_file_by_steps(&path, b"new", crash).unwrap_err();
            assert_eq!(seen, STEPS[..seen.len()], "each step comes after what it needs");
            let expected: &[u8] = if at == Step::SyncDirectory { b"new" } else { b"old" };
            assert_eq!(read_file(&path).unwrap().unwrap(), expected, "{at:?}");
            replace_file(&path, b"after").unwrap();
            assert_eq!(read_file(&path).unwrap().unwrap(), b"after", "what was left behind is in nobody's way");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_an_older_file_let_others_read_they_do_not_read_of_a_newer_one() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("sanwire-persist-mode-{}", std::process::id()));
        let path = directory.join("file");
        fs::create_dir_all(&directory).unwrap();
        for left in [path.clone(), directory.join("file.new")] {
            fs::write(&left, b"old").unwrap();
            fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        }
        replace_file(&path, b"secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(directory).unwrap();
    }
}
