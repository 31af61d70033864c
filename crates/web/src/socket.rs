//! The unix socket, which only its owner and root can open.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::process::umask;

/// A socket's place, which is empty again when this is dropped, unless something else has it by then.
pub(crate) struct Socket {
    path: PathBuf,
    inode: (u64, u64),
}

/// A socket for its owner alone; one that nobody answers at was left by a server that was killed.
pub(crate) fn open(path: &Path) -> io::Result<(UnixListener, Socket)> {
    // Of two servers that find the same dead socket, one must not remove the other's new one.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new(".")))?;
    flock(&directory, FlockOperation::LockExclusive)?;
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        // What is no socket refuses connections too: it stays, and listening there fails.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => fs::remove_file(path)?,
        Err(_) => {}
    }
    // From its first moment on nobody else can open it. What other threads make meanwhile is for its owner alone, too.
    let before = umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let inode = inode(&fs::symlink_metadata(path)?);
    Ok((listener, Socket { path: path.to_owned(), inode }))
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket())
}

fn inode(there: &Metadata) -> (u64, u64) {
    (there.dev(), there.ino())
}

impl Drop for Socket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| inode(&there) == self.inode) {
            // Nothing is lost when it stays: the next server takes it away.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sanwire-web-{name}-{}", std::process::id()))
    }

    #[test]
    fn only_a_socket_that_nobody_answers_at_is_removed() {
        let path = path("stale");
        fs::write(&path, "precious").unwrap();
        assert_eq!(open(&path).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let (listener, socket) = open(&path).unwrap();
        assert_eq!(open(&path).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        drop((listener, socket));
        assert!(!path.exists());
    }

    #[test]
    fn what_has_the_place_of_a_socket_by_then_is_not_removed() {
        let path = path("replaced");
        let (listener, socket) = open(&path).unwrap();
        // The number of a file that is gone may be given to the next one.
        let other = path.with_extension("other");
        fs::write(&other, "precious").unwrap();
        fs::rename(&other, &path).unwrap();
        drop((listener, socket));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn at_no_moment_others_can_open_a_socket() {
        let (path, ends) = (path("mode"), AtomicBool::new(false));
        let open_to_others = thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mode = || fs::symlink_metadata(&path).map_or(0, |there| there.permissions().mode());
                let mut seen = 0;
                while !ends.load(Ordering::Relaxed) {
                    seen |= mode() & 0o077;
                }
                seen
            });
            (0..200).for_each(|_| drop(open(&path).unwrap()));
            ends.store(true, Ordering::Relaxed);
            looker.join().unwrap()
        });
        assert_eq!(open_to_others, 0);
    }
}
