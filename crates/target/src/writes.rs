//! What is remembered of writes that were complete and not flushed: two files for each volume in the state directory.
//!
//! | file | |
//! |---|---|
//! | `writes/UUID.json` | the volume's write verifier, the boot of the host in which it was served last, whether it was stopped cleanly then; a number that the volume's file carries too, where it can |
//! | `tenures/UUID` | who is the only one that writes: number and writer, 16 bytes each; no file: nobody |
//!
//! A volume may be served in between with another state directory or with none, and be written to. Then its file does not carry
//! the number any more, and what is remembered here is not true.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::{Tenure, TenureKeeper, Volatility};
use sanwire_store::{mark_records, records_mark};
use serde::{Deserialize, Serialize};

use crate::persist::{read_file, replace_file};
use crate::records::fnv1a_128;

/// Another one after each start of the host: what was in its page cache is gone then, and only then.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What could not be made durable is tried again after this.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Nobody waits for longer than this for what cannot be made durable.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    boot: String,
    verifier: String,
    clean: bool,
    /// What the volume's file carries; `None` where it cannot.
    #[serde(default)]
    mark: Option<String>,
}

/// A writer's name, made of what tells it from all others.
pub(crate) fn writer(parts: &[&[u8]]) -> [u8; 16] {
    fnv1a_128(&parts.concat()).to_be_bytes()
}

/// What may become of the unflushed writes of the volume in this file. `fresh`: drawn for it.
pub(crate) fn volatility(volume: &Path, state: Option<&Path>, uuid: [u8; 16], fresh: [u8; 16]) -> Volatility {
    let boot = fs::read_to_string(BOOT_ID).map_or_else(|_| hexadecimal(fresh), |boot| boot.trim().to_owned());
    volatility_in(&boot, volume, state, uuid, fresh)
}

fn volatility_in(boot: &str, volume: &Path, state: Option<&Path>, uuid: [u8; 16], fresh: [u8; 16]) -> Volatility {
    // Without a memory: another one after each start of the host, however it was stopped.
    let of_boot = writer(&[boot.as_bytes(), &uuid]);
    let forgetful = Volatility { verifier: of_boot, tenure: None, keeper: None };
    let Some(state) = state else {
        // Who remembers something elsewhere is to see that it has not served the volume last.
        let _ = mark_records(volume, None);
        return forgetful;
    };
    let (path, file) = (verifier_path(state, uuid), state.join("tenures").join(hexadecimal(uuid)));
    let before = read_file(&path).ok().flatten().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    let is_last = before.as_ref().is_none_or(|kept| kept.mark.is_none() || kept.mark == records_mark(volume));
    if !is_last && let Err(error) = keep(&file, None) {
        tracing::warn!(
            "{} cannot be removed: {error}; it is older than what was written to {} last, so that clients cannot write again what \
             was not flushed",
            file.display(),
            volume.display()
        );
        return Volatility { verifier: fresh, ..forgetful };
    }
    let before = before.filter(|_| is_last);
    let same = before.as_ref().filter(|kept| kept.clean || kept.boot == boot).and_then(|kept| parse(&kept.verifier));
    let verifier = same.unwrap_or(fresh);
    let mark = before.as_ref().and_then(|kept| kept.mark.clone()).or_else(|| {
        let mark = hexadecimal(writer(&[b"mark", &fresh]));
        mark_records(volume, Some(&mark)).then_some(mark)
    });
    let now = Kept { boot: boot.to_owned(), verifier: hexadecimal(verifier), clean: false, mark };
    if before.as_ref() != Some(&now)
        && let Err(error) = save(&path, &now)
    {
        tracing::warn!(
            "{} cannot be written: {error}; after the host has lost its power, clients cannot write again what was not flushed, \
             and their next flush fails",
            path.display()
        );
        // A tenure that stays from before would outlive writes of others in this run: where it cannot be ended now, they wait
        // until it can.
        if keep(&file, None).is_ok() {
            return forgetful;
        }
    }
    let tenure = load_tenure(&file);
    let records = Records { tenure: file, verifier: path, boot: boot.to_owned(), mark: now.mark };
    Volatility { verifier, tenure, keeper: Some(Arc::new(FileTenures::new(records, PATIENCE))) }
}

/// There will be no more writes to the volume in this run, and all that there were are stable, if `verifier` is still its verifier.
/// `None`: they could not be made so, and the next start has another one.
pub(crate) fn stopped(state: Option<&Path>, uuid: [u8; 16], verifier: Option<[u8; 16]>) {
    let Some(path) = state.map(|state| verifier_path(state, uuid)) else { return };
    let Some(verifier) = verifier else {
        if let Err(error) = keep(&path, None) {
            tracing::error!(
                "{} cannot be removed: {error}; clients may not hear that writes were lost",
                path.display()
            );
        }
        return;
    };
    let kept = read_file(&path).ok().flatten().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    let Some(kept) = kept else { return };
    if let Err(error) = save(&path, &Kept { clean: true, verifier: hexadecimal(verifier), ..kept }) {
        tracing::warn!(
            "{} cannot be written: {error}; clients will write again what is stable already",
            path.display()
        );
    }
}

fn save(path: &Path, kept: &Kept) -> io::Result<()> {
    replace_file(path, &serde_json::to_vec(kept)?)
}

fn verifier_path(state: &Path, uuid: [u8; 16]) -> PathBuf {
    state.join("writes").join(hexadecimal(uuid) + ".json")
}

fn hexadecimal(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn parse(text: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

/// What cannot be read may be readable later: it is somebody's, who is nobody, until it is replaced.
fn load_tenure(path: &Path) -> Option<Tenure> {
    let nobody = Tenure { id: [0; 16], writer: [0; 16] };
    match read_file(path) {
        Ok(None) => None,
        Ok(Some(bytes)) => Some(match (bytes.first_chunk(), bytes.last_chunk(), bytes.len()) {
            (Some(id), Some(writer), 32) => Tenure { id: *id, writer: *writer },
            _ => nobody,
        }),
        Err(_) => Some(nobody),
    }
}

/// Keeps the tenure of one volume and its verifier, by a thread that lives as long as something is to be written.
#[derive(Debug)]
struct FileTenures {
    shared: Arc<Shared>,
}

/// Where a volume's records are, and what stands in them besides.
#[derive(Debug)]
struct Records {
    tenure: PathBuf,
    verifier: PathBuf,
    boot: String,
    mark: Option<String>,
}

#[derive(Debug)]
struct Shared {
    records: Records,
    patience: Duration,
    wishes: Mutex<Wishes>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct Wishes {
    wanted: Option<Tenure>,
    last: u64,
    kept: u64,
    /// One that is not kept yet.
    verifier: Option<[u8; 16]>,
    is_working: bool,
    /// Since when it is tried in vain.
    failing_since: Option<Instant>,
}

impl FileTenures {
    /// Who waits for it has so much patience.
    fn new(records: Records, patience: Duration) -> Self {
        FileTenures {
            shared: Arc::new(Shared { records, patience, wishes: Mutex::default(), changed: Condvar::new() }),
        }
    }
}

impl TenureKeeper for FileTenures {
    fn draw(&self) -> Option<[u8; 16]> {
        sanwire_hyperscsi::random().ok()
    }

    fn want(&self, tenure: Option<Tenure>) -> u64 {
        let mut wishes = self.shared.lock();
        (wishes.wanted, wishes.last) = (tenure, wishes.last + 1);
        self.shared.changed.notify_all();
        Shared::see_to_it(&self.shared, &mut wishes);
        wishes.last
    }

    fn is_kept(&self, wish: u64) -> bool {
        let mut wishes = self.shared.lock();
        // A system that had no thread may have one now.
        Shared::see_to_it(&self.shared, &mut wishes);
        wishes.kept >= wish
    }

    fn renew(&self, verifier: [u8; 16]) {
        let mut wishes = self.shared.lock();
        wishes.verifier = Some(verifier);
        self.shared.changed.notify_all();
        Shared::see_to_it(&self.shared, &mut wishes);
    }

    fn is_failing(&self) -> bool {
        self.shared.lock().failing_since.is_some_and(|since| since.elapsed() >= self.shared.patience)
    }
}

impl Wishes {
    fn are_kept(&self) -> bool {
        self.kept >= self.last && self.verifier.is_none()
    }
}

impl Shared {
    /// Has a thread do what is wanted, if anything is.
    fn see_to_it(shared: &Arc<Shared>, wishes: &mut Wishes) {
        if !wishes.is_working && !wishes.are_kept() {
            let own = Arc::clone(shared);
            wishes.is_working = thread::Builder::new().name("tenure".into()).spawn(move || own.work()).is_ok();
        }
    }

    /// Writes what is wanted until all of it is durable.
    fn work(&self) {
        let mut is_told = false;
        loop {
            let (verifier, tenure) = {
                let mut wishes = self.lock();
                if wishes.are_kept() {
                    wishes.is_working = false;
                    return;
                }
                (wishes.verifier, (wishes.kept < wishes.last).then_some((wishes.wanted, wishes.last)))
            };
            // A verifier is waited for by nobody: it comes when the tenure is kept, for which writes may wait.
            let is_kept = tenure.is_none_or(|wish| self.keep_tenure(wish));
            if is_kept && let Err(error) = self.keep_verifier(verifier) {
                if !std::mem::replace(&mut is_told, true) {
                    let path = self.records.verifier.display();
                    tracing::error!("{path} cannot be written: {error}; clients may not hear that writes were lost");
                }
                self.pause();
            }
            if !is_kept {
                self.pause();
            }
        }
    }

    fn pause(&self) {
        let wishes = self.lock();
        drop(self.changed.wait_timeout(wishes, TRY_AGAIN));
    }

    /// Whether it is kept now; when not, that is said once.
    fn keep_tenure(&self, (wanted, wish): (Option<Tenure>, u64)) -> bool {
        let (kept, path) = (keep(&self.records.tenure, wanted), self.records.tenure.display());
        let mut wishes = self.lock();
        match &kept {
            Ok(()) => {
                wishes.kept = wish;
                if wishes.failing_since.take().is_some() {
                    tracing::warn!("{path} can be written again: all may write to its volume");
                }
            }
            Err(error) => {
                if wishes.failing_since.is_none() {
                    tracing::error!(
                        "{path} cannot be written: {error}; until it can be, writes to its volume are refused, but for those of the \
                         client that was the only one to write"
                    );
                }
                wishes.failing_since.get_or_insert_with(Instant::now);
            }
        }
        kept.is_ok()
    }

    fn keep_verifier(&self, verifier: Option<[u8; 16]>) -> io::Result<()> {
        let Some(verifier) = verifier else { return Ok(()) };
        let Records { verifier: path, boot, mark, .. } = &self.records;
        let kept = Kept { boot: boot.clone(), verifier: hexadecimal(verifier), clean: false, mark: mark.clone() };
        save(path, &kept)?;
        self.lock().verifier.take_if(|latest| *latest == verifier);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Wishes> {
        // It is changed by single assignments.
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the file say so, through crashes too. Where there is no room for a tenure there is none.
fn keep(path: &Path, tenure: Option<Tenure>) -> io::Result<()> {
    let replaced = tenure
        .map_or(Err(io::ErrorKind::NotFound.into()), |tenure| replace_file(path, &[tenure.id, tenure.writer].concat()));
    let is_absent = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    replaced.or_else(|_| {
        // What is not there need not be removed where nothing can be.
        let is_there = path.symlink_metadata().map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true);
        if is_there {
            is_absent(fs::remove_file(path))?;
        }
        // Also when it was gone already: an earlier try may have failed right after the removal.
        path.parent().map_or(Ok(()), |directory| is_absent(File::open(directory).and_then(|file| file.sync_all())))
    })
}

#[cfg(test)]
mod tests;
