//! The file below the layers of a family, and whether it is what they were written over.
//!
//! It holds what the volume does and nothing else, so it cannot say that itself. A small file beside it does, the seal: it is there only
//! while nothing writes below the layers, and tells how the file was then.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_snapshot::Base;
use sanwire_store::layer::{Layer, Over};
use sanwire_store::{Access, CompletionQueue, OpenError, Request, Started, Store, StoreError};
use sanwire_store_file::{FileOptions, FileStore, metadata, synced_metadata};
use serde::{Deserialize, Serialize};

use super::family::{FamilyError, FamilyOptions};
use crate::persist::{read_file, replace_file};

/// It has this name, beside the layers.
pub(super) const BASE: &str = "base";

/// And its seal this one.
const SEAL: &str = "base.seal";

/// What tells it from others: it is where it is.
const IDENTITY: &str = "base";

/// The file below all layers, which is locked.
#[derive(Debug)]
pub(super) struct Below {
    /// Its device and number.
    number: (u64, u64),
    /// Beside the layers, once there are any.
    directory: PathBuf,
    seal: Arc<Seal>,
    /// Why it is not what the layers were written over.
    mixture: Option<String>,
}

impl Below {
    /// This one, below a family that is to have this directory.
    pub(super) fn of_file(file: &Path, directory: &Path, options: FamilyOptions) -> Result<(Below, Base), FamilyError> {
        Ok(Below::new(directory, open(file, options)?, (Seal::none(directory), None)))
    }

    /// The same for a family that was kept.
    pub(super) fn kept(directory: &Path, options: FamilyOptions) -> Result<(Below, Base), FamilyError> {
        let file = directory.join(BASE);
        let seal = Seal::checked(directory, &file)?;
        Ok(Below::new(directory, open_kept(&file, options)?, seal))
    }

    fn new(
        directory: &Path,
        (file, number): (Arc<FileStore>, (u64, u64)),
        (seal, mixture): (Arc<Seal>, Option<String>),
    ) -> (Below, Base) {
        let base = Base { store: Arc::new(Over::new(Guard(Arc::clone(&seal)), file)), identity: IDENTITY.to_owned(), may_be_longer: false };
        (Below { number, directory: directory.to_owned(), seal, mixture }, base)
    }

    /// Whether it is this file.
    pub(super) fn is(&self, file: &Path) -> bool {
        fs::metadata(file).is_ok_and(|file| number_of(&file) == self.number)
    }

    /// Refuses to have anything served of it, or merged into it, that was written over something else.
    pub(super) fn check(&self) -> io::Result<()> {
        self.mixture.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }

    /// Nobody writes it any more for now.
    pub(super) fn seal(&self) -> io::Result<()> {
        self.seal.put(&self.directory.join(BASE))
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
    FamilyOptions { block_bytes, direct }: FamilyOptions,
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

/// How a file was when nobody wrote it any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Written {
    length_bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Written {
    fn of(file: &Metadata) -> Written {
        Written { length_bytes: file.len(), seconds: file.mtime(), nanoseconds: file.mtime_nsec() }
    }

    /// Whether a file that is so now may be what it was. One that has grown may: its length is the volume's.
    fn may_be(self, now: Written) -> bool {
        // Some programs that copy directories keep whole seconds.
        let is_whole = now.nanoseconds == 0 && now.seconds == self.seconds;
        now.length_bytes != self.length_bytes || is_whole || now == self
    }
}

/// Says whether the file below the layers is what it was.
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

    /// That of a family that is there; and why this file is not what was below its layers, if it is not.
    fn checked(directory: &Path, file: &Path) -> io::Result<(Arc<Seal>, Option<String>)> {
        let seal = Seal::none(directory);
        let Some(written) = read_file(&seal.path)? else { return Ok((seal, None)) };
        // What cannot be read says nothing.
        let Ok(written) = serde_json::from_slice::<Written>(&written) else { return Ok((seal, None)) };
        if !written.may_be(Written::of(&metadata(file)?)) {
            let (file, path) = (file.display(), seal.path.display());
            let why = format!(
                "{file}, which is below the layers of its volumes, was written to by somebody else: with these layers it is a mixture. \
                 Bring it back as it was, with its time of change; or, if its content is known to be the same, remove {path}"
            );
            return Ok((seal, Some(why)));
        }
        seal.is_there.store(true, Ordering::Release);
        Ok((seal, None))
    }

    /// Nobody writes the file any more for now, which is this one.
    fn put(&self, file: &Path) -> io::Result<()> {
        let _changing = self.lock();
        if self.is_there.load(Ordering::Acquire) {
            return Ok(());
        }
        // With its time, also through a loss of power.
        let written = Written::of(&synced_metadata(&File::open(file)?)?);
        replace_file(&self.path, &serde_json::to_vec(&written)?)?;
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
