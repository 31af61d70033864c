//! What is remembered of writes that were complete and not flushed: two files for each volume in the state directory.
//!
//! | file | |
//! |---|---|
//! | `writes/UUID.json` | the volume's write verifier, the boot of the host in which it was served last, whether it was stopped cleanly then, whether a flush has failed; a number that the volume's file carries too, where it can |
//! | `tenures/UUID` | who is the only one that writes: number and writer, 16 bytes each; no file: nobody |
//!
//! A volume may be served in between with another state directory or with none, and be written to. Then its file does not carry
//! the number any more, and what is remembered here is not true.

mod keeper;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sanwire_device::{Tenure, Volatility};
use sanwire_store_file::{mark_records, records_mark};
use serde::{Deserialize, Serialize};

use self::keeper::{FileTenures, Records, is_there, keep, retire};
use crate::kept::versioned::{from_json, newer_version, to_json};
use crate::kept::{Keeps, StateError};
use crate::persist::{copy_aside, read_file, replace_file};
use crate::records::fnv1a_128;

/// Another one after each start of the host: what was in its page cache is gone then, and only then.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Nobody waits for longer than this for what cannot be made durable.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    boot: String,
    verifier: String,
    clean: bool,
    /// A flush has failed, and no run since then has stopped cleanly in which none failed.
    #[serde(default)]
    failed: bool,
    /// What the volume's file carries; `None` where it cannot.
    #[serde(default)]
    mark: Option<String>,
}

/// A writer's name, made of what tells it from all others.
pub(crate) fn writer(parts: &[&[u8]]) -> [u8; 16] {
    fnv1a_128(&parts.concat()).to_be_bytes()
}

/// Refuses what a newer program remembers: to go on without it could keep from clients that writes were lost.
///
/// # Errors
/// [`StateError::Newer`].
pub(crate) fn check_version(state: Option<&Path>, uuid: [u8; 16]) -> Result<(), StateError> {
    let Some(path) = state.map(|state| verifier_path(state, uuid)) else { return Ok(()) };
    // One that cannot be read is taken for the worst that it could say.
    let newer = read_file(&path).ok().flatten().and_then(|json| newer_version(&json));
    newer.map_or(Ok(()), |version| Err(StateError::Newer { path, keeps: Keeps::WRITES, version }))
}

/// With what writes are gone that were not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GoneWith {
    /// The host: they are in its page cache.
    Host,
    /// This process: of a volume of layers it alone knows which blocks the last layer has, until a flush has said so.
    Process,
}

/// What may become of the unflushed writes of the volume in this file. `fresh`: drawn for it.
pub(crate) fn volatility(
    volume: &Path,
    state: Option<&Path>,
    uuid: [u8; 16],
    fresh: [u8; 16],
    gone_with: GoneWith,
) -> Volatility {
    let host = || fs::read_to_string(BOOT_ID).ok().map(|boot| boot.trim().to_owned());
    let boot = if gone_with == GoneWith::Host { host() } else { None };
    volatility_in(&boot.unwrap_or_else(|| hexadecimal(fresh)), volume, state, uuid, fresh)
}

fn volatility_in(boot: &str, volume: &Path, state: Option<&Path>, uuid: [u8; 16], fresh: [u8; 16]) -> Volatility {
    // Without a memory: another one after each start of the host, however it was stopped.
    let of_boot = writer(&[boot.as_bytes(), &uuid]);
    let forgetful = |verifier, has_failed| {
        // Who remembers something, here or elsewhere, is to see that it has not served the volume last.
        let _ = mark_records(volume, None);
        Volatility { verifier, has_failed, tenure: None, keeper: None }
    };
    let Some(state) = state else { return forgetful(of_boot, false) };
    let (path, file) = (verifier_path(state, uuid), tenure_path(state, uuid));
    // The volume may have been here before in this run.
    let is_untold = retire(&file);
    let before = load_verifier(&path);
    if before.is_none() && is_there(&path) {
        tell_unreadable(&path, volume, "clients are told that what they have not flushed may be lost");
    }
    // A record that is there and cannot be read may say so.
    let has_failed = is_untold || before.as_ref().map_or_else(|| is_there(&path), |kept| kept.failed);
    // What is not remembered may be true of another run.
    let is_last = before.as_ref().is_some_and(|kept| kept.mark == records_mark(volume));
    if !is_last && let Err(error) = keep(&file, None) {
        tracing::warn!(
            "{} cannot be removed: {error}; it is older than what was written to {} last, so that clients cannot write again what \
             was not flushed",
            file.display(),
            volume.display()
        );
        return forgetful(fresh, has_failed);
    }
    let before = before.filter(|_| is_last);
    let is_valid = |kept: &&Kept| !is_untold && (kept.clean || kept.boot == boot);
    let same = before.as_ref().filter(is_valid).and_then(|kept| parse(&kept.verifier));
    let mut verifier = same.unwrap_or(fresh);
    let mark = before.as_ref().and_then(|kept| kept.mark.clone()).or_else(|| {
        let mark = hexadecimal(writer(&[b"mark", &fresh]));
        mark_records(volume, Some(&mark)).then_some(mark)
    });
    let now = Kept { boot: boot.to_owned(), verifier: hexadecimal(verifier), clean: false, failed: has_failed, mark };
    if before.as_ref() != Some(&now)
        && let Err(error) = save(&path, &now)
    {
        tracing::warn!(
            "{} cannot be written: {error}; after the host has lost its power, clients cannot write again what was not flushed, \
             and their next flush fails",
            path.display()
        );
        // What stays there would say at the next start that nothing was lost in this run, or before: clients must see something
        // else now, and what can be removed is not believed then either.
        let is_misleading = is_untold || before.is_some_and(|kept| kept.clean);
        if is_misleading {
            let _ = keep(&path, None);
        }
        // A tenure that stays from before would outlive writes of others in this run: where it cannot be ended now, they wait
        // until it can.
        if keep(&file, None).is_ok() {
            return forgetful(if is_misleading { fresh } else { of_boot }, has_failed);
        }
        if is_misleading {
            verifier = fresh;
        }
    }
    let tenure = load_tenure(&file, volume);
    let records = Records { tenure: file, verifier: path, boot: boot.to_owned(), mark: now.mark };
    Volatility { verifier, has_failed, tenure, keeper: Some(Arc::new(FileTenures::new(records, TIMEOUT))) }
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// The volume's, which tells clients that go by it whether writes may be lost.
    pub(crate) verifier: [u8; 16],
    /// All that was written is stable: what no flush has lost before.
    pub(crate) is_flushed: bool,
    /// A flush has failed in this run, also if others have succeeded since: not every client may have been told yet.
    pub(crate) has_failed: bool,
}

/// There will be no more writes to the volume in this run.
pub(crate) fn stopped(state: Option<&Path>, uuid: [u8; 16], stop: Stop) {
    let Stop { verifier, is_flushed, has_failed } = stop;
    let Some(state) = state else { return };
    let path = verifier_path(state, uuid);
    // A verifier of before, which is being written down now, must not come after this.
    retire(&tenure_path(state, uuid));
    let Some(kept) = load_verifier(&path) else { return };
    let last = Kept { clean: true, failed: has_failed, verifier: hexadecimal(verifier), ..kept };
    let Err(error) = save(&path, &last) else { return };
    if is_flushed {
        tracing::warn!(
            "{} cannot be written: {error}; clients will write again what is stable already",
            path.display()
        );
    } else if let Err(error) = keep(&path, None) {
        tracing::error!("{} cannot be removed: {error}; clients may not hear that writes were lost", path.display());
    }
}

fn load_verifier(path: &Path) -> Option<Kept> {
    from_json(&read_file(path).ok().flatten()?).ok()
}

fn save(path: &Path, kept: &Kept) -> io::Result<()> {
    replace_file(path, &to_json(kept)?)
}

fn verifier_path(state: &Path, uuid: [u8; 16]) -> PathBuf {
    state.join("writes").join(hexadecimal(uuid) + ".json")
}

fn tenure_path(state: &Path, uuid: [u8; 16]) -> PathBuf {
    state.join("tenures").join(hexadecimal(uuid))
}

fn hexadecimal(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn parse(text: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

/// Says what follows from a record that cannot be understood, and sets a copy of it aside before another one takes its place.
fn tell_unreadable(path: &Path, volume: &Path, what_follows: &str) {
    let copied = copy_aside(path).map(|copy| format!(" (a copy of it is kept in {})", copy.display()));
    let (path, volume, copied) = (path.display(), volume.display(), copied.unwrap_or_default());
    tracing::warn!("{path}, which belongs to the volume in {volume}, cannot be understood{copied}: {what_follows}");
}

/// What cannot be read may be readable later, and what was removed may be back after a loss of power: it is somebody's, who is nobody,
/// until it is replaced.
fn load_tenure(path: &Path, volume: &Path) -> Option<Tenure> {
    let nobody = Tenure { id: [0; 16], writer: [0; 16] };
    let kept = match read_file(path) {
        Ok(None) => return keep(path, None).map_or(Some(nobody), |()| None),
        Ok(Some(bytes)) => match (bytes.first_chunk(), bytes.last_chunk(), bytes.len()) {
            (Some(id), Some(writer), 32) => Some(Tenure { id: *id, writer: *writer }),
            _ => None,
        },
        Err(_) => None,
    };
    if kept.is_none() {
        tell_unreadable(path, volume, "until it is replaced, no client writes again what it has not flushed");
    }
    kept.or(Some(nobody))
}

#[cfg(test)]
mod tests;
