//! What a family tells of itself.

use crate::LayerId;
use crate::catalogue::Snapshot;
use crate::layer::Source;
use crate::tree::Tree;

/// One layer, as it is told to people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerSpace {
    /// Which.
    pub layer: LayerId,
    /// What it lies on.
    pub parent: LayerId,
    /// What it takes, where its store can tell.
    pub used_bytes: Option<u64>,
}

impl Tree {
    /// How many layers there are: each is a store that is open.
    #[must_use]
    pub fn layers_count(&self) -> usize {
        self.lock().sources.len()
    }

    /// All snapshots, in the order in which they were made.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.lock().catalogue.snapshots.clone()
    }

    /// What the layer takes that a snapshot has ended, where its store can tell.
    #[must_use]
    pub fn used_bytes(&self, volume: &str, snapshot: &str) -> Option<u64> {
        let state = self.lock();
        let layer = state.catalogue.snapshot(volume, snapshot)?.layer;
        Some(state.source(layer).ok()?.store.space()?.used_bytes)
    }

    /// All volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<String> {
        self.lock().catalogue.volumes.keys().cloned().collect()
    }

    /// All layers, with the base, and what each takes.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerSpace> {
        let state = self.lock();
        let used = |source: &Source| source.store.space().map(|space| space.used_bytes);
        let base = LayerSpace { layer: LayerId::BASE, parent: LayerId::BASE, used_bytes: used(&state.base) };
        let of = |(layer, parent): (&LayerId, &LayerId)| {
            let used_bytes = state.sources.get(layer).and_then(|source| used(source));
            LayerSpace { layer: *layer, parent: *parent, used_bytes }
        };
        std::iter::once(base).chain(state.catalogue.layers.iter().map(of)).collect()
    }
}
