//! What differs from the configuration, for people and programs.

use sanwire_store::VolumeSpec;

use super::access::PortState;
use super::clients::rights;
use super::response::Deviation;
use super::{Manager, MissingStatus};
use crate::front::hyperscsi::clients::{ClientConfig, Clients};
use crate::front::iscsi::target_settings::TargetSettings;
use crate::kept::{Changed, Changes, VolumeDefinition};

/// Each thing that is not as file and command line say.
pub(super) fn deviations(changes: &Changes, clients: &Clients) -> Vec<Deviation> {
    let volumes = changes.volumes.iter().filter(|(_, change)| **change != Changed::FORGOTTEN);
    let volumes = volumes.map(|(name, change)| of("volume", name.clone(), change, definition));
    let targets = changes.target_settings.iter();
    let targets = targets.map(|(name, change)| of("target", name.clone(), change, TargetSettings::shown));
    let units = changes.mappings.iter().flat_map(|(target, units)| units.iter().map(move |unit| (target, unit)));
    let mappings = units.map(|(target, (volume, change))| {
        of("mapping", format!("{volume} in {target}"), change, |lun| format!("logical unit {lun}"))
    });
    let clients = clients.changed();
    let clients = clients.iter().map(|(id, change)| of("client", id.to_string(), change, client));
    let usual = PortState::ActiveOptimized;
    let groups =
        changes.access_states.iter().flat_map(|(place, groups)| groups.iter().map(move |group| (place, group)));
    let states = groups.map(|(place, (group, state))| {
        let change = Changed { configured: Some(usual), now: Some(*state) };
        of("access-state", format!("group {group} of {place}"), &change, |state| state.name().to_owned())
    });
    volumes.chain(targets).chain(mappings).chain(clients).chain(states).collect()
}

impl Manager {
    /// What should be served and is not.
    pub(super) fn missing(&self) -> Vec<MissingStatus> {
        let missing = self.kept.missing.iter();
        let status = missing.map(|missing| MissingStatus {
            name: missing.volume.spec.name.to_string(),
            reason: missing.reason.clone(),
        });
        status.collect()
    }
}

fn of<T>(resource: &str, name: String, change: &Changed<T>, shown: impl Fn(&T) -> String) -> Deviation {
    Deviation {
        resource: resource.to_owned(),
        name,
        configured: change.configured.as_ref().map(&shown),
        now: change.now.as_ref().map(&shown),
    }
}

fn definition(VolumeDefinition { volume, lun }: &VolumeDefinition) -> String {
    format!("{} as logical unit {lun}", store(volume))
}

/// The volume without its name.
pub(super) fn store(volume: &VolumeSpec) -> String {
    let text = volume.to_string();
    text.split_once('=').map_or(text.clone(), |(_, store)| store.to_owned())
}

fn client(client: &ClientConfig) -> String {
    let name = if client.name.is_empty() { String::new() } else { format!("{}: ", client.name) };
    format!("{name}{}", rights(client))
}
