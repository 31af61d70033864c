//! Volumes made of layers, where the file system of a pool does not share blocks: one, and what was cloned of it.
//!
//! A volume has a file in the pool's directory, whatever it holds: that carries its identity, is locked while it is served, and is as long
//! as the volume. Before its first snapshot it is all that there is. Then a directory of its own has it by a second name, as what is below
//! all layers, and the layers over it; what the volume holds is there from now on. Of a volume whose store is not in the pool the file holds
//! nothing, and the directory is there from the beginning.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use sanwire_snapshot::{Kept, LayerId, Origin, Prepared, Release, Rollback, SnapshotError, SnapshotStore, Tree};
use sanwire_store::kind::BelowLayers;
use sanwire_store::{Acceptance, OpenError};
use sanwire_store_file::FileOptions;
use sanwire_store_file::blocking::perform;

use super::base::{BASE, Below, Elsewhere};
use super::catalogue::SnapshotId;
use super::files::Files;
use super::shelf::{FamilyShelf, Inner, lock};
use crate::random;

mod elsewhere;
mod folding;
mod taking;

pub(super) use self::elsewhere::{NEITHER, SAY_IT};

/// How a family is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyOptions {
    pub(super) block_bytes: u32,
    pub(super) direct: bool,
    /// What is done where its store is not in the pool, and another one than before.
    pub(super) acceptance: Acceptance,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        FamilyOptions { block_bytes: FileOptions::BLOCK_BYTES, direct: false, acceptance: Acceptance::default() }
    }
}

/// How a family that was kept is opened.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyOpening<'a> {
    pub(super) direct: bool,
    /// The store that is below its layers as it is written now, where it is not in the pool, and the volume that is written there.
    pub(super) below: Option<(&'a str, &'a BelowLayers)>,
    /// What is done where that is another one.
    pub(super) acceptance: Acceptance,
}

/// One family that is open.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) id: String,
    pub(super) tree: Tree,
    shelf: Arc<FamilyShelf>,
    /// What is below all layers, which nobody else has.
    below: Below,
    /// Snapshots that are about to be taken. Held by whoever makes a new last layer of a volume.
    changing: Mutex<BTreeMap<SnapshotId, Begun>>,
    /// The volume of which something is put below its last layer without `changing`.
    folding: Mutex<Option<String>>,
    folded: Condvar,
    /// Volumes that somebody uses, each one alone; and snapshots, as `VOLUME@SNAPSHOT`, with how many do.
    used: Mutex<BTreeMap<String, usize>>,
    /// What was read for rollbacks before writes are held.
    rollbacks: Mutex<BTreeMap<SnapshotId, (Rollback, SnapshotStore)>>,
    /// What ends the holds for snapshots that are being taken; `None`: one is not to begin any more.
    holds: Mutex<BTreeMap<SnapshotId, Option<Release>>>,
    /// Held by whoever merges layers, or says that nobody does.
    tidying: Mutex<()>,
}

/// The use of a volume or snapshot of a family, which stays open as long.
#[derive(Debug)]
pub(super) struct Use {
    family: Arc<Family>,
    content: String,
}

impl Use {
    pub(super) fn family(&self) -> &Family {
        &self.family
    }

    /// The volume, or the snapshot as `VOLUME@SNAPSHOT`.
    pub(super) fn content(&self) -> &str {
        &self.content
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut used = self.family.used();
        match used.get_mut(&self.content) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                used.remove(&self.content);
                self.family.tree.close(&self.content);
            }
        }
    }
}

/// A snapshot that is about to be taken.
#[derive(Debug)]
struct Begun {
    prepared: Prepared,
    /// The volume is open until then.
    store: SnapshotStore,
}

impl Family {
    /// A volume that has no snapshot yet, in this file. Its directory is made when it gets one.
    pub(super) fn of_file(
        file: &Path,
        volume: &str,
        directory: &Path,
        options: FamilyOptions,
    ) -> Result<Family, FamilyError> {
        let id = format!("{:032x}", u128::from_be_bytes(random::bytes::<16>()?));
        let shelf = Arc::new(FamilyShelf::new(directory.join(&id), Inner::default()));
        let (below, base) = Below::of_file(file, &shelf.path, options)?;
        let tree = Tree::create(Arc::clone(&shelf) as _, volume, Origin::Base(base), &mut perform)?;
        Ok(Family::new(id, tree, shelf, below))
    }

    /// One that was kept.
    pub(super) fn kept(
        id: &str,
        directory: &Path,
        files: &dyn Files,
        options: &FamilyOpening<'_>,
    ) -> Result<Family, FamilyError> {
        let path = directory.join(id);
        if !path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display())).into());
        }
        // Many a device has longer blocks for direct I/O than layers may have.
        let layers = files.layers(&path, false)?;
        let Some(kept) = Kept::of(&*layers)? else { return Err(SnapshotError::Nothing.into()) };
        let (below, base) = match elsewhere::kept(&path, options.below)? {
            Some(before) => elsewhere::open(&path, &before, &kept, files, options)?,
            None => {
                let (block_bytes, direct, acceptance) = (kept.block_bytes, options.direct, options.acceptance);
                Below::kept(&path, FamilyOptions { block_bytes, direct, acceptance })?
            }
        };
        let shelf = Arc::new(FamilyShelf::new(path, Inner::Directory(layers)));
        let tree = Tree::open(Arc::clone(&shelf) as _, Some(base))?;
        let family = Family::new(id.to_owned(), tree, shelf, below);
        family.orphan_if_alone(files);
        family.fix_base_of_others();
        Ok(family)
    }

    fn new(id: String, tree: Tree, shelf: Arc<FamilyShelf>, below: Below) -> Family {
        Family {
            id,
            tree,
            shelf,
            below,
            changing: Mutex::default(),
            folding: Mutex::default(),
            folded: Condvar::new(),
            used: Mutex::default(),
            rollbacks: Mutex::default(),
            holds: Mutex::default(),
            tidying: Mutex::default(),
        }
    }

    /// Gives it a directory, in which `file` is what is below all layers.
    pub(super) fn settle(&self, file: &Path, files: &dyn Files) -> io::Result<()> {
        let FamilyShelf { path, inner, .. } = &*self.shelf;
        let mut inner = lock(inner);
        let Inner::Memory(kept) = &*inner else { return Ok(()) };
        let directory = path.parent().unwrap_or(path);
        files.make_directory(directory)?;
        let layers = files.layers(path, false)?;
        match files.link(file, &path.join(BASE)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => layers.keep(kept.as_deref().unwrap_or_default())?,
        }
        files.sync(directory)?;
        *inner = Inner::Directory(layers);
        Ok(())
    }

    /// Whether this file is what is below all layers: it is locked as long as the family is open.
    pub(super) fn has_base(&self, file: &Path) -> bool {
        self.below.is(file)
    }

    fn changing(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, Begun>> {
        // It is whole between any two changes.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // It is whole between any two changes.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody else uses the volume as long as this lives. `None`: somebody does, or has begun what has not ended.
    pub(super) fn begin_use(self: &Arc<Self>, volume: &str) -> Option<Use> {
        // Who makes a new layer has it open for a moment.
        let _changing = self.changing_unfolded(volume);
        let mut used = self.used();
        if used.contains_key(volume) {
            return None;
        }
        self.tree.close(volume);
        match self.tree.hold(volume) {
            Err(SnapshotError::NoVolume) => {}
            // It stays open as long as a write has not ended.
            _ => return None,
        }
        used.insert(volume.to_owned(), 1);
        Some(Use { family: Arc::clone(self), content: volume.to_owned() })
    }

    /// A snapshot is not forgotten as long as this lives.
    pub(super) fn begin_view(self: &Arc<Self>, id: &SnapshotId) -> Use {
        let content = id.to_string();
        *self.used().entry(content.clone()).or_default() += 1;
        Use { family: Arc::clone(self), content }
    }

    /// Refuses what would have a mixture served, or made.
    pub(super) fn check_below(&self) -> Result<(), FamilyError> {
        Ok(self.below.check()?)
    }

    /// How long a volume was at a snapshot.
    pub(super) fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, FamilyError> {
        let snapshots = self.tree.snapshots();
        let found = snapshots.iter().find(|snapshot| (&snapshot.volume, &snapshot.name) == (&id.volume, &id.name));
        Ok(found.ok_or(SnapshotError::NoSnapshot)?.length_bytes)
    }

    /// Forgets a snapshot, if there is one.
    pub(super) fn forget(&self, id: &SnapshotId) -> Result<(), FamilyError> {
        let used = self.used();
        if used.contains_key(&id.to_string()) {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is being read").into());
        }
        // What is known of it is not true of another one of its name.
        self.tree.close(&id.to_string());
        match self.tree.forget(&id.volume, &id.name) {
            Err(SnapshotError::NoSnapshot) => Ok(()),
            forgotten => Ok(forgotten?),
        }
    }

    pub(super) fn clone_volume(&self, id: &SnapshotId, volume: &str, files: &dyn Files) -> Result<(), FamilyError> {
        self.check_below()?;
        if self.store_elsewhere().is_some_and(Elsewhere::is_orphaned) {
            self.orphan(volume, files)?;
        }
        Ok(self.tree.clone_volume((&id.volume, &id.name), volume, new_layer()?, &mut perform)?)
    }

    /// Removes a volume, if there is one.
    pub(super) fn remove(&self, volume: &str, files: &dyn Files) -> Result<(), FamilyError> {
        // Nobody opens it for a moment meanwhile.
        let mut changing = self.changing_unfolded(volume);
        changing.retain(|id, _| id.volume != volume);
        // What was cloned of it does not take its store.
        if self.store_elsewhere().is_some_and(|elsewhere| elsewhere.is_of(volume)) {
            self.tree.fix_base(true);
        }
        match self.tree.remove(volume) {
            Ok(()) | Err(SnapshotError::NoVolume) => Ok(self.orphan(volume, files)?),
            Err(error) => {
                self.fix_base_of_others();
                Err(error.into())
            }
        }
    }

    /// Does a part of what gives back space that nobody needs; gives whether something is left.
    pub(super) fn tidy(&self) -> Result<bool, FamilyError> {
        let _tidying = self.tidying();
        self.check_below()?;
        Ok(self.tree.tidy(&mut perform)?.is_some())
    }

    /// Where there are layers and nothing is to be merged, nobody writes what is below them.
    pub(super) fn seal(&self) -> io::Result<()> {
        let _tidying = self.tidying();
        let is_kept = matches!(&*lock(&self.shelf.inner), Inner::Directory(_));
        match is_kept && self.tree.layers_count() > 0 && !self.tree.is_untidy() {
            true => self.below.seal(),
            false => Ok(()),
        }
    }

    fn tidying(&self) -> MutexGuard<'_, ()> {
        self.tidying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files of volumes whose content is in layers have this attribute, where their file system has such.
const MARK: &str = "user.sanwire.layered";

/// From now on a file does not hold its volume: whatever becomes of what is known of that, it is not served as if it did.
pub(super) fn mark(file: &Path) -> io::Result<()> {
    match rustix::fs::setxattr(file, MARK, b"1", XattrFlags::empty()) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a file says that it does not hold its volume.
pub(super) fn is_marked(file: &Path) -> bool {
    rustix::fs::getxattr(file, MARK, &mut [0; 8]).is_ok()
}

/// Whether it says so, is nothing but that, and is of no other name: what stands for a volume whose store is outside the pool.
pub(super) fn is_stand_in(path: &Path) -> bool {
    let is_hole = |file: File| {
        matches!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Err(Errno::NXIO))
            && file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 1)
    };
    is_marked(path) && File::open(path).is_ok_and(is_hole)
}

/// Whether it does not say so, and could.
pub(super) fn is_unmarked(file: &Path) -> bool {
    matches!(rustix::fs::getxattr(file, MARK, &mut [0; 8]), Err(Errno::NODATA))
}

fn new_layer() -> io::Result<LayerId> {
    random::bytes().map(LayerId)
}

/// Why a family cannot be opened, or changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FamilyError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Layers(#[from] SnapshotError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<FamilyError> for io::Error {
    fn from(error: FamilyError) -> io::Error {
        match error {
            FamilyError::Io(error) => error,
            error => io::Error::other(error),
        }
    }
}
