//! What one program of a host has alone: two would write to a volume without knowing of each other.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// How much of a volume's identity is in the name of a file.
const NAME_MAX_BYTES: usize = 200;

/// A volume that this process alone uses on this host in some way, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Claim {
    directory: PathBuf,
    path: PathBuf,
    _locked: File,
}

/// Why a volume cannot be claimed.
#[derive(Debug)]
pub enum Unclaimed {
    /// This process has it; `None` where that cannot be read.
    Held(Option<u32>),
    /// The file of the lock, or its directory, failed.
    Io(PathBuf, io::Error),
}

impl Claim {
    /// Claims a volume by its identity, with a file in this directory, which is made if need be; `again` beside others who have it too.
    ///
    /// # Errors
    /// [`Unclaimed`].
    pub fn take(directory: &Path, identity: &str, again: bool) -> Result<Claim, Unclaimed> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| Unclaimed::Io(directory.to_owned(), error))?;
        // One at a time, from the look to the lock.
        let _turn = turn(directory).map_err(|error| Unclaimed::Io(directory.to_owned(), error))?;
        let path = directory.join(file_name(identity));
        let failed = |error| Unclaimed::Io(path.clone(), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
                writeln!(file, "{}", std::process::id()).map_err(failed)?;
            }
            Err(rustix::io::Errno::WOULDBLOCK) if again => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.take(16).read_to_string(&mut holder);
                return Err(Unclaimed::Held(holder.trim().parse().ok()));
            }
            Err(error) => return Err(failed(error.into())),
        }
        // All who have it hold the lock together, whoever of them ends first.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => {
                Ok(Claim { directory: directory.to_owned(), path, _locked: file })
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Ends it where nobody else has it too, and leaves no file behind.
    pub(crate) fn end(self) {
        if let Ok(_turn) = turn(&self.directory) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Files come and go while this is locked.
fn turn(directory: &Path) -> io::Result<File> {
    let turn = File::open(directory)?;
    flock(&turn, FlockOperation::LockExclusive)?;
    Ok(turn)
}

/// Identities are unique where a server is reached, which is a network: one of another network name space is another host's.
fn file_name(identity: &str) -> String {
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let plain = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    };
    let mut name = format!("{}-{}", plain(&network.to_string_lossy()), plain(identity));
    if name.len() > NAME_MAX_BYTES {
        // What is cut off counts too.
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        name.truncate(NAME_MAX_BYTES);
        let _ = write!(name, "-{:016x}", hasher.finish());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_claim_at_a_time() {
        let directory = std::env::temp_dir().join(format!("sanwire-claims-{}", std::process::id()));
        let take = |identity: &str, again| Claim::take(&directory, identity, again);
        let first = take("naa.1/disk", false).unwrap();
        let other = take("naa.2/disk", false).unwrap();
        let held = take("naa.1/disk", false).unwrap_err();
        assert!(matches!(held, Unclaimed::Held(Some(pid)) if pid == std::process::id()), "{held:?}");
        let again = take("naa.1/disk", true).unwrap();
        drop(first);
        assert!(take("naa.1/disk", false).is_err(), "the one beside it has it still");
        drop(again);
        assert!(take("naa.1/disk", false).is_ok());
        let long = |end: &str| "a".repeat(300) + end;
        let one = take(&long("1"), false).unwrap();
        assert!(take(&long("1"), false).is_err() && take(&long("2"), false).is_ok());
        drop((other, one));
        fs::remove_dir_all(directory).unwrap();
    }
}
