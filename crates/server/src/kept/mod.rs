//! What was changed while the server ran, kept so that a restart brings it back.
//!
//! What a server is to be is its configuration (file and command line) with these changes. Each change is kept beside what was
//! configured when it was made; so it is known when the configuration was edited since, which then holds ([`merge`]).

mod added;
mod changes_file;
mod configured;
mod difference;
mod edit;
mod file;
mod lock;
mod merge;
pub(crate) mod versioned;

use std::collections::BTreeMap;

use sanwire_store::VolumeSpec;
use serde::{Deserialize, Serialize};

use crate::front::hyperscsi::clients::text;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::manage::PortState;

pub(crate) use self::changes_file::ChangesFile;
pub(crate) use self::configured::Configured;
pub(crate) use self::difference::{difference, edit_of_removal, edit_of_target, edit_of_volume, removed};
pub(crate) use self::edit::Edit;
pub(crate) use self::file::StateFile;
pub use self::file::{Keeps, StateError};
pub(crate) use self::lock::{FileLock, LockError, StateLock};
pub(crate) use self::merge::merge;

/// What differs from the configuration, by names.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Changes {
    /// Volumes that were added, removed, resized, renumbered or protected otherwise.
    pub(crate) volumes: BTreeMap<String, Changed<VolumeDefinition>>,
    /// The numbers of volumes in iSCSI targets: by targets, then by volumes.
    pub(crate) mappings: BTreeMap<String, BTreeMap<String, Changed<u16>>>,
    /// The iSCSI targets that are not configured, with what people call them.
    pub(crate) targets: BTreeMap<String, String>,
    /// What was set of iSCSI targets, by their names, also of those that are not configured; of what was configured, secrets are digests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) target_settings: BTreeMap<String, Changed<TargetSettings>>,
    /// The port groups that are not active and optimized: by targets (`hyperscsi` for HyperSCSI's), then by numbers.
    pub(crate) access_states: AccessStates,
}

/// States of port groups: by targets, then by numbers.
pub(crate) type AccessStates = BTreeMap<String, BTreeMap<u16, PortState>>;

/// One thing that is not as it is configured. Neither configured nor there is a volume that was derived while the server ran, and revoked, as
/// long as something of it may be left.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changed<T> {
    /// What was configured when it was changed; `None`: there was no such thing.
    pub(crate) configured: Option<T>,
    /// What it is now; `None`: it was removed.
    pub(crate) now: Option<T>,
}

/// A volume, as it is kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeDefinition {
    /// What it is, as the text that makes it.
    #[serde(with = "text")]
    pub(crate) volume: VolumeSpec,
    /// Its HyperSCSI number. One of the configuration has it by its place there, which is no word of the configuration about it.
    pub(crate) lun: u16,
}

impl<T> Changed<T> {
    /// What is kept of one that is to be forgotten.
    pub(crate) const FORGOTTEN: Changed<T> = Changed { configured: None, now: None };
}

impl Changes {
    /// Whether everything is as it is configured.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Whether the other ones are these too, with more perhaps.
    pub(crate) fn are_within(&self, others: &Changes) -> bool {
        let Changes { volumes, mappings, targets, target_settings, access_states } = self;
        let has_all = |target, units: &BTreeMap<String, Changed<u16>>| {
            others.mappings.get(target).is_some_and(|others| is_within(units, others))
        };
        let has_states = |place, states: &BTreeMap<u16, PortState>| {
            others.access_states.get(place).is_some_and(|others| is_within(states, others))
        };
        is_within(volumes, &others.volumes)
            && is_within(targets, &others.targets)
            && is_within(target_settings, &others.target_settings)
            && mappings.iter().all(|(target, units)| has_all(target, units))
            && access_states.iter().all(|(place, states)| has_states(place, states))
    }
}

fn is_within<K: Ord, V: PartialEq>(one: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> bool {
    one.iter().all(|(key, value)| other.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
