//! A small server for tests.

use sanwire_core::{Lun, Protection};
use sanwire_io::file::EngineKind;

use crate::allow::AllowList;
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::front::hyperscsi::clients::Compression;
use crate::front::hyperscsi::{Identity, Recovery};
use crate::front::iscsi::Authentication;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::wire::Wire;

/// A server of these volumes, each with a target of its own.
pub(crate) fn config(volumes: &[&str]) -> ServerConfig {
    let volumes: Vec<VolumeConfig> = (0..)
        .zip(volumes)
        .map(|(lun, spec)| VolumeConfig {
            lun: Lun::new(lun).unwrap(),
            spec: spec.parse().unwrap(),
            origin: Origin::CommandLine,
        })
        .collect();
    let exports =
        volumes.iter().map(|volume| TargetNodeConfig::of_volume(&volume.spec.name, AllowList::default()).unwrap());
    ServerConfig {
        name: "test".into(),
        identity: Identity::from_private(crate::random::bytes().unwrap()).unwrap(),
        psk: [0; 32],
        wires: vec!["hs-ip:127.0.0.1:1".parse().unwrap()].into_iter().map(any_port).collect(),
        protection: Protection::Checksum,
        compression: Compression::Off,
        rekey_interval: ServerConfig::REKEY_INTERVAL_DEFAULT,
        allow: AllowList::default(),
        clients: Vec::new(),
        exports: exports.collect(),
        volumes,
        accepted: Default::default(),
        discovery: Authentication::default(),
        state_directory: None,
        audit_log: None,
        shards: 1,
        memory_bytes: ServerConfig::MEMORY_BYTES_DEFAULT,
        ring_bytes: 1 << 20,
        engine: EngineKind::Auto,
        recovery: Recovery::default(),
    }
}

pub(crate) fn any_port(wire: Wire) -> Wire {
    match wire.address() {
        Some(address) => wire.at((address.ip(), 0).into()),
        None => wire,
    }
}
