//! One server of a name for a state directory: two would each overwrite what the other keeps.

use std::fs::{File, OpenOptions};
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
                    let mut holder = String::new();
                    // It is for the message only.
                    let _ = file.read_to_string(&mut holder);
                    return Err(LockError::Held { holder: holder.trim().parse().ok() });
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
    /// [`StateError::InUse`] when another server has it.
    pub(crate) fn take(path: &Path, name: &str) -> Result<Option<StateLock>, StateError> {
        let taken = make_directory_of(path).map_err(LockError::Io);
        match taken.and_then(|_| FileLock::take(path, LOCK_TIMEOUT)) {
            Ok(lock) => Ok(Some(StateLock { _lock: lock })),
            Err(LockError::Held { holder }) => Err(StateError::InUse {
                directory: path.parent().unwrap_or(path).to_owned(),
                name: name.to_owned(),
                holder,
            }),
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

#[cfg(test)]
mod tests {
    use super::*;

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
