//! Whether what is below layers is what they were written over. A small file beside the layers says so, the seal: it is there only while nothing
//! writes below the layers, and tells how what is below was then.

use std::cmp::Ordering;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_store::layer::Layer;
use sanwire_store::{Access, CompletionQueue, Request, Started, Store, StoreError};
use sanwire_store_file::{metadata, synced_metadata};
use serde::{Deserialize, Serialize};

use super::sample::{Sample, may_be_same, sample};
use crate::persist::{read_file, replace_file};

/// It has this name, beside the layers.
pub(super) const SEAL: &str = "base.seal";

/// How it is seen whether somebody has written to what is below layers.
#[derive(Debug)]
pub(super) enum Look {
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
pub(super) struct Seal {
    path: PathBuf,
    is_there: AtomicBool,
    changing: Mutex<()>,
}

impl Seal {
    /// That of a family in this directory, whose file is below no layers yet.
    pub(super) fn none(directory: &Path) -> Arc<Seal> {
        Arc::new(Seal { path: directory.join(SEAL), is_there: AtomicBool::new(false), changing: Mutex::default() })
    }

    /// The same where one may stand from layers that are gone.
    pub(super) fn removed(directory: &Path) -> io::Result<Arc<Seal>> {
        let seal = Seal::none(directory);
        seal.is_there.store(true, atomic::Ordering::Release);
        seal.take_off()?;
        Ok(seal)
    }

    /// That of a family that is there; and why this is not what was below its layers, if it is not.
    pub(super) fn checked(directory: &Path, below: &Look) -> io::Result<(Arc<Seal>, Option<String>)> {
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
            let why = damaged(below, &path);
            return Ok((seal, Some(why)));
        };
        if !below.may_be(&written)? {
            let why = mixture(below, &path);
            return Ok((seal, Some(why)));
        }
        seal.is_there.store(true, atomic::Ordering::Release);
        Ok((seal, None))
    }

    /// Nobody writes below the layers any more for now: this is there.
    pub(super) fn put(&self, below: &Look) -> io::Result<()> {
        let _changing = self.lock();
        if self.is_there.load(atomic::Ordering::Acquire) {
            return Ok(());
        }
        replace_file(&self.path, &serde_json::to_vec(&below.look()?)?)?;
        self.is_there.store(true, atomic::Ordering::Release);
        Ok(())
    }

    pub(super) fn take_off(&self) -> io::Result<()> {
        let _changing = self.lock();
        if !self.is_there.load(atomic::Ordering::Acquire) {
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())?,
        }
        self.is_there.store(false, atomic::Ordering::Release);
        Ok(())
    }

    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(atomic::Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a file is not what the layers in a directory were written over, as far as that is seen without opening it: of one that is longer now
/// it is not.
pub(super) fn other_than_sealed(directory: &Path, file: &Path) -> io::Result<Option<String>> {
    let path = directory.join(SEAL);
    let Some(written) = read_file(&path)? else { return Ok(None) };
    let Ok(before) = serde_json::from_slice::<Written>(&written) else {
        return Ok(Some(damaged(&file.display(), &path.display())));
    };
    let now = Written::of(&fs::metadata(file)?);
    let is_it = match now.length_bytes.cmp(&before.length_bytes) {
        Ordering::Less => false,
        Ordering::Equal => before.may_be_at(&now),
        Ordering::Greater => true,
    };
    Ok((!is_it).then(|| mixture(&file.display(), &path.display())))
}

fn damaged(below: &dyn fmt::Display, seal: &dyn fmt::Display) -> String {
    format!(
        "{seal}, which tells whether somebody else has written to {below}, below the layers of its volumes, is damaged: if the content of \
         that is known to be the same, remove {seal}"
    )
}

fn mixture(below: &dyn fmt::Display, seal: &dyn fmt::Display) -> String {
    format!(
        "{below}, which is below the layers of its volumes, was written to by somebody else: with these layers it is a mixture. Bring it back \
         as it was, with its time of change; or, if its content is known to be the same, remove {seal}"
    )
}

/// Takes the seal off before the first write.
#[derive(Debug)]
pub(super) struct Guard(pub(super) Arc<Seal>);

impl Layer for Guard {
    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started {
        // As long as it is there, only a merge writes, on a thread that may wait.
        if request.is_write()
            && self.0.is_there.load(atomic::Ordering::Acquire)
            && let Err(error) = self.0.take_off()
        {
            return Started::Done(Err(StoreError::from_io(Access::Write, request.range_bytes().0, error)));
        }
        below.start(request, completions)
    }
}
