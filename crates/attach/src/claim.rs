//! One attachment of a volume on a host: two would write to it without knowing of each other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// How much of a volume's identity is in the name of a file.
const NAME_MAX_BYTES: usize = 200;

/// A volume that this process alone attaches on this host, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Claim {
    _locked: File,
}

/// Why a volume cannot be claimed.
#[derive(Debug)]
pub(crate) enum Unclaimed {
    /// This process has it.
    Held(Option<u32>),
    /// The file of the lock failed.
    Io(PathBuf, io::Error),
}

impl Claim {
    /// Claims a volume by its identity, with a file in this directory.
    pub(crate) fn take(directory: &Path, identity: &str) -> Result<Claim, Unclaimed> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| Unclaimed::Io(directory.to_owned(), error))?;
        let path = directory.join(file_name(identity));
        let failed = |error| Unclaimed::Io(path.clone(), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.take(16).read_to_string(&mut holder);
                return Err(Unclaimed::Held(holder.trim().parse().ok()));
            }
            Err(error) => return Err(failed(error.into())),
        }
        let said = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        said.map_err(failed)?;
        Ok(Claim { _locked: file })
    }
}

/// Identities are unique where a server is reached, which is a network: one of another network name space is another host's.
fn file_name(identity: &str) -> String {
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let plain = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    };
    let mut name = format!("{}-{}", plain(&network.to_string_lossy()), plain(identity));
    name.truncate(NAME_MAX_BYTES);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_claim_at_a_time() {
        let directory = std::env::temp_dir().join(format!("sanwire-claims-{}", std::process::id()));
        let first = Claim::take(&directory, "naa.1/disk").unwrap();
        let other = Claim::take(&directory, "naa.2/disk").unwrap();
        let held = Claim::take(&directory, "naa.1/disk").unwrap_err();
        assert!(matches!(held, Unclaimed::Held(Some(pid)) if pid == std::process::id()), "{held:?}");
        drop(first);
        assert!(Claim::take(&directory, "naa.1/disk").is_ok());
        drop(other);
        fs::remove_dir_all(directory).unwrap();
    }
}
