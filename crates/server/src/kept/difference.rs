//! What differs from the configuration.

use std::collections::{BTreeMap, HashMap};

use sanwire_core::Lun;

use super::{AccessStates, Changed, Changes, Configured, Edit, VolumeDefinition};
use crate::config::{ServerConfig, VolumeConfig};
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::front::iscsi::target_table::TargetChanges;

/// The changes that lead from what is configured to these volumes and targets.
pub(crate) fn difference<'a>(
    configured: &ServerConfig,
    volumes: impl IntoIterator<Item = &'a VolumeConfig>,
    exports: &[TargetNodeConfig],
) -> Changes {
    let before = by_name(&configured.exports);
    let new = exports.iter().filter(|export| !before.contains_key(export.name.as_str()));
    let set = exports.iter().filter_map(|export| {
        Some((export.name.to_string(), settings(before.get(export.name.as_str()).copied(), export)?))
    });
    Changes {
        target_settings: set.collect(),
        volumes: of_volumes(&configured.volumes, volumes),
        mappings: of_mappings(&before, &by_name(exports)),
        targets: new.map(|export| (export.name.to_string(), export.alias.clone())).collect(),
        access_states: AccessStates::default(),
    }
}

/// What differs of a volume that is to be so, or not to be there, and of its numbers in these targets.
pub(crate) fn edit_of_volume(
    configured: &Configured,
    name: &str,
    now: Option<&VolumeConfig>,
    targets: &TargetChanges,
) -> Edit {
    let before = configured.volume(name);
    let volume = change(before, now, is_same_volume, definition);
    let mut edit = Edit { volumes: BTreeMap::from([(name.to_owned(), volume)]), ..Edit::default() };
    let number = |target: &TargetNodeConfig| {
        target.units.iter().find(|(_, volume)| *volume == name).map(|(lun, _)| lun.number())
    };
    for (target, now) in targets {
        let before = configured.target(target);
        let [old, new] = [before, now.as_ref()].map(|target| target.and_then(number));
        let mapping = change(old.as_ref(), new.as_ref(), |old, new| old == new, |number| *number);
        edit.mappings.insert((target.to_string(), name.to_owned()), mapping);
        let alias = now.as_ref().filter(|_| before.is_none()).map(|now| now.alias.clone());
        edit.targets.insert(target.to_string(), alias);
        edit.target_settings.insert(target.to_string(), now.as_ref().and_then(|now| settings(before, now)));
    }
    edit
}

/// What differs when a target is set, or made, by itself.
pub(crate) fn edit_of_target(configured: &Configured, now: &TargetNodeConfig) -> Edit {
    let (name, before) = (now.name.to_string(), configured.target(&now.name));
    let alias = before.is_none().then(|| now.alias.clone());
    Edit {
        mappings: edits_of_units(before, Some(now)),
        targets: BTreeMap::from([(name.clone(), alias)]),
        target_settings: BTreeMap::from([(name, settings(before, now))]),
        ..Edit::default()
    }
}

/// What differs when a target that is so is there no longer, however it is configured.
pub(crate) fn edit_of_removal(configured: &Configured, gone: &TargetNodeConfig) -> Edit {
    let (name, before) = (gone.name.to_string(), configured.target(&gone.name));
    let none = gone.units.values().map(|volume| ((name.clone(), volume.clone()), None));
    let mut mappings: BTreeMap<_, _> = none.collect();
    mappings.extend(edits_of_units(before, None));
    Edit {
        mappings,
        targets: BTreeMap::from([(name.clone(), None)]),
        target_settings: BTreeMap::from([(name, before.map(removed))]),
        ..Edit::default()
    }
}

/// What is kept of a target that was removed, and is configured so.
pub(crate) fn removed(before: &TargetNodeConfig) -> Changed<TargetSettings> {
    Changed { configured: Some(TargetSettings::of(before)), now: None }
}

/// What was set of a target, beside what is configured of it.
fn settings(before: Option<&TargetNodeConfig>, now: &TargetNodeConfig) -> Option<Changed<TargetSettings>> {
    let set = now.set.as_deref()?;
    Some(Changed { configured: before.map(|before| set.as_in(before)), now: Some(set.clone()) })
}

/// All numbers in a target, each with what differs of it.
fn edits_of_units(
    before: Option<&TargetNodeConfig>,
    now: Option<&TargetNodeConfig>,
) -> BTreeMap<(String, String), Option<Changed<u16>>> {
    let Some(target) = before.or(now).map(|target| target.name.to_string()) else { return BTreeMap::new() };
    let [old, new] = [before, now].map(|target| target.map(|target| numbers(&target.units)).unwrap_or_default());
    let volumes = old.keys().chain(new.keys());
    let edit = |volume: &&str| {
        let change = change(old.get(*volume), new.get(*volume), |old, new| old == new, |number| *number);
        ((target.clone(), (*volume).to_owned()), change)
    };
    volumes.map(edit).collect()
}

fn definition(volume: &VolumeConfig) -> VolumeDefinition {
    VolumeDefinition { volume: volume.spec.clone(), lun: volume.lun.number() }
}

fn is_same_volume(one: &VolumeConfig, other: &VolumeConfig) -> bool {
    one.spec == other.spec && one.lun == other.lun
}

fn of_volumes<'a>(
    before: &[VolumeConfig],
    after: impl IntoIterator<Item = &'a VolumeConfig>,
) -> BTreeMap<String, Changed<VolumeDefinition>> {
    let before = before.iter().map(|volume| (&*volume.spec.name, volume)).collect();
    let after = after.into_iter().map(|volume| (&*volume.spec.name, volume)).collect();
    changed(&before, &after, |one, other| is_same_volume(one, other), |volume| definition(volume))
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
    let changed = gone.chain(there).filter_map(|(name, old, new)| Some((name, change(old, new, &is_same, &keep)?)));
    changed.map(|(name, change)| (name.to_owned(), change)).collect()
}

/// What is kept of a thing, unless it is as it is configured.
fn change<T, K>(
    old: Option<&T>,
    new: Option<&T>,
    is_same: impl Fn(&T, &T) -> bool,
    keep: impl Fn(&T) -> K,
) -> Option<Changed<K>> {
    let is_as_configured = match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => is_same(old, new),
        _ => false,
    };
    (!is_as_configured).then(|| Changed { configured: old.map(&keep), now: new.map(&keep) })
}
