//! What differs from the configuration.

use std::collections::{BTreeMap, HashMap};

use sanwire_core::Lun;

use super::{AccessStates, Changed, Changes, VolumeDefinition};
use crate::config::{ServerConfig, VolumeConfig};
use crate::front::iscsi::target_node::TargetNodeConfig;

/// The changes that lead from what is configured to these volumes and targets.
pub(crate) fn difference<'a>(
    configured: &ServerConfig,
    volumes: impl IntoIterator<Item = &'a VolumeConfig>,
    exports: &[TargetNodeConfig],
) -> Changes {
    let before = by_name(&configured.exports);
    let new = exports.iter().filter(|export| !before.contains_key(export.name.as_str()));
    Changes {
        volumes: of_volumes(&configured.volumes, volumes),
        mappings: of_mappings(&before, &by_name(exports)),
        targets: new.map(|export| (export.name.to_string(), export.alias.clone())).collect(),
        access_states: AccessStates::default(),
    }
}

fn of_volumes<'a>(
    before: &[VolumeConfig],
    after: impl IntoIterator<Item = &'a VolumeConfig>,
) -> BTreeMap<String, Changed<VolumeDefinition>> {
    let definition = |volume: &VolumeConfig| VolumeDefinition { volume: volume.spec.clone(), lun: volume.lun.number() };
    let before = before.iter().map(|volume| (&*volume.spec.name, volume)).collect();
    let after = after.into_iter().map(|volume| (&*volume.spec.name, volume)).collect();
    changed(&before, &after, |one, other| one.spec == other.spec && one.lun == other.lun, |volume| definition(volume))
}

fn by_name(exports: &[TargetNodeConfig]) -> HashMap<&str, &TargetNodeConfig> {
    exports.iter().map(|export| (export.name.as_str(), export)).collect()
}

fn of_mappings(
    before: &HashMap<&str, &TargetNodeConfig>,
    after: &HashMap<&str, &TargetNodeConfig>,
) -> BTreeMap<String, BTreeMap<String, Changed<u16>>> {
    let none = BTreeMap::new();
    let mut mappings = BTreeMap::new();
    let gone = before.keys().filter(|target| !after.contains_key(*target));
    for target in after.keys().chain(gone) {
        let [old, new] = [before, after].map(|exports| exports.get(target).map_or(&none, |export| &export.units));
        if old != new {
            let changes = changed(&numbers(old), &numbers(new), |one, other| one == other, |number| *number);
            mappings.insert((*target).to_owned(), changes);
        }
    }
    mappings
}

fn numbers(units: &BTreeMap<Lun, String>) -> HashMap<&str, u16> {
    units.iter().map(|(lun, volume)| (volume.as_str(), lun.number())).collect()
}

/// What is not the same in both, with what is kept of it.
fn changed<T, K>(
    before: &HashMap<&str, T>,
    after: &HashMap<&str, T>,
    is_same: impl Fn(&T, &T) -> bool,
    keep: impl Fn(&T) -> K,
) -> BTreeMap<String, Changed<K>> {
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name)).map(|(name, old)| (*name, Some(old), None));
    let there = after.iter().map(|(name, new)| (*name, before.get(name), Some(new)));
    let is_changed =
        |(_, old, new): &(&str, Option<&T>, Option<&T>)| !old.zip(*new).is_some_and(|(old, new)| is_same(old, new));
    let changed = gone.chain(there).filter(is_changed);
    let change = |old: Option<&T>, new: Option<&T>| Changed { configured: old.map(&keep), now: new.map(&keep) };
    changed.map(|(name, old, new)| (name.to_owned(), change(old, new))).collect()
}
