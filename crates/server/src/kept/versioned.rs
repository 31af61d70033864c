//! Small files of the state directory that are one line of JSON, with the version of their format among the keys.
//!
//! The first version said nothing of itself, and ignores keys that it does not know: it reads what is written here.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version that is written. One that an older program would misunderstand must have a higher one.
pub(super) const VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a, T> {
    sanwire: u32,
    #[serde(flatten)]
    content: &'a T,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    sanwire: u32,
}

/// What to write.
///
/// # Errors
/// When it cannot be said in JSON.
pub(crate) fn to_json<T: Serialize>(content: &T) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Written { sanwire: VERSION, content })?)
}

/// What was written.
///
/// # Errors
/// When it is not that, or a newer program wrote it.
pub(crate) fn from_json<T: DeserializeOwned>(json: &[u8]) -> io::Result<T> {
    if let Some(version) = newer_version(json) {
        return Err(io::Error::other(format!(
            "a newer version of Sanwire wrote it (format {version}; this one reads up to {VERSION}): start that version"
        )));
    }
    Ok(serde_json::from_slice(json)?)
}

/// The version of a file that a newer program wrote.
pub(crate) fn newer_version(json: &[u8]) -> Option<u32> {
    let Version { sanwire } = serde_json::from_slice(json).ok()?;
    Some(sanwire).filter(|version| *version > VERSION)
}
