//! What a family of volumes is made of: which layers there are, what lies on what, and which have names.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::format::crc32c;
use crate::{LayerId, SnapshotError};

/// The form that this program writes.
const VERSION: u32 = 1;

/// No volume has more: each is an open store.
pub(crate) const LAYERS_MAX: usize = 4096;

/// Volumes that have layers in common: one, and what was cloned of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Catalogue {
    version: u32,
    /// The logical block of all of them: 512 or 4096 bytes.
    pub(crate) block_bytes: u32,
    /// What tells the store below all layers from others; `None`: there are zeroes.
    pub(crate) base: Option<String>,
    /// Whether nothing can be put there.
    #[serde(skip)]
    pub(crate) is_base_fixed: bool,
    /// Each layer, and what it lies on.
    pub(crate) layers: BTreeMap<LayerId, LayerId>,
    /// Of each layer, and of the base if there is one, what it is at least.
    pub(crate) seals: BTreeMap<LayerId, Seal>,
    /// Each volume, and its last layer, which is its own.
    pub(crate) volumes: BTreeMap<String, LayerId>,
    pub(crate) snapshots: Vec<Snapshot>,
    /// Layers that are to be removed: of what was begun and has not come about, and what nobody needs any more.
    pub(crate) doomed: BTreeSet<LayerId>,
}

/// What tells a layer from an older or shortened copy of it. It is noted when the layer is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seal {
    /// As its header has it: another one each time that the layer was opened, was written to the end, or had another put into it.
    pub(crate) generation: u64,
    /// Of its store.
    pub(crate) length_bytes: u64,
}

/// A volume as it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Of which one.
    pub volume: String,
    /// What it is called among those of this volume.
    pub name: String,
    /// When it was made, in milliseconds since 1970, by the clock of its maker.
    pub made_ms: u64,
    /// How long the volume was.
    pub length_bytes: u64,
    /// What it is made of: this layer, and all below it.
    pub(crate) layer: LayerId,
}

/// Why a catalogue cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It is none.
    #[error("it is damaged: {0}")]
    Text(#[from] serde_json::Error),
    /// It is not what was written.
    #[error("it is damaged: its checksum is wrong")]
    Sum,
    /// A later version of this program has written it.
    #[error("it has version {0}, and this program knows version {VERSION}: take a newer one")]
    Version(u32),
    /// It contradicts itself.
    #[error("it is damaged: {0}")]
    Contradiction(&'static str),
}

/// What stands behind the text.
fn sum_of(text: &[u8]) -> String {
    format!("\n{:08x}\n", crc32c(text))
}

impl Catalogue {
    pub(crate) fn new(block_bytes: u32, base: Option<String>) -> Self {
        Catalogue {
            version: VERSION,
            block_bytes,
            is_base_fixed: base.is_none(),
            base,
            layers: BTreeMap::new(),
            seals: BTreeMap::new(),
            volumes: BTreeMap::new(),
            snapshots: Vec::new(),
            doomed: BTreeSet::new(),
        }
    }

    /// Whether there is no volume, nor anything of one.
    pub(crate) fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.layers.is_empty() && self.snapshots.is_empty()
    }

    /// One line of JSON, and one with its checksum.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Nothing in it can fail: its keys are texts.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.extend(sum_of(&text).into_bytes());
        text
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CatalogueError> {
        #[derive(Deserialize)]
        struct Any {
            version: u32,
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let (text, sum) = bytes.split_at(end);
        let Any { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(CatalogueError::Version(version));
        }
        if sum != sum_of(text).as_bytes() {
            return Err(CatalogueError::Sum);
        }
        let catalogue: Catalogue = serde_json::from_slice(text)?;
        catalogue.check().map_or(Ok(catalogue), |what| Err(CatalogueError::Contradiction(what)))
    }

    /// What is wrong with it.
    fn check(&self) -> Option<&'static str> {
        let is_there = |layer: &LayerId| *layer == LayerId::BASE || self.layers.contains_key(layer);
        let tops: BTreeSet<_> = self.volumes.values().collect();
        let is_within = |snapshot: &Snapshot| is_there(&snapshot.layer) && !tops.contains(&snapshot.layer);
        let mut names = BTreeSet::new();
        if ![512, 4096].contains(&self.block_bytes) {
            Some("its block is neither 512 nor 4096 bytes")
        } else if self.layers.contains_key(&LayerId::BASE) || !self.layers.values().all(is_there) {
            Some("a layer lies on one that is not there")
        } else if !self.sealed().eq(self.seals.keys().copied()) {
            Some("it does not tell of each layer what it is")
        } else if self.layers.len() > LAYERS_MAX || !self.stand_on_base() {
            Some("layers lie on each other in a circle, or are too many")
        } else if !self.volumes.values().all(is_there) || tops.len() != self.volumes.len() {
            Some("the last layer of a volume is not there, or is another's, too")
        } else if self.base.is_none() && tops.contains(&LayerId::BASE) {
            Some("a volume is written where nothing is")
        } else if self.layers.values().any(|parent| tops.contains(parent)) {
            Some("a layer lies on the last one of a volume")
        } else if !self.snapshots.iter().all(is_within) {
            Some("what a snapshot is made of is not there, or is written")
        } else if !self.snapshots.iter().all(|snapshot| names.insert((&snapshot.volume, &snapshot.name))) {
            Some("two snapshots have one name")
        } else if self.doomed.iter().any(is_there) {
            Some("a layer is there and is to be removed")
        } else {
            None
        }
    }

    /// What has a seal.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = LayerId> {
        // The base's number is the lowest.
        self.base.iter().map(|_| LayerId::BASE).chain(self.layers.keys().copied())
    }

    /// Whether all layers lie on the base, through others or not.
    fn stand_on_base(&self) -> bool {
        let mut standing = BTreeSet::from([LayerId::BASE]);
        for layer in self.layers.keys() {
            let (mut path, mut next) = (BTreeSet::new(), *layer);
            while !standing.contains(&next) {
                let Some(parent) = self.layers.get(&next).filter(|_| path.insert(next)) else { return false };
                next = *parent;
            }
            standing.append(&mut path);
        }
        true
    }

    /// The layers of which something is made that has this one as its last, from the lowest on; without the base. `None` when it does
    /// not lie on the base.
    pub(crate) fn chain(&self, last: LayerId) -> Option<Vec<LayerId>> {
        let (mut chain, mut next) = (Vec::new(), last);
        while next != LayerId::BASE {
            if chain.len() == LAYERS_MAX {
                return None;
            }
            chain.push(next);
            next = *self.layers.get(&next)?;
        }
        chain.reverse();
        Some(chain)
    }

    /// The last layer of a volume.
    pub(crate) fn top(&self, volume: &str) -> Result<LayerId, SnapshotError> {
        self.volumes.get(volume).copied().ok_or(SnapshotError::NoVolume)
    }

    pub(crate) fn snapshot(&self, volume: &str, name: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.volume == volume && snapshot.name == name)
    }

    pub(crate) fn is_top(&self, layer: LayerId) -> bool {
        self.volumes.values().any(|top| *top == layer)
    }

    /// The only layer on this one, if nothing needs this one for itself: then both can be made one.
    pub(crate) fn sole_child(&self, layer: LayerId) -> Option<LayerId> {
        let mut children = self.layers.iter().filter(|(_, parent)| **parent == layer);
        let (child, _) = children.next().filter(|_| children.next().is_none())?;
        (!self.needed().contains(&layer)).then_some(*child)
    }

    /// How many layers lie right on each, and one of them.
    fn families(&self) -> BTreeMap<LayerId, (u32, LayerId)> {
        let mut families = BTreeMap::new();
        for (child, parent) in &self.layers {
            families.entry(*parent).or_insert((0, *child)).0 += 1;
        }
        families
    }

    /// The layers that must stay for themselves.
    fn needed(&self) -> BTreeSet<LayerId> {
        let base = self.is_base_fixed.then_some(LayerId::BASE);
        let of_snapshots = self.snapshots.iter().map(|snapshot| snapshot.layer);
        self.volumes.values().copied().chain(of_snapshots).chain(base).collect()
    }

    /// Layers that can be merged, as they are written no more, into those below them that nobody needs for themselves: the lower, the
    /// upper.
    pub(crate) fn mergeable(&self) -> Vec<(LayerId, LayerId)> {
        let (needed, tops) = (self.needed(), self.volumes.values().copied().collect::<BTreeSet<_>>());
        let is_one = |(lower, (count, upper)): &(LayerId, (u32, LayerId))| {
            *count == 1 && !needed.contains(lower) && !tops.contains(upper)
        };
        let pairs = self.families().into_iter().filter(is_one);
        pairs.map(|(lower, (_, upper))| (lower, upper)).collect()
    }

    /// Layers that nobody needs.
    pub(crate) fn needless(&self) -> Vec<LayerId> {
        let (needed, families) = (self.needed(), self.families());
        let is_needless = |layer: &&LayerId| !needed.contains(layer) && !families.contains_key(layer);
        self.layers.keys().filter(is_needless).copied().collect()
    }

    /// Layers that nobody needs become doomed; and those that only these have needed.
    pub(crate) fn doom(&mut self) {
        loop {
            let needless = self.needless();
            if needless.is_empty() {
                return;
            }
            self.layers.retain(|layer, _| !needless.contains(layer));
            self.doomed.extend(needless);
        }
    }

    /// The upper layer is in the lower one now, and doomed.
    pub(crate) fn merged(&mut self, lower: LayerId, upper: LayerId) {
        self.layers.remove(&upper);
        self.doomed.insert(upper);
        let of_layers = self.layers.values_mut().filter(|parent| **parent == upper);
        of_layers.for_each(|parent| *parent = lower);
        let of_volumes = self.volumes.values_mut().filter(|top| **top == upper);
        of_volumes.for_each(|top| *top = lower);
        let of_snapshots = self.snapshots.iter_mut().filter(|snapshot| snapshot.layer == upper);
        of_snapshots.for_each(|snapshot| snapshot.layer = lower);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_damaged_byte_and_no_cut_is_taken_for_what_was_written() {
        let mut catalogue = Catalogue::new(512, Some("base".into()));
        catalogue.volumes.insert("v".into(), LayerId::BASE);
        catalogue.seals.insert(LayerId::BASE, Seal { generation: 0, length_bytes: 4096 });
        let good = catalogue.encode();
        assert_eq!(Catalogue::decode(&good).unwrap(), catalogue);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Catalogue::decode(&bad).is_err() && Catalogue::decode(&good[..at]).is_err(), "{at}");
        }
        let newer = br#"{"version":9,"whatever":1}"#;
        assert!(matches!(Catalogue::decode(newer), Err(CatalogueError::Version(9))));
    }
}
