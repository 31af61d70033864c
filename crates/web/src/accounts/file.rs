//! What is kept of accounts.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Digest, Hash};
use crate::caller::Role;

/// The form of the file.
const VERSION: u32 = 1;

/// All accounts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contents {
    version: u32,
    pub(crate) users: Vec<UserRecord>,
    pub(crate) tokens: Vec<TokenRecord>,
}

/// What every form has, whatever else stands there.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// A user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserRecord {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) password: Hash,
}

/// A token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRecord {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The pools in which it may change something; none: no such limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pools: Vec<String>,
    pub(crate) digest: Digest,
    /// When it was made, as in RFC 3339.
    pub(crate) made: String,
    /// By whom, for people.
    pub(crate) by: String,
    /// Until when it holds, in seconds since 1970; without it, until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
}

/// The revision of a user or a token: another one whenever something of it is another. Of what it is made nobody can find out by it.
pub(crate) fn revision_of(record: &impl Serialize) -> u64 {
    // Records can always be written.
    Digest::of(&serde_json::to_string(record).unwrap_or_default()).revision()
}

impl TokenRecord {
    /// Whether its time is over.
    pub(crate) fn is_over(&self, now: SystemTime) -> bool {
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.expires.is_some_and(|end| seconds >= end)
    }
}

impl Default for Contents {
    fn default() -> Self {
        Contents { version: VERSION, users: Vec::new(), tokens: Vec::new() }
    }
}

impl Contents {
    pub(crate) fn user(&self, name: &str) -> Option<&UserRecord> {
        self.users.iter().find(|user| user.name == name)
    }

    /// Whether somebody could still do everything.
    pub(crate) fn has_administrator(&self) -> bool {
        self.users.iter().any(|user| user.role == Role::Administrator)
    }
}

/// Why the accounts cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read the accounts of the HTTP API in {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it, or write to it.
    #[error(
        "the accounts of the HTTP API in {} may be read or changed by others: `chmod 600` it, and give everybody another password",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error(
        "the accounts of the HTTP API in {} were written by a newer version of Sanwire (form {version}; this one reads up to {VERSION}); \
         nothing was overwritten. Start that version, put back a copy of the file from before, or move it away and make the accounts anew \
         by the link that `sanwire serve` prints when it starts without any",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its form.
        version: u32,
    },
    /// It is not what was written.
    #[error(
        "the accounts of the HTTP API in {} are damaged ({reason}): put back a copy, or remove the file and make the accounts anew by \
         the link that `sanwire serve` prints when it starts without any",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// What stands in the file; nothing when it is not there.
pub(super) fn read(path: &Path) -> Result<Contents, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
        text => text.map_err(failed)?,
    };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(FileError::Open { path: path.to_owned() });
    }
    let damaged = |reason: String| FileError::Damaged { path: path.to_owned(), reason };
    if let Ok(Version { version }) = serde_json::from_slice(&text)
        && version > VERSION
    {
        return Err(FileError::Newer { path: path.to_owned(), version });
    }
    let contents: Contents = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if contents.version != VERSION {
        return Err(damaged(format!("its form is {}, and this program knows {VERSION}", contents.version)));
    }
    Ok(contents)
}

/// Whether these stand in the file. They may although writing them has failed: they are not known to be stable, and count all the
/// same, as after a restart.
pub(super) fn has(path: &Path, contents: &Contents) -> bool {
    read(path).is_ok_and(|there| there == *contents)
}

pub(super) fn written(contents: &Contents) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(contents)
}
