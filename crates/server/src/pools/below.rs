//! What is below the layers of volumes whose store is not in the pool: what is kept of it, and how it is opened again.
//!
//! A volume that is written `/dev/sdb,layers=fast` has a file in the pool that stands for it, and a directory of layers from its first start on.
//! Beside the layers it is kept which store is below them, so that clones are served also while the volume itself is not.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sanwire_store::kind::{BelowLayers, Place};
use sanwire_store::{Acceptance, Expectation, Known, OpenError, Store, StoreSpec};
use sanwire_store_file::{mark_records, records_mark};
use serde::{Deserialize, Serialize};

use crate::persist::{read_file, replace_file};
use crate::random;
use crate::records::{Record, real_path};

/// What is kept of it has this name, beside the layers.
const FILE: &str = "below.json";

/// What is kept of a store that is below layers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct KeptBelow {
    /// The volume that is written there when there are no layers.
    pub(super) volume: String,
    /// That volume is gone: nothing is written there any more, and another one of its name is one of those above.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) orphaned: bool,
    /// As it is written, with its keys.
    pub(super) store: String,
    pub(super) length_bytes: u64,
    /// Which file or device it was, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    known: Option<KeptKnown>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct KeptKnown {
    uuid: String,
    marked: bool,
    length_bytes: u64,
    device: Option<String>,
}

impl KeptKnown {
    fn of(Known { uuid, is_marked, length_bytes, device }: Known) -> KeptKnown {
        let uuid = format!("{:032x}", u128::from_be_bytes(uuid));
        KeptKnown { uuid, marked: is_marked, length_bytes, device }
    }

    fn known(&self) -> Option<Known> {
        let KeptKnown { uuid, marked, length_bytes, device } = self.clone();
        let uuid = u128::from_str_radix(&uuid, 16).ok()?.to_be_bytes();
        Some(Known { uuid, is_marked: marked, length_bytes, device })
    }
}

impl KeptBelow {
    /// What is kept in the directory of a family; `None`: what is below its layers is in the pool.
    pub(super) fn load(directory: &Path) -> io::Result<Option<KeptBelow>> {
        let path = directory.join(FILE);
        let damaged = |error| io::Error::other(format!("{} is damaged: {error}", path.display()));
        read_file(&path)?.map(|bytes| serde_json::from_slice(&bytes).map_err(damaged)).transpose()
    }

    /// That of a volume of whose store nothing is known any more.
    pub(super) fn lost(volume: &str, below: &BelowLayers) -> KeptBelow {
        let (volume, store) = (volume.to_owned(), below.again.clone());
        KeptBelow { volume, orphaned: false, store, length_bytes: 0, known: None }
    }

    /// Keeps it, also through a crash.
    pub(super) fn save(&self, directory: &Path) -> io::Result<()> {
        if KeptBelow::load(directory).is_ok_and(|kept| kept.as_ref() == Some(self)) {
            return Ok(());
        }
        replace_file(&directory.join(FILE), &serde_json::to_vec(self)?)
    }

    /// The volume that is written there when there are no layers, if it is there still.
    pub(super) fn owner(&self) -> Option<&str> {
        (!self.orphaned).then_some(&self.volume)
    }

    pub(super) fn with_orphaned(self, orphaned: bool) -> KeptBelow {
        KeptBelow { orphaned, ..self }
    }

    /// As it is written there.
    pub(super) fn below(&self) -> Result<BelowLayers, OpenError> {
        let failed =
            |error| OpenError::Elsewhere { store: self.store.clone(), source: Box::new(error), is_away: false };
        let StoreSpec { backing, .. } = self.store.parse().map_err(failed)?;
        Ok(BelowLayers { written: self.store.clone(), again: self.store.clone(), backing })
    }

    /// What was known of the store itself.
    pub(super) fn known(&self) -> Option<Known> {
        self.known.as_ref().and_then(KeptKnown::known)
    }

    /// Opens the store: this one, which is below the layers of a volume, only if it is what is known.
    pub(super) fn open(
        volume: &str,
        below: &BelowLayers,
        known: Option<Known>,
        acceptance: Acceptance,
    ) -> Result<(Arc<dyn Store>, KeptBelow), OpenError> {
        let place = below.backing.place();
        let record = match place {
            Place::File(path) => Record::new(volume, path, None),
            Place::Memory | Place::Nowhere | Place::Elsewhere(_) | Place::Volume(_) => {
                Record::elsewhere(volume, &below.written, None)
            }
        };
        let fresh = random::bytes().map_err(|source| OpenError::Elsewhere {
            store: below.written.clone(),
            source: Box::new(source),
            is_away: false,
        })?;
        let expected = Expectation {
            name: volume,
            known,
            known_below: None,
            is_kept: true,
            // Nothing is renewed below layers.
            acceptance: if acceptance == Acceptance::Known { acceptance } else { Acceptance::Adopted },
            fresh,
            fallback: record.fallback(),
        };
        let (store, known) = below.backing.open(Some(&expected))?;
        if let Place::File(path) = place {
            // Who served it as a volume by itself sees that others have written there since.
            let _ = records_mark(path).is_none() || mark_records(path, None);
        }
        let (volume, store_text) = (volume.to_owned(), below.again.clone());
        let (length_bytes, known) = (store.geometry().length_bytes, known.map(KeptKnown::of));
        Ok((store, KeptBelow { volume, orphaned: false, store: store_text, length_bytes, known }))
    }
}

/// Whether both places are the same.
pub(super) fn is_same_place(one: Place<'_>, other: Place<'_>) -> bool {
    match (one, other) {
        (Place::File(one), Place::File(other)) => real_path(one) == real_path(other),
        (Place::Elsewhere(one), Place::Elsewhere(other)) => one == other,
        _ => false,
    }
}
