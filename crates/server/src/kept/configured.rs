//! What file and command line say, to be found by names.

use std::collections::BTreeMap;
use std::ops::Deref;

use sanwire_scsi::IscsiName;

use crate::config::{ServerConfig, VolumeConfig};
use crate::front::iscsi::target_node::TargetNodeConfig;

/// A configuration; volumes and targets have the places here that they have there.
pub(crate) struct Configured {
    config: ServerConfig,
    volumes: BTreeMap<Box<str>, usize>,
    targets: BTreeMap<IscsiName, usize>,
}

impl Configured {
    pub(crate) fn new(config: ServerConfig) -> Self {
        let volumes = config.volumes.iter().zip(0..).map(|(volume, at)| ((*volume.spec.name).into(), at)).collect();
        let targets = config.exports.iter().zip(0..).map(|(target, at)| (target.name.clone(), at)).collect();
        Configured { config, volumes, targets }
    }

    pub(crate) fn volume(&self, name: &str) -> Option<&VolumeConfig> {
        self.config.volumes.get(*self.volumes.get(name)?)
    }

    pub(crate) fn target(&self, name: &IscsiName) -> Option<&TargetNodeConfig> {
        self.config.exports.get(*self.targets.get(name)?)
    }
}

impl Deref for Configured {
    type Target = ServerConfig;

    fn deref(&self) -> &ServerConfig {
        &self.config
    }
}
