//! What is remembered of the volumes in files and on devices that were served: a file for each in the state directory.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use sanwire_store::Known;
use serde::{Deserialize, Serialize};

use crate::kept::versioned::{from_json, to_json};
use crate::persist::{read_file, replace_file};

/// The directory of the records, in the server's state directory.
const DIRECTORY: &str = "volumes";

/// The record of one volume, `volumes/HASH.json` in the state directory: found by the volume's name with the path of its file,
/// as it is written and as it really is, since either may come to lead elsewhere.
#[derive(Debug)]
pub(crate) struct Record {
    name: String,
    /// As it is written in the configuration, made absolute.
    written: PathBuf,
    /// Without symbolic links.
    real: PathBuf,
    /// Where it is kept: one place where the two paths are the same.
    places: Vec<PathBuf>,
}

/// What stands in the file.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kept {
    volume: String,
    path: PathBuf,
    uuid: String,
    marked: bool,
    length_bytes: u64,
    #[serde(default)]
    device: Option<String>,
}

impl Record {
    /// The record of the volume of this name in this file or device, kept below `state`; nowhere without it.
    pub(crate) fn new(name: &str, path: &Path, state: Option<&Path>) -> Self {
        let written = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let real = real_path(&written);
        // What is written comes first: where it leads to may be where something else was before, as when disks change their letters.
        let mut paths = vec![&written];
        if written != real {
            paths.push(&real);
        }
        let place = |path: &&PathBuf, state: &Path| {
            state.join(DIRECTORY).join(format!("{:032x}.json", hash(name, &path.to_string_lossy())))
        };
        let places = state.map(|state| paths.iter().map(|path| place(path, state)).collect()).unwrap_or_default();
        Record { name: name.to_owned(), written, real, places }
    }

    /// The record of a volume whose blocks are elsewhere, at the place with this name.
    pub(crate) fn elsewhere(name: &str, place: &str, state: Option<&Path>) -> Self {
        let at = PathBuf::from(place);
        let places = state.map(|state| vec![state.join(DIRECTORY).join(format!("{:032x}.json", hash(name, place)))]);
        Record { name: name.to_owned(), written: at.clone(), real: at, places: places.unwrap_or_default() }
    }

    /// Of what: a file, a device, or the name of another place.
    pub(crate) fn of(&self) -> &Path {
        &self.written
    }

    /// The identity of a volume that nobody remembers.
    pub(crate) fn fallback(&self) -> [u8; 16] {
        hash(&self.name, &self.real.to_string_lossy()).to_be_bytes()
    }

    /// Whether there is a place for it.
    pub(crate) fn has_place(&self) -> bool {
        !self.places.is_empty()
    }

    /// Where it is kept, for messages.
    pub(crate) fn place(&self) -> PathBuf {
        self.places.first().cloned().unwrap_or_default()
    }

    /// What is known of the volume; `None` when it was never served.
    ///
    /// # Errors
    /// When there is a record that cannot be read: to begin without it could cost data.
    pub(crate) fn load(&self) -> io::Result<Option<Known>> {
        for place in &self.places {
            if let Some(bytes) = read_file(place)? {
                return from_json::<Kept>(&bytes)?.known().map(Some);
            }
        }
        Ok(None)
    }

    /// Remembers it, through crashes too. What is so already is not written again.
    ///
    /// # Errors
    /// When it may not be remembered.
    pub(crate) fn save(&self, known: &Known) -> io::Result<()> {
        let kept = Kept {
            volume: self.name.clone(),
            path: self.written.clone(),
            uuid: format!("{:032x}", u128::from_be_bytes(known.uuid)),
            marked: known.is_marked,
            length_bytes: known.length_bytes,
            device: known.device.clone(),
        };
        for place in &self.places {
            let is_kept = |bytes: Vec<u8>| from_json::<Kept>(&bytes).is_ok_and(|before| before == kept);
            if !read_file(place).ok().flatten().is_some_and(is_kept) {
                replace_file(place, &to_json(&kept)?)?;
            }
        }
        Ok(())
    }

    /// The identities of all volumes that are remembered below `state`.
    ///
    /// # Errors
    /// When there is a record that cannot be read.
    pub(crate) fn all_identities(state: &Path) -> io::Result<BTreeSet<[u8; 16]>> {
        let entries = match std::fs::read_dir(state.join(DIRECTORY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            entries => entries?,
        };
        let mut found = BTreeSet::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Some(bytes) = read_file(&path)?
            {
                found.insert(from_json::<Kept>(&bytes)?.known()?.uuid);
            }
        }
        Ok(found)
    }

    /// Forgets a volume that was never served.
    pub(crate) fn forget(&self) {
        for place in &self.places {
            // One that stays is found to be wrong when it is used.
            let _ = std::fs::remove_file(place);
        }
    }
}

impl Kept {
    fn known(self) -> io::Result<Known> {
        let uuid = u128::from_str_radix(&self.uuid, 16).map_err(io::Error::other)?.to_be_bytes();
        let Kept { marked: is_marked, length_bytes, device, .. } = self;
        Ok(Known { uuid, is_marked, length_bytes, device })
    }
}

/// The path without symbolic links; of a file that is missing, in its directory without them.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let real = path.parent().and_then(|directory| directory.canonicalize().ok()).zip(path.file_name());
        real.map_or_else(|| path.to_owned(), |(directory, name)| directory.join(name))
    })
}

fn hash(name: &str, path: &str) -> u128 {
    fnv1a_128(format!("sanwire volume\0{name}\0{path}").as_bytes())
}

/// FNV-1a with 128 bits: a name for bytes, not a protection.
pub(crate) fn fnv1a_128(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a_128(b""), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv1a_128(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
    }

    #[test]
    fn a_volume_is_remembered_by_its_path_and_where_that_leads() {
        let directory = std::env::temp_dir().join(format!("sanwire-records-{}", std::process::id()));
        let (one, other, link) = (directory.join("one"), directory.join("other"), directory.join("link"));
        std::fs::create_dir_all(&one).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let state = directory.join("state");
        let record = |name: &str, path: PathBuf| Record::new(name, &path, Some(&state));
        let known = Known { uuid: [7; 16], is_marked: true, length_bytes: 4096, device: None };
        assert_eq!(record("a", link.join("a.img")).load().unwrap(), None);
        record("a", link.join("a.img")).save(&known).unwrap();
        assert_eq!(record("a", one.join("a.img")).load().unwrap(), Some(known.clone()), "where the link leads");
        assert_eq!(record("b", one.join("a.img")).load().unwrap(), None, "another volume");
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert_eq!(record("a", link.join("a.img")).load().unwrap(), Some(known), "where the link is");
        // As a disk that gets another letter, is renewed, and gets its first one again.
        let renewed = Known { uuid: [8; 16], is_marked: true, length_bytes: 4096, device: None };
        record("a", link.join("a.img")).save(&renewed).unwrap();
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        assert_eq!(record("a", link.join("a.img")).load().unwrap(), Some(renewed), "it stays renewed");
        std::fs::write(record("a", one.join("a.img")).place(), "{").unwrap();
        assert!(record("a", one.join("a.img")).load().is_err(), "damaged");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
