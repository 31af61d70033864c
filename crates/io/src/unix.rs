//! Unix sockets that only their owner and root can connect to.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::process::umask;

/// Another program may have locked the directory for something else, and for long.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Why there can be no socket at a path.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A living process listens there.
    #[error("another process listens there")]
    Answered,
    /// Something else is there, which stays.
    #[error("what is there is no socket")]
    NoSocket,
    /// The kernel's word.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<ListenError> for io::Error {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Io(error) => error,
            taken => io::Error::new(io::ErrorKind::AddrInUse, taken),
        }
    }
}

/// The place of a listening socket. Dropping it removes the socket, unless something else has its place by then.
#[derive(Debug)]
pub struct SocketPlace {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketPlace {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| inode(&there) == self.inode) {
            // Nothing is lost when it stays: who listens there next takes it away.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path, for the owner alone. A socket that nobody answers at was left by a process that was killed: it is replaced.
///
/// # Errors
/// See [`ListenError`].
pub fn listen(path: &Path) -> Result<(UnixListener, SocketPlace), ListenError> {
    // Of two that find the same dead socket, one must not remove the other's new one.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new(".")))?;
    lock(&directory)?;
    if UnixStream::connect(path).is_ok() {
        return Err(ListenError::Answered);
    }
    // What is no socket refuses connections too.
    if fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(ListenError::NoSocket);
    }
    remove_dead(path)?;
    // From its first moment on nobody else can open it. What other threads make meanwhile is for its owner alone, too.
    let before = umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    let inode = inode(&fs::symlink_metadata(path)?);
    Ok((listener, SocketPlace { path: path.to_owned(), inode }))
}

/// Removes a socket that nobody answers at, and nothing else.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_dead(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket());
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket => fs::remove_file(path),
        _ => Ok(()),
    }
}

fn lock(directory: &File) -> io::Result<()> {
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(LOCK_INTERVAL),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "its directory is locked by another program"));
            }
            locked => return Ok(locked?),
        }
    }
}

fn inode(there: &Metadata) -> (u64, u64) {
    (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// A directory that goes with its test. Who listens locks the directory: of one that all share, a test that is halted would keep the others
    /// out.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sanwire-unix-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Directory(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("socket")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_a_socket_that_nobody_answers_at_is_removed() {
        let directory = Directory::new("stale");
        let path = directory.socket();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path), Err(ListenError::NoSocket)));
        remove_dead(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let (listener, place) = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(ListenError::Answered)));
        remove_dead(&path).unwrap();
        assert!(path.exists(), "it is answered at");
        drop((listener, place));
        assert!(!path.exists());
    }

    #[test]
    fn what_has_the_place_of_a_socket_by_then_is_not_removed() {
        let directory = Directory::new("replaced");
        let path = directory.socket();
        let (listener, place) = listen(&path).unwrap();
        // The number of a file that is gone may be given to the next one.
        let other = path.with_extension("other");
        fs::write(&other, "precious").unwrap();
        fs::rename(&other, &path).unwrap();
        drop((listener, place));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_directory_that_another_program_has_locked_is_an_error() {
        let directory = Directory::new("locked");
        let held = File::open(&directory.0).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let refused = listen(&directory.socket()).err().unwrap();
        assert_eq!(refused.to_string(), "its directory is locked by another program");
    }

    #[test]
    fn at_no_moment_others_can_open_a_socket() {
        let directory = Directory::new("mode");
        let (path, ends) = (directory.socket(), AtomicBool::new(false));
        let open_to_others = thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mode = || fs::symlink_metadata(&path).map_or(0, |there| there.permissions().mode());
                let mut seen = 0;
                while !ends.load(Ordering::Relaxed) {
                    seen |= mode() & 0o077;
                }
                seen
            });
            (0..200).for_each(|_| drop(listen(&path).unwrap()));
            ends.store(true, Ordering::Relaxed);
            looker.join().unwrap()
        });
        assert_eq!(open_to_others, 0);
    }
}
