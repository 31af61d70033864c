//! Families that are open, and how they come to be: each once, whoever asks for it.

use std::sync::{Arc, PoisonError, Weak};

use sanwire_store::Acceptance;
use sanwire_store::kind::BelowLayers;

use crate::pools::catalogue::SnapshotId;
use crate::pools::family::{Family, FamilyError, FamilyOpening, FamilyOptions};
use crate::pools::{Pool, PoolError};

/// A family, or the volume that is to have one, is opened by nobody else until this is dropped.
struct OpeningFamily<'a> {
    pool: &'a Pool,
    name: String,
}

impl Drop for OpeningFamily<'_> {
    fn drop(&mut self) {
        self.pool.open_families().opening.remove(&self.name);
        self.pool.family_opened.notify_all();
    }
}

impl Pool {
    /// The family of a volume; one that has no layers yet, if it has none.
    pub(in crate::pools) fn family(&self, volume: &str, options: FamilyOptions) -> Result<Arc<Family>, FamilyError> {
        self.family_over(volume, None, options)
    }

    /// The same; `below`: its store as it is written now, where that is not in the pool, and the volume is written there.
    pub(in crate::pools) fn family_over(
        &self,
        volume: &str,
        below: Option<&BelowLayers>,
        options: FamilyOptions,
    ) -> Result<Arc<Family>, FamilyError> {
        // What is accepted of a clone is not accepted of the store that is below all.
        let acceptance = self.owned_family(volume).map_or_else(Acceptance::default, |_| options.acceptance);
        let options = FamilyOptions { acceptance, ..options };
        let (id, _opening) = match self.begin_opening(volume) {
            Ok(family) => return Ok(family),
            Err(opening) => opening,
        };
        let directory = self.families_directory();
        let family = match &id {
            Some(id) => self.open_kept(id, below.map(|below| (volume, below)), options)?,
            None => {
                self.check_mark(volume)?;
                Arc::new(Family::of_file(&self.path_of(volume), volume, &directory, options)?)
            }
        };
        let mut open = self.open_families();
        open.kept.retain(|_, family| family.strong_count() > 0);
        open.new.retain(|_, family| family.strong_count() > 0);
        match id {
            Some(id) => open.kept.insert(id, Arc::downgrade(&family)),
            None => open.new.insert(volume.to_owned(), Arc::downgrade(&family)),
        };
        Ok(family)
    }

    /// The family of a volume, if it is open; else which one it is, and nobody else opens it for now.
    fn begin_opening(&self, volume: &str) -> Result<Arc<Family>, (Option<String>, OpeningFamily<'_>)> {
        let mut open = self.open_families();
        loop {
            let id = self.catalogue().layered.get(volume).cloned();
            let known = id.as_ref().map_or_else(|| open.new.get(volume), |id| open.kept.get(id));
            if let Some(family) = known.and_then(Weak::upgrade) {
                return Ok(family);
            }
            let name = id.clone().unwrap_or_else(|| volume.to_owned());
            if open.opening.insert(name.clone()) {
                return Err((id, OpeningFamily { pool: self, name }));
            }
            open = self.family_opened.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A family that was just made is open.
    pub(in crate::pools) fn put_family(&self, family: &Arc<Family>) {
        self.open_families().kept.insert(family.id.clone(), Arc::downgrade(family));
    }

    /// Whether somebody has a family.
    pub(in crate::pools) fn is_open(&self, id: &str) -> bool {
        self.open_families().kept.get(id).is_some_and(|family| family.strong_count() > 0)
    }

    /// Refuses to have a volume deleted while its store holds neither what it did at a snapshot nor what it holds now.
    ///
    /// # Errors
    /// [`PoolError::CopyingBack`].
    pub(crate) fn check_copied_back(&self, volume: &str) -> Result<(), PoolError> {
        let family = self.owned_family(volume);
        let family = family.and_then(|family| self.open_families().kept.get(&family).and_then(Weak::upgrade));
        match family.is_some_and(|family| family.is_copying_back(volume)) {
            true => Err(PoolError::CopyingBack(volume.to_owned())),
            false => Ok(()),
        }
    }

    /// Opens a family, and brings to its end what a crash has left there.
    fn open_kept(
        &self,
        id: &str,
        below: Option<(&str, &BelowLayers)>,
        options: FamilyOptions,
    ) -> Result<Arc<Family>, FamilyError> {
        let below = below.map(|(volume, below)| (volume.to_owned(), below.clone()));
        let below = below.or_else(|| self.written_below(id));
        let FamilyOptions { direct, acceptance, .. } = options;
        let written = below.as_ref().map(|(volume, below)| (&**volume, below));
        let options = FamilyOpening { direct, below: written, acceptance };
        let family = Family::kept(id, &self.families_directory(), self.files(), &options);
        let family = Arc::new(family.inspect_err(|error| self.note_not_opened(id, error))?);
        self.note_opened(&family, below.map(|(_, below)| below));
        for snapshot in family.tree.snapshots() {
            let snapshot = SnapshotId { volume: snapshot.volume, name: snapshot.name };
            let content = snapshot.to_string();
            // Only what is noted is undone: what is not known may be newer than what is known.
            if self.says(|catalogue| catalogue.taking.contains(&content) && catalogue.snapshot(&snapshot).is_none()) {
                family.forget(&snapshot)?;
            }
        }
        self.tidier().tidy(&family);
        Ok(family)
    }
}
