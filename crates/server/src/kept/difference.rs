//! What differs from the configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::{AccessStates, Changed, Changes, VolumeDefinition};
use crate::config::{ServerConfig, VolumeConfig};
use crate::front::iscsi::target_node::TargetNodeConfig;

/// The changes that lead from what is configured to these volumes and targets.
pub(crate) fn difference(configured: &ServerConfig, volumes: &[VolumeConfig], exports: &[TargetNodeConfig]) -> Changes {
    let is_configured = |export: &&TargetNodeConfig| configured.exports.iter().any(|other| other.name == export.name);
    let new = exports.iter().filter(|export| !is_configured(export));
    Changes {
        volumes: changed(&definitions(&configured.volumes), &definitions(volumes)),
        mappings: of_mappings(&numbers(&configured.exports), &numbers(exports)),
        targets: new.map(|export| (export.name.to_string(), export.alias.clone())).collect(),
        access_states: AccessStates::default(),
    }
}

fn definitions(volumes: &[VolumeConfig]) -> BTreeMap<String, VolumeDefinition> {
    let definition = |volume: &VolumeConfig| {
        let definition = VolumeDefinition { volume: volume.spec.clone(), lun: volume.lun.number() };
        (volume.spec.name.to_string(), definition)
    };
    volumes.iter().map(definition).collect()
}

/// By targets, then by volumes.
type Numbers = BTreeMap<String, BTreeMap<String, u16>>;

fn numbers(exports: &[TargetNodeConfig]) -> Numbers {
    let of_target = |export: &TargetNodeConfig| {
        let units = export.units.iter().map(|(lun, volume)| (volume.clone(), lun.number()));
        (export.name.to_string(), units.collect())
    };
    exports.iter().map(of_target).collect()
}

fn of_mappings(before: &Numbers, after: &Numbers) -> BTreeMap<String, BTreeMap<String, Changed<u16>>> {
    let none = BTreeMap::new();
    let targets: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of_target = |target: &&String| {
        let [before, after] = [before, after].map(|numbers| numbers.get(*target).unwrap_or(&none));
        ((*target).clone(), changed(before, after))
    };
    targets.iter().map(of_target).filter(|(_, changes)| !changes.is_empty()).collect()
}

fn changed<T: Clone + PartialEq>(
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
) -> BTreeMap<String, Changed<T>> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |name: &&String| Changed { configured: before.get(*name).cloned(), now: after.get(*name).cloned() };
    let changes = names.iter().map(|name| ((*name).clone(), change(name)));
    changes.filter(|(_, change)| change.configured != change.now).collect()
}
