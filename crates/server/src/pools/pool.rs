//! One pool: its directory, which it has for itself, and what is there.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::catalogue::{Catalogue, SnapshotId};
use super::files::{Files, Reflink};
use super::filling::Filling;
use super::layered::OpenFamilies;
use super::outside::Belows;
use super::reserve::Reserve;
use super::room::Lengths;
use super::tidying::Tidier;
use super::{PoolConfig, PoolError};
use crate::kept::{FileLock, Keeps, LockError, StateFile};
use crate::persist::remove_unfinished;
use crate::random;
use crate::records::Record;
use crate::revisions::of_content;

/// What a pool keeps of itself, in its directory. No volume has a file of these names.
pub(super) const CATALOGUE: &str = ".sanwire-pool.json";
const LOCK: &str = ".sanwire-pool.lock";

/// What the files of volumes end with.
pub(super) const SUFFIX: &str = ".img";

/// How long the lock of another server is waited for: the kernel holds that of a process that was killed until all that it had begun
/// has ended.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// So many wait at a time, at the most, until its file system has told how it is.
const ASKING_MAX: usize = 4;

/// A pool that this server uses.
#[derive(Debug)]
pub(crate) struct Pool {
    config: PoolConfig,
    id: String,
    can_share: bool,
    can_link: bool,
    lengths: Mutex<Lengths>,
    file: StateFile,
    catalogue: Mutex<Catalogue>,
    /// What its file may say instead, since a change could neither be written nor taken back.
    doubtful: Mutex<Option<Catalogue>>,
    /// Held while the catalogue is changed. Nobody who only looks waits for that.
    editing: Mutex<()>,
    /// Snapshots whose files could not be given their names yet.
    pub(super) unplaced: Mutex<BTreeSet<SnapshotId>>,
    pub(super) over: Mutex<BTreeSet<SnapshotId>>,
    reserve: Reserve,
    files: Box<dyn Files>,
    pub(super) families: Mutex<OpenFamilies>,
    /// A family has been opened, or could not be.
    pub(super) family_opened: Condvar,
    pub(super) belows: Mutex<Belows>,
    tidier: Tidier,
    filling: Filling,
    /// Somebody waits for what its file system tells.
    asked: Arc<()>,
    /// The directory that was opened: its device and number.
    place: (u64, u64),
    /// As long as it is there, no other server uses the directory.
    _lock: FileLock,
}

/// A pool as it is now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Another one when it is configured otherwise.
    #[serde(default)]
    pub revision: u64,
    /// What volumes call it.
    pub name: String,
    /// Where it is.
    #[schema(value_type = String)]
    pub directory: PathBuf,
    /// Whether volumes that name no pool are there.
    pub default: bool,
    /// Bytes of its file system.
    pub size_bytes: u64,
    /// Bytes that its file system has left.
    pub available_bytes: u64,
    /// What its volumes have together, written or not.
    pub provisioned_bytes: u64,
    /// What they may have.
    pub limit_bytes: Option<u64>,
    /// The largest volume that can be added; `None`: any.
    pub largest_bytes: Option<u64>,
    /// Volumes that have their content there, served or not.
    pub volumes: usize,
    /// Their snapshots.
    pub snapshots: usize,
    /// Whether its file system shares blocks between files (reflink).
    pub reflink: bool,
}

impl Pool {
    /// Opens it; `known`: the identity that it had when this server used it before. What a crash has left is brought to its end.
    pub(super) fn open(config: &PoolConfig, known: Option<&str>) -> Result<Pool, PoolError> {
        #[cfg(test)]
        if let Some(files) = super::testing::copied() {
            return Pool::open_with(config, known, files);
        }
        Pool::open_with(config, known, Box::new(Reflink))
    }

    /// The same with these files.
    pub(super) fn open_with(
        config: &PoolConfig,
        known: Option<&str>,
        files: Box<dyn Files>,
    ) -> Result<Pool, PoolError> {
        let (pool, directory) = (config.name.clone(), config.directory.clone());
        let unusable = |source| PoolError::Directory { pool: pool.clone(), directory: directory.clone(), source };
        let opened = fs::metadata(&directory).map_err(unusable)?;
        if !opened.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let lock = FileLock::take(&directory.join(LOCK), LOCK_TIMEOUT).map_err(|error| match error {
            LockError::Held { holder } => PoolError::InUse { pool: pool.clone(), directory: directory.clone(), holder },
            LockError::Io(source) => unusable(source),
        })?;
        remove_unfinished(&directory.join(CATALOGUE));
        let file = StateFile::new(directory.join(CATALOGUE), Keeps::POOL);
        let catalogue = catalogue_of(config, known, &file)?;
        let lengths = Mutex::new(scan(&directory).map_err(unusable)?);
        let (id, catalogue, config) = (catalogue.id.clone(), Mutex::new(catalogue), config.clone());
        let reserve = Reserve::of(&config.directory);
        let shares = || files.can_share(&config.directory);
        // Where there is no room it cannot be tried.
        let can_share = shares() || reserve.give_up() && shares();
        let can_link = files.can_link(&config.directory);
        reserve.take();
        let (doubtful, editing, unplaced, over) = Default::default();
        let pool = Pool {
            config,
            id,
            can_share,
            can_link,
            lengths,
            file,
            catalogue,
            doubtful,
            editing,
            unplaced,
            over,
            reserve,
            files,
            families: Mutex::default(),
            family_opened: Condvar::new(),
            belows: Mutex::default(),
            tidier: Tidier::default(),
            filling: Filling::default(),
            asked: Arc::default(),
            place: place_of(&opened),
            _lock: lock,
        };
        pool.recover()?;
        pool.recover_belows();
        Ok(pool)
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn limit_bytes(&self) -> Option<u64> {
        self.config.limit_bytes
    }

    /// The file of a volume, or of a snapshot `VOLUME@SNAPSHOT`.
    pub(crate) fn path_of(&self, content: &str) -> PathBuf {
        self.config.directory.join(format!("{content}{SUFFIX}"))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.config.directory
    }

    pub(super) fn files(&self) -> &dyn Files {
        &*self.files
    }

    pub(super) fn config(&self) -> &PoolConfig {
        &self.config
    }

    pub(super) fn tidier(&self) -> &Tidier {
        &self.tidier
    }

    pub(super) fn filling(&self) -> &Filling {
        &self.filling
    }

    /// Whether its file system shares blocks between files.
    pub(super) fn can_share(&self) -> bool {
        self.can_share
    }

    /// Whether a file of its file system can have a second name.
    pub(super) fn can_link(&self) -> bool {
        self.can_link
    }

    pub(super) fn catalogue(&self) -> MutexGuard<'_, Catalogue> {
        // It is whole between any two changes.
        self.catalogue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the catalogue, through crashes too: in the file first.
    pub(super) fn edit<T>(&self, change: impl FnOnce(&mut Catalogue) -> Result<T, PoolError>) -> Result<T, PoolError> {
        let _editing = self.editing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_place()?;
        let before = self.catalogue().clone();
        let mut changed = before.clone();
        let done = change(&mut changed)?;
        let save = |catalogue: &Catalogue| {
            let saved = match self.files.save(&self.file, catalogue) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull && self.reserve.give_up() => {
                    self.files.save(&self.file, catalogue)
                }
                saved => saved,
            };
            saved.map_err(|source| self.failed("write", "its catalogue", source))
        };
        if self.doubtful().is_some() {
            // So that there is never more than one thing that it may say instead.
            save(&before)?;
            *self.doubtful() = None;
        }
        if changed != before {
            save(&changed).inspect_err(|_| {
                // It may be what stands there all the same.
                let is_undone = save(&before).is_ok();
                *self.doubtful() = (!is_undone).then(|| changed.clone());
            })?;
            *self.catalogue() = changed;
            self.reserve.take();
        }
        Ok(done)
    }

    /// Refuses what would be done somewhere else: where its file system is not mounted any more, or another one is over it.
    ///
    /// # Errors
    /// [`PoolError::Moved`].
    pub(super) fn check_place(&self) -> Result<(), PoolError> {
        match fs::metadata(self.directory()) {
            Ok(now) if place_of(&now) == self.place => Ok(()),
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("look at", "its directory", source))
            }
            _ => Err(PoolError::Moved { pool: self.name().to_owned(), directory: self.directory().to_owned() }),
        }
    }

    /// Whether the catalogue says something, or may say so at the next start.
    pub(super) fn may_say(&self, says: impl Fn(&Catalogue) -> bool) -> bool {
        says(&self.catalogue()) || self.doubtful().as_ref().is_some_and(says)
    }

    pub(super) fn doubtful(&self) -> MutexGuard<'_, Option<Catalogue>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a volume is.
    pub(crate) fn length_bytes(&self, volume: &str) -> u64 {
        self.lengths().of(volume).unwrap_or(0)
    }

    pub(crate) fn failed(&self, action: &'static str, content: impl Display, source: io::Error) -> PoolError {
        PoolError::Failed { pool: self.name().to_owned(), action, content: content.to_string(), source }
    }

    /// Whether it has this volume, served or not, or this snapshot.
    pub(crate) fn has(&self, content: &str) -> bool {
        match content.parse::<SnapshotId>() {
            Ok(id) => self.catalogue().snapshot(&id).is_some(),
            Err(_) => self.lengths().of(content).is_some(),
        }
    }

    pub(super) fn lengths(&self) -> MutexGuard<'_, Lengths> {
        // It is whole between any two changes.
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is remembered of a volume whose content is gone: another one may have its name.
    pub(crate) fn forget(&self, volume: &str, state: Option<&Path>) {
        Record::new(volume, &self.path_of(volume), state).forget();
    }

    /// Its file system is asked how it is, as long as what this gives lives. `None`: some do, and have no answer yet.
    pub(crate) fn begin_to_ask(&self) -> Option<Arc<()>> {
        let asking = Arc::clone(&self.asked);
        (Arc::strong_count(&self.asked) <= ASKING_MAX + 1).then_some(asking)
    }

    /// Whether somebody waits for what its file system tells.
    pub(crate) fn is_asked(&self) -> bool {
        Arc::strong_count(&self.asked) > 1
    }

    /// That of how it is configured.
    pub(crate) fn revision(&self, is_default: bool) -> u64 {
        let PoolConfig { name, directory, limit_bytes, .. } = &self.config;
        let (directory, limit) =
            (directory.to_string_lossy(), limit_bytes.map_or_else(String::new, |limit| limit.to_string()));
        of_content([name.as_str(), &*directory, &limit, if is_default { "default" } else { "" }])
    }

    /// How it is now. It asks the file system, which may take its time.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn status(&self, is_default: bool) -> Result<PoolStatus, PoolError> {
        let PoolConfig { name, directory, limit_bytes, .. } = self.config.clone();
        let (available_bytes, size_bytes) = self.space()?;
        let lengths = self.lengths();
        let provisioned_bytes = lengths.total_bytes();
        Ok(PoolStatus {
            revision: self.revision(is_default),
            name,
            directory,
            default: is_default,
            size_bytes,
            available_bytes,
            provisioned_bytes,
            limit_bytes,
            largest_bytes: limit_bytes.map(|limit| limit.saturating_sub(provisioned_bytes)),
            volumes: lengths.count(),
            snapshots: self.catalogue().snapshots.values().map(|named| named.len()).sum(),
            reflink: self.can_share,
        })
    }
}

/// The catalogue of a pool, which is made where there was none; `known`: the identity that the pool had before.
fn catalogue_of(config: &PoolConfig, known: Option<&str>, file: &StateFile) -> Result<Catalogue, PoolError> {
    let (pool, directory) = (config.name.clone(), config.directory.clone());
    let unusable = |source| PoolError::Directory { pool: pool.clone(), directory: directory.clone(), source };
    let id = match (file.load::<Catalogue>()?, known) {
        (Some(catalogue), known) if known.is_none_or(|known| known == catalogue.id) => return Ok(catalogue),
        (None, None) => format!("{:032x}", u128::from_be_bytes(random::bytes::<16>().map_err(unusable)?)),
        (None, Some(known)) if scan(&directory).map_err(unusable)?.count() > 0 => {
            tracing::warn!(
                "pool {pool}: {CATALOGUE} is not there: what volumes hold is served, and which snapshots are protected is not known \
                 any more"
            );
            known.to_owned()
        }
        _ => return Err(PoolError::Replaced { pool, directory }),
    };
    let catalogue = Catalogue { id, ..Catalogue::default() };
    file.save(&catalogue).map_err(unusable)?;
    Ok(catalogue)
}

fn place_of(directory: &Metadata) -> (u64, u64) {
    (directory.dev(), directory.ino())
}

/// The volumes whose content is in a directory, with their lengths.
fn scan(directory: &Path) -> io::Result<Lengths> {
    let mut lengths = Lengths::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(volume) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else { continue };
        let metadata = entry.metadata()?;
        if metadata.is_file() && volume.parse::<sanwire_store::VolumeName>().is_ok() {
            lengths.set(volume, Some(metadata.len()));
        }
    }
    Ok(lengths)
}
