//! What file and command line say, beside what was changed while the server ran. No secret is told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::deviations::store;
use super::look::Looker;
use super::response::Deviation;
use super::{Answer, Manager};
use crate::allow::AllowList;
use crate::config::Origin;
use crate::front::hyperscsi::clients::ClientConfig;
use crate::front::iscsi::target_node::TargetNodeConfig;

/// The configuration, and what differs from it now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationStatus {
    /// That of the server: rises with each change of what an administrator can change.
    pub revision: u64,
    /// Where clients reach the server.
    pub wires: Vec<String>,
    /// The protection level over HyperSCSI, HDSP and VISA of volumes without their own `security`.
    pub security: String,
    /// Who is served over HyperSCSI besides the clients below; nobody named: who is on the server's host.
    pub allow: Vec<String>,
    /// Whether HyperSCSI clients that have no secret of their own must know a password, or a key in its place.
    pub has_password: bool,
    /// The directories in which volumes can be without naming a path.
    pub pools: Vec<ConfiguredPool>,
    /// The volumes.
    pub volumes: Vec<ConfiguredVolume>,
    /// The iSCSI targets.
    pub targets: Vec<ConfiguredTarget>,
    /// The HyperSCSI clients that are known by their ids.
    pub clients: Vec<ClientConfig>,
    /// What was changed while the server ran.
    pub deviations: Vec<Deviation>,
}

/// A pool as it is configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfiguredPool {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub directory: String,
}

/// A volume as it is configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfiguredVolume {
    /// Its name.
    pub name: String,
    /// Where that is said.
    pub origin: Origin,
    /// Its HyperSCSI number.
    pub lun: u16,
    /// Its store and its keys, as `--volume` has them behind the name.
    pub store: String,
}

/// An iSCSI target as it is configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfiguredTarget {
    /// Its name.
    pub name: String,
    /// Its logical units.
    pub units: Vec<ConfiguredUnit>,
    /// The portal groups through which it is reached; none: all.
    pub groups: Vec<u16>,
    /// Who may use it; nobody named: who is on the server's host.
    pub allow: Vec<String>,
    /// Whether initiators must show who they are.
    pub authenticated: bool,
}

/// A logical unit as it is configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfiguredUnit {
    /// Its number.
    pub lun: u16,
    /// The volume.
    pub volume: String,
}

impl Manager {
    pub(super) fn configuration(&self) -> Answer {
        Answer::Configuration(Box::new(self.looker().configuration()))
    }
}

impl Looker {
    fn configuration(&self) -> ConfigurationStatus {
        let (configured, status) = (&*self.configured, self.status());
        let volumes = configured.volumes.iter().map(|volume| ConfiguredVolume {
            name: volume.spec.name.to_string(),
            origin: volume.origin,
            lun: volume.lun.number(),
            store: store(&volume.spec),
        });
        let pools = configured.pools.iter();
        let pools = pools.map(|pool| ConfiguredPool {
            name: pool.name.to_string(),
            directory: pool.directory.display().to_string(),
        });
        ConfigurationStatus {
            revision: status.revision,
            wires: configured.wires.iter().map(ToString::to_string).collect(),
            security: configured.protection.to_string(),
            allow: rules(&configured.allow),
            has_password: configured.has_password(),
            pools: pools.collect(),
            volumes: volumes.collect(),
            targets: configured.exports.iter().map(target).collect(),
            clients: configured.clients.iter().map(|client| ClientConfig { psk: None, ..client.clone() }).collect(),
            deviations: status.deviations,
        }
    }
}

fn target(target: &TargetNodeConfig) -> ConfiguredTarget {
    let units = target.units.iter().map(|(lun, volume)| ConfiguredUnit { lun: lun.number(), volume: volume.clone() });
    ConfiguredTarget {
        name: target.name.to_string(),
        units: units.collect(),
        groups: target.group_tags.clone(),
        allow: rules(&target.allow),
        authenticated: !target.authentication.users.is_empty(),
    }
}

fn rules(allow: &AllowList) -> Vec<String> {
    allow.rules().iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use sanwire_core::ClientId;

    use crate::front::hyperscsi::clients::{ClientConfig, Secret};
    use crate::manage::testing::config;
    use crate::manage::{Answer, ConfigurationStatus, Manager, Request};

    fn configuration(manager: &mut Manager) -> ConfigurationStatus {
        match manager.execute(Request::Configuration) {
            Ok(Answer::Configuration(configuration)) => *configuration,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_configured_is_told_beside_what_differs_and_no_secret_is() {
        let mut configured = config(&["a=ram:1M", "b=ram:2M,readonly"]);
        let secret = [0x5e; 32];
        configured.psk = secret;
        let client: ClientConfig = serde_json::from_value(serde_json::json!({ "id": "a1".repeat(16) })).unwrap();
        configured.clients = vec![ClientConfig { psk: Some(Secret(secret)), ..client }];
        // Beside passwords, no target may be open.
        configured.exports.clear();
        let mut manager = Manager::start(configured, Box::new(|| Ok(config(&[])))).unwrap();
        let before = configuration(&mut manager);
        let volumes: Vec<_> = before.volumes.iter().map(|volume| (&*volume.name, volume.lun, &*volume.store)).collect();
        assert_eq!(volumes, [("a", 0, "ram:1M"), ("b", 1, "ram:2M,readonly=true")]);
        assert_eq!((before.has_password, before.clients.len(), before.deviations.len()), (true, 1, 0));
        assert_eq!(before.clients[0].id, ClientId([0xa1; 16]));
        manager.execute(Request::RemoveVolume { name: "a".into(), force: true }).unwrap();
        let after = configuration(&mut manager);
        assert!(after.revision > before.revision);
        assert_eq!(after.volumes, before.volumes, "it is configured as before");
        let [deviation] = &*after.deviations else { panic!("{:?}", after.deviations) };
        assert_eq!((&*deviation.resource, &*deviation.name, &deviation.now), ("volume", "a", &None));
        let text = serde_json::to_string(&after).unwrap();
        assert!(!text.contains(&"5e".repeat(8)) && !text.contains("94,94"), "{text}");
        manager.into_target().stop().unwrap();
    }
}
