//! One server of a name for a state directory: two would each overwrite what the other keeps.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
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

/// The lock, for as long as this lives.
#[derive(Debug)]
pub(crate) struct StateLock {
    /// Closing it ends the lock, also when the process is killed.
    _file: File,
}

impl StateLock {
    /// Takes the lock at `path` for the server of this name. `None` where nothing can be written: there nothing is overwritten.
    ///
    /// # Errors
    /// [`StateError::InUse`] when another server has it.
    pub(crate) fn take(path: &Path, name: &str) -> Result<Option<StateLock>, StateError> {
        let opened = make_directory_of(path).and_then(|_| {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
        });
        let mut file = match opened {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(
                    "nothing that is changed by ctl can be kept: {} cannot be opened: {error}",
                    path.display()
                );
                return Ok(None);
            }
        };
        let give_up_at = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < give_up_at => thread::sleep(LOCK_INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    let mut holder = String::new();
                    // It is for the message only.
                    let _ = file.read_to_string(&mut holder);
                    return Err(StateError::InUse {
                        directory: path.parent().unwrap_or(path).to_owned(),
                        name: name.to_owned(),
                        holder: holder.trim().parse().ok(),
                    });
                }
                Err(error) => {
                    tracing::warn!(
                        "{} cannot be locked: {error}; see to it that no other server uses it",
                        path.display()
                    );
                    return Ok(None);
                }
            }
        }
        // Who is refused is told who has it; the lock does not depend on it.
        let noted =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = noted {
            tracing::debug!("{} cannot be written: {error}", path.display());
        }
        Ok(Some(StateLock { _file: file }))
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
