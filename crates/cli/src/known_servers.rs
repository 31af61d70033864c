//! The servers whose keys are pinned: one line for each, its URL and its public key.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use sanwire_initiator::Server;

use crate::config::config_directory;
use crate::failure::misuse;
use crate::keys::{hexadecimal, parse};

const HEADER: &str = "# Servers and their public keys, written by `sanwire key pin`.\n";

/// The pinned servers of this user.
#[derive(Debug)]
pub(crate) struct KnownServers {
    path: PathBuf,
    keys: BTreeMap<String, [u8; 32]>,
}

impl KnownServers {
    /// Reads the user's file; an absent one is empty.
    ///
    /// # Errors
    /// A [`crate::failure::Misuse`] when it cannot be read or makes no sense: who has pinned a server wants to be told.
    pub(crate) fn load() -> anyhow::Result<Self> {
        Self::read(config_directory()?.join("known-servers"))
    }

    fn read(path: PathBuf) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(misuse(format!("cannot read {}: {error}", path.display()))),
        };
        let mut keys = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let parsed = line.split_once(' ').and_then(|(server, key)| Some((server.to_owned(), parse(key.trim())?)));
            let (server, key) = parsed.ok_or_else(|| {
                let shown = path.display();
                misuse(format!("{shown}:{number}: expected URL and 64 hexadecimal digits: correct or remove the line"))
            })?;
            keys.insert(server, key);
        }
        Ok(KnownServers { path, keys })
    }

    /// The key that a server must have.
    pub(crate) fn key_of(&self, server: &Server) -> Option<[u8; 32]> {
        self.keys.get(&server.to_string()).copied()
    }

    /// Pins a server; gives the key that it had to have before.
    pub(crate) fn pin(&mut self, server: &Server, key: [u8; 32]) -> anyhow::Result<Option<[u8; 32]>> {
        let before = self.keys.insert(server.to_string(), key);
        self.write()?;
        Ok(before)
    }

    /// Takes a server with any key again; `false` when it was not pinned.
    pub(crate) fn forget(&mut self, server: &Server) -> anyhow::Result<bool> {
        let was_pinned = self.keys.remove(&server.to_string()).is_some();
        if was_pinned {
            self.write()?;
        }
        Ok(was_pinned)
    }

    /// Written aside and renamed into place: there is always a whole file.
    fn write(&self) -> anyhow::Result<()> {
        let unwritable = || format!("cannot write {}", self.path.display());
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).with_context(unwritable)?;
        }
        let lines = self.keys.iter().map(|(server, key)| format!("{server} {}\n", hexadecimal(key)));
        let text: String = std::iter::once(HEADER.to_owned()).chain(lines).collect();
        let aside = self.path.with_extension(format!("new-{}", std::process::id()));
        let mut file = fs::File::create(&aside).with_context(unwritable)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(unwritable)?;
        fs::rename(&aside, &self.path).with_context(unwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanwire_initiator::Url;

    #[test]
    fn a_pinned_server_is_known_until_it_is_forgotten() {
        let directory = std::env::temp_dir().join(format!("sanwire-known-{}", std::process::id()));
        let path = directory.join("known-servers");
        let server = |text: &str| text.parse::<Url>().unwrap().server;
        let (one, other) = (server("hs+ip://10.0.0.1/disk"), server("hs+eth://eth0/store"));
        let mut known = KnownServers::read(path.clone()).unwrap();
        assert_eq!(known.pin(&one, [1; 32]).unwrap(), None);
        assert_eq!(known.pin(&one, [2; 32]).unwrap(), Some([1; 32]));
        known.pin(&other, [3; 32]).unwrap();
        let mut known = KnownServers::read(path.clone()).unwrap();
        assert_eq!((known.key_of(&one), known.key_of(&other)), (Some([2; 32]), Some([3; 32])));
        assert!(known.forget(&one).unwrap() && !known.forget(&one).unwrap());
        assert_eq!(KnownServers::read(path.clone()).unwrap().key_of(&one), None);
        fs::write(&path, "hs+ip://10.0.0.1 short\n").unwrap();
        assert!(KnownServers::read(path).unwrap_err().to_string().contains(":1: expected URL"));
        fs::remove_dir_all(directory).unwrap();
    }
}
