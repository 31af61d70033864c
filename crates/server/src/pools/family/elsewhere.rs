//! Families whose volume has its store outside the pool.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use sanwire_snapshot::{Base, Kept, Origin, Tree};
use sanwire_store::kind::{BelowLayers, Place};
use sanwire_store::{ResizeError, Store};
use sanwire_store_file::blocking::perform;

use super::{Family, FamilyError, FamilyOpening};
use crate::pools::base::{BASE, Below, Elsewhere};
use crate::pools::below::KeptBelow;
use crate::pools::files::Files;
use crate::pools::shelf::{FamilyShelf, Inner};
use crate::random;

/// What is kept of the store of a family; `None`: it is in the pool. What is missing or damaged is what somebody says of it now, if the seal
/// does not know better.
pub(super) fn kept(path: &Path, below: Option<(&str, &BelowLayers)>) -> io::Result<Option<KeptBelow>> {
    match (KeptBelow::load(path), below) {
        (Ok(None), _) if path.join(BASE).exists() => Ok(None),
        (Ok(None) | Err(_), Some((volume, below))) => {
            tracing::warn!(
                "{}: what was kept of the store below these layers is gone: it is {} from now on",
                path.display(),
                below.written
            );
            Ok(Some(KeptBelow::lost(volume, below)))
        }
        (Ok(None), None) => Err(io::Error::other(format!("{} {NEITHER}: {SAY_IT}", path.display()))),
        (Err(error), None) => Err(io::Error::other(format!("{error}: {SAY_IT}"))),
        (kept @ Ok(Some(_)), _) => kept,
    }
}

/// What is wrong where nothing is known of a store, and what helps.
pub(in crate::pools) const NEITHER: &str =
    "has neither base, the file below its layers, nor below.json, which tells of a store outside the pool";
pub(in crate::pools) const SAY_IT: &str = "bring it back; or, if the store is outside the pool, serve the volume to which it belongs as it \
                                           was written, with layers=";

/// The store that is below the layers of a family, and not in the pool.
pub(super) fn open(
    path: &Path,
    before: &KeptBelow,
    kept: &Kept,
    files: &dyn Files,
    options: &FamilyOpening<'_>,
) -> Result<(Below, Base), FamilyError> {
    let below = options.below.map_or_else(|| before.below(), |(_, below)| Ok(below.clone()))?;
    // Without layers any other one can take its place.
    let known = before.known().filter(|_| kept.has_layers || before.store == below.again);
    // Opening it may make it longer.
    let found = found(&below);
    let (store, now) = KeptBelow::open(&before.volume, &below, known, options.acceptance)?;
    let (is_bytes, block_bytes) = (store.geometry().block_bytes, kept.block_bytes);
    if is_bytes != block_bytes {
        let why = format!(
            "{} has blocks of {is_bytes} bytes, and its layers have blocks of {block_bytes}: give it block={block_bytes}",
            below.written
        );
        return Err(io::Error::other(why).into());
    }
    let now = now.with_orphaned(before.orphaned);
    let opened = Below::elsewhere(path, &now, (store, &below), (kept.has_layers, found))?;
    if opened.0.check().is_ok() {
        files.keep_below(path, &now)?;
    }
    Ok(opened)
}

/// The file of a store, as it is now.
fn found(below: &BelowLayers) -> Option<Metadata> {
    match below.backing.place() {
        Place::File(path) => fs::metadata(path).ok(),
        _ => None,
    }
}

impl Family {
    /// A volume that has no snapshot yet, in a store that is not in the pool, which nobody else has open.
    pub(in crate::pools) fn of_store(
        kept: &KeptBelow,
        (store, below): (Arc<dyn Store>, &BelowLayers),
        directory: &Path,
        files: &dyn Files,
    ) -> Result<Family, FamilyError> {
        let id = format!("{:032x}", u128::from_be_bytes(random::bytes::<16>()?));
        let made = Family::make(&id, kept, (store, below), directory, files);
        if made.is_err() {
            // What stays is removed when the pool is opened again.
            let _ = files.remove_directory(&directory.join(&id));
        }
        made
    }

    fn make(
        id: &str,
        kept: &KeptBelow,
        (store, below): (Arc<dyn Store>, &BelowLayers),
        directory: &Path,
        files: &dyn Files,
    ) -> Result<Family, FamilyError> {
        let (path, volume) = (directory.join(id), &*kept.volume);
        files.make_directory(directory)?;
        let layers = files.layers(&path, false)?;
        files.keep_below(&path, kept)?;
        let shelf = Arc::new(FamilyShelf::new(path.clone(), Inner::Directory(layers)));
        let (below, base) = Below::elsewhere(&path, kept, (store, below), (false, found(below)))?;
        let tree = Tree::create(Arc::clone(&shelf) as _, volume, Origin::Base(base), &mut perform)?;
        files.sync(directory)?;
        Ok(Family::new(id.to_owned(), tree, shelf, below))
    }

    /// What is below the layers is written only for the volume whose store it is: what was cloned of that stays above it.
    pub(super) fn fix_base_of_others(&self) {
        if let Some(elsewhere) = self.store_elsewhere() {
            self.tree.fix_base(elsewhere.is_orphaned());
        }
    }

    /// What a crash has left: the volume whose store is below the layers is gone.
    pub(super) fn orphan_if_alone(&self, files: &dyn Files) {
        let owner = self.store_elsewhere().and_then(Elsewhere::owner);
        if let Some(owner) = owner.filter(|owner| !self.tree.volumes().iter().any(|volume| volume == owner))
            && let Err(error) = self.orphan(owner, files)
        {
            tracing::warn!("layers {}: that {owner} is gone cannot be kept yet: {error}", self.id);
        }
    }

    /// If the store below the layers was that of a volume of this name, which is gone, it is of nobody from now on. Another volume gets the
    /// name only when that is kept.
    pub(super) fn orphan(&self, volume: &str, files: &dyn Files) -> io::Result<()> {
        let Some(elsewhere) = self.store_elsewhere().filter(|elsewhere| elsewhere.was_of(volume)) else {
            return Ok(());
        };
        elsewhere.orphan();
        self.tree.fix_base(true);
        match KeptBelow::load(&self.shelf.path)? {
            Some(kept) if !kept.orphaned => files.keep_below(&self.shelf.path, &kept.with_orphaned(true)),
            _ => Ok(()),
        }
    }

    /// Whether layers are being copied back to the store of this volume: until that is over, it holds a part of what the volume does.
    pub(in crate::pools) fn is_copying_back(&self, volume: &str) -> bool {
        self.store_elsewhere().is_some_and(|elsewhere| elsewhere.is_of(volume))
            && self.tree.layers_count() > 0
            && !self.below.is_sealed()
            && (self.tree.is_untidy() || self.tree.is_foldable(volume))
    }

    /// The store below the layers, where it is not in the pool.
    pub(in crate::pools) fn store_elsewhere(&self) -> Option<&Elsewhere> {
        self.below.store_elsewhere()
    }

    /// Whether a store that is not in the pool can be made longer for this volume, or need not be.
    pub(in crate::pools) fn may_grow(&self, volume: &str) -> bool {
        let store = self.store_elsewhere().filter(|elsewhere| elsewhere.is_of(volume));
        store.is_none_or(|elsewhere| elsewhere.store.capabilities().grows)
    }

    /// Makes the store below the layers as long as its volume is to be: what is in layers is to have room there in the end. Without layers
    /// it is the volume's store that is made longer.
    pub(in crate::pools) fn make_room_below(&self, volume: &str, length_bytes: u64) -> Result<(), ResizeError> {
        // Nothing that was written there is unstable meanwhile, of which a failure could say something.
        let _tidying = self.tidying();
        match self.store_elsewhere() {
            Some(elsewhere)
                if elsewhere.is_of(volume)
                    && self.tree.layers_count() > 0
                    && elsewhere.store.geometry().length_bytes < length_bytes =>
            {
                elsewhere.store.resize(length_bytes)
            }
            _ => Ok(()),
        }
    }
}
