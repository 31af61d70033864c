//! One file of the state directory: versioned, with a checksum, replaced as a whole.
//!
//! Its first line is `{"sanwire":VERSION,"sum":"..."}`, with the FNV-1a hash (128 bits) of all that follows, which is JSON. With a `"length"` there
//! too, that is the hash of so many bytes, and what follows them was added since.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::persist::{read_file, replace_file};
use crate::records::fnv1a_128;

/// The version that is written. One that knows more must have a higher one, for older programs understand only a part of it.
pub(super) const VERSION: u32 = 1;

/// Why what is kept cannot be used. Nothing was overwritten.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refuses it.
    #[error("{} cannot be read: {source}; make it readable for the server's user, and start again", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what was written.
    #[error(
        "{0}, which keeps {1}, is damaged: {reason}; nothing was overwritten. Restore it from a backup, or move it away \
         (mv {0} {0}.damaged): then {2}", path.display(), keeps.what, keeps.without
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What it keeps.
        keeps: Keeps,
        /// What is wrong.
        reason: String,
    },
    /// A newer program wrote it.
    #[error(
        "{0}, which keeps {1}, was written by a newer version of Sanwire (format {version}; this one reads up to {3}); nothing \
         was overwritten. Start that version, or move the file away (mv {0} {0}.newer): then {2}",
        path.display(), keeps.what, keeps.without, keeps.version
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// What it keeps.
        keeps: Keeps,
        /// Its version.
        version: u32,
    },
    /// Another server has it.
    #[error(
        "another server called {name} uses the state directory {}{}: stop it, or give this one another --name or --state-directory",
        directory.display(), holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse {
        /// Where.
        directory: PathBuf,
        /// The name that both have.
        name: String,
        /// Its process, if that is known.
        holder: Option<u32>,
    },
    /// A server of another name is there: both would have one key, so that who has pinned one of them takes the other for it.
    #[error(
        "a server called {name}{} uses the state directory {}, and two servers there would have one key: stop it, or give this one \
         another --state-directory",
        holder.map(|pid| format!(" (process {pid})")).unwrap_or_default(), directory.display()
    )]
    Shared {
        /// Where.
        directory: PathBuf,
        /// The name of the other one.
        name: String,
        /// Its process, if that is known.
        holder: Option<u32>,
    },
}

/// What a file keeps, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keeps {
    /// What.
    what: &'static str,
    /// How it is without the file.
    without: &'static str,
    /// The newest version that is understood.
    version: u32,
}

impl Keeps {
    /// What was changed while the server ran.
    pub(crate) const CHANGES: Keeps = Keeps { version: VERSION + 2, ..Keeps::CLIENTS };
    /// The same of clients.
    pub(crate) const CLIENTS: Keeps = Keeps {
        what: "what was changed by ctl",
        without: "the configuration alone holds, and changes by ctl have to be made again",
        version: VERSION,
    };
    /// What a pool says of itself.
    pub(crate) const POOL: Keeps = Keeps {
        what: "what there is in a pool",
        without: "what its volumes hold stays as it is, and is found, but not what was said of it",
        version: VERSION + 1,
    };
    /// Which pools a server has used.
    pub(crate) const POOLS: Keeps = Keeps {
        what: "which pools there were",
        without: "an empty directory, on which a pool's file system is not mounted, is taken for the pool",
        version: VERSION,
    };
    /// What became of writes that were not flushed.
    pub(crate) const WRITES: Keeps = Keeps {
        what: "whether unflushed writes of a volume may be lost",
        without: "clients that are still there write again what they have not flushed",
        version: VERSION,
    };
    /// At which addresses of ATA over Ethernet volumes are that say none themselves.
    pub(crate) const SHELVES: Keeps = Keeps {
        what: "which AoE addresses volumes have",
        without: "those that are not written in the configuration may be others than before",
        version: VERSION,
    };
    /// What initiators have set of targets of ATA over Ethernet.
    pub(crate) const AOE_SETTINGS: Keeps = Keeps {
        what: "the config strings, masks and reservations of AoE targets",
        without: "none of them is set, and every allowed station may use every AoE target",
        version: VERSION,
    };
    /// At which disk addresses of HDSP volumes are that say none themselves.
    pub(crate) const DISK_ADDRESSES: Keeps = Keeps {
        what: "which HDSP disk addresses volumes have",
        without: "those that are not written in the configuration may be others than before",
        version: VERSION,
    };
    /// Who has used volumes.
    pub(crate) const USES: Keeps = Keeps {
        what: "who uses which volumes",
        without: "a volume may be taken away from a host that has it mounted and has not come back since the start",
        version: VERSION,
    };
}

/// A file that keeps something.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    keeps: Keeps,
}

#[derive(Serialize, Deserialize)]
struct Head {
    sanwire: u32,
    sum: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<usize>,
}

/// What each version has in its first line, whatever else stands there.
#[derive(Deserialize)]
struct Version {
    sanwire: u32,
}

/// What is in a file, whose first line and checksum are right.
pub(super) struct Parts<'a> {
    pub(super) version: u32,
    /// The checksum of the content.
    pub(super) sum: u128,
    pub(super) body: &'a [u8],
    /// What was added behind it.
    pub(super) added: &'a [u8],
}

impl StateFile {
    pub(crate) fn new(path: PathBuf, keeps: Keeps) -> Self {
        StateFile { path, keeps }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is kept; `None` when there is nothing yet.
    ///
    /// # Errors
    /// [`StateError`]. A file that cannot be understood is not taken for an empty one.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, StateError> {
        let content = read_file(&self.path).map_err(|source| StateError::Read { path: self.path.clone(), source })?;
        content.map(|content| self.parse(&content)).transpose()
    }

    fn parse<T: DeserializeOwned>(&self, content: &[u8]) -> Result<T, StateError> {
        let Parts { body, added, .. } = self.parts(content)?;
        match added {
            [] => serde_json::from_slice(body).map_err(|error| self.damaged(&error.to_string())),
            _ => Err(self.damaged("more follows than was written")),
        }
    }

    /// What its bytes are.
    ///
    /// # Errors
    /// [`StateError`] when they are not those of such a file.
    pub(super) fn parts<'a>(&self, content: &'a [u8]) -> Result<Parts<'a>, StateError> {
        let end = content.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| self.damaged("its first line has no end"))?;
        let (head, rest) = (&content[..end], &content[end + 1..]);
        let foreign = |_| self.damaged("its first line is not one of Sanwire");
        let Version { sanwire: version } = serde_json::from_slice(head).map_err(foreign)?;
        if version > self.keeps.version {
            return Err(StateError::Newer { path: self.path.clone(), keeps: self.keeps, version });
        }
        let Head { sum: written, length, .. } = serde_json::from_slice(head).map_err(foreign)?;
        let (body, added) = match length {
            None => (rest, &rest[rest.len()..]),
            Some(length) => rest.split_at_checked(length).ok_or_else(|| self.damaged("its content is cut off"))?,
        };
        let sum = fnv1a_128(body);
        if written != shown(sum) {
            return Err(self.damaged("its content does not have the checksum that was written"));
        }
        Ok(Parts { version, sum, body, added })
    }

    /// It is not what was written, for this reason.
    pub(super) fn damaged(&self, reason: &str) -> StateError {
        StateError::Damaged { path: self.path.clone(), keeps: self.keeps, reason: reason.to_owned() }
    }

    /// What a file holds that is JSON alone, as those of the first versions were; `None` when it is another one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn load_plain<T: DeserializeOwned>(&self) -> Result<Option<T>, StateError> {
        let content = read_file(&self.path).map_err(|source| StateError::Read { path: self.path.clone(), source })?;
        Ok(content.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    /// A value that stands in the file as text.
    ///
    /// # Errors
    /// [`StateError::Damaged`] when the text is not one.
    pub(crate) fn parsed<T: FromStr>(&self, text: &str) -> Result<T, StateError> {
        text.parse().map_err(|_| self.damaged(&format!("'{text}' is nothing it can hold")))
    }

    /// Keeps this in place of what was kept.
    ///
    /// # Errors
    /// What the system says; then what was kept still is.
    pub(crate) fn save<T: Serialize>(&self, content: &T) -> io::Result<()> {
        replace_file(&self.path, &with_head(VERSION, &body_of(content)?, false)?)
    }

    /// The same for what only programs understand that know the newest version of this file.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn save_newest<T: Serialize>(&self, content: &T) -> io::Result<()> {
        replace_file(&self.path, &with_head(self.keeps.version, &body_of(content)?, false)?)
    }

    /// Puts what is kept aside, as `PATH.old`, before something else takes its place.
    pub(crate) fn put_aside(&self) -> io::Result<()> {
        read_file(&self.path)?.map_or(Ok(()), |content| replace_file(self.aside().path(), &content))
    }

    /// What was put aside last.
    pub(crate) fn aside(&self) -> StateFile {
        let mut path = self.path.clone().into_os_string();
        path.push(".old");
        StateFile::new(path.into(), self.keeps)
    }
}

/// What stands behind the first line.
pub(super) fn body_of<T: Serialize>(content: &T) -> io::Result<Vec<u8>> {
    let mut body = serde_json::to_vec_pretty(content)?;
    body.push(b'\n');
    Ok(body)
}

/// The whole file; whether more will follow.
pub(super) fn with_head(version: u32, body: &[u8], is_followed: bool) -> io::Result<Vec<u8>> {
    let head = Head { sanwire: version, sum: shown(fnv1a_128(body)), length: is_followed.then_some(body.len()) };
    let mut text = serde_json::to_vec(&head)?;
    text.push(b'\n');
    text.extend_from_slice(body);
    Ok(text)
}

/// A checksum as it is written.
pub(super) fn shown(sum: u128) -> String {
    format!("{sum:032x}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(label: &str) -> (PathBuf, StateFile) {
        let directory = std::env::temp_dir().join(format!("sanwire-kept-{label}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        (directory.clone(), StateFile::new(directory.join("changes.json"), Keeps::CHANGES))
    }

    #[test]
    fn what_is_saved_is_loaded_and_nothing_is_nothing() {
        let (directory, file) = file("saved");
        assert_eq!(file.load::<Vec<u32>>().unwrap(), None);
        file.put_aside().unwrap();
        for content in [vec![1, 2, 3], vec![]] {
            file.save(&content).unwrap();
            assert_eq!(file.load::<Vec<u32>>().unwrap(), Some(content));
        }
        file.put_aside().unwrap();
        assert!(directory.join("changes.json.old").is_file());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_noticed_and_nothing_overwritten() {
        let (directory, file) = file("damaged");
        file.save(&vec!["one".to_owned(), "two".to_owned()]).unwrap();
        let good = fs::read(file.path()).unwrap();
        let load = |content: &[u8]| {
            fs::write(file.path(), content).unwrap();
            let loaded = file.load::<Vec<String>>();
            assert_eq!(fs::read(file.path()).unwrap(), content, "nothing was overwritten");
            loaded
        };
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            // Another white space or version of one's own is no damage that matters.
            let is_same = load(&bad).ok().flatten() == Some(vec!["one".to_owned(), "two".to_owned()]);
            assert!(load(&bad).is_err() || is_same && at < good.iter().position(|byte| *byte == b'\n').unwrap());
            let cut = load(&good[..at]);
            assert!(matches!(cut, Err(StateError::Damaged { .. })), "{at}: {cut:?}");
        }
        let refusal = load(b"{}\n").unwrap_err().to_string();
        assert!(refusal.contains("is damaged") && refusal.contains("mv "), "{refusal}");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_newer_file_is_refused_whatever_is_in_it() {
        let (directory, file) = file("newer");
        for head in ["\"sum\":\"?\",\"more\":1", "\"seal\":7"] {
            fs::write(file.path(), format!("{{\"sanwire\":4,{head}}}\nwhatever")).unwrap();
            let refusal = file.load::<Vec<u32>>().unwrap_err();
            assert!(matches!(refusal, StateError::Newer { version: 4, .. }), "{refusal}");
            assert!(refusal.to_string().contains("newer version of Sanwire"), "{refusal}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
