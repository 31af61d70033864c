//! What is remembered of writes that were complete and not flushed: two files for each volume in the state directory.
//!
//! | file | |
//! |---|---|
//! | `writes/UUID.json` | the volume's write verifier, the boot of the host in which it was served last, whether it was stopped cleanly then |
//! | `tenures/UUID` | who is the only one that writes: number and writer, 16 bytes each; no file: nobody |

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use sanwire_device::{Tenure, TenureKeeper, Volatility};
use serde::{Deserialize, Serialize};

use crate::persist::{read_file, replace_file};
use crate::records::fnv1a_128;

/// Another one after each start of the host: what was in its page cache is gone then, and only then.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What could not be made durable is tried again after this.
const TRY_AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    boot: String,
    verifier: String,
    clean: bool,
}

/// A writer's name, made of what tells it from all others.
pub(crate) fn writer(parts: &[&[u8]]) -> [u8; 16] {
    fnv1a_128(&parts.concat()).to_be_bytes()
}

/// What may become of the unflushed writes of a volume in a file. `fresh`: drawn for it.
pub(crate) fn volatility(state: Option<&Path>, uuid: [u8; 16], fresh: [u8; 16]) -> Volatility {
    let boot = fs::read_to_string(BOOT_ID).map_or_else(|_| hexadecimal(fresh), |boot| boot.trim().to_owned());
    volatility_in(&boot, state, uuid, fresh)
}

fn volatility_in(boot: &str, state: Option<&Path>, uuid: [u8; 16], fresh: [u8; 16]) -> Volatility {
    // Without a memory: another one after each start of the host, however it was stopped.
    let of_boot = writer(&[boot.as_bytes(), &uuid]);
    let Some(state) = state else { return Volatility { verifier: of_boot, tenure: None, keeper: None } };
    let (path, file) = (verifier_path(state, uuid), state.join("tenures").join(hexadecimal(uuid)));
    let before = read_file(&path).ok().flatten().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    let same = before.as_ref().filter(|kept| kept.clean || kept.boot == boot).and_then(|kept| parse(&kept.verifier));
    let verifier = same.unwrap_or(fresh);
    let now = Kept { boot: boot.to_owned(), verifier: hexadecimal(verifier), clean: false };
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
            return Volatility { verifier: of_boot, tenure: None, keeper: None };
        }
    }
    let tenure = load_tenure(&file);
    Volatility { verifier, tenure, keeper: Some(Arc::new(FileTenures::new(file, path, boot.to_owned()))) }
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

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    verifier_path: PathBuf,
    boot: String,
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
}

impl FileTenures {
    fn new(path: PathBuf, verifier_path: PathBuf, boot: String) -> Self {
        let shared = Shared { path, verifier_path, boot, wishes: Mutex::default(), changed: Condvar::new() };
        FileTenures { shared: Arc::new(shared) }
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
            let result =
                tenure.map_or(Ok(()), |wish| self.keep_tenure(wish)).and_then(|()| self.keep_verifier(verifier));
            if let Err((path, error)) = result {
                if !std::mem::replace(&mut is_told, true) {
                    let path = path.display();
                    tracing::error!("{path} cannot be written: {error}; writes of its volume may wait until it can be");
                }
                let wishes = self.lock();
                drop(self.changed.wait_timeout(wishes, TRY_AGAIN));
            }
        }
    }

    fn keep_tenure(&self, (wanted, wish): (Option<Tenure>, u64)) -> Result<(), (&Path, io::Error)> {
        keep(&self.path, wanted).map_err(|error| (&*self.path, error))?;
        self.lock().kept = wish;
        Ok(())
    }

    fn keep_verifier(&self, verifier: Option<[u8; 16]>) -> Result<(), (&Path, io::Error)> {
        let Some(verifier) = verifier else { return Ok(()) };
        let kept = Kept { boot: self.boot.clone(), verifier: hexadecimal(verifier), clean: false };
        save(&self.verifier_path, &kept).map_err(|error| (&*self.verifier_path, error))?;
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
        is_absent(fs::remove_file(path))?;
        // Also when it was gone already: an earlier try may have failed right after the removal.
        path.parent().map_or(Ok(()), |directory| is_absent(File::open(directory).and_then(|file| file.sync_all())))
    })
}

#[cfg(test)]
mod tests;
