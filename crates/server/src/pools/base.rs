//! The file or store below the layers of a family, and whether it is what they were written over.
//!
//! It holds what the volume does and nothing else, so it cannot say that itself. A small file beside the layers does, the seal: it is there
//! only while nothing writes below the layers, and tells how what is below was then.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_snapshot::Base;
use sanwire_store::kind::{BelowLayers, Place};
use sanwire_store::layer::{Layer, Over};
use sanwire_store::{Access, CompletionQueue, OpenError, Request, Started, Store, StoreError};
use sanwire_store_file::{FileOptions, FileStore, metadata, synced_metadata};
use serde::{Deserialize, Serialize};

use super::below::KeptBelow;
use super::family::{FamilyError, FamilyOptions};
use super::sample::{Sample, may_be_same, sample};
use crate::persist::{read_file, replace_file};

/// It has this name, beside the layers.
pub(super) const BASE: &str = "base";

/// And its seal this one.
const SEAL: &str = "base.seal";

/// What tells it from others: it is where it is.
const IDENTITY: &str = "base";

/// What is below all layers, which nobody else has open: a file of the pool, which is locked, or a store that is not in the pool.
#[derive(Debug)]
pub(super) struct Below {
    /// Of a file of the pool, its device and number.
    number: Option<(u64, u64)>,
    elsewhere: Option<Elsewhere>,
    look: Look,
    seal: Arc<Seal>,
    /// Why it is not what the layers were written over.
    mixture: Option<String>,
}

/// A store that is not in the pool.
#[derive(Debug)]
pub(super) struct Elsewhere {
    /// The volume that is written there when there are no layers, and only that one.
    volume: String,
    /// That volume is gone. Another one of its name was cloned.
    is_orphaned: AtomicBool,
    pub(super) store: Arc<dyn Store>,
}

impl Elsewhere {
    /// The volume that is written there when there are no layers.
    pub(super) fn owner(&self) -> Option<&str> {
        (!self.is_orphaned()).then_some(&self.volume)
    }

    /// Whether that is this one.
    pub(super) fn is_of(&self, volume: &str) -> bool {
        self.owner() == Some(volume)
    }

    /// Whether that is this one, or was one of this name.
    pub(super) fn was_of(&self, volume: &str) -> bool {
        self.volume == volume
    }

    pub(super) fn is_orphaned(&self) -> bool {
        self.is_orphaned.load(Ordering::Acquire)
    }

    /// From now on nothing is written there.
    pub(super) fn orphan(&self) {
        self.is_orphaned.store(true, Ordering::Release);
    }
}

impl Below {
    /// This one, below a family that is to have this directory.
    pub(super) fn of_file(file: &Path, directory: &Path, options: FamilyOptions) -> Result<(Below, Base), FamilyError> {
        Ok(Below::of_pool(directory, open(file, options)?, (Seal::none(directory), None)))
    }

    /// The same for a family that was kept.
    pub(super) fn kept(directory: &Path, options: FamilyOptions) -> Result<(Below, Base), FamilyError> {
        let file = directory.join(BASE);
        let seal = Seal::checked(directory, &Look::File(file.clone()))?;
        Ok(Below::of_pool(directory, open_kept(&file, options)?, seal))
    }

    fn of_pool(
        directory: &Path,
        (file, number): (Arc<FileStore>, (u64, u64)),
        seal: (Arc<Seal>, Option<String>),
    ) -> (Below, Base) {
        Below::new(file, Look::File(directory.join(BASE)), seal, |below| below.number = Some(number))
    }

    /// A store that is not in the pool, below a family in this directory; `found`: its file, before it was opened. With layers, it is to be
    /// what these were written over.
    pub(super) fn elsewhere(
        directory: &Path,
        kept: &KeptBelow,
        (store, below): (Arc<dyn Store>, &BelowLayers),
        (has_layers, found): (bool, Option<Metadata>),
    ) -> Result<(Below, Base), FamilyError> {
        let look = match (below.backing.place(), found) {
            (Place::File(path), Some(found)) if found.is_file() => {
                Look::FileElsewhere(path.to_owned(), Arc::clone(&store), found)
            }
            _ => Look::Store(Arc::clone(&store), below.written.clone()),
        };
        // What stands there from former layers, which are gone, says nothing of what has been written since.
        let seal = match has_layers {
            true => Seal::checked(directory, &look)?,
            false => (Seal::removed(directory)?, None),
        };
        let (volume, is_orphaned) = (kept.volume.clone(), kept.orphaned.into());
        let elsewhere = Elsewhere { volume, is_orphaned, store: Arc::clone(&store) };
        let (below, base) = Below::new(store, look, seal, |below| below.elsewhere = Some(elsewhere));
        Ok((below, Base { may_be_longer: true, ..base }))
    }

    fn new(
        store: Arc<dyn Store>,
        look: Look,
        (seal, mixture): (Arc<Seal>, Option<String>),
        complete: impl FnOnce(&mut Below),
    ) -> (Below, Base) {
        let store = Arc::new(Over::new(Guard(Arc::clone(&seal)), store));
        let base = Base { store, identity: IDENTITY.to_owned(), may_be_longer: false };
        let mut below = Below { number: None, elsewhere: None, look, seal, mixture };
        complete(&mut below);
        (below, base)
    }

    /// The store, if it is not in the pool.
    pub(super) fn store_elsewhere(&self) -> Option<&Elsewhere> {
        self.elsewhere.as_ref()
    }

    /// Whether it is this file.
    pub(super) fn is(&self, file: &Path) -> bool {
        self.number.is_some() && fs::metadata(file).is_ok_and(|file| Some(number_of(&file)) == self.number)
    }

    /// Refuses to have anything served of it, or merged into it, that was written over something else.
    pub(super) fn check(&self) -> io::Result<()> {
        self.mixture.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }

    /// Nobody writes it any more for now.
    pub(super) fn seal(&self) -> io::Result<()> {
        self.seal.put(&self.look)
    }

    /// Whether that is known to last.
    pub(super) fn is_sealed(&self) -> bool {
        self.seal.is_there.load(Ordering::Acquire)
    }

    /// From now on a volume may be written there.
    pub(super) fn unseal(&self) -> io::Result<()> {
        self.seal.take_off()
    }
}

fn number_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Opens it, and locks it.
fn open(
    file: &Path,
    FamilyOptions { block_bytes, direct, .. }: FamilyOptions,
) -> Result<(Arc<FileStore>, (u64, u64)), FamilyError> {
    let options = FileOptions { block_bytes: Some(block_bytes), direct, ..FileOptions::default() };
    let store = FileStore::open(file, &options)?;
    Ok((Arc::new(store), number_of(&fs::metadata(file)?)))
}

/// The same below layers, which stay as they are though the device may want longer blocks than theirs for direct I/O.
fn open_kept(file: &Path, options: FamilyOptions) -> Result<(Arc<FileStore>, (u64, u64)), FamilyError> {
    match open(file, options) {
        Err(FamilyError::Open(OpenError::Direct { needed_bytes, .. })) => {
            tracing::warn!(
                "{} is used through the page cache: its layers have blocks of {} bytes, and direct I/O needs {needed_bytes}",
                file.display(),
                options.block_bytes
            );
            open(file, FamilyOptions { direct: false, ..options })
        }
        opened => opened,
    }
}

/// How it is seen whether somebody has written to what is below layers.
#[derive(Debug)]
enum Look {
    /// By the time of a file, whose volume may have grown.
    File(PathBuf),
    /// By the time of a file outside the pool, as it was before it was opened; and where it is longer now, by what it holds here and there.
    FileElsewhere(PathBuf, Arc<dyn Store>, Metadata),
    /// By what it holds here and there: it has no such time. It is written so.
    Store(Arc<dyn Store>, String),
}

impl Look {
    /// Whether it may be what was seen before.
    fn may_be(&self, before: &Written) -> io::Result<bool> {
        match self {
            Look::File(file) => {
                let now = Written::of(&metadata(file)?);
                Ok(now.length_bytes != before.length_bytes || before.may_be_at(&now))
            }
            Look::FileElsewhere(_, _, found) if found.len() == before.length_bytes => {
                Ok(before.may_be_at(&Written::of(found)))
            }
            Look::FileElsewhere(_, store, _) | Look::Store(store, _) => {
                let is_whole = store.geometry().length_bytes >= before.length_bytes;
                let Some(before_sample) = before.sample.as_ref().filter(|_| is_whole) else { return Ok(false) };
                let now = sample(&**store, before.length_bytes)?;
                if now.contains(&None) {
                    tracing::warn!("{self}, which is below layers, cannot be read everywhere: that is not compared");
                }
                Ok(may_be_same(before_sample, &now))
            }
        }
    }

    /// When it is stable.
    fn look(&self) -> io::Result<Written> {
        // With the time of a file, also through a loss of power.
        let synced = |file: &Path| Ok::<_, io::Error>(Written::of(&synced_metadata(&File::open(file)?)?));
        let sampled = |store: &dyn Store, length_bytes| Ok::<_, io::Error>(Some(sample(store, length_bytes)?));
        match self {
            Look::File(file) => synced(file),
            Look::FileElsewhere(file, store, _) => {
                let written = synced(file)?;
                let length_bytes = store.geometry().length_bytes.min(written.length_bytes);
                Ok(Written { sample: sampled(&**store, length_bytes)?, ..written })
            }
            Look::Store(store, _) => {
                let length_bytes = store.geometry().length_bytes;
                let sample = sampled(&**store, length_bytes)?;
                Ok(Written { length_bytes, seconds: 0, nanoseconds: 0, sample })
            }
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Look::File(file) | Look::FileElsewhere(file, ..) => file.display().fmt(f),
            Look::Store(_, written) => f.write_str(written),
        }
    }
}

/// How it was when nobody wrote it any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Written {
    length_bytes: u64,
    seconds: i64,
    nanoseconds: i64,
    /// What it held, where it is known by that and not by a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
}

impl Written {
    fn of(file: &Metadata) -> Written {
        Written { length_bytes: file.len(), seconds: file.mtime(), nanoseconds: file.mtime_nsec(), sample: None }
    }

    /// Whether the time is what it was. Some programs that copy directories keep whole seconds.
    fn may_be_at(&self, now: &Written) -> bool {
        now.seconds == self.seconds && (now.nanoseconds == 0 || now.nanoseconds == self.nanoseconds)
    }
}

/// Says whether what is below the layers is what it was.
#[derive(Debug)]
struct Seal {
    path: PathBuf,
    is_there: AtomicBool,
    changing: Mutex<()>,
}

impl Seal {
    /// That of a family in this directory, whose file is below no layers yet.
    fn none(directory: &Path) -> Arc<Seal> {
        Arc::new(Seal { path: directory.join(SEAL), is_there: AtomicBool::new(false), changing: Mutex::default() })
    }

    /// The same where one may stand from layers that are gone.
    fn removed(directory: &Path) -> io::Result<Arc<Seal>> {
        let seal = Seal::none(directory);
        seal.is_there.store(true, Ordering::Release);
        seal.take_off()?;
        Ok(seal)
    }

    /// That of a family that is there; and why this is not what was below its layers, if it is not.
    fn checked(directory: &Path, below: &Look) -> io::Result<(Arc<Seal>, Option<String>)> {
        let seal = Seal::none(directory);
        let path = seal.path.display();
        let Some(written) = read_file(&seal.path)? else {
            if !matches!(below, Look::File(_)) {
                tracing::warn!(
                    "{below}, which is below layers: if others have written to it, nobody knows, for {path} is not there"
                );
            }
            return Ok((seal, None));
        };
        let Ok(written) = serde_json::from_slice::<Written>(&written) else {
            let why = format!(
                "{path}, which tells whether somebody else has written to {below}, below the layers of its volumes, is damaged: if the content \
                 of that is known to be the same, remove {path}"
            );
            return Ok((seal, Some(why)));
        };
        if !below.may_be(&written)? {
            let why = format!(
                "{below}, which is below the layers of its volumes, was written to by somebody else: with these layers it is a mixture. \
                 Bring it back as it was, with its time of change; or, if its content is known to be the same, remove {path}"
            );
            return Ok((seal, Some(why)));
        }
        seal.is_there.store(true, Ordering::Release);
        Ok((seal, None))
    }

    /// Nobody writes below the layers any more for now: this is there.
    fn put(&self, below: &Look) -> io::Result<()> {
        let _changing = self.lock();
        if self.is_there.load(Ordering::Acquire) {
            return Ok(());
        }
        replace_file(&self.path, &serde_json::to_vec(&below.look()?)?)?;
        self.is_there.store(true, Ordering::Release);
        Ok(())
    }

    fn take_off(&self) -> io::Result<()> {
        let _changing = self.lock();
        if !self.is_there.load(Ordering::Acquire) {
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())?,
        }
        self.is_there.store(false, Ordering::Release);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the seal off before the first write.
#[derive(Debug)]
struct Guard(Arc<Seal>);

impl Layer for Guard {
    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        // As long as it is there, only a merge writes, on a thread that may wait.
        if request.is_write()
            && self.0.is_there.load(Ordering::Acquire)
            && let Err(error) = self.0.take_off()
        {
            return Started::Done(Err(StoreError::from_io(Access::Write, request.range_bytes().0, error)));
        }
        below.start(request, completions)
    }
}

#[cfg(test)]
mod tests;
