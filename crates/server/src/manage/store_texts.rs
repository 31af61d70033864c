//! Where the blocks of each volume live, as it was written: for those who only look, and do not have the manager.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::config::VolumeConfig;

/// The stores of the volumes that are served, by their names.
#[derive(Clone, Default)]
pub(super) struct StoreTexts(Arc<RwLock<BTreeMap<String, Box<str>>>>);

impl StoreTexts {
    pub(super) fn of<'a>(volumes: impl Iterator<Item = &'a VolumeConfig>) -> Self {
        let texts = volumes.map(|volume| (volume.spec.name.to_string(), volume.spec.store_text().into()));
        StoreTexts(Arc::new(RwLock::new(texts.collect())))
    }

    /// The volume is served from there from now on.
    pub(super) fn put(&self, volume: &VolumeConfig) {
        let (name, text) = (volume.spec.name.to_string(), volume.spec.store_text().into());
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name, text);
    }

    pub(super) fn remove(&self, volume: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(volume);
    }

    /// Where the blocks of a volume live; empty when it is not served.
    pub(super) fn of_volume(&self, volume: &str) -> String {
        let texts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        texts.get(volume).map_or_else(String::new, |text| text.to_string())
    }
}
