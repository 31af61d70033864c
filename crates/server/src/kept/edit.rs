//! How what differs from the configuration becomes something else: only what is named is looked at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Changed, Changes, VolumeDefinition};
use crate::front::iscsi::target_settings::TargetSettings;

/// What differs from now on, by the names of [`Changes`]; `None`: as it is configured.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Edit {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) volumes: BTreeMap<String, Option<Changed<VolumeDefinition>>>,
    /// By targets and volumes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", with = "pairs")]
    pub(crate) mappings: BTreeMap<(String, String), Option<Changed<u16>>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) targets: BTreeMap<String, Option<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) target_settings: BTreeMap<String, Option<Changed<TargetSettings>>>,
}

/// A map as a list of its entries: JSON has only texts for keys.
mod pairs {
    use std::collections::BTreeMap;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Map<V> = BTreeMap<(String, String), V>;

    pub(super) fn serialize<V: Serialize, S: Serializer>(map: &Map<V>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, V: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Map<V>, D::Error> {
        let entries = Vec::<((String, String), V)>::deserialize(deserializer)?;
        Ok(entries.into_iter().collect())
    }
}

impl Edit {
    /// Has the other one made as well, which is about other things, or holds where it is about the same.
    pub(crate) fn join(&mut self, other: Edit) {
        let Edit { volumes, mappings, targets, target_settings } = other;
        self.volumes.extend(volumes);
        self.mappings.extend(mappings);
        self.targets.extend(targets);
        self.target_settings.extend(target_settings);
    }
}

impl Changes {
    /// Makes them what they are to be; gives what undoes that. An edit that changes nothing undoes itself.
    pub(crate) fn apply(&mut self, edit: Edit) -> Edit {
        let Changes { volumes, mappings, targets, target_settings, access_states: _ } = self;
        let mapping = |((target, volume), change): ((String, String), Option<Changed<u16>>)| {
            let units = mappings.entry(target.clone()).or_default();
            let before = put(units, &volume, change);
            if units.is_empty() {
                mappings.remove(&target);
            }
            ((target, volume), before)
        };
        Edit {
            volumes: edit.volumes.into_iter().map(|change| put_named(volumes, change)).collect(),
            mappings: edit.mappings.into_iter().map(mapping).collect(),
            targets: edit.targets.into_iter().map(|change| put_named(targets, change)).collect(),
            target_settings: edit
                .target_settings
                .into_iter()
                .map(|change| put_named(target_settings, change))
                .collect(),
        }
    }
}

fn put_named<T>(map: &mut BTreeMap<String, T>, (name, new): (String, Option<T>)) -> (String, Option<T>) {
    let before = put(map, &name, new);
    (name, before)
}

/// Gives what was there before.
fn put<T>(map: &mut BTreeMap<String, T>, name: &str, new: Option<T>) -> Option<T> {
    match new {
        Some(new) => map.insert(name.to_owned(), new),
        None => map.remove(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_comes_back() {
        let mut changes = Changes::default();
        let number = |now| Some(Changed { configured: None, now: Some(now) });
        let mapping = |target: &str, volume: &str| (target.to_owned(), volume.to_owned());
        let first = Edit {
            mappings: BTreeMap::from([(mapping("t", "a"), number(1)), (mapping("t", "b"), number(2))]),
            targets: BTreeMap::from([("t".to_owned(), Some("alias".to_owned()))]),
            ..Edit::default()
        };
        let undo_first = changes.apply(first.clone());
        let before = changes.clone();
        assert_eq!(changes.apply(first.clone()), first, "nothing has changed");
        assert_eq!(changes, before);
        let second = Edit {
            mappings: BTreeMap::from([(mapping("t", "b"), None), (mapping("u", "b"), number(3))]),
            targets: BTreeMap::from([("t".to_owned(), None)]),
            ..Edit::default()
        };
        let undo_second = changes.apply(second);
        assert_eq!(changes.mappings["t"].len() + changes.mappings["u"].len(), 2);
        changes.apply(undo_second);
        assert_eq!(changes, before);
        changes.apply(undo_first);
        assert!(changes.is_empty(), "{changes:?}");
    }
}
