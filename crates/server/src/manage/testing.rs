//! Small servers for tests.

use std::path::PathBuf;
use std::{env, fs, process};

use sanwire_core::{Lun, Protection};
use sanwire_io::file::EngineKind;

use super::Manager;
use crate::allow::AllowList;
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::error::StartError;
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

/// A server that keeps its state there, and what it is configured to be.
pub(crate) struct Kept {
    pub(crate) directory: PathBuf,
    pub(crate) configured: Vec<String>,
}

impl Kept {
    pub(crate) fn new(label: &str, configured: &[&str]) -> Kept {
        let directory = env::temp_dir().join(format!("sanwire-kept-manager-{label}-{}", process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Kept { directory, configured: configured.iter().map(|text| (*text).to_owned()).collect() }
    }

    pub(crate) fn config(&self) -> ServerConfig {
        let volumes: Vec<&str> = self.configured.iter().map(String::as_str).collect();
        ServerConfig { state_directory: Some(self.directory.join("state")), ..config(&volumes) }
    }

    pub(crate) fn start(&self) -> Result<Manager, StartError> {
        let config = self.config();
        Manager::start(config.clone(), Box::new(move || Ok(config.clone())))
    }

    pub(crate) fn changes(&self) -> PathBuf {
        self.directory.join("state/changes-test.json")
    }
}

impl Kept {
    /// As on a disk that is full: no change can be kept from now on.
    pub(crate) fn fill_disk(&self) {
        fs::create_dir(self.changes().with_extension("json.new")).unwrap();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
