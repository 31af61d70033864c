//! What is written of layers over a store: `layers=POOL`.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_core::DeviceType;

use super::raw::RawVolume;
use super::{SpecError, VolumeName};
use crate::kind::{self, Backing, BelowLayers, LayersBacking, Place, StoreKind};

impl RawVolume {
    /// The same without the keys that only stores of some kinds have, and those that say how the store is kept.
    pub(super) fn without_store_keys(mut self) -> RawVolume {
        let of_store = kind::keys();
        self.values.retain(|key, _| !of_store.contains(key) && !["layers", "block", "readonly"].contains(key));
        self
    }

    /// The store with its keys.
    fn store_text(&self) -> String {
        self.to_string().trim_start_matches('=').to_owned()
    }

    /// The same store, and those of which it is made, as [`BelowLayers::again`].
    fn again(mut self) -> RawVolume {
        let absolute = self.to_store(DeviceType::Disk).ok().and_then(|spec| spec.backing.absolute());
        absolute.into_iter().for_each(|absolute| self.rewrite(absolute));
        self.values.retain(|key, _| !["size", "grow"].contains(key));
        let is_kept_from_others = self.values.remove("takeover").is_some_and(|values| values != ["false"]);
        let has_key = |(kind, _): (&dyn StoreKind, _)| kind.keys().contains(&"exclusive");
        if is_kept_from_others && kind::find(&self.store).is_some_and(has_key) {
            self.set("exclusive", Some(true.to_string()));
        }
        for member in self.values.get_mut("member").into_iter().flatten() {
            if let Ok(again) = RawVolume::from_text("", member).map(RawVolume::again) {
                *member = again.store_text();
            }
        }
        self
    }

    /// The pool that keeps layers over the store.
    pub(super) fn pool_of_layers(&self) -> Result<Option<String>, SpecError> {
        const EXPECTED: &str = "the name of a pool: 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'";
        self.single("layers", EXPECTED, |text| text.parse::<VolumeName>().ok().map(|name| name.to_string()))
    }

    /// This store below layers that a pool keeps.
    pub(super) fn below_layers(
        &self,
        backing: Arc<dyn Backing>,
        kind: &dyn StoreKind,
        pool: &str,
    ) -> Result<Arc<dyn Backing>, SpecError> {
        if backing.pool().is_some() {
            return refused("layers", "a volume in a pool has its layers there (snapshots = \"layers\" in the pool)");
        }
        if let Place::Volume(_) = backing.place() {
            return refused("layers", "what is derived is part of another volume: take snapshots of that");
        }
        if matches!(backing.place(), Place::Memory | Place::Nowhere) {
            return refused(
                "layers",
                "what is in memory is gone at the next start, and the layers over it would not be",
            );
        }
        let only = |is_kept: &dyn Fn(&str) -> bool| {
            let kept = self.values.iter().filter(|(key, _)| is_kept(key));
            kept.map(|(key, values)| (*key, values.clone())).collect::<BTreeMap<_, _>>()
        };
        let of_both = |key: &str| ["block", "readonly"].contains(&key);
        let values = only(&|key| of_both(key) || kind.keys().contains(&key));
        let raw = RawVolume { name: String::new(), store: self.store.clone(), values };
        let (written, again) = (raw.store_text(), raw.clone().again().store_text());
        let in_pool = RawVolume { name: self.name.clone(), store: format!("pool:{pool}"), values: only(&of_both) };
        let pool = in_pool.to_store(DeviceType::Disk)?.backing;
        Ok(Arc::new(LayersBacking { below: BelowLayers { written, again, backing }, pool }))
    }
}

pub(super) fn refused<T>(key: &'static str, reason: &'static str) -> Result<T, SpecError> {
    Err(SpecError::NotHere { key, reason })
}
