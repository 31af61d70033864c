//! One server for a state directory: two of one name would each overwrite what the other keeps, and two of any names have one key.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::StateError;
use crate::persist::make_directory_of;

/// How long the lock of another one is waited for: the kernel holds that of a process that was killed until all that it had begun
/// has ended.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How often it is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Around the name of its server, the name of the file that a server locks.
const LOCK_PREFIX: &str = "server-";
const LOCK_SUFFIX: &str = ".lock";

/// The lock of a file, for as long as this lives.
#[derive(Debug)]
pub(crate) struct FileLock {
    /// Closing it ends the lock, also when the process is killed.
    _file: File,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another one has it: its process, if that is known.
    Held { holder: Option<u32> },
    /// It cannot be opened or locked.
    Io(io::Error),
}

impl FileLock {
    /// Takes the lock at `path`, for which it waits so long at the most. Who is refused it is told who has it.
    pub(crate) fn take(path: &Path, patience: Duration) -> Result<FileLock, LockError> {
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = opened.map_err(LockError::Io)?;
        let give_up_at = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < give_up_at => thread::sleep(LOCK_INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    return Err(LockError::Held { holder: holder_in(&mut file) });
                }
                Err(errno) => return Err(LockError::Io(errno.into())),
            }
        }
        // The lock does not depend on it.
        let noted =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = noted {
            tracing::debug!("{} cannot be written: {error}", path.display());
        }
        Ok(FileLock { _file: file })
    }
}

/// The lock of a server's files in its state directory.
#[derive(Debug)]
pub(crate) struct StateLock {
    _lock: FileLock,
}

impl StateLock {
    /// Takes the lock at `path` for the server of this name. `None` where nothing can be written: there nothing is overwritten.
    ///
    /// # Errors
    /// [`StateError::InUse`] when another server has it, [`StateError::Shared`] when one of another name is in the directory.
    pub(crate) fn take(path: &Path, name: &str) -> Result<Option<StateLock>, StateError> {
        let taken = make_directory_of(path).map_err(LockError::Io);
        let directory = path.parent().unwrap_or(path);
        match taken.and_then(|_| FileLock::take(path, LOCK_TIMEOUT)) {
            // Its own lock is taken first: of two that start at the same time, no two go on.
            Ok(lock) => match other_server(directory, path) {
                None => Ok(Some(StateLock { _lock: lock })),
                Some((name, holder)) => Err(StateError::Shared { directory: directory.to_owned(), name, holder }),
            },
            Err(LockError::Held { holder }) => {
                Err(StateError::InUse { directory: directory.to_owned(), name: name.to_owned(), holder })
            }
            Err(LockError::Io(error)) => {
                tracing::warn!(
                    "nothing that is changed by ctl can be kept, and another server may use the same files: {} cannot be locked: {error}",
                    path.display()
                );
                Ok(None)
            }
        }
    }
}

/// A server of another name that has its lock in this directory, and its process, if that is known. The lock of one that ended
/// without a word is held until the kernel has ended what it had begun, so it is waited for.
fn other_server(directory: &Path, own: &Path) -> Option<(String, Option<u32>)> {
    let give_up_at = Instant::now() + LOCK_TIMEOUT;
    let files = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).filter(|path| path != own);
    let named = files.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_prefix(LOCK_PREFIX)?.strip_suffix(LOCK_SUFFIX)?.to_owned();
        Some((path, name))
    });
    named.into_iter().find_map(|(path, name)| {
        // What cannot be opened or locked at all is no server's that could be named here.
        let mut file = File::open(path).ok()?;
        while let Err(Errno::WOULDBLOCK) = flock(&file, FlockOperation::NonBlockingLockShared) {
            if Instant::now() >= give_up_at {
                return Some((name, holder_in(&mut file)));
            }
            thread::sleep(LOCK_INTERVAL);
        }
        None
    })
}

/// The process that has noted itself in a lock's file. It is for messages only.
fn holder_in(file: &mut File) -> Option<u32> {
    let mut holder = String::new();
    let _ = file.read_to_string(&mut holder);
    holder.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_another_name_is_named_while_it_runs() {
        let directory = std::env::temp_dir().join(format!("sanwire-lock-shared-{}", std::process::id()));
        let [one, other] = ["server-box.lock", "server-box2.lock"].map(|file| directory.join(file));
        let lock = StateLock::take(&one, "box").unwrap();
        let refusal = StateLock::take(&other, "box2").unwrap_err().to_string();
        let who = format!("a server called box (process {})", std::process::id());
        assert!(refusal.contains(&who) && refusal.contains("--state-directory"), "{refusal}");
        drop(lock);
        let lock = StateLock::take(&other, "box2").unwrap();
        assert!(lock.is_some(), "what the first one has left is only a file");
        assert!(matches!(StateLock::take(&one, "box"), Err(StateError::Shared { .. })));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn one_has_the_lock_at_a_time_and_the_next_one_is_told_who() {
        let directory = std::env::temp_dir().join(format!("sanwire-lock-{}", std::process::id()));
        let path = directory.join("lock-box");
        let lock = StateLock::take(&path, "box").unwrap();
        let refusal = StateLock::take(&path, "box").unwrap_err().to_string();
        let who = format!("(process {})", std::process::id());
        assert!(refusal.contains("another server called box") && refusal.contains(&who), "{refusal}");
        drop(lock);
        assert!(StateLock::take(&path, "box").unwrap().is_some());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn where_nothing_can_be_written_nothing_is_locked() {
        assert!(StateLock::take(Path::new("/proc/nowhere/lock"), "box").unwrap().is_none());
    }
}
