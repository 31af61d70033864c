//! What a family tells of itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::LayerId;
use crate::catalogue::{Catalogue, Snapshot};
use crate::layer::Source;
use crate::tree::Tree;

/// What there is, for those who only look: they never wait for those who change it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) base: Arc<Source>,
    /// Those that are open.
    pub(crate) sources: BTreeMap<LayerId, Weak<Source>>,
}

impl Told {
    fn used_bytes(&self, layer: LayerId) -> Option<u64> {
        match layer {
            LayerId::BASE => self.base.used_bytes(),
            layer => self.sources.get(&layer)?.upgrade()?.used_bytes(),
        }
    }
}

/// One layer, as it is told to people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerSpace {
    /// Which.
    pub layer: LayerId,
    /// What it lies on.
    pub parent: LayerId,
    /// What it takes, where it is open and its store can tell.
    pub used_bytes: Option<u64>,
}

impl Tree {
    /// How many layers there are.
    #[must_use]
    pub fn layers_count(&self) -> usize {
        self.told.load().catalogue.layers.len()
    }

    /// All snapshots, in the order in which they were made.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.told.load().catalogue.snapshots.clone()
    }

    /// What the layer takes that a snapshot has ended, where it is open and its store can tell.
    #[must_use]
    pub fn used_bytes(&self, volume: &str, snapshot: &str) -> Option<u64> {
        let told = self.told.load();
        told.used_bytes(told.catalogue.snapshot(volume, snapshot)?.layer)
    }

    /// All volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<String> {
        self.told.load().catalogue.volumes.keys().cloned().collect()
    }

    /// All layers, with the base, and what each takes.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerSpace> {
        let told = self.told.load();
        let of = |(layer, parent)| LayerSpace { layer, parent, used_bytes: told.used_bytes(layer) };
        let layers = told.catalogue.layers.iter().map(|(layer, parent)| (*layer, *parent));
        std::iter::once((LayerId::BASE, LayerId::BASE)).chain(layers).map(of).collect()
    }
}
