//! Writes down the tenure of one volume and its verifier, by a thread that lives as long as something is to be written.
//!
//! A volume may go and come again while its state directory cannot be written. So a keeper whose volume is gone lets go of the tenure
//! that it could not write, as if the server had been killed then; and before anybody reads the records, the keeper of before is
//! retired: it writes nothing any more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::{RecordListener, Tenure, TenureKeeper};

use super::{Kept, hexadecimal, save};
use crate::persist::replace_file;
use crate::random;

/// What could not be made durable is tried again after this.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The keepers of this process that may still write, by the files of their tenures.
static KEEPERS: Mutex<BTreeMap<PathBuf, Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// Has nobody write these records any more who has until now, and waits for what is being written. Whether a verifier is lost so.
pub(super) fn retire(tenure: &Path) -> bool {
    let before = lock(&KEEPERS).remove(tenure).and_then(|shared| shared.upgrade());
    before.is_some_and(|shared| shared.retire())
}

/// The keeper of one volume that is served.
#[derive(Debug)]
pub(super) struct FileTenures {
    pub(super) shared: Arc<Shared>,
}

/// Where a volume's records are, and what stands in them besides.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) tenure: PathBuf,
    pub(super) verifier: PathBuf,
    pub(super) boot: String,
    pub(super) mark: Option<String>,
}

#[derive(Debug)]
pub(super) struct Shared {
    records: Records,
    patience: Duration,
    wishes: Mutex<Wishes>,
    changed: Condvar,
    /// Held while records are written.
    writing: Mutex<()>,
}

#[derive(Default, Debug)]
pub(super) struct Wishes {
    wanted: Option<Tenure>,
    last: u64,
    kept: u64,
    /// One that is not kept yet.
    verifier: Option<[u8; 16]>,
    is_working: bool,
    /// Since when it is tried in vain.
    pub(super) failing_since: Option<Instant>,
    /// The records are somebody else's now.
    is_retired: bool,
    /// Who waits for what is kept.
    listener: Option<RecordListener>,
}

/// Why a verifier is not kept, and whether the one before is not either.
struct Unkept {
    error: io::Error,
    is_removed: bool,
}

impl FileTenures {
    /// Who waits for it has so much patience.
    pub(super) fn new(records: Records, patience: Duration) -> Self {
        let (tenure, wishes, writing) = (records.tenure.clone(), Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { records, patience, wishes, changed: Condvar::new(), writing });
        let mut keepers = lock(&KEEPERS);
        keepers.retain(|_, keeper| keeper.strong_count() > 0);
        keepers.insert(tenure, Arc::downgrade(&shared));
        FileTenures { shared }
    }
}

impl Drop for FileTenures {
    fn drop(&mut self) {
        // Nobody has begun to write for whom this was to be durable. That a flush has failed is worth writing down later too.
        let mut wishes = self.shared.lock();
        wishes.last = wishes.kept;
        self.shared.changed.notify_all();
    }
}

impl TenureKeeper for FileTenures {
    fn listen(&self, listener: RecordListener) {
        self.shared.lock().listener = Some(listener);
    }

    fn draw(&self) -> Option<[u8; 16]> {
        random::bytes().ok()
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
        // A system that had no thread may have one now. Nobody tells of that; the engine looks after commands that wait for long.
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
        let wishes = self.shared.lock();
        wishes.is_retired || wishes.failing_since.is_some_and(|since| since.elapsed() >= self.shared.patience)
    }
}

impl Wishes {
    /// Whether there is nothing to write.
    fn are_done(&self) -> bool {
        self.is_retired || (self.kept >= self.last && self.verifier.is_none())
    }
}

impl Shared {
    /// Has a thread do what is wanted, if anything is.
    fn see_to_it(shared: &Arc<Shared>, wishes: &mut Wishes) {
        if !wishes.is_working && !wishes.are_done() {
            let own = Arc::clone(shared);
            wishes.is_working = thread::Builder::new().name("tenure".into()).spawn(move || own.work()).is_ok();
        }
    }

    /// Writes what is wanted until all of it is durable.
    fn work(&self) {
        let mut is_told = false;
        loop {
            let writing = lock(&self.writing);
            let (verifier, tenure) = {
                let mut wishes = self.lock();
                if wishes.are_done() {
                    wishes.is_working = false;
                    return;
                }
                (wishes.verifier, (wishes.kept < wishes.last).then_some((wishes.wanted, wishes.last)))
            };
            // A verifier is waited for by nobody: it comes when the tenure is kept, for which writes may wait.
            let is_kept = tenure.is_none_or(|wish| self.keep_tenure(wish));
            // Or it is failing.
            self.tell();
            let told = if is_kept { self.keep_verifier(verifier) } else { Ok(()) };
            drop(writing);
            if let Err(Unkept { error, is_removed }) = &told
                && !std::mem::replace(&mut is_told, true)
            {
                let path = self.records.verifier.display();
                let whether = if *is_removed {
                    "it is removed: after the next start clients hear"
                } else {
                    "clients may not hear"
                };
                tracing::error!("{path} cannot be written: {error}; {whether} that writes were lost");
            }
            if !is_kept || told.is_err() {
                self.pause();
            }
        }
    }

    /// Who waits for a tenure looks again.
    fn tell(&self) {
        let listener = self.lock().listener.clone();
        listener.iter().for_each(RecordListener::tell);
    }

    /// Nobody tells when a file system has room, or is there, again: it is tried from time to time, and at the latest when nobody should
    /// wait for it any more.
    fn pause(&self) {
        let wishes = self.lock();
        if !wishes.are_done() {
            let tried = wishes.failing_since.map(|since| since.elapsed());
            let left = tried.map(|tried| self.patience.saturating_sub(tried)).filter(|left| !left.is_zero());
            drop(self.changed.wait_timeout(wishes, left.map_or(TRY_AGAIN, |left| left.min(TRY_AGAIN))));
        }
    }

    fn retire(&self) -> bool {
        let _writing = lock(&self.writing);
        let mut wishes = self.lock();
        wishes.is_retired = true;
        self.changed.notify_all();
        let is_untold = wishes.verifier.take().is_some();
        drop(wishes);
        self.tell();
        is_untold
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

    /// What cannot be written is tried again. Until then nothing is believed that was written before: where there is no room for a
    /// file, one can be removed as a rule.
    fn keep_verifier(&self, verifier: Option<[u8; 16]>) -> Result<(), Unkept> {
        let Some(verifier) = verifier else { return Ok(()) };
        let Records { verifier: path, boot, mark, .. } = &self.records;
        let kept = Kept {
            boot: boot.clone(),
            verifier: hexadecimal(verifier),
            clean: false,
            failed: true,
            mark: mark.clone(),
        };
        save(path, &kept).map_err(|error| Unkept { error, is_removed: keep(path, None).is_ok() })?;
        self.lock().verifier.take_if(|latest| *latest == verifier);
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Wishes> {
        lock(&self.wishes)
    }
}

/// All that is kept so is changed by single assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the file say so, through crashes too. Where there is no room for a tenure there is none.
pub(super) fn keep(path: &Path, tenure: Option<Tenure>) -> io::Result<()> {
    let replaced = tenure
        .map_or(Err(io::ErrorKind::NotFound.into()), |tenure| replace_file(path, &[tenure.id, tenure.writer].concat()));
    let is_absent = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    replaced.or_else(|_| {
        // What is not there need not be removed where nothing can be.
        if is_there(path) {
            is_absent(fs::remove_file(path))?;
        }
        // Also when it was gone already: an earlier try may have failed right after the removal.
        path.parent().map_or(Ok(()), |directory| is_absent(File::open(directory).and_then(|file| file.sync_all())))
    })
}

/// Whether anything has this name, as far as that can be said.
pub(super) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
}
