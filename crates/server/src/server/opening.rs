//! The volumes of a server that starts.

use std::time::{Duration, Instant};

use sanwire_core::Lun;
use sanwire_device::LogicalUnits;
use sanwire_store::OpenError;

use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::error::StartError;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::protection_table::ProtectionTable;
use crate::volumes::{Batch, Opening};

/// How long a server that starts waits for files that others still have: after the end of a process that was killed, the kernel
/// keeps them until what it had begun to write is written.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A volume that is not served, though it should be.
#[derive(Clone, Debug)]
pub(crate) struct MissingVolume {
    pub(crate) volume: VolumeConfig,
    /// Its numbers in iSCSI targets.
    pub(crate) units: Vec<(String, Lun)>,
    /// Why.
    pub(crate) reason: String,
}

/// Whether a volume is to wait for a store that is gone (`when-gone`), and its store is away.
fn is_awaited(volume: &VolumeConfig, error: &StartError) -> bool {
    let is_away = matches!(error, StartError::Store { source: OpenError::Elsewhere { is_away: true, .. }, .. });
    is_away && volume.spec.patience.gone.is_some()
}

/// Opens all volumes, and puts them in as one change. Those that `may_be_missing`, or wait for their stores, and cannot be opened are left out, also of the targets, and told.
pub(super) fn add_volumes(
    units: &LogicalUnits,
    levels: &ProtectionTable,
    config: &mut ServerConfig,
    may_be_missing: impl Fn(&VolumeConfig) -> bool,
) -> Result<Vec<MissingVolume>, StartError> {
    let until = Some(Instant::now() + LOCK_TIMEOUT);
    let (mut missing, mut batch) = (Vec::new(), Batch::default());
    for (volume, slot) in config.volumes.iter().zip(0..) {
        levels.set(volume.lun, &volume.spec);
        let acceptance = config.accepted.get(&volume.spec.name).copied().unwrap_or_default();
        let opening = Opening { state: config.state_directory.as_deref(), acceptance, until };
        let Err(error) = batch.open(units, volume, &opening, slot) else { continue };
        let (name, reason) = (&volume.spec.name, error.to_string());
        if is_awaited(volume, &error) {
            tracing::error!("volume {name} is not served yet: {reason}; its store is sought on");
        } else if may_be_missing(volume) {
            let verb = if volume.origin == Origin::Management { "added" } else { "changed" };
            tracing::error!("volume {name}, which was {verb} by ctl, is not served: {reason}");
        } else {
            return Err(error);
        }
        levels.clear(volume.lun);
        let mut places = Vec::new();
        for TargetNodeConfig { name: target, units, .. } in &mut config.exports {
            let there = units.iter().filter(|(_, unit)| **unit == **name).map(|(lun, _)| (target.to_string(), *lun));
            places.extend(there);
            units.retain(|_, unit| **unit != **name);
        }
        missing.push(MissingVolume { volume: volume.clone(), units: places, reason });
    }
    batch.put(units)?;
    if !missing.is_empty() {
        config.exports.retain(|export| !export.units.is_empty() || export.redirect.is_some());
    }
    Ok(missing)
}
